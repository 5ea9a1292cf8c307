"""Which MoE kernels a log proves for the experts: evidence for the rung "executed".

A choice that the engine announces while it builds the model is proof once the log also shows a forward pass. A line
that only the code of one backend prints is proof by itself. What was asked for proves nothing.
"""

import msgspec

from sublight.audit.ladder import Proof, Rung, Step, failed, passed, unknown
from sublight.audit.log.choices import AUTO, asked_moe_backend, flag_value
from sublight.audit.log.record import EngineLog, Fact, FactKind

_LOOK_UPS = (FactKind.NO_CONFIG, FactKind.OTHER_CONFIG, FactKind.TUNED_CONFIG)


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """One backend that ran.

    Attributes:
        name: as the engine's command line spells it, "" where that is not known.
        logged: as the log spells it.
        format: of the experts' weights, as the log says, "" where it does not.
        how: "chosen" or "its own line".
        proof: the line.
        ranks: that say so; empty where lines carry no rank.
    """

    name: str
    logged: str
    format: str
    how: str
    proof: Proof
    ranks: tuple[str, ...] = ()


def proven_experts(log: EngineLog) -> tuple[Proven, ...]:
    """Every backend that the log proves for routed experts, by format; none where it proves none."""
    found = {}
    for fact in log.of(FactKind.MOE_BACKEND):
        if ran_after(log, fact):
            found[fact.get("backend"), fact.get("format")] = _proven(log, fact, fact.get("backend"), "chosen")
    for fact in _own_lines(log):
        name = fact.get("backend") or "triton"
        if not any(proven.name == name for proven in found.values()):
            found[name, ""] = _proven(log, fact, name, "its own line")
    return tuple(found.values())


def executed(log: EngineLog, backend: str) -> Step:
    """The rung "executed" of one backend, named as on the engine's command line, from this log."""
    proven = proven_experts(log)
    mine = [p for p in proven if p.name == backend]
    if mine:
        ranks = f" on {len(mine[0].ranks)} ranks" if len(mine[0].ranks) > 1 else ""
        return passed(
            Rung.EXECUTED, f"{log.title} ran {mine[0].logged} for the experts{ranks}", *(p.proof for p in mine)
        )
    if not proven:
        return unknown(Rung.EXECUTED, why_not_proven(log), hint="a trace of a few decode steps: kernel names do tell")
    others = ", ".join(p.logged for p in proven)
    proofs = tuple(p.proof for p in proven)
    asked, at = asked_moe_backend(log)
    if asked == backend == "auto" and at is not None:
        why = f"{log.title} was asked for auto and ran {others} for the experts"
        return passed(Rung.EXECUTED, why, log.proof(at), *proofs)
    if asked == backend and asked not in AUTO:
        return failed(
            Rung.EXECUTED,
            f"{log.title} was asked for {backend} and ran {others}",
            *proofs,
            hint="the reason why it was passed over: start once at debug level",
        )
    return unknown(
        Rung.EXECUTED, f"this log is of a run with {others}", *proofs, hint="a log of a run that asks for it"
    )


def why_not_proven(log: EngineLog) -> str:
    """Why the log proves no backend."""
    chosen = log.of(FactKind.MOE_BACKEND)
    if chosen:
        return (
            f"the engine chose {chosen[-1].get('backend')} (line {chosen[-1].first.line}), "
            "but the log ends before a forward pass"
        )
    runners = log.of(FactKind.MOE_RUNNER)
    setting = runners[-1].get("backend") if runners else asked_moe_backend(log)[0]
    if log.engine == "sglang":
        return (
            f"SGLang prints no line that names the kernels of the experts (moe_runner_backend={setting or 'unknown'})"
        )
    return "no line of the log names the MoE backend"


def _own_lines(log: EngineLog) -> list[Fact]:
    """Lines that only a backend's own code prints. In vLLM other backends look for Triton's tuned files as well."""
    found = list(log.of(FactKind.MOE_KERNEL))
    if log.engine == "sglang":
        found += [f for f in log.of(*_LOOK_UPS) if f.get("kernel").startswith("Triton MoE")][:1]
    return found


def ran_after(log: EngineLog, fact: Fact) -> bool:
    """Whether something follows that takes a forward pass: the profiling run, graph capture, a decode step."""
    later = (
        f
        for f in log.of(FactKind.DECODE, FactKind.MEMORY, FactKind.GRAPH_PLAN)
        if f.kind is not FactKind.MEMORY or f.get("what") != "weights"
    )
    return any(f.first.line > fact.first.line for f in later)


def _proven(log: EngineLog, fact: Fact, backend: str, how: str) -> Proven:
    return Proven(
        name=flag_value(log.engine, backend),
        logged=backend,
        format=fact.get("format"),
        how=how,
        proof=log.proof(fact),
        ranks=fact.ranks,
    )

"""What a log proves of the backends of any area: evidence for the rung "executed".

Experts are in `proven`. Attention and FP4 products are chosen while the model is built: proof once a forward pass
follows. Of all-reduces an engine says which kernels are on, and which it switched off.
"""

import re
from collections.abc import Sequence

from sublight.audit.ladder import Rung, Step, failed, passed, unknown
from sublight.audit.log.choices import nested
from sublight.audit.log.chosen import attention_backends, fp4_kernels
from sublight.audit.log.proven import executed, ran_after
from sublight.audit.log.record import EngineLog, Fact, FactKind

_TRACE = "a trace of a few decode steps: kernel names do tell"
_WHAT = {"attention": "attention", "fp4-gemm": "FP4 products"}
# Communicators by the name of their class -> the method that lines are about, and a word that stands in lines about it.
_SUMS = {
    "CustomAllreduce": ("custom", ""),
    "CustomAllReduceV2": ("custom", "V2"),
    "SymmMemCommunicator": ("symmetric memory", ""),
    "TorchSymmMemCommunicator": ("symmetric memory", ""),
}
_WORLD = re.compile(r"world size:? (\d+)", re.IGNORECASE)


def executed_in(log: EngineLog, area: str, name: str, destination: str = "") -> Step | None:
    """The rung "executed" of one backend, named as the audit names it; None where logs say nothing of its area.

    Args:
        destination: what the name is known to lead to, "" where it is not known.
    """
    if area == "moe":
        return executed(log, name)
    if area == "all-reduce":
        return _summing(log, name)
    if area not in _WHAT:
        return None
    facts = _facts(log, area)
    mine = [fact for fact in facts if _is(fact, name, destination)]
    if mine:
        return _ran(log, area, mine)
    others = ", ".join(dict.fromkeys(_logged(fact) for fact in facts))
    if not others:
        return unknown(Rung.EXECUTED, f"no line of the log names the backend of {_WHAT[area]}", hint=_TRACE)
    if name == "auto" and area == "fp4-gemm" and _asked_fp4(log) == "auto":
        return _ran(log, area, facts)
    proofs = (log.proof(fact) for fact in facts)
    why = f"this log is of a run with {others}"
    return unknown(Rung.EXECUTED, why, *proofs, hint="a log of a run that asks for it")


def names_backend(log: EngineLog, area: str) -> bool:
    """Whether the log tells which backend of this area ran: then kernels of a trace need not be guessed at."""
    return bool(_facts(log, area))


def _facts(log: EngineLog, area: str) -> list[Fact]:
    return {"attention": attention_backends, "fp4-gemm": fp4_kernels}[area](log) if area in _WHAT else []


def _ran(log: EngineLog, area: str, facts: Sequence[Fact]) -> Step:
    """Of chosen backends: proof once something follows that takes a forward pass."""
    names = ", ".join(dict.fromkeys(_logged(fact) for fact in facts))
    if not any(ran_after(log, fact) for fact in facts):
        why = f"the engine chose {names} (line {facts[0].first.line}), but the log ends before a forward pass"
        return unknown(Rung.EXECUTED, why, hint=_TRACE)
    ranks = {rank for fact in facts for rank in fact.ranks}
    on = f" on {len(ranks)} ranks" if len(ranks) > 1 else ""
    return passed(Rung.EXECUTED, f"{log.title} ran {names} for {_WHAT[area]}{on}", *(log.proof(fact) for fact in facts))


def _logged(fact: Fact) -> str:
    return fact.get("backend") or fact.get("kernel")


def _is(fact: Fact, name: str, destination: str) -> bool:
    """Whether the line names this backend: by the engine's own name, or by the class of its kernel.

    What is chosen where nothing is asked for is told by what was asked, not by the kernel that it led to.
    """
    said = _logged(fact)
    if _plain(said) == _plain(name) or _plain(said).removesuffix("nvfp4linearkernel") == _plain(name):
        return True
    return name != "auto" and bool(destination) and destination.rpartition(".")[2] == said


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def _asked_fp4(log: EngineLog) -> str:
    """What was asked for FP4 products, "" where the log does not show it."""
    if log.engine == "sglang":
        return log.asked.get("fp4_gemm_runner_backend")
    return nested(log, "kernel_config", "linear_backend") or log.asked.get("linear_backend")


def _summing(log: EngineLog, name: str) -> Step | None:
    """Of a communicator: on is proof with a forward pass behind it, off is a no."""
    method, word = _SUMS.get(name, ("", ""))
    facts = [fact for fact in log.of(FactKind.ALL_REDUCE) if method and fact.get("method") == method]
    facts = [fact for fact in facts if bool(word) == ("V2" in fact.first.text)]
    on = [fact for fact in facts if fact.get("state") == "on"]
    ran = [fact for fact in on if "registered in CUDA graphs" in fact.get("cause") or ran_after(log, fact)]
    if ran:
        ranks = {rank for fact in ran for rank in fact.ranks}
        say = f" on {len(ranks)} ranks" if len(ranks) > 1 else ""
        return passed(
            Rung.EXECUTED, f"{log.title} ran {method} all-reduce{say}: {_why(ran[-1])}", *(map(log.proof, ran))
        )
    off = [fact for fact in facts if fact.get("state") == "off" and _of_all(log, fact)]
    if off and not on:
        why = f"{log.title} says that {method} all-reduce is off: {_why(off[-1])}"
        return failed(Rung.EXECUTED, why, *map(log.proof, off), hint="NCCL runs instead, or another communicator")
    return None


def _why(fact: Fact) -> str:
    return fact.get("cause") or fact.get("reason")


def _of_all(log: EngineLog, fact: Fact) -> bool:
    """Whether it is about the ranks that share a layer: smaller groups of a run have communicators of their own."""
    size = _WORLD.search(fact.get("reason"))
    return size is None or log.world is None or int(size[1]) == log.world

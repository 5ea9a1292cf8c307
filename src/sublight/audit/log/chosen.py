"""What the engine chose and out of what, in its own names: true of the version that wrote the log, whichever it is."""

from collections.abc import Iterator, Sequence

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.log.choices import asked_moe_backend
from sublight.audit.log.record import EngineLog, Fact, FactKind


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """One choice.

    Attributes:
        area: whose backends were chosen among, as the audit calls it; "" for layers of a format that it does not judge.
        text: "vLLM 0.20.2 chose MARLIN for NvFp4, out of FLASHINFER_CUTLASS, MARLIN".
        proofs: the lines.
    """

    area: str
    text: str
    proofs: tuple[Proof, ...]


def chosen(log: EngineLog) -> tuple[Chosen, ...]:
    """Every choice that the log tells of, by area."""
    experts = log.of(FactKind.MOE_BACKEND) or log.of(FactKind.MOE_RUNNER)
    asked = asked_moe_backend(log)[0]
    linear = log.of(FactKind.LINEAR_KERNEL)
    fp4 = fp4_kernels(log)
    sums = [fact for fact in log.of(FactKind.ALL_REDUCE) if fact.get("state") == "on"]
    return (
        *_chosen(log, "moe", experts, f" (asked for: {asked})" if asked else ""),
        *_chosen(log, "fp4-gemm", fp4),
        *_chosen(log, "", [fact for fact in linear if fact not in fp4]),
        *_chosen(log, "attention", attention_backends(log)),
        *_chosen(log, "all-reduce", sums),
    )


def attention_backends(log: EngineLog) -> list[Fact]:
    """Of whole layers; versions of kernels, and the backend that only reads prompts, are other questions."""
    return [fact for fact in log.of(FactKind.ATTENTION) if not fact.get("phase")]


def fp4_kernels(log: EngineLog) -> list[Fact]:
    """Kernels of NVFP4 products outside the experts."""
    facts = log.of(FactKind.LINEAR_KERNEL)
    return [fact for fact in facts if "nvfp4" in f"{fact.get('kernel')} {fact.get('format')}".lower()]


def _chosen(log: EngineLog, area: str, facts: Sequence[Fact], asked: str = "") -> Iterator[Chosen]:
    said = dict.fromkeys(_said(fact) for fact in facts)
    if said:
        yield Chosen(
            area=area,
            text=f"{log.title} chose {'; '.join(said)}{asked}",
            proofs=tuple(log.proof(fact) for fact in facts),
        )


def _said(fact: Fact) -> str:
    """ "MARLIN for NvFp4, out of FLASHINFER_CUTLASS, MARLIN"."""
    form = f" for {fact.get('format')}" if fact.get("format") else ""
    names = [name for part in fact.get("candidates").split(",") if (name := part.strip(" '\""))]
    out_of = f", out of {', '.join(names)}" if names else ""
    why = fact.get("reason") or fact.get("cause")
    method = f"{fact.get('method')} all-reduce" if fact.get("method") else ""
    return f"{fact.get('backend') or fact.get('kernel') or method}{form}{out_of}{f' ({why})' if why else ''}"

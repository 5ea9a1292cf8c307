"""What the engine chose and out of what, in its own names: true of the version that wrote the log, whichever it is."""

from collections.abc import Iterator, Sequence

from sublight.audit.log.choices import asked_moe_backend
from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, Fact, FactKind


def chosen_findings(log: EngineLog, _known: Known) -> Iterator[LogFinding]:
    experts = log.of(FactKind.MOE_BACKEND) or log.of(FactKind.MOE_RUNNER)
    asked = asked_moe_backend(log)[0]
    yield from _chosen(log, "experts", experts, f" (asked for: {asked})" if asked else "")
    yield from _chosen(log, "attention", [fact for fact in log.of(FactKind.ATTENTION) if not fact.get("phase")])
    yield from _chosen(log, "linear layers", log.of(FactKind.LINEAR_KERNEL))


def _chosen(log: EngineLog, subject: str, facts: Sequence[Fact], asked: str = "") -> Iterator[LogFinding]:
    said = dict.fromkeys(_said(fact) for fact in facts)
    if said:
        yield LogFinding(
            id="chosen",
            level="info",
            subject=subject,
            text=f"{log.title} chose {'; '.join(said)}{asked}.",
            proofs=tuple(log.proof(fact) for fact in facts),
        )


def _said(fact: Fact) -> str:
    """ "MARLIN for NvFp4, out of FLASHINFER_CUTLASS, MARLIN"."""
    form = f" for {fact.get('format')}" if fact.get("format") else ""
    names = [name for part in fact.get("candidates").split(",") if (name := part.strip(" '\""))]
    out_of = f", out of {', '.join(names)}" if names else ""
    reason = f" ({fact.get('reason')})" if fact.get("reason") else ""
    return f"{fact.get('backend') or fact.get('kernel')}{form}{out_of}{reason}"

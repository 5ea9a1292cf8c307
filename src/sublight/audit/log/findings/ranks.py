"""Ranks that say different things where all should say the same."""

from collections.abc import Iterator

from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog


def rank_findings(log: EngineLog, _known: Known) -> Iterator[LogFinding]:
    """One finding a kind: a step is as slow as its slowest rank, and unlike kernels may differ in more than time."""
    for found in log.disagreements:
        yield LogFinding(
            id="ranks-disagree",
            level="error",
            subject=str(found.kind),
            text=f"ranks made different choices: {', '.join(found.one_ranks)}: {found.one}; "
            f"{', '.join(found.other_ranks)}: {found.other}.",
            proofs=(log.proof(found.one_at), log.proof(found.other_at)),
            advice="the same software, variables and card on every rank; compare them rank by rank",
        )

"""What the engine says in passing: shapes it pads for a kernel, and variables it suggests itself."""

from collections.abc import Iterator

from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, FactKind


def hint_findings(log: EngineLog, _known: Known) -> Iterator[LogFinding]:
    for fact in log.of(FactKind.PADDING):
        given, padded = int(fact.get("given")), int(fact.get("padded"))
        times = f", {padded / given:.3g} times the work" if given and padded > given else ""
        yield LogFinding(
            id="padded",
            level="info",
            subject=fact.get("kernel"),
            text=f"{fact.get('what')} is padded from {given} to {padded} for {fact.get('kernel')}{times}.",
            proofs=(log.proof(fact),),
            advice="a kernel without this padding, or a layout that leaves more of it on a rank",
        )
    for fact in log.of(FactKind.SUGGESTION):
        yield LogFinding(
            id="engine-suggests",
            level="info",
            subject=fact.get("about"),
            text=f"the engine itself suggests {fact.get('variable')}=1 for {fact.get('about')}.",
            proofs=(log.proof(fact),),
            advice=f"try {fact.get('variable')}=1, and compare output as well as time",
        )

"""The machine: what its newest look leaves to do."""

from collections import Counter

import msgspec

from sublight.campaign.folder import Folder
from sublight.tuning.record import Finding, HostReport, Verdict

_TO_DO = (Verdict.CHANGE, Verdict.CHECK)


class HostStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The newest host report.

    Attributes:
        cards: name -> how many.
        counts: knobs by verdict.
        to_do: knobs to change and to check, in the order of what they can cost.
    """

    file: str
    written_at: str
    name: str
    cards: dict[str, int]
    counts: dict[Verdict, int]
    to_do: tuple[Finding, ...]


def host(folder: Folder) -> HostStanding | None:
    """What the newest report says; None where there is none."""
    reports = [(entry, entry.record) for entry in folder.entries if isinstance(entry.record, HostReport)]
    if not reports:
        return None
    entry, report = reports[-1]
    return HostStanding(
        file=entry.file,
        written_at=entry.written_at,
        name=report.name,
        cards=dict(Counter(gpu.name for gpu in report.machine.gpus)),
        counts=dict(Counter(finding.verdict for finding in report.findings)),
        to_do=tuple(finding for finding in report.findings if finding.verdict in _TO_DO),
    )

"""A folder's findings by knob, for tests that ask about one."""

from pathlib import Path

from sublight.tuning.record import Finding, HostReport
from sublight.tuning.report import folder_report
from tests.tuning.machines import Server, folder

H200 = Path(__file__).parents[1] / "data" / "hosts" / "2x-h200"


def by_knob(report: HostReport) -> dict[str, Finding]:
    return {finding.knob: finding for finding in report.findings}


def judged(path: Path, server: Server | None = None, **texts: str) -> dict[str, Finding]:
    """What is found of a server; `texts` are further files, or replace those of that name ("x_log" is "x.log")."""
    files = (server or Server()).texts() | {name.replace("_", "."): text for name, text in texts.items()}
    for old in path.glob("*.*"):
        old.unlink()
    return by_knob(folder_report(folder(path, {name: text for name, text in files.items() if text})))

"""What in a log deserves a look: wishes the engine did not follow, and what its choices cost.

One file a subject, each a function (log, known) -> findings. A line explains itself badly, and so a finding says what
stands there, what it means on this card and for this checkpoint where those are known, and what to try.
"""

from sublight.audit.log.findings.asked import asked_findings
from sublight.audit.log.findings.collectives import collective_findings
from sublight.audit.log.findings.finding import Known, LogFinding, Tuned, TunedFolder
from sublight.audit.log.findings.graphs import graph_findings
from sublight.audit.log.findings.hints import hint_findings
from sublight.audit.log.findings.imports import import_findings
from sublight.audit.log.findings.ranks import rank_findings
from sublight.audit.log.findings.tuning import tuning_findings
from sublight.audit.log.findings.variables import variable_findings
from sublight.audit.log.findings.weight_only import weight_only_findings
from sublight.audit.log.record import EngineLog

__all__ = ["Known", "LogFinding", "Tuned", "TunedFolder", "log_findings"]

_CHECKS = (
    import_findings,
    asked_findings,
    rank_findings,
    weight_only_findings,
    variable_findings,
    graph_findings,
    collective_findings,
    tuning_findings,
    hint_findings,
)
_LEVELS = ("error", "warn", "info")


def log_findings(log: EngineLog, known: Known | None = None) -> tuple[LogFinding, ...]:
    """Everything in the log that deserves a look, gravest first.

    Args:
        known: the checkpoint, the card and what else is known beside the log; without it findings say less.
    """
    found = [finding for check in _CHECKS for finding in check(log, known or Known())]
    return tuple(sorted(found, key=lambda finding: _LEVELS.index(finding.level)))

"""What a running engine says it chose: `read_log` reads its log, `log_findings` says what in it deserves a look."""

from sublight.audit.log.findings import Known, LogFinding, Tuned, TunedFolder, log_findings
from sublight.audit.log.proven import Proven, executed, proven_experts
from sublight.audit.log.read import read_log
from sublight.audit.log.record import EngineLog

__all__ = [
    "EngineLog",
    "Known",
    "LogFinding",
    "Proven",
    "Tuned",
    "TunedFolder",
    "executed",
    "log_findings",
    "proven_experts",
    "read_log",
]

"""What a running engine says it chose: `read_log` reads its log, `log_findings` says what in it deserves a look."""

from sublight.audit.log.areas import executed_in, names_backend
from sublight.audit.log.chosen import Chosen, chosen
from sublight.audit.log.findings import Known, LogFinding, Tuned, TunedFolder, log_findings
from sublight.audit.log.proven import Proven, executed, proven_experts
from sublight.audit.log.read import read_log
from sublight.audit.log.record import EngineLog

__all__ = [
    "Chosen",
    "EngineLog",
    "Known",
    "LogFinding",
    "Proven",
    "Tuned",
    "TunedFolder",
    "chosen",
    "executed",
    "executed_in",
    "log_findings",
    "names_backend",
    "proven_experts",
    "read_log",
]

"""What was seen running: kernels of a trace, and what a log makes odd."""

from collections.abc import Iterator, Sequence

from sublight.audit.log import EngineLog, Known, log_findings
from sublight.audit.question import Question
from sublight.audit.record import AuditFinding


def kernels_of(path: str) -> dict[str, tuple[int, str]]:
    """Products of the experts in one decode step: whose they are -> (calls, the name of one). Raises SublightError."""
    import gc

    from sublight.trace.analysis import analyse
    from sublight.trace.classify import Kind
    from sublight.trace.kernels import short_name
    from sublight.trace.read import read_trace

    gc.enable()  # reading makes garbage by the gigabyte
    found: dict[str, tuple[int, str]] = {}
    for kernel in analyse(read_trace(path), None).kernels:
        if kernel.kind == Kind.MOE_GEMM:
            calls, name = found.get(kernel.backend, (0, short_name(kernel.name)))
            found[kernel.backend] = (calls + kernel.calls, name)
    return found


def of_log(
    log: EngineLog,
    question: Question,
    engines: Sequence[str],
    environment: dict[str, str],
    variables: frozenset[str],
) -> Iterator[AuditFinding]:
    """Every silent choice and unheard wish of a log, and a log of an engine that is not the audited one."""
    if log.engine not in engines:
        yield AuditFinding(
            level="warn",
            subject=log.name,
            text=f"it is a log of {log.engine}, which is not audited here: it proves nothing of {' or '.join(engines)}",
            hint=f"sublight audit {log.engine} --log {log.name}",
        )
    known = Known(model=question.model, gpu=question.gpu, environment=environment, read_variables=variables)
    for found in log_findings(log, known):
        yield AuditFinding(
            level=found.level,
            subject=found.subject,
            text=found.text.rstrip("."),
            proofs=found.proofs,
            hint=found.advice.rstrip("."),
        )

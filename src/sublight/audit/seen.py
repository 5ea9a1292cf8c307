"""What was seen running: kernels of a trace, what a log says was chosen, and what it makes odd."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sublight.audit import origin
from sublight.audit.log import EngineLog, Known, chosen, log_findings
from sublight.audit.proven import Seen
from sublight.audit.record import AuditFinding, Choice
from sublight.audit.target import Target

if TYPE_CHECKING:
    from sublight.trace.kernels import KernelTime


def seen_in(path: str, log: EngineLog | None) -> Seen:
    """What a trace and a log show of one run; `path` is "" where there is no trace. Raises SublightError."""
    if not path:
        return Seen(log=log)
    import gc

    from sublight.trace.analysis import analyse
    from sublight.trace.read import read_trace

    gc.enable()  # reading makes garbage by the gigabyte
    trace = read_trace(path)
    device = trace.devices[0] if trace.devices else None
    return Seen(
        kernels=_by_area(analyse(trace, None).kernels),
        trace=path,
        card=(device.name or "") if device else "",
        capability=device.compute if device else None,
        world=trace.world_size,
        log=log,
    )


def _by_area(kernels: "Iterable[KernelTime]") -> dict[str, dict[str, tuple[int, str]]]:
    """Kernels of one decode step that choices of backends decide about: by area, whose -> (calls, the name of one)."""
    from sublight.trace.classify import Kind
    from sublight.trace.kernels import short_name

    areas = {
        Kind.MOE_GEMM: "moe",
        Kind.GEMM: "fp4-gemm",
        Kind.ATTENTION: "attention",
        Kind.ALL_REDUCE: "all-reduce",
    }
    found: dict[str, dict[str, tuple[int, str]]] = {}
    for kernel in kernels:
        area = areas.get(Kind(kernel.kind), "")
        if area and not short_name(kernel.name).startswith(_JOINS):
            mine = found.setdefault(area, {})
            calls, name = mine.get(kernel.backend, (0, short_name(kernel.name)))
            mine[kernel.backend] = (calls + kernel.calls, name)
    return found


# Kernels that join parts of an attention, whichever backend computed them.
_JOINS = ("merge_", "_correct_")


def of_another_run(seen: Seen, target: Target, version: str) -> Iterator[AuditFinding]:
    """A log or a trace that is of another version, card, model or layout than the audit: it proves nothing for it."""
    logged = origin.of_log(seen.log, target, version).differs if seen.log is not None else ()
    traced = origin.of_trace(seen.card, seen.capability, seen.world, target).differs if seen.trace else ()
    for name, differs in ((seen.log.name if seen.log else "", logged), (Path(seen.trace).name, traced)):
        if differs:
            yield AuditFinding(
                level="warn",
                subject=name,
                text=f"it is of another run, and proves nothing for this target: {'; '.join(differs)}",
                hint="the audit for the model, card and layout that it is of, or a run of this target",
            )


def choices_of(log: EngineLog, target: Target, engines: Mapping[str, str]) -> tuple[Choice, ...]:
    """What the engine that wrote the log chose; `engines`: those audited -> their versions."""
    version = engines.get(log.engine, "")
    another = bool(origin.of_log(log, target, version).differs) or log.engine not in engines
    return tuple(
        Choice(engine=log.engine, area=made.area, text=made.text, proofs=made.proofs, other_run=another)
        for made in chosen(log)
    )


def of_log(log: EngineLog, known: Known, engines: Sequence[str]) -> Iterator[AuditFinding]:
    """Every silent choice and unheard wish of a log, and a log of an engine that is not the audited one."""
    if log.engine not in engines:
        yield AuditFinding(
            level="warn",
            subject=log.name,
            text=f"it is a log of {log.engine}, which is not audited here: it proves nothing of {' or '.join(engines)}",
            hint=f"sublight audit {log.engine} --log {log.name}",
        )
    for found in log_findings(log, known):
        yield AuditFinding(
            level=found.level,
            subject=found.subject,
            text=found.text.rstrip("."),
            proofs=found.proofs,
            hint=found.advice.rstrip("."),
        )

"""One file a record: its document. Wording and precision live here; nothing is computed here but what text needs.

`RECORDS` is the table from a schema to its record type and its view, by name, so that
showing one record imports no other.
"""

from importlib import import_module
from typing import Any

from sublight.records import Record
from sublight.report.blocks import Document

RECORDS: dict[str, tuple[str, str]] = {
    "limit": ("sublight.limits.decode:DecodeLimit", "sublight.report.views.limit:limit_document"),
    "sweep": ("sublight.limits.sweep:Sweep", "sublight.report.views.sweep:sweep_document"),
    "trace": ("sublight.trace.analysis:Analysis", "sublight.report.views.trace:trace_document"),
    "trace-comparison": (
        "sublight.trace.compare:TraceComparison",
        "sublight.report.views.comparison:comparison_document",
    ),
    "skew": ("sublight.trace.skew:Skew", "sublight.report.views.skew:skew_document"),
    "findings": ("sublight.campaign.findings:Findings", "sublight.report.views.findings:findings_document"),
    "note": ("sublight.campaign.note:Note", "sublight.report.views.findings:note_document"),
    "gap": ("sublight.gap.compare:Gap", "sublight.report.views.gap:gap_document"),
    "audit": ("sublight.audit.record:Audit", "sublight.report.views.audit:audit_document"),
    "bench-kernels": ("sublight.bench.record.kernels:KernelBench", "sublight.report.views.bench:kernels_document"),
    "bench-ops": ("sublight.bench.record.ops:OpsBench", "sublight.report.views.bench_step:ops_document"),
    "bench-comm": ("sublight.bench.record.comm:CommBench", "sublight.report.views.bench_step:comm_document"),
    "host": ("sublight.tuning.record:HostReport", "sublight.report.views.host:host_document"),
}


def record_types() -> dict[str, type[Record]]:
    """Every record type there is, by schema: for reading a file whose kind is not known yet."""
    return {schema: _load(target) for schema, (target, _) in RECORDS.items()}


def document(record: Record) -> Document:
    """The document of any record."""
    view = _load(RECORDS[record.schema][1])
    made: Document = view(record)
    return made


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)

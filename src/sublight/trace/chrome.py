"""Reading Kineto JSON, what torch.profiler and the profilers of vLLM and SGLang write; any Chrome trace passes.

The text is read as a stream, so memory depends on the number of events kept and not on the size of the file.
"""

from sublight.errors import InputFileError
from sublight.trace.assemble import calls, gpu_events, spans
from sublight.trace.collect import WHOLE_GRAPH, Collector
from sublight.trace.eventlist import EventList
from sublight.trace.events import Origin, Trace
from sublight.trace.header import read_header
from sublight.trace.outline import Outline
from sublight.trace.parts import PART_BYTES, Parts
from sublight.trace.repairs import GRAPHS_ONLY_NOTE, RepairKind, RepairLog
from sublight.trace.source import ANY_TRACE, Source
from sublight.trace.timing import repaired
from sublight.trace.window import Window

_MARK = b"\xef\xbb\xbf"


def read_chrome(
    source: Source,
    repairs: RepairLog,
    *,
    operators: bool = True,
    python: bool = False,
    part_bytes: int = PART_BYTES,
) -> Trace:
    """A trace from an open source.

    Args:
        source: recognised as JSON.
        repairs: where the source's decompression reports to.
        operators: keep the operators.
        python: keep the Python functions too.
        part_bytes: how much of a plain file is worth a process of its own.

    Raises:
        InputFileError: the file holds no list of events.
    """
    collector = Collector(repairs, operators=operators, python=python)
    outline = Outline(Window(source.blocks()), collector)
    outline.window.drop_mark(_MARK)
    processes = 1
    if outline.to_events():
        events = EventList(outline.window, collector)
        parts = Parts(source, outline, events, part_bytes, operators=operators, python=python)
        if parts:
            collector, processes = parts.read(outline)
        else:
            outline.through_events(events)
            outline.to_the_end()
    if not outline.found:
        raise _no_trace(source, outline, repairs)
    if not outline.whole:
        _report_cut(source, outline, collector)
    return _assembled(source, collector, outline, processes)


def _assembled(source: Source, collector: Collector, outline: Outline, processes: int) -> Trace:
    header = read_header(outline.members)
    collector.report_halves()
    whole_graphs = collector.counts["X", WHOLE_GRAPH]
    if whole_graphs:
        collector.repairs.add(RepairKind.GRAPHS_ONLY, GRAPHS_ONLY_NOTE, "", whole_graphs)
    counts: dict[str, int] = {}
    for (phase, category), count in collector.counts.items():
        counts[category or phase] = counts.get(category or phase, 0) + count
    trace = Trace(
        gpu=gpu_events(collector),
        calls=calls(collector.calls),
        ops=spans(collector.ops),
        marks=spans(collector.marks),
        gpu_marks=spans(collector.gpu_marks, on_gpu=True),
        python=spans(collector.python_calls) if collector.python else None,
        counts=counts,
        origin=Origin(source.name, "Kineto JSON", source.compression, outline.end, processes),
        devices=header.devices,
        rank=header.rank,
        world_size=header.world_size,
        base_time_ns=header.base_time_ns,
        window=_profiled(collector.edges),
        name=header.name,
        schema_version=header.schema_version,
        process_names=collector.process_names,
        versions=header.versions,
        repairs=(),
        cut=header.cut,
    )
    return repaired(trace, collector.repairs)


def _profiled(edges: list[tuple[str, int, int]]) -> tuple[int, int] | None:
    """The time in which the profiler ran: its own span, and up to the end of the record window if that is said."""
    starts = [start for name, start, _ in edges if name != "Record Window End"]
    return (min(starts), max(start + duration for _, start, duration in edges)) if starts else None


def _report_cut(source: Source, outline: Outline, collector: Collector) -> None:
    where = "inside an event" if outline.broken else "between events or after them"
    cut = outline.end - outline.cut_at
    example = f"used up to byte {outline.cut_at:,} of the text, {cut:,} bytes of a cut event left out"
    if source.compression and source.disk_bytes is not None:
        example += f"; the file has {source.disk_bytes:,} compressed bytes"
    note = f"the file is cut: its text ends {where}, before the end of the document; what was whole was used"
    collector.repairs.add(RepairKind.TRUNCATED, note, example)


def _no_trace(source: Source, outline: Outline, repairs: RepairLog) -> InputFileError:
    damage = "; ".join(repair.note for repair in repairs.all() if repair.kind is not RepairKind.UNREADABLE_HEADER)
    names = ", ".join(repr(name) for name in list(outline.members)[:6])
    if damage:
        found = f"no list of events before the file ends ({damage})"
    elif names:
        found = f'it is JSON without "traceEvents"; it has {names}'
    else:
        found = 'it holds no "traceEvents"'
    return InputFileError(f"reading the trace {source.name}", found, ANY_TRACE)

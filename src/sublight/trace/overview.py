"""A trace in a few lines: what was read and what was wrong with it, before anything is understood."""

import msgspec

from sublight.trace.events import Kind, Trace
from sublight.trace.intervals import covered_time, last_end
from sublight.trace.links import launches_graph, rows_per_call
from sublight.units import counted, show_bytes, show_count, show_time


class Overview(msgspec.Struct, frozen=True):
    """Sums over all devices and streams. Busy is the union over everything on the GPU, or over kernels alone."""

    kernels: int
    copies: int
    sets: int
    graphs: int
    streams: int
    kernel_sum_ns: int
    kernel_busy_ns: int
    busy_ns: int
    span_ns: int
    from_graphs: int  # GPU rows that a graph launch accounts for
    from_calls: int  # GPU rows with a launch call of their own
    without_call: int


def overview(trace: Trace) -> Overview:
    """The sums."""
    gpu = trace.gpu
    kernels = gpu.is_kind(Kind.KERNEL)
    rows = rows_per_call(gpu, trace.calls)
    by_graphs = int(rows[:-1][launches_graph(trace.calls)].sum())
    return Overview(
        kernels=int(kernels.sum()),
        copies=int(gpu.is_kind(Kind.MEMCPY).sum()),
        sets=int(gpu.is_kind(Kind.MEMSET).sum()),
        graphs=int(gpu.is_kind(Kind.GRAPH).sum()),
        streams=len(gpu.lanes),
        kernel_sum_ns=int(gpu.duration.sum(where=kernels)),
        kernel_busy_ns=covered_time(gpu.start, gpu.duration, kernels),
        busy_ns=covered_time(gpu.start, gpu.duration),
        span_ns=last_end(gpu.start, gpu.duration) - int(gpu.start[0]) if len(gpu) else 0,
        from_graphs=by_graphs,
        from_calls=int(rows[:-1].sum()) - by_graphs,
        without_call=int(rows[-1]),
    )


def overview_lines(trace: Trace) -> list[str]:
    """The overview as text."""
    o = overview(trace)
    rank = "" if trace.rank is None else f", rank {trace.rank} of {trace.world_size}"
    origin = trace.origin
    packed = f", {origin.compression}" if origin.compression else ""
    lines = [
        f"{origin.path}: {origin.form}{packed}, {show_bytes(origin.text_bytes)}, read by "
        f"{counted(origin.processes, 'process', 'processes')}{rank}",
        f"GPU: {counted(o.kernels, 'kernel')}, {counted(o.copies, 'copy', 'copies')}, {counted(o.sets, 'memset')}, "
        f"{counted(o.graphs, 'whole graph')} on {counted(o.streams, 'stream')}",
        f"kernels: sum {show_time(o.kernel_sum_ns / 1e9, 6)}, busy {show_time(o.kernel_busy_ns / 1e9, 6)}; "
        f"everything: busy {show_time(o.busy_ns / 1e9, 6)} of {show_time(o.span_ns / 1e9, 6)}",
        f"launched by graphs {show_count(o.from_graphs)}, by single calls {show_count(o.from_calls)}, "
        f"by no call in the trace {show_count(o.without_call)}",
        "events: " + ", ".join(f"{name} {show_count(count)}" for name, count in sorted(trace.counts.items())),
    ]
    lines += [
        f"{repair.kind.value}: {show_count(repair.count)}: {repair.note}"
        + (f" [{repair.example}]" if repair.example else "")
        for repair in trace.repairs
    ]
    return lines

"""What is odd about a step, each with its evidence and the milliseconds it concerns. Nothing here knows a model."""

from collections.abc import Iterable

import numpy as np

from sublight.trace.classify import Category
from sublight.trace.classify import Kind as Sort
from sublight.trace.drift import slower_kernels
from sublight.trace.events import Trace
from sublight.trace.idle import IdleKind
from sublight.trace.kernels import short_name
from sublight.trace.layers import attention_runs
from sublight.trace.oddity import WORTH, Oddity, Seen
from sublight.trace.padding import padded_batch, padded_heads
from sublight.trace.phases import Phase
from sublight.trace.power import held_down, spinning
from sublight.trace.waiting import slow_collectives
from sublight.units import counted, show_count, show_percent, show_time

_SHORT_NS = 2_000
_MANY = 100
_SEVERAL = 4
_HOST_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
_DEQUANTISING = ("Marlin",)  # weight-only kernels: four-bit weights multiplied in 16 bits


def _sms(trace: Trace, device: int) -> int | None:
    return next((d.sms for d in trace.devices if d.id == device), None)


def _few_blocks(seen: Seen) -> Iterable[Oddity]:
    sms = _sms(seen.trace, seen.step.device)
    if not sms:
        return
    for kernel in seen.kernels:
        if not 0 < kernel.blocks <= sms // 4 or kernel.summed_ns < WORTH * seen.breakdown.wall_ns:
            continue
        if Sort(kernel.kind).category is Category.COMMUNICATION:
            continue  # what waits for a link needs few blocks
        mean = kernel.summed_ns / kernel.calls * 1e-9
        if mean * 1e9 < 3 * _SHORT_NS:
            continue  # too short to be worth spreading out
        yield Oddity(
            "few-blocks",
            f"{short_name(kernel.name)} runs {counted(kernel.blocks, 'block')} on {sms} SMs",
            f"{show_time(mean)} x {counted(kernel.calls, 'call')} = {show_time(kernel.summed_ns * 1e-9)} of the step",
            min(kernel.summed_ns, seen.exposed_ns(kernel.row) or kernel.summed_ns),
            "a kernel that splits its work over the card (split-KV attention, split-K GEMM), or another backend",
            kernel.row,
        )


def _no_graph(seen: Seen) -> Iterable[Oddity]:
    waits = _idle(seen, IdleKind.HOST)
    if seen.step.phase is Phase.DECODE and not seen.step.replayed and not _any_replayed(seen):
        yield Oddity(
            "no-cuda-graph",
            "decode runs without a CUDA graph",
            f"{show_count(seen.step.kernels)} kernels launched one by one; the GPU waits for the CPU "
            f"{show_percent(waits / seen.breakdown.wall_ns)} of the step",
            waits,
            "graphs on (no --enforce-eager, --disable-cuda-graph), and the batch within the captured sizes",
        )
    elif waits > WORTH * seen.breakdown.wall_ns:
        yield Oddity(
            "cpu-bound",
            "the GPU waits for the CPU",
            f"{show_time(waits * 1e-9)} in which the next launch call had not returned",
            waits,
            "fewer launches: a graph over the whole step, fused sampling, no synchronising copies",
        )


def _any_replayed(seen: Seen) -> bool:
    return any(step.replayed for step in seen.steps.steps)


def _graph_not_used(seen: Seen) -> Iterable[Oddity]:
    decode = [s for s in seen.steps.steps if s.phase is Phase.DECODE]
    eager = [s for s in decode if not s.replayed]
    if eager and len(eager) < len(decode):
        slower = int(np.median([s.wall_ns for s in eager]) - np.median([s.wall_ns for s in decode if s.replayed]))
        yield Oddity(
            "graph-not-used",
            f"{len(eager)} of {len(decode)} decode steps run outside the captured graph",
            f"they take {show_time(max(0, slower) * 1e-9)} longer in the median (steps "
            f"{', '.join(str(s.index) for s in eager[:6])})",
            max(0, slower),
            "capture the batch sizes that occur (cuda graph sizes of the engine), or pad to them",
        )


def _idle(seen: Seen, kind: IdleKind) -> int:
    return sum(idle.ns for idle in seen.breakdown.idle if idle.kind is kind)


def _gaps(seen: Seen) -> Iterable[Oddity]:
    for idle in seen.breakdown.idle:
        if idle.kind is IdleKind.LAUNCH and idle.ns > 0.02 * seen.breakdown.wall_ns:
            where = "between nodes of the graph" if seen.step.replayed else "between kernels that were enqueued"
            yield Oddity(
                "launch-gaps",
                f"the GPU is idle {where}",
                f"{show_count(idle.gaps)} gaps of {show_time(idle.ns / idle.gaps * 1e-9)} on average",
                idle.ns,
                "fewer kernels (fusion), or programmatic dependent launch, which starts the next one early",
            )


def _short_kernels(seen: Seen) -> Iterable[Oddity]:
    short = [k for k in seen.kernels if k.summed_ns / k.calls < _SHORT_NS]
    calls = sum(k.calls for k in short)
    if calls >= _MANY:
        total = sum(k.summed_ns for k in short)
        yield Oddity(
            "short-kernels",
            f"{show_count(calls)} kernels run under {_SHORT_NS // 1000} us",
            f"{show_percent(calls / seen.step.kernels)} of the launches, {show_time(total * 1e-9)} together; most "
            f"often {short_name(max(short, key=lambda k: k.calls).name)}",
            total,
            "fusion: each costs a launch gap beside its own time",
        )


def _host_waits(seen: Seen) -> Iterable[Oddity]:
    calls = seen.trace.calls
    wanted = np.array([name.startswith(_HOST_WAITS) and "Async" not in name for name in calls.names], bool)
    if not wanted.any():
        return
    inside = wanted[calls.name] & (calls.start >= seen.step.start_ns) & (calls.end <= seen.step.end_ns)
    places = np.flatnonzero(inside)
    waited = int(calls.duration[places].sum())
    # Waiting costs nothing while the GPU has work enqueued.
    lost = min(waited, _idle(seen, IdleKind.HOST) + _idle(seen, IdleKind.STEP))
    if lost > WORTH * seen.breakdown.wall_ns:
        names = sorted({calls.names[i] for i in np.unique(calls.name[places]).tolist()})
        yield Oddity(
            "host-sync",
            "the CPU waits for the GPU inside the step",
            f"{counted(len(places), 'call')} of {', '.join(names)}, {show_time(waited * 1e-9)} together",
            lost,
            "look for .item(), .cpu(), or copies that block",
        )


def _dequantised(seen: Seen) -> Iterable[Oddity]:
    device = next((d for d in seen.trace.devices if d.id == seen.step.device), None)
    if device is None or device.compute is None or device.compute[0] < 10:
        return  # no FP4 tensor cores to leave unused
    total = sum(k.summed_ns for k in seen.kernels if k.backend.startswith(_DEQUANTISING))
    if total > WORTH * seen.breakdown.wall_ns:
        yield Oddity(
            "fallback-backend",
            "four-bit weights are multiplied in 16 bits on a card with FP4 units",
            f"Marlin kernels take {show_time(total * 1e-9)} of the step on compute capability "
            f"{device.compute[0]}.{device.compute[1]}",
            total,
            "see why the engine chose the weight-only backend; its log names the candidates it refused",
        )


def _layers_as_steps(seen: Seen) -> Iterable[Oddity]:
    """Of a single step without a graph only its layers repeat, and nothing says that they are no steps."""
    alike = seen.steps.alike()
    if len(alike) < _SEVERAL or any(step.replayed for step in alike):
        return
    if attention_runs(seen.trace, seen.step, seen.labels) == 1:
        yield Oddity(
            "layers-as-steps",
            f"what was found as {len(alike)} steps may be the layers of one",
            f"attention runs once in each of them ({seen.steps.evidence[0]})",
            0,
            "a trace, or a slice, of more than one step; a draft model of one layer is right as it is",
        )


def _flags(seen: Seen) -> Iterable[Oddity]:
    flagged = [s for s in seen.steps.steps if s.flags]
    if flagged:
        first, of = flagged[0], f"of {len(seen.steps.steps)} steps"
        yield Oddity(
            "unlike-steps",
            counted(len(flagged), f"{of} differs", f"{of} differ") + " from the others",
            f"step {first.index}: {'; '.join(first.flags)}",
            0,
            "they are left out of the median; --step shows one of them",
        )


_CHECKS = (
    _layers_as_steps, _few_blocks, _no_graph, _graph_not_used, _gaps, _short_kernels, _host_waits, _dequantised, _flags,
    slow_collectives, slower_kernels, padded_heads, padded_batch, spinning, held_down,
)  # fmt: skip


def oddities(seen: Seen) -> tuple[Oddity, ...]:
    """All findings worth a look, the longest first."""
    found: list[Oddity] = []
    for check in _CHECKS:
        found += check(seen)
    return tuple(sorted(found, key=lambda o: -o.ns))

"""Analysis: what one trace says of a step, as a record."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from sublight.errors import UsageError
from sublight.records import Record, repeated
from sublight.trace.breakdown import Breakdown, Spread, break_down, median_breakdown
from sublight.trace.classify import classify
from sublight.trace.compare import TraceComparison, compare
from sublight.trace.events import Trace
from sublight.trace.kernels import KernelTime, Moment, StepEvents, kernel_times, step_events
from sublight.trace.labels import label
from sublight.trace.layers import LayerTimes, layer_times
from sublight.trace.oddities import oddities
from sublight.trace.oddity import Oddity, Published, Seen
from sublight.trace.plan import Plan
from sublight.trace.power import unused
from sublight.trace.powerlog import GpuPower, power_of
from sublight.trace.refine import refine
from sublight.trace.repairs import WHOLE_FILE, Repair, cut_words
from sublight.trace.sample import Sample, sample
from sublight.trace.steps import Step, Steps, find_steps
from sublight.units import counted, show_count


class TraceSource(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    path: str
    form: str
    device: str
    sms: int | None
    gpu_events: int
    rank: int | None
    repairs: tuple[Repair, ...]


class Analysis(Record, frozen=True, kw_only=True):
    """One device of one trace.

    Attributes:
        steps: all steps found, how, and the evidence.
        chosen: index of the step taken apart: the median one, or the one asked for.
        breakdown: that step, to the nanosecond.
        rows, idle: how each part varies over the steps like the median one; empty when a step was asked for.
        kernels: of the chosen step.
        oddities: findings, longest first.
        unresolved: why products that share a kernel name could not be told apart; "" if they could.
        planned: whether a model was given for that.
        events: of the chosen step, for the timeline.
        layers: of the chosen step, where something in it repeats; records of version 1 have none.
        power: what the card drew meanwhile, where a log was given.
    """

    schema = "trace"
    version = 2

    source: TraceSource
    steps: Steps
    chosen: int
    breakdown: Breakdown
    rows: tuple[Spread, ...]
    idle: tuple[Spread, ...]
    kernels: tuple[KernelTime, ...]
    oddities: tuple[Oddity, ...]
    unresolved: str
    planned: bool
    events: StepEvents
    layers: LayerTimes | None = None
    power: GpuPower | None = None

    def flaws(self) -> Iterator[str]:
        if not 0 <= self.chosen < len(self.steps.steps):
            yield f"step {self.chosen} is taken apart, of {len(self.steps.steps)}"
        if self.breakdown.wall_ns <= 0:
            yield "its step takes no time"
        for name in repeated(r.name for r in self.breakdown.rows):
            yield f"row {name} is there twice"
        if not all(_drawable(moment, self.events) for moment in self.events.moments):
            yield "an event lies before the step, or has a lane, a row or a name that is not in the record"
        edges = (0, *self.layers.starts_ns, self.layers.end_ns, self.breakdown.wall_ns) if self.layers else ()
        if any(later < sooner for sooner, later in pairwise(edges)):
            yield "its layers do not follow each other within the step"

    @property
    def step(self) -> Step:
        return self.steps.steps[self.chosen]

    @property
    def kernel_ns(self) -> int:
        return sum(k.summed_ns for k in self.kernels)

    @property
    def unknown_share(self) -> float:
        """Of the kernel time, what no rule knows or no place tells."""
        unknown = sum(k.summed_ns for k in self.kernels if k.row == "unknown")
        return unknown / self.kernel_ns if self.kernel_ns else 0.0

    def summed_ns(self, row: str) -> int:
        return next((r.summed_ns for r in self.breakdown.rows if r.name == row), 0)

    def exposed_ns(self, row: str) -> int:
        return next((r.exposed_ns for r in self.breakdown.rows if r.name == row), 0)


def _drawable(moment: Moment, events: StepEvents) -> bool:
    tables = ((moment.lane, events.lanes), (moment.row, events.rows), (moment.name, events.names))
    return min(moment.start_ns, moment.duration_ns) >= 0 and all(0 <= n < len(table) for n, table in tables)


def analyse(
    trace: Trace,
    plan: Plan | None = None,
    *,
    step: int | None = None,
    device: int | None = None,
    power: Sequence[GpuPower] = (),
    published: Published | None = None,
) -> Analysis:
    """Find the steps, tell the kernels apart, and take one step to pieces.

    Args:
        plan: the products of the model's layers; without it, GEMMs that share a name stay unknown.
        step: index of the step to take apart; the median one unless given.
        device: which GPU, where the trace holds several; the busiest unless given.
        power: the cards of a power log; the one of the trace is told by its rank, or by its device.
        published: what an all-reduce should take.

    Raises:
        UsageError: no step was found, or not the one asked for.
    """
    steps = find_steps(trace, device)
    asked = f"the steps of {trace.origin.path}"
    cut = cut_words(trace.repairs)
    if cut and steps.median is None:
        # What is missing may be in the part that was lost, so no other cause can be told.
        read = f"{counted(len(steps.steps), 'step')} and {counted(len(trace.gpu), 'GPU event')} before that"
        raise UsageError(asked, f"{cut}; {read}", WHOLE_FILE)
    if not len(trace.gpu) and len(trace.calls):
        # Seen where the profiler may not trace kernels, and where the profiled process was killed.
        raise UsageError(
            asked,
            f"{show_count(len(trace.calls))} CUDA calls were recorded and nothing that ran on the GPU",
            "a profiler that may trace kernels (in a container, --cap-add SYS_ADMIN) and a process that ends by itself",
        )
    if not steps.steps or steps.median is None:
        why = "; ".join(steps.evidence) or "nothing repeats on the GPU"
        raise UsageError(asked, why, "a trace of at least three decode steps with GPU events")
    chosen = steps.median if step is None else step
    if not 0 <= chosen < len(steps.steps):
        raise UsageError(
            asked, f"there is no step {chosen}{cut and f' ({cut})'}", f"--step 0 to {len(steps.steps) - 1}"
        )
    labels, unresolved = refine(trace, label(trace, classify), steps, plan)
    rows: tuple[Spread, ...] = ()
    idle: tuple[Spread, ...] = ()
    median = median_breakdown(trace, steps, labels) if step is None else None
    if median is not None:
        breakdown, rows, idle = median.step, median.rows, median.idle
    else:
        breakdown = break_down(trace, steps.steps[chosen], labels)
    kernels = kernel_times(trace, steps.steps[chosen], labels)
    number = steps.device if trace.rank is None else trace.rank
    drawn = power_of(power, number)
    seen = Seen(trace, steps, steps.steps[chosen], breakdown, kernels, labels, plan, drawn, published)
    return Analysis(
        source=_source(trace, steps.device),
        steps=steps,
        chosen=chosen,
        breakdown=breakdown,
        rows=rows,
        idle=idle,
        kernels=kernels,
        oddities=(*oddities(seen), *unused(drawn, power, number)),
        unresolved=unresolved,
        planned=plan is not None,
        events=step_events(trace, steps.steps[chosen], labels),
        layers=layer_times(trace, steps.steps[chosen], labels),
        power=drawn,
    )


def compare_traces(a: Trace, b: Trace, plan: Plan | None = None) -> TraceComparison:
    """Two traces, row by row, their kernels told apart by the same plan."""
    return compare(_sample(a, plan), _sample(b, plan))


def _sample(trace: Trace, plan: Plan | None) -> Sample:
    steps = find_steps(trace)
    labels, _ = refine(trace, label(trace, classify), steps, plan)
    return sample(trace, steps, labels)


def _source(trace: Trace, device: int) -> TraceSource:
    described = next((d for d in trace.devices if d.id == device), None)
    return TraceSource(
        path=trace.origin.path,
        form=trace.origin.form,
        device=described.name if described else "",
        sms=described.sms if described else None,
        gpu_events=len(trace.gpu),
        rank=trace.rank,
        repairs=trace.repairs,
    )

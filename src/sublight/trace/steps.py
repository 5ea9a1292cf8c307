"""The steps of an engine, found on the GPU's own timeline.

Annotations are optional, differ from engine to engine and stand on the CPU's clock, so they never decide where a step
begins: a trace stripped of them gives the same steps, and `Steps.evidence` says whether they agree. A step runs from
the start of its first GPU event to the start of the first event of the next step. So steps tile the time, and one that
the trace does not show the end of is dropped: always the last, and whatever lies before the first. A slice knows where
it was cut, so its last step is whole.

Where a step begins:

- A CUDA graph that makes up most of a step begins it, with its own first node: nothing else stays in its place when a
  scheduler prepares the next step on another stream while the graph still runs. What follows the graph (sampling,
  copies, the inputs of the next replay) belongs to the step before. A pass without a graph among such steps begins
  after the same preparations as a replay, or else after the longest pause in the stretch where they lie; where nothing
  marks it, with the graph's own kernels, launched one by one in the order that they have there.
- Otherwise a step begins where the host, in the median over all steps, pauses longest before it launches the next
  kernel; where no launch calls are known, where the device is idle longest.
"""

import re
from collections import Counter

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.trace.events import Spans, Trace
from sublight.trace.passes import one_by_one, with_passes
from sublight.trace.period import Period, Units, beginnings, by_pauses, find_periods, units_of
from sublight.trace.phases import Phase, features, flags, phases
from sublight.trace.timeline import Integers, Timeline, call_times
from sublight.units import counted, show_count

_CAPTURE = re.compile(r"\w*(StreamBeginCapture|GraphInstantiate)")
_STEP_MARK = re.compile(
    r"ProfilerStep|(?<![a-z])step(?![a-z])|execute_(context|new|model)|forward_step|decode|prefill|iteration",
    re.IGNORECASE,
)
_COUNTED_PROMPTS = re.compile(r"execute_(?:context|new)_(\d+)|(\d+) ctx req")


class Step(msgspec.Struct, frozen=True):
    """One step. Its events are the rows `first:last` of `Trace.gpu` that ran on `device`.

    `flags` say why a step differs from the others of its phase; it is empty for one that does not.
    """

    index: int
    start_ns: int
    end_ns: int
    first: int
    last: int
    kernels: int
    phase: Phase
    replayed: bool
    flags: tuple[str, ...] = ()
    device: int = 0
    process: str = ""

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.start_ns


class Dropped(msgspec.Struct, frozen=True):
    """Rows `first:last` of `Trace.gpu`, of which those of the device belong to no whole step, and why."""

    first: int
    last: int
    why: str


class Walls(msgspec.Struct, frozen=True):
    """Wall times of the steps that the median is taken of. Each is the time of a real step."""

    count: int
    median: int
    p10: int
    p90: int

    @property
    def spread(self) -> float:
        """How far p10 and p90 lie apart, as a fraction of the median."""
        return (self.p90 - self.p10) / self.median if self.median else 0.0


class Steps(msgspec.Struct, frozen=True):
    """The steps of one device. `median` is the index of the median step; without steps, `evidence` says why.

    The median is taken of the steps without flags: of the decode phase if there are any, else of the commonest phase.
    """

    device: int
    process: str
    steps: tuple[Step, ...]
    how: str
    evidence: tuple[str, ...]
    dropped: tuple[Dropped, ...] = ()
    median: int | None = None
    wall_ns: Walls | None = None

    @property
    def phase(self) -> Phase | None:
        """The phase of the median step."""
        return None if self.median is None else self.steps[self.median].phase

    def alike(self) -> tuple[Step, ...]:
        """The steps that the median is taken of."""
        return _alike(self.steps)


def devices(trace: Trace) -> tuple[tuple[int, str], ...]:
    """Device and process of everything that ran on a GPU, the one with the most events first."""
    events: Counter[tuple[int, str]] = Counter()
    for number, lane in enumerate(trace.gpu.lanes):
        events[lane.device, lane.process] += int(np.count_nonzero(trace.gpu.lane == number))
    there = ((count, key) for key, count in events.items() if count)
    return tuple(key for _, key in sorted(there, key=lambda item: (-item[0], item[1])))


def find_steps(trace: Trace, device: int | None = None, process: str | None = None) -> Steps:
    """The steps of one device, of the one with the most events if none is named.

    Where there are none this is no error: `Steps.evidence` says why.

    Args:
        trace: what ran.
        device: whose steps.
        process: of which process, where several in the trace call different devices by one number.
    """
    known = devices(trace)
    key = next((key for key in known if device in (None, key[0]) and process in (None, key[1])), None)
    if key is None:
        there = ", ".join(str(number) for number, _ in known) or "none"
        asked = "the GPU" if device is None else f"device {device}"
        return Steps(device or 0, "", (), "none", (f"no steps: nothing ran on {asked}; devices in the trace: {there}",))
    line = Timeline(trace, *key)
    note = (f"{len(known)} devices or processes in the trace; this is device {key[0]}",) if len(known) > 1 else ()
    begin, how, evidence = _sliced(line) or _cut(line)
    if line.cut is not None and len(begin) and begin[-1] < len(line):
        begin = np.append(begin, len(line))
    # Of events that start at one time, all belong to the step that begins there.
    times = line.times(begin)
    begin = np.unique(np.where(begin < len(line), line.at_time(times), begin))
    if len(begin) < 2 or times[0] == times[-1]:
        why = evidence[0] if how == "none" else f"no steps: {evidence[0]}, of which none ends within the trace"
        return Steps(*key, (), "none", (why, *note))
    steps = _steps(trace, line, begin, key)
    alike = sorted(_alike(steps), key=lambda step: (step.wall_ns, step.index))
    middle, tenth = (len(alike) - 1) // 2, (len(alike) - 1) // 10
    return Steps(
        *key,
        steps=steps,
        how=how,
        evidence=(*evidence, *_agreement(trace, line, begin, steps), *note),
        dropped=_dropped(trace, line, steps),
        median=alike[middle].index,
        wall_ns=Walls(len(alike), alike[middle].wall_ns, alike[tenth].wall_ns, alike[-1 - tenth].wall_ns),
    )


def _sliced(line: Timeline) -> tuple[Integers, str, tuple[str, ...]] | None:
    """The step that was cut out of a longer trace as one, if this is such a slice; what ran into it is before it."""
    if line.cut is None or line.cut.steps > 1:
        return None
    begin = int(line.at_time(np.array([line.cut.begin_ns]))[0])
    return np.array([begin, len(line)]), "a slice of one step", ("one step that was cut out of a longer trace",)


def _cut(line: Timeline) -> tuple[Integers, str, tuple[str, ...]]:
    """Places in the timeline where steps begin and the last ends, how they were found, and the evidence for them."""
    units, at = units_of(line)
    period, inner = find_periods(units)
    no_graph = () if line.replayed else ("no CUDA graph replay",)
    if period is not None and (begin := _graph_starts(units, period)) is not None:
        whole = line.graphs > 0
        return at[begin], "whole CUDA graphs" if whole else "CUDA graph replays", (_counted(units, begin, whole=whole),)
    if period is not None and not units.crosses.any() and (begin := one_by_one(line, units, at)) is not None:
        return at[begin], "CUDA graph replays", (_counted(units, begin),)
    repeats = inner if period is None else period
    if repeats is not None and (period is None or not units.crosses.any()) and (begin := by_pauses(units)) is not None:
        begin = _with_first(units, begin, repeats.size)
        groups = counted(len(begin), "group")
        words = f"{repeats.size:,.0f} GPU events repeat {repeats.count:,} times, in {groups} between pauses"
        return at[begin], "repeating kernels and the host's pauses", (words, *no_graph)
    if period is not None:
        begin = _with_first(units, beginnings(units, period), period.size)
        words = f"{period.size:,.0f} GPU events repeat {counted(len(begin), 'time')}"
        return at[begin], "repeating kernels", (words, *no_graph)
    if inner is not None:
        words = f"one pass only, inside which {inner.size:,.0f} GPU events repeat {inner.count:,} times"
        return np.array([0, len(line)]), "one pass", (words, *no_graph)
    if units.main.sum() == 1 and 2 * units.size[units.main].sum() >= units.size.sum():
        return np.array([0, len(line)]), "one pass", (f"one pass only: {_counted(units, np.flatnonzero(units.main))}",)
    return at[:0], "none", (f"no steps: nothing repeats in {_events(len(line))}",)


def _counted(units: Units, begin: Integers, *, whole: bool = False) -> str:
    graphs = begin[units.main[begin]]
    sizes = Counter(units.size[graphs].tolist())
    words = [f"{counted(count, 'graph replay')} of {show_count(size)} events" for size, count in sizes.most_common(3)]
    others = len(begin) - len(graphs)
    passes = f", and {counted(others, 'pass', 'passes')} without a graph" if others else ""
    return (f"{len(graphs)} graph replays" if whole else ", ".join(words)) + passes


def _graph_starts(units: Units, period: Period) -> Integers | None:
    """The units that begin steps if most periods are mostly one graph replay; else None."""
    main_size = np.where(units.main, units.size, 0)
    largest = np.maximum.reduceat(main_size, period.at)[:-1]
    carried = 2 * largest >= period.sizes
    if carried[period.regular].mean() < 0.5:
        return None
    main = np.flatnonzero(2 * main_size >= np.median(largest[carried]))
    before = np.searchsorted(main, period.at)
    usual = np.flatnonzero(carried & (np.diff(before) > 0))
    graph = main[before[usual]]
    prepared = Counter(
        tuple(units.token[low:high].tolist()) for low, high in zip(period.at[usual], graph, strict=True)
    ).most_common(1)[0][0]
    reach = 2 + int(1.5 * np.median(graph - period.at[usual]))
    eager = np.median(period.sizes[usual] - largest[usual])
    begin = main.tolist()
    # The last place ends no period, but a pass may begin there all the same.
    events = np.append(0, np.cumsum(units.size))
    before, ends = np.append(before, len(main)), np.append(period.at, len(units))
    sizes = np.diff(events[ends])
    for place in np.flatnonzero((np.diff(before) == 0) & (sizes > 2 * eager + 2)).tolist():
        begin.append(_after_preparations(units, prepared, int(ends[place]), int(ends[place + 1]), reach))
    return with_passes(units, np.unique(np.array(begin, np.int64)))


def _after_preparations(units: Units, prepared: tuple[int, ...], low: int, high: int, reach: int) -> int:
    """Where a pass without a graph begins in a stretch: behind all that otherwise comes before a replay, in its order.

    Where it is not prepared alike, after the longest pause about where preparations lie.
    """
    place, stop = low, min(low + 1 + reach, high)
    for token in prepared:
        there = np.flatnonzero(units.token[place:stop] == token)
        if not len(there):
            break
        place += int(there[0]) + 1
    else:
        if low < place < high:
            return place
    return low + 1 + int(np.argmax(units.pause[low + 1 : stop]))


def _with_first(units: Units, begin: Integers, size: float) -> Integers:
    """The same with the first unit of the trace, if what lies before the first beginning is a whole step."""
    if not len(begin) or begin[0] == 0:
        return begin
    events = np.append(0, np.cumsum(units.size))
    usual = float(np.median(np.diff(events[begin]))) if len(begin) > 1 else size
    same = int(units.token[0]) == Counter(units.token[begin].tolist()).most_common(1)[0][0]
    return np.append(0, begin) if same and abs(events[begin[0]] - usual) <= max(2.0, 0.02 * usual) else begin


def _steps(trace: Trace, line: Timeline, begin: Integers, key: tuple[int, str]) -> tuple[Step, ...]:
    found = features(line, begin)
    sorts = phases(found)
    reasons = flags(found, sorts, _captures(trace, line, begin))
    times = line.times(begin)
    rows = np.searchsorted(trace.gpu.start, times, side="left")
    if begin[-1] == len(line):
        rows[-1] = line.row(np.array([len(line) - 1]))[0] + 1
    return tuple(
        Step(
            index=place,
            start_ns=int(times[place]),
            end_ns=int(times[place + 1]),
            first=int(rows[place]),
            last=int(rows[place + 1]),
            kernels=int(found.kernels[place]),
            phase=sorts[place],
            replayed=bool(found.replayed[place]),
            flags=reasons[place],
            device=key[0],
            process=key[1],
        )
        for place in range(len(begin) - 1)
    )


def _captures(trace: Trace, line: Timeline, begin: Integers) -> npt.NDArray[np.bool_]:
    """Whether a graph was recorded between the launches of the first events of a step and of the next."""
    wanted = np.array([bool(_CAPTURE.match(name)) for name in trace.calls.names], bool)
    recorded = np.sort(trace.calls.start[wanted[trace.calls.name]]) if len(trace.calls) else trace.calls.start
    launched, there = line.times(begin), begin < len(line)
    called = call_times(trace.calls, line.call(begin[there]))[0]
    launched[there] = np.where(called < 0, launched[there], called)
    return np.searchsorted(recorded, launched[:-1]) < np.searchsorted(recorded, launched[1:])


def _alike(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    sorts = Counter(step.phase for step in steps)
    phase = Phase.DECODE if sorts[Phase.DECODE] else max(sorts, key=lambda sort: sorts[sort], default=None)
    of_phase = tuple(step for step in steps if step.phase is phase)
    return tuple(step for step in of_phase if not step.flags) or of_phase


def _dropped(trace: Trace, line: Timeline, steps: tuple[Step, ...]) -> tuple[Dropped, ...]:
    first, last = steps[0].first, steps[-1].last
    before, after = line.place([first, last]).tolist()
    result = []
    if before:
        result.append(Dropped(0, first, f"{_events(before)} before the first whole step"))
    if after < len(line):
        words = f"the last {_events(len(line) - after)}: no next step begins afterwards"
        result.append(Dropped(last, len(trace.gpu), words))
    return tuple(result)


def _events(count: int) -> str:
    return counted(count, "GPU event")


def _agreement(trace: Trace, line: Timeline, begin: Integers, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """What the annotations say about the steps found: those named like steps, or else those about as many as steps.

    An annotation on the CPU is compared with the launch of a step's first event, one on the GPU with its start.
    """
    inside = begin[begin < len(line)]
    called = call_times(trace.calls, line.call(inside))[0]
    by_launch = bool((called >= 0).all()) and len(trace.marks) > 0
    marks, moments = (trace.marks, called) if by_launch else (trace.gpu_marks, line.times(inside))
    marks = _of(marks, steps[0])
    if begin[-1] == len(line):
        moments = np.append(moments, line.last_end)
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(marks.names):
        # step[DECODE bs=16] and step[EXTEND bs=1] are both "step", ProfilerStep#7 is "ProfilerStep#N".
        groups.setdefault(re.sub(r"\d+", "N", re.sub(r"(?<=\w)[\[(].*", "", name)), []).append(number)
    said = []
    for name, numbers in groups.items():
        chosen = np.isin(marks.name, numbers)
        if not chosen.any():
            continue
        if not by_launch:
            # On the GPU an annotation appears once on each stream that it reaches.
            chosen &= marks.place == np.argmax(np.bincount(marks.place[chosen]))
        start = marks.start[chosen]
        means_steps = bool(_STEP_MARK.search(name))
        if means_steps or 0.5 * len(inside) <= len(start) <= 2 * len(inside):
            sentence = _sentence(name, len(start), np.diff(np.searchsorted(start, moments)))
            said.append((not means_steps, abs(len(start) - len(inside)), sentence))
    said.sort()
    sentences = [sentence for unlike, _, sentence in said if unlike == said[0][0]][:2]
    return (*sentences, *_phases_said(marks, moments, steps)) or ("no annotations to compare with",)


def _of(marks: Spans, step: Step) -> Spans:
    """The annotations of the process and, on a GPU, of the device."""
    mine = [
        place.process == step.process and getattr(place, "device", step.device) == step.device for place in marks.places
    ]
    if all(mine):
        return marks
    kept = np.array(mine, bool)[marks.place]
    columns = {name: getattr(marks, name)[kept] for name in ("start", "duration", "name", "place", "external")}
    return Spans(**columns, names=marks.names, places=marks.places)


def _sentence(name: str, marks: int, in_step: Integers) -> str:
    """`in_step` is how many of the annotations begin between the beginnings of a step and of the next."""
    inside, ones = int(in_step.sum()), int((in_step == 1).sum())
    if ones >= 0.8 * len(in_step):
        unused = marks - inside - 1
        rest = f"; {unused} more of them without GPU events here" if unused > 1 else ""
        return (f"{marks} {name} annotations agree" if marks > 1 else f"one {name} annotation agrees") + rest
    disagree = counted(marks, f"{name} annotation does not agree", f"{name} annotations do not agree")
    if 0 < inside < 0.6 * len(in_step):
        return f"{disagree}: {(len(in_step) + 1) / marks:.1f} of the steps found to each"
    return f"{disagree}: one begins in {ones} of the {counted(len(in_step), 'step')}"


def _phases_said(marks: Spans, moments: Integers, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Whether annotations that name a phase name the one that the kernels show."""
    said = [_phase_said(name) for name in marks.names]
    names_phase = np.array([phase is not None for phase in said], bool)
    telling = np.flatnonzero(names_phase[marks.name])
    start, end = marks.start[telling], marks.end[telling]
    same = other = 0
    for step, begin, stop in zip(steps, moments, np.append(moments, marks.end.max(initial=0))[1:], strict=False):
        # The annotation that the step begins in, or else the first that begins in the step.
        place = int(np.searchsorted(start, begin, side="right")) - 1
        place += place < 0 or begin > end[place]
        if place < len(start) and start[place] < stop:
            agrees = said[marks.name[telling[place]]] is step.phase
            same, other = same + agrees, other + (not agrees)
    return (f"annotations name the same phase for {same} of {counted(same + other, 'step')}",) if same + other else ()


def _phase_said(name: str) -> Phase | None:
    """The phase in the name of an annotation, as vLLM, SGLang, TensorRT-LLM and people write it."""
    counted = _COUNTED_PROMPTS.search(name)
    if counted:
        return Phase.PREFILL if int(counted[1] or counted[2]) else Phase.DECODE
    low = name.lower()
    if "decode" in low or "generation" in low:
        return Phase.DECODE
    return Phase.PREFILL if "prefill" in low or "extend" in low else None

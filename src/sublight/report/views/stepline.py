"""The timeline of an analysed step: each event on its stream, in the colour of its row's group.

Every row of a step has its place in it, also those that this step has not, so that a group has one colour on all pages.
"""

from itertools import pairwise

from sublight.report.blocks import Band, Block, EventRow, Events, Mark, Timeline
from sublight.rows import ROWS
from sublight.trace.analysis import Analysis
from sublight.trace.kernels import Moment, StepEvents
from sublight.trace.labels import UNKNOWN
from sublight.trace.layers import LayerTimes
from sublight.units import counted, show_count, show_ms

MOST_EVENTS = 20_000  # in a page, where one takes about 30 bytes


def step_timeline(analysis: Analysis, *, terminal: bool = True) -> list[Block]:
    """The shown step from start to start, in milliseconds to the nanosecond; nothing for a record without events.

    Args:
        analysis: whose step.
        terminal: whether it is worth its lines on a terminal.
    """
    events, wall_ns = analysis.events, analysis.breakdown.wall_ns
    # A profiler may give two events the same start in any order; a chart wants them sorted.
    moments = sorted(events.moments, key=lambda moment: moment.start_ns)
    if not moments or wall_ns <= 0:
        return []
    shown = moments[:MOST_EVENTS]
    end_ns = moments[MOST_EVENTS].start_ns if len(moments) > MOST_EVENTS else wall_ns
    reached_ns = max(moment.start_ns + moment.duration_ns for moment in shown)
    rows, number_of = _rows(events)
    return [
        Timeline(
            title=f"The step on the GPU: {counted(len(shown), 'event')}",
            unit="ms",
            span=_ms(max(end_ns, reached_ns)),
            lanes=events.lanes,
            rows=rows,
            names=events.names,
            events=_columns(shown, number_of),
            bands=_bands(analysis.layers, end_ns),
            marks=_marks(end_ns, reached_ns, whole=len(shown) == len(moments)),
            caption=" ".join(
                filter(None, (_caption(len(shown), len(moments), end_ns, wall_ns), _layers_caption(analysis.layers)))
            ),
            terminal=terminal,
        )
    ]


def _rows(events: StepEvents) -> tuple[tuple[EventRow, ...], list[int]]:
    """All rows in the usual order, then other kinds of work by name, then what is unknown; and where each one went."""
    others = sorted((name for name in events.rows if name not in ROWS), key=lambda name: (name == UNKNOWN, name))
    names = [*ROWS, *others]
    places = {name: place for place, name in enumerate(names)}
    table = [EventRow(row.title, row.group.value) for row in ROWS.values()]
    table += [EventRow(name, name, known=name != UNKNOWN) for name in others]
    return tuple(table), [places[name] for name in events.rows]


def _columns(shown: list[Moment], number_of: list[int]) -> Events:
    return Events(
        tuple(_ms(moment.start_ns) for moment in shown),
        tuple(_ms(moment.duration_ns) for moment in shown),
        tuple(moment.lane for moment in shown),
        tuple(number_of[moment.row] for moment in shown),
        tuple(moment.name for moment in shown),
    )


def _marks(end_ns: int, reached_ns: int, *, whole: bool) -> tuple[Mark, ...]:
    """Where the step or the picture ends, if an event runs on after it."""
    if reached_ns <= end_ns:
        return ()
    words = "the next step begins" if whole else "events that begin later are left out"
    return (Mark(_ms(end_ns), words),)


def _bands(layers: LayerTimes | None, end_ns: int) -> tuple[Band, ...]:
    """The layers, as far as the picture goes."""
    if layers is None:
        return ()
    edges = [(start, min(end, end_ns)) for start, end in pairwise((*layers.starts_ns, layers.end_ns))]
    return tuple(Band(_ms(start), _ms(end), f"layer {at}") for at, (start, end) in enumerate(edges) if start < end)


def _layers_caption(layers: LayerTimes | None) -> str:
    return f"{counted(len(layers.starts_ns), 'layer')}, told by {layers.how}." if layers else ""


def _caption(shown: int, there: int, end_ns: int, wall_ns: int) -> str:
    if shown == there:
        return ""
    return (
        f"The first {show_count(shown)} of {show_count(there)} events: {show_ms(end_ns * 1e-9, 3)} of the step's "
        f"{show_ms(wall_ns * 1e-9, 3)} ms. Shares are of that."
    )


def _ms(ns: int) -> float:
    return round(ns / 1e6, 6)

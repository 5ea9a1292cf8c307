"""What a renderer refuses to draw: charts whose numbers are not what they claim.

Every renderer calls `check` first, so a document that one form refuses is refused by all. These are faults of the view
that made the document, not of the reader's input, hence ValueError.
"""

import math
from collections.abc import Iterable

from sublight.report.blocks import Bars, Curves, Document, Timeline, Waterfall

TOTAL_TOLERANCE = 1e-6  # relative; a total that is off by more is a different number, not rounding
SLACK = 1e-9  # of the span of a timeline: an end is the sum of two numbers, and rounds
LARGEST = (
    1e300  # sums and margins of larger numbers leave the range of a float; so do ratios of those below 1 / LARGEST
)


def check(document: Document) -> None:
    """Raises ValueError for the first chart that cannot be drawn honestly."""
    for block in document.whole:
        match block:
            case Bars():
                _check_bars(block)
            case Waterfall():
                running_sums(block)
            case Curves():
                _check_curves(block)
            case Timeline():
                _check_timeline(block)
            case _:
                pass


def running_sums(waterfall: Waterfall) -> list[tuple[float, float]]:
    """From where to where each step reaches: a total from zero, a delta or an unknown from the sum before it.

    Raises:
        ValueError: a total is not the sum of the steps before it (relative 1e-6), or a value is not a finite number.
            The first step is therefore never a total, unless it is zero: what a waterfall starts from is a delta.
    """
    spans: list[tuple[float, float]] = []
    total = 0.0
    # Deltas that cancel leave rounding residue, which has no relative size of its own.
    residue = 1e-9 * max((abs(step.value) for step in waterfall.steps), default=0.0)
    for step in waterfall.steps:
        _drawable(waterfall.title, (step.value,))
        if step.kind == "total":
            if not math.isclose(step.value, total, rel_tol=TOTAL_TOLERANCE, abs_tol=residue):
                raise ValueError(
                    f"{waterfall.title!r}: the total {step.label!r} is {step.value!r}, "
                    f"but the steps before it sum to {total!r}"
                )
            spans.append((0.0, total))
        else:
            spans.append((total, total + step.value))
            total += step.value
            _drawable(waterfall.title, (total,))
    return spans


def _check_bars(bars: Bars) -> None:
    for bar in bars.bars:
        _drawable(bars.title, [segment.value for segment in bar.segments])
        _drawable(bars.title, (sum(segment.value for segment in bar.segments),))
        for segment in bar.segments:
            if segment.value < 0:
                raise ValueError(f"{bars.title!r}: a segment of {bar.label!r} is below zero: {segment.value!r}")
            if segment.series not in bars.series:
                raise ValueError(f"{bars.title!r}: {bar.label!r} has a segment of no series: {segment.series!r}")


def _check_curves(curves: Curves) -> None:
    xs = [x for curve in curves.curves for x, _ in curve.points] + [mark.x for mark in curves.marks]
    ys = [y for curve in curves.curves for _, y in curve.points]
    for values, log, name in ((xs, curves.log_x, "x"), (ys, curves.log_y, "y")):
        _drawable(curves.title, values)
        if log and any(value < 1 / LARGEST for value in values):
            raise ValueError(f"{curves.title!r}: {min(values)!r} cannot stand on a logarithmic {name} axis")


def _check_timeline(timeline: Timeline) -> None:
    title, span, events = timeline.title, timeline.span, timeline.events
    _drawable(title, (span,))
    if span < 1 / LARGEST:
        raise ValueError(f"{title!r}: a span of {span!r} is no axis")
    for index, (start, duration) in enumerate(zip(events.start, events.duration, strict=True)):
        _within(title, f"event {index}", start, start + duration, span)
        if index and start < events.start[index - 1]:
            raise ValueError(f"{title!r}: event {index} starts at {start!r}, before the one that precedes it")
    tables = (("lane", events.lane, timeline.lanes), ("row", events.row, timeline.rows))
    for name, column, table in (*tables, ("name", events.name, timeline.names)):
        for index, number in enumerate(column):
            if not 0 <= number < len(table):
                raise ValueError(f"{title!r}: event {index} has the {name} {number}, of {len(table)}")
    reached = 0.0
    for band in timeline.bands:
        _within(title, f"the band {band.label!r}", band.start, band.end, span)
        if band.start < reached - span * SLACK:
            raise ValueError(f"{title!r}: the band {band.label!r} starts before the one that precedes it has ended")
        reached = band.end
    for mark in timeline.marks:
        _within(title, f"the mark {mark.label!r}", mark.x, mark.x, span)


def _within(title: str, what: str, start: float, end: float, span: float) -> None:
    if not 0 <= start <= end <= span * (1 + SLACK):
        raise ValueError(f"{title!r}: {what}, from {start!r} to {end!r}, is not within 0 to {span!r}")


def _drawable(title: str, values: Iterable[float]) -> None:
    for value in values:
        if not abs(value) <= LARGEST:
            raise ValueError(f"{title!r}: {value!r} cannot be drawn to scale")

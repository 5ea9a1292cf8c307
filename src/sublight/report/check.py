"""What a renderer refuses to draw: charts whose numbers are not what they claim.

Every renderer calls `check` first, so a document that one form refuses is refused by all. These are faults of the view
that made the document, not of the reader's input, hence ValueError.
"""

import math
from collections.abc import Iterable

from sublight.report.blocks import Bars, Curves, Document, Waterfall

TOTAL_TOLERANCE = 1e-6  # relative; a total that is off by more is a different number, not rounding
LARGEST = (
    1e300  # sums and margins of larger numbers leave the range of a float; so do ratios of those below 1 / LARGEST
)


def check(document: Document) -> None:
    """Raises ValueError for the first chart that cannot be drawn honestly."""
    for block in document.blocks:
        match block:
            case Bars():
                _check_bars(block)
            case Waterfall():
                running_sums(block)
            case Curves():
                _check_curves(block)
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


def _drawable(title: str, values: Iterable[float]) -> None:
    for value in values:
        if not abs(value) <= LARGEST:
            raise ValueError(f"{title!r}: {value!r} cannot be drawn to scale")

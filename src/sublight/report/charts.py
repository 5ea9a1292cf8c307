"""The geometry of charts on a page: where each mark goes, in numbers that a template writes into SVG.

Bars and waterfalls are one small SVG a row, measured in percent of its width: labels and figures beside it stay HTML
text, which wraps, is copied, and does not shrink on a phone. Curves need a coordinate system; they are laid out twice,
for a wide and for a narrow page, so that their labels have the same size on both.
"""

from collections.abc import Iterable, Iterator

import msgspec

from sublight.report.axis import axis, number
from sublight.report.blocks import Bars, Curve, Curves, Waterfall
from sublight.report.check import running_sums

DOTS = 48  # a curve with more points than this is drawn as a line alone
COLOURS = 12  # series colours in the style sheet; more series start over
TRACE = 0.4  # percent of the width that anything above zero is drawn with at least


class Piece(msgspec.Struct, frozen=True):
    """A stretch of a bar, in percent of the width, the number of its series, and what hovering over it says."""

    x: float
    width: float
    series: int
    colour: int
    hint: str


class StackRow(msgspec.Struct, frozen=True):
    label: str
    text: str
    pieces: tuple[Piece, ...]
    spoken: str


class StepRow(msgspec.Struct, frozen=True):
    """A step of a waterfall. `joins` is where the line from the step before, and to the next one, is drawn."""

    label: str
    text: str
    note: str
    kind: str  # total, unknown, more or less
    x: float
    width: float
    joins: tuple[float | None, float | None]
    spoken: str


class Tick(msgspec.Struct, frozen=True):
    place: float
    text: str


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float
    hint: str


class Path(msgspec.Struct, frozen=True):
    colour: int
    name: str
    line: str  # the d of an SVG path
    points: tuple[Point, ...]


class Plot(msgspec.Struct, frozen=True):
    """Curves in pixels. The plot area lies between (left, top) and (right, bottom)."""

    size: str  # the name of the layout, as the style sheet calls it
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    paths: tuple[Path, ...]
    marks: tuple[Tick, ...]


def stack_rows(bars: Bars) -> tuple[StackRow, ...]:
    """The bars of a chart on one scale, the longest over the whole width."""
    longest = max((sum(segment.value for segment in bar.segments) for bar in bars.bars), default=0.0) or 1.0
    rows = []
    for bar in bars.bars:
        pieces = []
        sum_so_far = 0.0
        for segment in bar.segments:
            series = bars.series.index(segment.series)
            hint = f"{bar.label}, {segment.series}: {segment.text}"
            if segment.value > 0:
                width = max(segment.value / longest * 100, TRACE)
                pieces.append(
                    Piece(min(sum_so_far / longest * 100, 100 - width), width, series, series % COLOURS, hint)
                )
            sum_so_far += segment.value
        parts = ", ".join(f"{segment.series} {segment.text}" for segment in bar.segments)
        rows.append(StackRow(bar.label, bar.text, tuple(pieces), f"{bar.label}: {bar.text} ({parts})"))
    return tuple(rows)


def step_rows(waterfall: Waterfall) -> tuple[StepRow, ...]:
    """The steps of a waterfall; zero is within the scale."""
    spans = running_sums(waterfall)
    low = min((min(pair) for pair in spans), default=0.0)
    reach = (max((max(pair) for pair in spans), default=0.0) - low) or 1.0
    rows = []
    for index, (step, (start, end)) in enumerate(zip(waterfall.steps, spans, strict=True)):
        x, stop = ((place - low) / reach * 100 for place in sorted((start, end)))
        width = max(stop - x, TRACE)
        kind = ("more" if step.value >= 0 else "less") if step.kind == "delta" else step.kind
        # A line leads from the end of one step to the next. Both ends are the same sum; a total stands on it.
        joins = (
            (spans[index - 1][1] - low) / reach * 100 if index else None,
            (end - low) / reach * 100 if index < len(spans) - 1 else None,
        )
        spoken = f"{step.label}: {step.text}" + (" (unknown)" if step.kind == "unknown" else "")
        rows.append(StepRow(step.label, step.text, step.note, kind, min(x, 100 - width), width, joins, spoken))
    return tuple(rows)


def plots(curves: Curves) -> tuple[Plot, ...]:
    """The wide and the narrow layout; none where no curve has a point."""
    if not any(curve.points for curve in curves.curves):
        return ()
    return (_plot(curves, "wide", 820, 340), _plot(curves, "narrow", 340, 280))


def curves_spoken(curves: Curves) -> str:
    """The chart in a sentence, for a reader who cannot see it."""
    parts = [f"{curves.title}: {curves.y_label} over {curves.x_label}"]
    for curve in curves.curves:
        if curve.points:
            (x0, y0), (x1, y1) = curve.points[0], curve.points[-1]
            parts.append(f"{curve.name} from {number(y0)} at {number(x0)} to {number(y1)} at {number(x1)}")
    return "; ".join(parts)


def _plot(curves: Curves, size: str, width: int, height: int) -> Plot:
    x_values = [x for curve in curves.curves for x, _ in curve.points] + [mark.x for mark in curves.marks]
    y_values = [y for curve in curves.curves for _, y in curve.points]
    ys = axis(y_values, log=curves.log_y, ticks=6, upright=True)
    # Seven pixels a figure at the size of tick labels; digits have one width.
    left = 14 + 7 * max(len(number(tick)) for tick in ys.ticks)
    right, top, bottom = width - 22, 14, height - 30
    xs = axis(x_values, log=curves.log_x, ticks=(right - left) // 60)

    def across(value: float) -> float:
        return left + xs.at(value) * (right - left)

    def up(value: float) -> float:
        return bottom - ys.at(value) * (bottom - top)

    def path(index: int, curve: Curve) -> Path:
        points = tuple(
            Point(across(x), up(y), f"{curve.name}: {number(y)} at {curves.x_label} {number(x)}")
            for x, y in curve.points
        )
        line = " ".join(f"{'L' if i else 'M'}{point.x:.1f} {point.y:.1f}" for i, point in enumerate(points))
        return Path(index % COLOURS, curve.name, line, points if len(points) <= DOTS else ())

    return Plot(
        size,
        width,
        height,
        left,
        right,
        top,
        bottom,
        tuple(_apart(Tick(across(tick), number(tick)) for tick in xs.ticks)),
        tuple(Tick(up(tick), number(tick)) for tick in ys.ticks),
        tuple(path(index, curve) for index, curve in enumerate(curves.curves)),
        tuple(Tick(across(mark.x), mark.label) for mark in curves.marks),
    )


def _apart(ticks: Iterable[Tick]) -> Iterator[Tick]:
    """Those ticks of the x axis whose words do not touch the words before."""
    taken = float("-inf")
    for tick in ticks:
        half = 3.5 * len(tick.text) + 4
        if tick.place - half >= taken:
            taken = tick.place + half
            yield tick

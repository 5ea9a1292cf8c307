"""Curves as a table of the points they were given. Nothing is interpolated."""

from collections.abc import Sequence

from sublight.report.axis import number
from sublight.report.blocks import Cell, Column, Curves, Line, Table


def points_table(block: Curves, names: Sequence[str], most: int) -> Table:
    """One line for each x, one column for each curve under its name; blank where a curve has no such point.

    Where there are more than `most` lines, that many are taken, spread evenly and with both ends.
    """
    values = [dict(curve.points) for curve in block.curves]
    xs = sorted({x for points in values for x in points})
    # Those x that all curves have in common make the fullest table.
    shared = [x for x in xs if all(x in points for points in values if points)]
    chosen = _spread(shared if len(shared) >= min(len(xs), most) else xs, most)
    columns = (Column(block.x_label, "right"), *(Column(name, "right") for name in names))
    lines = tuple(
        Line((Cell(number(x)), *(Cell(number(points[x]) if x in points else "") for points in values))) for x in chosen
    )
    return Table(columns, lines)


def marks_in_words(block: Curves) -> list[str]:
    return [f"{block.x_label} {number(mark.x)}: {mark.label}" for mark in block.marks]


def _spread(xs: Sequence[float], most: int) -> list[float]:
    if len(xs) <= most:
        return list(xs)
    return [xs[round(index * (len(xs) - 1) / (most - 1))] for index in range(most)]

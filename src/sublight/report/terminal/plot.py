"""Curves on a terminal: a small braille plot for the shape, and a table of points for the numbers.

In the plot a letter names each curve where it ends, so that curves are told apart without colour.
"""

from collections.abc import Iterator, Sequence

from sublight.report.axis import Axis, axis, number
from sublight.report.blocks import Curve, Curves
from sublight.report.points import marks_in_words, points_table
from sublight.report.terminal.screen import Screen, hang, plain
from sublight.report.terminal.strokes import COLOURS
from sublight.report.terminal.table import table
from sublight.report.terminal.text import Text

HEIGHT = 12
WIDEST = 72
POINTS = 12  # lines in the table of points
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bit of each braille dot: four rows of two


def curves(block: Curves, screen: Screen) -> Iterator[Text]:
    drawn = [curve for curve in block.curves if curve.points]
    if block.title:
        yield from plain(block.title, "strong").wrapped(screen.prose)
    if drawn:
        yield from _plot(block, drawn, screen)
        yield Text()
        names = [f"{letter(index)} {curve.name}" for index, curve in enumerate(block.curves)]
        yield from table(points_table(block, names, POINTS), screen)
    if block.caption:
        yield from plain(block.caption, "muted").wrapped(screen.prose)


def letter(index: int) -> str:
    return LETTERS[index % len(LETTERS)]


def _plot(block: Curves, drawn: Sequence[Curve], screen: Screen) -> Iterator[Text]:
    ys = axis([y for curve in drawn for _, y in curve.points], log=block.log_y, ticks=6, upright=True)
    names = {HEIGHT - 1 - round(ys.at(tick) * (HEIGHT - 1)): number(tick) for tick in ys.ticks}
    margin = max(len(name) for name in names.values())
    width = min(WIDEST, screen.width - margin - 3)
    all_x = [x for curve in drawn for x, _ in curve.points] + [mark.x for mark in block.marks]
    xs = axis(all_x, log=block.log_x, ticks=max(2, width // 10))
    canvas = _Canvas(width, xs, ys)
    for mark in block.marks:
        canvas.upright(mark.x)
    for index, curve in enumerate(block.curves):
        if curve.points:
            canvas.curve(curve, COLOURS[index % len(COLOURS)], letter(index))
    scales = [name for name, log in (("x", block.log_x), ("y", block.log_y)) if log]
    note = f" (logarithmic: {', '.join(scales)})" if scales else ""
    yield from plain(f"{block.y_label} over {block.x_label}{note}", "muted").wrapped(screen.prose)
    for row, line in enumerate(canvas.lines()):
        tick = names.get(row, "")
        yield Text.of(Text(f"{tick:>{margin}} {'┤' if tick else '│'}", "dim"), line)
    yield Text(f"{'':>{margin}} └" + "─" * width, "dim")
    yield Text(" " * (margin + 2) + tick_line(xs, width), "dim")
    for words in marks_in_words(block):
        yield from hang(Text("┊ ", "dim"), plain(words), screen.prose)


def tick_line(xs: Axis, width: int) -> str:
    """Tick labels under their places, as many as keep a space between them."""
    line = ""
    for tick in xs.ticks:
        name = number(tick)
        start = min(max(0, round(xs.at(tick) * (width - 1)) - len(name) // 2), width - len(name))
        if start >= len(line) + (2 if line else 0):
            line = f"{line:<{start}}{name}"
    return line


class _Canvas:
    """Braille cells: each holds two by four dots, the style of the curve drawn last, or a character in their place."""

    def __init__(self, width: int, xs: Axis, ys: Axis) -> None:
        self.width, self.xs, self.ys = width, xs, ys
        self.dots: dict[tuple[int, int], tuple[int, str]] = {}
        self.characters: dict[tuple[int, int], tuple[str, str]] = {}

    def curve(self, curve: Curve, style: str, name: str) -> None:
        places = [self._place(x, y) for x, y in curve.points]
        for (x0, y0), (x1, y1) in zip(places, places[1:] or places, strict=False):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                self._dot(x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps), style)
        column, row = places[-1][0] // 2, places[-1][1] // 4
        # Curves that end in one place: their names stand side by side, towards the inside.
        while (column, row) in self.characters and column > 0:
            column -= 1
        self.characters[column, row] = (name, f"bold {style}")

    def upright(self, x: float) -> None:
        column = self._place(x, self.ys.low)[0] // 2
        for row in range(HEIGHT):
            self.characters.setdefault((column, row), ("┊", "dim"))

    def lines(self) -> Iterator[Text]:
        for row in range(HEIGHT):
            line = Text()
            for column in range(self.width):
                bits, style = self.dots.get((column, row), (0, ""))
                character = self.characters.get((column, row))
                if character and not (bits and character[0] == "┊"):
                    line.append(*character)
                else:
                    line.append(chr(0x2800 + bits) if bits else " ", style)
            yield line

    def _place(self, x: float, y: float) -> tuple[int, int]:
        return round(self.xs.at(x) * (self.width * 2 - 1)), round((1 - self.ys.at(y)) * (HEIGHT * 4 - 1))

    def _dot(self, x: int, y: int, style: str) -> None:
        cell = (x // 2, y // 4)
        bits, _ = self.dots.get(cell, (0, ""))
        self.dots[cell] = (bits | _DOTS[y % 4][x % 2], style)

"""The terminal as the blocks see it: a width, and lines of styled text that fit into it.

Everything is drawn so that it reads without colour; colour adds, it never carries meaning alone. Taking the escape
codes out of coloured output therefore leaves exactly the plain output, and a test holds that.
"""

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len

from sublight.report.blocks import Tone
from sublight.report.terminal.text import Text
from sublight.report.visible import visible

NARROWEST = 20  # below this nothing can be laid out; a narrower terminal gets lines of this width
PROSE = 100  # longer lines of running text are hard to follow, however wide the terminal is

STYLES: Mapping[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "muted": "dim",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
}


class Screen:
    """`width` columns, with or without colour."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = max(width, NARROWEST)
        self.prose = min(self.width, PROSE)
        self.colour = colour

    def paint(self, lines: Iterable[Text]) -> str:
        """The finished output. What is drawn depends on the arguments alone, not on NO_COLOR, COLUMNS or TERM."""
        return "".join(f"{line.painted(self.colour)}\n" for line in lines)


def hang(lead: Text, body: Text, width: int) -> list[Text]:
    """`body` wrapped beside `lead`, further lines indented by the width of it."""
    indent = lead.width
    lines = body.wrapped(width - indent)
    return [Text.of(lead if index == 0 else " " * indent, line) for index, line in enumerate(lines)]


def plain(text: str, tone: Tone = "plain") -> Text:
    """Foreign text as one inert, styled piece."""
    return Text(visible(text), STYLES[tone])


def widest(texts: Iterable[str]) -> int:
    """The width of the widest text, as it will be shown."""
    return max((cell_len(visible(text)) for text in texts), default=0)


def beside(
    columns: Sequence[Sequence[Text]], widths: Sequence[int], gap: int, right: Sequence[bool] = ()
) -> list[Text]:
    """Wrapped texts next to each other: line by line, each padded to its width."""
    height = max(len(column) for column in columns)
    lines = []
    for row in range(height):
        line = Text()
        for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
            cell = column[row] if row < len(column) else Text()
            pad = " " * (width - cell.width)
            line.append(" " * gap if index else "")
            line.append(Text.of(pad, cell) if right and right[index] else Text.of(cell, pad))
        lines.append(line)
    return lines

"""The terminal as the blocks see it: a width, and lines of styled text that fit into it.

Everything is drawn so that it reads without colour; colour adds, it never carries meaning alone. Taking the escape
codes out of coloured output therefore leaves exactly the plain output, and a test holds that.
"""

import io
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from sublight.report.blocks import Tone
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
    """`width` columns, with or without colour. The sixteen colours of the terminal's own theme, for the same reason."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = max(width, NARROWEST)
        self.prose = min(self.width, PROSE)
        self._console = Console(
            file=io.StringIO(),
            width=self.width,
            color_system="standard" if colour else None,
            force_terminal=colour,
            no_color=not colour,
            force_jupyter=False,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
            # What is drawn depends on the arguments alone, not on NO_COLOR, COLUMNS or TERM.
            _environ={},
        )

    def wrap(self, text: Text, width: int) -> list[Text]:
        """`text` in lines of at most `width` columns, broken at spaces, inside a word only where a word is longer."""
        if text.cell_len <= width:
            return [text]
        lines = list(text.wrap(self._console, max(width, 2), overflow="fold"))
        for line in lines:
            line.rstrip()
        return lines or [Text()]

    def hang(self, lead: Text, body: Text, width: int) -> list[Text]:
        """`body` wrapped beside `lead`, further lines indented by the width of it."""
        indent = lead.cell_len
        lines = self.wrap(body, width - indent)
        return [Text.assemble(lead if index == 0 else " " * indent, line) for index, line in enumerate(lines)]

    def paint(self, lines: Iterable[Text]) -> str:
        """The finished output."""
        with self._console.capture() as capture:
            for line in lines:
                line.rstrip()
                # A line longer than the screen is one that must not be broken: it is left to the terminal.
                self._console.print(line, no_wrap=True, overflow="ignore", crop=False)
        return capture.get()


def plain(text: str, tone: Tone = "plain") -> Text:
    """Foreign text as one inert, styled piece."""
    return Text(visible(text), style=STYLES[tone])


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
            pad = " " * (width - cell.cell_len)
            line.append(" " * gap if index else "")
            line.append_text(Text.assemble(pad, cell) if right and right[index] else Text.assemble(cell, pad))
        lines.append(line)
    return lines

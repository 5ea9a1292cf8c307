"""Styled text on one line: what a terminal line is made of before it becomes characters and escape codes.

rich has this and much more, and takes twenty milliseconds to import for it: a fifth of the time that a whole command
may take. What is needed here is pieces with a style, wrapping, and widths; the widths, which are the hard part, are
rich's.
"""

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

# Words with the spaces before them. A space that does not break is part of its word.
_WORD = re.compile(r"[^\S\u00a0\u202f]*(?P<word>(?:\S|[\u00a0\u202f])+)")

# The sixteen colours of the terminal's own theme, so that text is as readable there as everything else.
_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Text:
    """Pieces of text, each with a style: words of `_CODES` with spaces between, or nothing."""

    __slots__ = ("pieces",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = [(text, style)] if text else []

    @classmethod
    def of(cls, *parts: "str | Text") -> "Text":
        """The parts in a row."""
        text = cls()
        for part in parts:
            text.append(part)
        return text

    def append(self, part: "str | Text", style: str = "") -> None:
        """Add at the end; `style` is for a part that has none of its own."""
        if isinstance(part, Text):
            self.pieces.extend(part.pieces)
        elif part:
            self.pieces.append((part, style))

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.pieces)

    @property
    def width(self) -> int:
        """Columns on the terminal."""
        return cell_len(self.plain)

    def wrapped(self, width: int) -> "list[Text]":
        """Lines of at most `width` columns, broken at spaces, inside a word only where a word is longer than that.

        A wide character takes two columns, so a width of one holds none.
        """
        if self.width <= width:
            return [self]
        return [self._part(start, end) for start, end in _lines(self.plain, width)] or [Text()]

    def painted(self, colour: bool) -> str:
        """The characters, with escape codes around what has a style; no spaces at the end."""
        plain = self.plain
        if not colour:
            return plain.rstrip()
        painted = []
        for text, style in self._part(0, len(plain.rstrip())).pieces:
            codes = ";".join(_CODES[word] for word in style.split())
            painted.append(f"\x1b[{codes}m{text}\x1b[0m" if codes else text)
        return "".join(painted)

    def _part(self, start: int, end: int) -> "Text":
        part = Text()
        place = 0
        for text, style in self.pieces:
            part.append(text[max(start - place, 0) : max(end - place, 0)], style)
            place += len(text)
        return part


def _lines(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Where each line starts and ends in the text. Spaces at a break belong to no line."""
    start = end = 0
    for match in _WORD.finditer(text):
        if cell_len(text[start : match.end()]) <= width:
            end = match.end()
            continue
        if end > start:
            yield start, end
        start = end = match.start("word")
        # A word of nothing but marks that combine has no width, and no cells to chop.
        *full, rest = chop_cells(match["word"], width) or [match["word"]]
        for chunk in full:
            yield start, start + len(chunk)
            start += len(chunk)
        end = start + len(rest)
    if end > start:
        yield start, end

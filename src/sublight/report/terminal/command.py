"""Commands that can be copied: broken over lines only where a shell joins them again.

A line longer than the screen is broken at spaces, each piece but the last ending in a backslash; pasted, the pieces
are the same command. Where that can not be promised (a comment, a here-document, a quote that runs over lines, or one
word longer than the screen) the line is left whole: the one thing in a report that may be wider than the screen.
"""

import re
from collections.abc import Iterator

from sublight.report.blocks import Code
from sublight.report.terminal.screen import Screen
from sublight.report.terminal.text import Text
from sublight.report.visible import visible_lines

INDENT = "  "
FURTHER = "    "  # of the pieces after the first, beyond INDENT

# A run of spaces, or a piece of a word: quoted, escaped, or bare. Inside double quotes a backslash escapes too.
_TOKEN = re.compile(r"""(?P<space>[ ]+)|(?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^ \\'"])+)""")


def code(block: Code, screen: Screen) -> Iterator[Text]:
    lines = visible_lines(block.text.strip("\n"))
    breakable = not any("<<" in line for line in lines)
    for line in lines:
        pieces = shell_pieces(line, screen.width - len(INDENT)) if breakable else [line]
        for index, piece in enumerate(pieces):
            yield Text(INDENT + (FURTHER if index else "") + piece, "cyan")


def shell_pieces(line: str, width: int) -> list[str]:
    """The line in pieces that fit `width` where a shell allows it, else the line itself."""
    if Text(line).width <= width:
        return [line]
    words = _words(line)
    if words is None:
        return [line]
    pieces = [words[0]]
    for gap, word in zip(words[1::2], words[2::2], strict=True):
        longer = pieces[-1] + gap + word
        indent = len(FURTHER) if len(pieces) > 1 else 0
        # Two columns are kept for the backslash, as it is not known yet whether more follows.
        if Text(longer).width + indent + 2 <= width:
            pieces[-1] = longer
        else:
            pieces[-1] += " \\"
            pieces.append(word)
    return pieces


def _words(line: str) -> list[str] | None:
    """Words and the spaces between them, in turn, starting and ending with a word; None where it is no plain line."""
    tokens = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        # A quote that does not close, a backslash at the end, or a comment.
        if match is None or (match["word"] or "").startswith("#"):
            return None
        tokens.append(match[0])
        position = match.end()
    leading = tokens.pop(0) if tokens and tokens[0].isspace() else ""
    if tokens and tokens[-1].isspace():
        tokens.pop()
    if not tokens:
        return None
    return [leading + tokens[0], *tokens[1:]]

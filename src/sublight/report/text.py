"""A document for a terminal of a given width.

No line is longer than the width, except a command that can not be broken and still be copied (`terminal.command`).
Notes of table cells are left out. Start-up time is a goal, so everything behind this door is imported when there is
something to render, and of rich only the widths of characters.
"""

from sublight.report.blocks import Document
from sublight.report.check import check


def render_text(document: Document, *, width: int, colour: bool) -> str:
    """The document as lines of text.

    Args:
        document: what to show.
        width: columns of the terminal; less than 20 is taken as 20.
        colour: with escape codes for colour and weight; without them the text is the same.

    Raises:
        ValueError: a chart's numbers are not what it claims (`check`).
    """
    check(document)
    from sublight.report.terminal.page import lay_out
    from sublight.report.terminal.screen import Screen

    screen = Screen(width, colour)
    return screen.paint(lay_out(document, screen))

"""The whole document from top to bottom: which function draws which block, and the empty lines between them."""

from collections.abc import Iterator
from typing import assert_never

from sublight.report.blocks import (
    Bars,
    Block,
    Code,
    Curves,
    Document,
    Facts,
    Heading,
    Headline,
    Listing,
    Note,
    Paragraph,
    Table,
    Timeline,
    Waterfall,
)
from sublight.report.terminal import prose
from sublight.report.terminal.bars import bars, waterfall
from sublight.report.terminal.command import code
from sublight.report.terminal.screen import Screen, plain
from sublight.report.terminal.table import table
from sublight.report.terminal.text import Text


def lay_out(document: Document, screen: Screen) -> Iterator[Text]:
    """Everything to print, in order; each item takes whole lines."""
    yield from prose.title(document.title, screen)
    under_heading = False
    for block in document.blocks:
        if isinstance(block, Timeline) and not block.terminal:
            continue
        # What a heading announces stands right under it.
        if not under_heading:
            yield Text()
        yield from draw(block, screen)
        under_heading = isinstance(block, Heading)
    left_out = dict.fromkeys(block.text for block in document.more if isinstance(block, Heading))
    if left_out:
        yield Text()
        yield from plain(
            f"Left out here, shown by --html FILE and --markdown: {', '.join(left_out)}.", "muted"
        ).wrapped(screen.prose)
    if document.footer:
        yield Text()
        yield from plain(document.footer, "muted").wrapped(screen.prose)


def draw(block: Block, screen: Screen) -> Iterator[Text]:
    """One block, without the empty lines around it."""
    match block:
        case Heading():
            return prose.heading(block, screen)
        case Paragraph():
            return prose.paragraph(block, screen)
        case Facts():
            return prose.facts(block, screen)
        case Headline():
            return prose.headline(block, screen)
        case Listing():
            return prose.listing(block, screen)
        case Note():
            return prose.note(block, screen)
        case Table():
            return table(block, screen)
        case Code():
            return code(block, screen)
        case Bars():
            return bars(block, screen)
        case Waterfall():
            return waterfall(block, screen)
        case Curves():
            # A page without curves does not pay for axes.
            from sublight.report.terminal.plot import curves

            return curves(block, screen)
        case Timeline():
            from sublight.report.terminal.timeline import timeline

            return timeline(block, screen)
    assert_never(block)

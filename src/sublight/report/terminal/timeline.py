"""A timeline on a terminal: two lines a lane, how busy each column was and under it the letter of a group.

A column is far wider than most events, so columns are dealt out to the groups by time (`lanes.deal`): what a group has
of them, height by width, is about its share of the lane. What was idle is left empty.
"""

from collections.abc import Iterator, Mapping, Sequence

from sublight.report.axis import axis, number
from sublight.report.blocks import Timeline
from sublight.report.lanes import Group, Stretch, busy, deal, groups, stretches
from sublight.report.terminal.plot import letter, tick_line
from sublight.report.terminal.screen import Screen, beside, hang, plain, widest
from sublight.report.terminal.strokes import COLOURS, SOLID, UNKNOWN, level
from sublight.report.terminal.text import Text

GAP = 2
LANES = 8  # the busiest are drawn, and the others counted: at two lines each they would fill a screen
UNNAMED = "?"  # for what nobody has explained, in place of a letter


def timeline(block: Timeline, screen: Screen) -> Iterator[Text]:
    shown = groups(block)
    found = [stretches(block, lane) for lane in range(len(block.lanes))]
    shares = [f"busy {busy(own) / block.span * 100:.1f} %" for own in found]
    ranked = sorted(range(len(found)), key=lambda lane: -busy(found[lane]))
    drawn, left = sorted(ranked[:LANES]), ranked[LANES:]
    names = [(block.lanes[lane], shares[lane]) for lane in drawn]
    label = min(widest([text for both in names for text in both]), max(screen.width // 5, 11))
    width = screen.width - label - GAP
    if block.title:
        yield from plain(block.title, "strong").wrapped(screen.prose)
    yield from _legend(block, shown, screen)
    for lane, (name, share) in zip(drawn, names, strict=True):
        labels = [*plain(name).wrapped(label), *plain(share, "muted").wrapped(label)]
        yield from beside([labels, _lane(found[lane], shown, block.span, width)], [label, width], GAP)
    yield from _scale(block, label + GAP, width)
    for mark in block.marks:
        yield from hang(Text("┊ ", "dim"), plain(f"{number(mark.x)} {block.unit}: {mark.label}"), screen.prose)
    words = f"A column is {number(block.span / width)} {block.unit}, as high as it was busy."
    if left:
        words += f" Not drawn: {len(left)} more lane{'s' if len(left) > 1 else ''}, {shares[left[0]]} at most."
    yield from plain(words, "muted").wrapped(screen.prose)
    if block.caption:
        yield from plain(block.caption, "muted").wrapped(screen.prose)


def _key(group: Group) -> tuple[str, str]:
    """The letter and the style of a group. Colours start over in bold, letters much later."""
    if not group.known:
        return UNNAMED, "yellow"
    rounds, index = divmod(group.number, len(COLOURS))
    return letter(group.number), f"bold {COLOURS[index]}" if rounds % 2 else COLOURS[index]


def _lane(own: Sequence[Stretch], shown: Sequence[Group], span: float, width: int) -> list[Text]:
    members = {row: index for index, group in enumerate(shown) for row in group.rows}
    heights, letters = Text(), Text()
    for cell in deal(own, members, span, width):
        name, style = _key(shown[cell.key])
        for line, character in ((heights, level(cell.busy)), (letters, name)):
            line.append(" " * (round(cell.start * width) - line.width))
            line.append(character, style)
    return [heights, letters]


def _legend(block: Timeline, shown: Sequence[Group], screen: Screen) -> Iterator[Text]:
    """Every group with the sum of its durations, side by side as they fit."""
    line = Text()
    for group in shown:
        name, style = _key(group)
        size = plain(f"{number(group.time)} {block.unit}", "strong")
        key = Text((SOLID if group.known else UNKNOWN) + name, style)
        entry = Text.of(key, " ", plain(group.name), " ", size)
        if line.width and line.width + 3 + entry.width > screen.prose:
            yield line
            line = Text()
        line = Text.of(line, "   ", entry) if line.width else entry
        if line.width > screen.prose:
            *whole, line = line.wrapped(screen.prose)
            yield from whole
    if line.width:
        yield line


def _scale(block: Timeline, indent: int, width: int) -> Iterator[Text]:
    """The axis: a tee where each band begins, if they can be told apart, a broken line at each mark, and numbers."""

    def columns(places: Sequence[float]) -> set[int]:
        return {min(int(place / block.span * width), width - 1) for place in places}

    bands, marks = columns([band.start for band in block.bands]), columns([mark.x for mark in block.marks])
    signs: Mapping[int, str] = dict.fromkeys(bands if len(bands) * 3 <= width else (), "┬") | dict.fromkeys(marks, "┊")
    yield Text(" " * indent + "".join(signs.get(column, "─") for column in range(width)), "dim")
    xs = axis([0.0, block.span], log=False, ticks=max(2, width // 12))
    yield Text(" " * indent + tick_line(xs, width), "dim")

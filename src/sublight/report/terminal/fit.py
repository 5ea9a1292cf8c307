"""Which columns of a table are shown, and how wide: pure arithmetic on widths.

Numbers are never broken over lines. Text columns may wrap, and are given room to stay readable before any column is
left out for lack of space; the columns left out are those the view said matter least.
"""

from collections.abc import Sequence

import msgspec

READABLE = 20  # a text column is not squeezed below this while a less important column could go instead
LONG = 32  # nor below its longest word, up to this; nor does a line's name wrap below it, as it is what eyes run down
_TIGHTEST = 2
TIGHT = 10  # what a text column may be squeezed to once nothing more can go


class Need(msgspec.Struct, frozen=True):
    """What one column needs: `whole` to show every cell on one line, `unbroken` for its widest number or word."""

    whole: int
    unbroken: int
    wraps: bool
    priority: int
    names: bool = False  # the column that names the lines
    asked: int = 0  # the view's own least width for a column of text

    def least(self, tight: int) -> int:
        """The narrowest it may become: `tight` is 0 while columns can go, 1 while words of names stay whole, then 2."""
        if not self.wraps:
            return self.unbroken
        if tight:
            kept = 0 if tight == _TIGHTEST else min(self.unbroken, LONG) if self.names else self.asked
            return min(self.whole, max(TIGHT, kept))
        return min(self.whole, LONG if self.names else max(READABLE, self.asked, min(self.unbroken, LONG)))


class Fit(msgspec.Struct, frozen=True):
    """Indices of the columns shown, and the width of each."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]


def fit(needs: Sequence[Need], room: int, gap: int) -> Fit | None:
    """The columns that `room` holds with `gap` between them, or None where not even the most important ones fit."""
    shown = list(range(len(needs)))
    tight = 0
    while _total(needs, shown, tight, gap) > room:
        optional = [index for index in shown if needs[index].priority > 0]
        if optional and len(shown) > 1:
            shown.remove(max(optional, key=lambda index: (needs[index].priority, index)))
        elif tight < _TIGHTEST:
            tight += 1
        else:
            return None
    widths = {index: needs[index].least(tight) for index in shown}
    spare = room - _total(needs, shown, tight, gap)
    # Words of names first; then small wants, so that as many columns as possible stop wrapping, and the longest last.
    names = [(index, needs[index].least(1)) for index in shown if needs[index].names]
    rest = sorted(((index, needs[index].whole) for index in shown), key=lambda want: want[1] - widths[want[0]])
    for index, wanted in [*names, *rest]:
        extra = max(0, min(spare, wanted - widths[index]))
        widths[index] += extra
        spare -= extra
    return Fit(tuple(shown), tuple(widths[index] for index in shown))


def _total(needs: Sequence[Need], shown: Sequence[int], tight: int, gap: int) -> int:
    return sum(needs[index].least(tight) for index in shown) + gap * (len(shown) - 1)

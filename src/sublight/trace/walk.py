"""Walking through a stretch of events that did not decode as a whole: most of it is fine, and something is not.

The stretch is split wherever the text that separates two events in this file occurs. That may also occur inside an
event; where the brackets say so, a part is taken together with what follows it. A good event is never changed: mending
is tried only on what is no JSON, and given up after many failures in a row, so that a file of nonsense ends soon.
"""

import re
from bisect import bisect_left
from enum import Enum, auto

import msgspec

from sublight.trace import kineto
from sublight.trace.collect import Collector
from sublight.trace.mending import mend, without_bare_words
from sublight.trace.nesting import Nesting
from sublight.trace.repairs import RepairKind

_MOST_BYTES_USUALLY = 1 << 12
_MOST_JOINED_BYTES = 1 << 16
_MOST_FAILURES = 200
_MOST_BATCHES = 1 << 14
_LIST_END = re.compile(rb'\}\s*(\])(?=\s*(?:,\s*"|\}|$))')
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_ANYTHING_KNOWN = re.compile(rb"[,{\]]")
UNREADABLE = "text among the events that is no event, even after mending; left out"


class State(Enum):
    """How far the list of events got."""

    GOES_ON = auto()
    CLOSED = auto()  # its closing bracket was passed
    AT_BRACKET = auto()  # a closing bracket was reached, which may be a stray one
    NEEDS_MORE = auto()  # a part may belong together with text that has not been read
    BROKEN = auto()  # the text ends inside an event


class Walk:
    """One stretch of text that starts at an event.

    Args:
        text: the stretch.
        separator: what stands between two events, from the closing brace of one to the opening brace of the next.
        final: no more text follows, so the end of the list is in here or missing.
        collector: takes the events.

    Attributes:
        at: afterwards, how much of the text was used.
        clean: whether the last event was taken as it stands.
    """

    def __init__(self, text: bytes, separator: bytes, final: bool, collector: Collector) -> None:
        self.text, self._words = without_bare_words(text)
        self.at = 0
        self.clean = True
        self._final = final
        self._collector = collector
        self._starts, self._ends = _parts(self.text, separator)
        self._batches: list[kineto.Batch] = []

    def run(self) -> State:
        """Give every event to the collector, in order."""
        state = self._run()
        self._hand_over()
        count = sum(at < self.at for at, _ in self._words)
        if count:
            self._collector.repairs.add(
                RepairKind.BAD_NUMBER,
                "bare words such as NaN where a number belongs; taken as absent",
                self._words[0][1].decode("utf-8", "replace"),
                count,
            )
        return state

    def _run(self) -> State:
        part, size = 0, len(self._starts)
        whole = size - 1 if self._final else size
        while part < len(self._starts):
            size = max(1, min(size, whole - part))
            if part < whole and self._take(self._starts[part], self._ends[part + size - 1]):
                part, size, self.clean = part + size, size * 2, True
            elif size > 1:
                size = (size + 1) // 2
            else:
                state, part = self._one(part)
                if state is not State.GOES_ON:
                    return state
        self.at = len(self.text)
        return State.GOES_ON

    def _take(self, low: int, high: int) -> bool:
        try:
            batch = kineto.decode(b"[" + self.text[low:high] + b"]")
        except msgspec.DecodeError:
            return False
        self._batches.append(batch)
        self._collector.failures = 0
        if len(self._batches) >= _MOST_BATCHES:
            self._hand_over()
        return True

    def _hand_over(self) -> None:
        """Many batches at once, for a table takes many events as quickly as one."""
        if self._batches:
            self._collector.add(kineto.joined(self._batches))
            self._batches.clear()

    def _one(self, part: int) -> tuple[State, int]:
        """One part that is no event as it stands, or the last one, which holds the end of the list."""
        low, high = self._starts[part], self._ends[part]
        is_last = self._final and part == len(self._starts) - 1
        if self.text[low : low + 1] != b"{":
            return self._after(part, low)
        if self._collector.failures > _MOST_FAILURES and not is_last:
            return self._unreadable(part, low, high)
        size = self._size(low, high)
        # A name such as f<"}, {"> ends the event too early; then the whole part is one event to be mended.
        early = size is not None and size < high - low and not is_last and self.text.count(b'"ph"', low, high) == 1
        if size is not None and not early and self._take(low, low + size):
            self.clean = True
            return self._after(bisect_left(self._ends, low + size), low + size)
        if size is None and len(self.text) - low < _MOST_JOINED_BYTES and not self._final:
            self.at = low
            return State.NEEDS_MORE, part
        self.clean = False
        if self._mended(low, high):
            return self._after(part, high)
        if size is not None and size < high - low and (self._take(low, low + size) or self._mended(low, low + size)):
            return self._after(part, low + size)
        return self._last(part, low, size) if is_last else self._unreadable(part, low, high)

    def _size(self, low: int, high: int) -> int | None:
        """How long the event is, as its brackets and quotes say; it may reach beyond its part."""
        for width in (_MOST_BYTES_USUALLY, _MOST_JOINED_BYTES):
            size = Nesting().end_in(self.text[low : low + width])
            if size is not None:
                return size
        end = Nesting().end_in(self.text, low) if high - low > _MOST_JOINED_BYTES else None
        return None if end is None else end - low

    def _last(self, part: int, low: int, size: int | None) -> tuple[State, int]:
        """The last part, when no event could be made of it as far as its brackets say."""
        for match in _LIST_END.finditer(self.text, low, min(low + _MOST_JOINED_BYTES, len(self.text))):
            if self._mended(low, match.start(1)):
                return self._after(part, match.start(1))
        if size is None:
            self.at = low
            return State.BROKEN, part
        return self._unreadable(part, low, low + size)

    def _after(self, part: int, at: int) -> tuple[State, int]:
        """What follows an event within its part: the end of the list, another event, or nothing."""
        end = self._ends[part]
        between = _BETWEEN.match(self.text, at, end)
        at = between.end() if between else at
        if at >= end:
            return State.GOES_ON, part + 1
        following = self.text[at : at + 1]
        if following == b"]":
            self.at = at
            return State.AT_BRACKET, part
        if following == b"{":
            self._starts[part] = at
            return State.GOES_ON, part
        return self._unreadable(part, at, at + self._width(at, end))

    def _width(self, at: int, end: int) -> int:
        """How much to pass over: a value that is no object, or what looks like nothing at all."""
        if self.text[at : at + 1] in (b"[", b'"'):
            value_end = Nesting().end_in(self.text[at : min(end, at + _MOST_JOINED_BYTES)])
            if value_end is not None:
                return value_end
        known = _ANYTHING_KNOWN.search(self.text, at + 1, end)
        return (known.start() if known else end) - at

    def _mended(self, low: int, high: int) -> bool:
        row = mend(self.text, low, high)
        if row is None:
            return False
        self._batches.append(kineto.loosely([row]))
        self._collector.failures = 0
        self._collector.repairs.add(
            RepairKind.MENDED_TEXT,
            "events whose text is not JSON as written (quotes, backslashes, encoding); read after mending",
            self._shown(low),
        )
        return True

    def _unreadable(self, part: int, low: int, high: int) -> tuple[State, int]:
        """Leave out the text, and go on behind it."""
        self.clean = False
        self._collector.failures += 1
        self._collector.repairs.add(RepairKind.UNREADABLE_EVENT, UNREADABLE, self._shown(low))
        self._starts[part] = high
        return State.GOES_ON, part + (high >= self._ends[part])

    def _shown(self, low: int) -> str:
        return self.text[low : low + 400].decode("utf-8", "replace")


def _parts(text: bytes, separator: bytes) -> tuple[list[int], list[int]]:
    """Where each part starts and ends; the braces belong to the parts."""
    starts, ends = [0], []
    closing = separator.index(b"}") + 1
    found = text.find(separator)
    while found >= 0:
        ends.append(found + closing)
        starts.append(found + len(separator) - 1)
        found = text.find(separator, starts[-1])
    ends.append(len(text))
    return starts, ends

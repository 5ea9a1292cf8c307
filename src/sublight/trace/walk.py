"""Walking through a stretch of events that did not decode as a whole: most of it is fine, and something is not.

The stretch is split wherever the text that separates two events in this file occurs. That may also occur inside an
event; where the brackets say so, a part is taken together with what follows it. A good event is never changed: mending
is tried only on what is no JSON.
"""

import re
from bisect import bisect_left
from enum import Enum, auto

import msgspec

from sublight.trace import kineto
from sublight.trace.collect import Collector
from sublight.trace.mending import mend
from sublight.trace.nesting import Nesting
from sublight.trace.repairs import RepairKind

_SPACE = b" \t\r\n"
_MOST_JOINED_BYTES = 1 << 16
UNREADABLE = "text among the events that is no event, even after mending; left out"
_LIST_END = re.compile(rb'\}\s*(\])(?=\s*(?:,\s*"|\}|$))')


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
        self.text = text
        self.at = 0
        self.clean = True
        self._final = final
        self._collector = collector
        self._starts, self._ends = _parts(text, separator)
        self._batches: list[kineto.Batch] = []

    def run(self) -> State:
        """Give every event to the collector, in order."""
        state = self._run()
        # At once, for a table takes many events as quickly as one.
        if self._batches:
            self._collector.add(kineto.joined(self._batches))
        return state

    def _run(self) -> State:
        at, size = 0, len(self._starts)
        whole = size - 1 if self._final else size
        while at < len(self._starts):
            size = max(1, min(size, whole - at))
            if at < whole and self._take(self._starts[at], self._ends[at + size - 1]):
                at, size, self.clean = at + size, size * 2, True
            elif size > 1:
                size = (size + 1) // 2
            else:
                state, at = self._one(at)
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
        return True

    def _one(self, part: int) -> tuple[State, int]:
        """One part that is no event as it stands, or the last one, which holds the end of the list."""
        low, high = self._starts[part], self._ends[part]
        text = self.text[low:high]
        if text[:1] != b"{":
            return self._after(part, low)
        size = Nesting().end_in(self.text[low : low + _MOST_JOINED_BYTES])
        # A name such as f<"}, {"> ends the event too early; then the whole part is one event to be mended.
        early = size is not None and size < len(text) and part < len(self._starts) - 1 and text.count(b'"ph"') == 1
        if size is not None and not early and self._take(low, low + size):
            self.clean = True
            return self._after(bisect_left(self._ends, low + size), low + size)
        if size is None and len(self.text) - low < _MOST_JOINED_BYTES and not self._final:
            self.at = low
            return State.NEEDS_MORE, part
        self.clean = False
        if self._mended(text):
            return self._after(part, high)
        if size is not None and size < len(text) and (self._take(low, low + size) or self._mended(text[:size])):
            return self._after(part, low + size)
        if self._final and part == len(self._starts) - 1:
            return self._last(part, low, text, size)
        self._unreadable(text)
        return State.GOES_ON, part + 1

    def _last(self, part: int, low: int, text: bytes, size: int | None) -> tuple[State, int]:
        """The last part, when no event could be made of it as far as its brackets say."""
        for match in _LIST_END.finditer(text):
            if self._mended(text[: match.start(1)].rstrip(_SPACE)):
                return self._after(part, low + match.start(1))
        if size is None:
            self.at = low
            return State.BROKEN, part
        self._unreadable(text[:size])
        return self._after(part, low + size)

    def _after(self, part: int, at: int) -> tuple[State, int]:
        """What follows an event within its part: the end of the list, another event, or nothing."""
        text = self.text[at : self._ends[part]]
        rest = text.lstrip(_SPACE + b",")
        at += len(text) - len(rest)
        if rest[:1] not in (b"", b"]", b"{"):
            width = _width(rest)
            self._unreadable(rest[:width])
            return self._after(part, at + width)
        if rest[:1] == b"]":
            self.at = at
            return State.AT_BRACKET, part
        if rest[:1] == b"{":
            self._starts[part] = at
            return State.GOES_ON, part
        return State.GOES_ON, part + 1

    def _mended(self, text: bytes) -> bool:
        row = mend(text)
        if row is None:
            return False
        self._batches.append(kineto.loosely([row]))
        self._collector.repairs.add(
            RepairKind.MENDED_TEXT,
            "events whose text is not JSON as written (quotes, backslashes, encoding, or a number that is none); "
            "read after mending",
            text[:400].decode("utf-8", "replace"),
        )
        return True

    def _unreadable(self, text: bytes) -> None:
        self._collector.repairs.add(RepairKind.UNREADABLE_EVENT, UNREADABLE, text[:400].decode("utf-8", "replace"))


def _width(junk: bytes) -> int:
    """How much to pass over: a value that is no object, or what looks like nothing at all."""
    if junk[:1] in (b"[", b'"'):
        end = Nesting().end_in(junk)
        if end is not None:
            return end
    following = re.search(rb"[,{\]]", junk[1:])
    return following.start() + 1 if following else len(junk)


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

"""The list of events: cut into pieces that decode on their own, whatever layout it was written in.

The text between two events is the same throughout a file (a line `  },` in Kineto's own layout, `},{` in compact JSON),
so it is learned once, and a block is cut at its last occurrence. Nothing says that such a place is not inside a string
or a nested list; but a piece that begins at an event and decodes as a whole has closed all its brackets and strings, so
a cut is proven by decoding what precedes it. What does not decode is walked through event by event.
"""

import re
from collections import Counter

import msgspec

from sublight.trace import kineto
from sublight.trace.collect import Collector
from sublight.trace.nesting import Nesting
from sublight.trace.repairs import RepairKind
from sublight.trace.walk import UNREADABLE, State, Walk
from sublight.trace.window import Window

_SPACE = b" \t\r\n"
_SAMPLE = 1 << 18
_MOST_HELD = 1 << 24
_BETWEEN = rb"(?:\r?\n[ \t]*)?\}\s*,\s*\{"
_SEPARATOR = re.compile(_BETWEEN)
_LIKELY_SEPARATOR = re.compile(
    rb"(" + _BETWEEN + rb')(?=\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s|tts|tdur|cname|sf|scope|id2)"\s*:)'
)
_PLAIN_SEPARATOR = b"},{"


class EventList:
    """Reads events from a window until the list or the text ends.

    Args:
        window: stands just after the opening bracket, or at an event.
        collector: takes the events.
        separator: what stands between two events, where it is known already.
    """

    def __init__(self, window: Window, collector: Collector, separator: bytes = b"") -> None:
        self.window = window
        self.separator = separator
        self.clean = True
        self._collector = collector

    def read(self) -> State:
        """CLOSED, with the window after the bracket; GOES_ON, the text ended between events; or BROKEN, inside one."""
        if not self.separator:
            self.learn()
        while True:
            if self.window.next_token() == b"]":
                if self._closes():
                    return State.CLOSED
            elif not self._through_window() and not self.window.more():
                break
        return self._to_the_end()

    def learn(self) -> None:
        """Find the separator in the first events. Always from equally much text: never a matter of the block size."""
        window = self.window
        while len(window.data) < _SAMPLE and window.more():
            pass
        self.separator = _separator(window.data[:_SAMPLE])

    def _closes(self) -> bool:
        """Whether the bracket at the window ends the list, as what follows it tells; either way it is passed."""
        window = self.window
        while (token := _after_bracket(window.data)) is None and window.more():
            pass
        window.drop(1)
        if token != b"{":
            return True
        self._unreadable(b"]")
        return False

    def _through_window(self) -> bool:
        """Take all events that the window holds whole; True if there is something to do without more text."""
        window, separator = self.window, self.separator
        cut = window.data.rfind(separator)
        if cut < 0:
            return len(window.data) > _MOST_HELD and self._give_up_on_one()
        stretch = window.data[: cut + separator.index(b"}") + 1]
        used = cut + len(separator) - 1
        try:
            self._collector.add(kineto.decode(b"[" + stretch + b"]"))
            self._collector.failures = 0
            self.clean = True
        except msgspec.DecodeError:
            walk = Walk(stretch, separator, False, self._collector)
            state = walk.run()
            self.clean = walk.clean
            if state is not State.GOES_ON:
                window.drop(walk.at)
                return state is State.AT_BRACKET
        window.drop(used)
        return False

    def _give_up_on_one(self) -> bool:
        """Very much text without a separator: the list ended long ago, or this is no event. Memory stays bounded."""
        walk = Walk(self.window.data, self.separator, True, self._collector)
        state = walk.run()
        self.window.drop(walk.at)
        if state is State.BROKEN and not walk.at:
            self._unreadable(self.window.data[:400])
            self._skip_to_separator()
        return True

    def _skip_to_separator(self) -> None:
        window, separator = self.window, self.separator
        while (found := window.data.find(separator)) < 0:
            window.drop(max(0, len(window.data) - len(separator)))
            if not window.more():
                return
        window.drop(found + len(separator) - 1)

    def _to_the_end(self) -> State:
        """The rest, when no more text follows."""
        while self.window.next_token():
            walk = Walk(self.window.data, self.separator, True, self._collector)
            state = walk.run()
            self.clean = walk.clean
            self.window.drop(walk.at)
            if state is State.BROKEN:
                return state
            if state is State.AT_BRACKET and self._closes():
                return State.CLOSED
        return State.GOES_ON

    def _unreadable(self, text: bytes) -> None:
        self._collector.repairs.add(RepairKind.UNREADABLE_EVENT, UNREADABLE, text.decode("utf-8", "replace"))


def _after_bracket(text: bytes) -> bytes | None:
    """The first byte that tells whether the bracket in front ends the list; None if the text ends before it.

    After the list come the end of the object or another member; after a stray bracket, another event.
    """
    rest = text[1:].lstrip(_SPACE)
    if rest[:1] == b",":
        rest = rest[1:].lstrip(_SPACE)
    return rest[:1] or None


def _separator(sample: bytes) -> bytes:
    """What stands between the first two events; if the first is damaged, what most often stands before a known key."""
    begin = sample.find(b"{")
    end = Nesting().end_in(sample, begin) if begin >= 0 else None
    if end is not None:
        # The line break before the closing brace belongs to it.
        brace = end - 1
        before = len(sample[:brace].rstrip(b" \t"))
        line_break = before - 2 if sample[before - 2 : before] == b"\r\n" else before - 1
        begin = line_break if sample[before - 1 : before] == b"\n" else brace
        match = _SEPARATOR.match(sample, begin)
        if match:
            return match.group()
    found = Counter(_LIKELY_SEPARATOR.findall(sample))
    return found.most_common(1)[0][0] if found else _PLAIN_SEPARATOR

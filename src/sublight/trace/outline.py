"""The outer level of a trace file: the object around the events, or the bare list of them.

The events may stand anywhere among the members. The other members are small and kept as text, to be read by
`sublight.trace.header`; one that is not small is passed over. Where the outer level is damaged, the name of the list of
events is looked for in the text that follows.
"""

import re

import msgspec

from sublight.trace.collect import Collector
from sublight.trace.eventlist import EventList
from sublight.trace.nesting import Nesting
from sublight.trace.repairs import RepairKind
from sublight.trace.walk import State
from sublight.trace.window import Window

_EVENTS = "traceEvents"
_EVENTS_KEY = b'"traceEvents"'
_EVENTS_LIST = re.compile(rb'"traceEvents"\s{0,8}:\s{0,8}\[')
_MOST_OVERLAP = 64
_MOST_KEPT = 1 << 22
_MOST_MEMBERS = 1000  # a trace has some twenty; this is something else, and is searched the quick way
_SHOWN = 200
_SCALAR_END = b",}] \t\r\n"


class Outline:
    """Reads a document from a window.

    Args:
        window: stands at the beginning of the document, or inside the list of events (`found`).
        collector: takes the events.
        found: the list of events was found already.
        bare: the document is the list alone.

    Attributes:
        members: the text of every other member, by name.
        found: whether there was a list of events.
        whole: whether the document had its end.
        broken: whether it stops inside an event.
        end: how long the text is, once it has been read.
        cut_at: up to where it was used.
    """

    def __init__(self, window: Window, collector: Collector, *, found: bool = False, bare: bool = False) -> None:
        self.window = window
        self.members: dict[str, bytes] = {}
        self.found = found
        self.bare = bare
        self.whole = False
        self.broken = False
        self.end = 0
        self.cut_at = 0
        self._collector = collector

    def to_events(self) -> bool:
        """Read up to the list of events; False if there is none in the rest of the document."""
        if self.window.next_token() == b"[" and not self.found:
            self.window.drop(1)
            self.bare = self.found = True
            return True
        if not self.found and self.window.data[:1] == b"{":
            self.window.drop(1)
        return self._next_member_with_events()

    def through_events(self, events: EventList) -> None:
        """Read the list of events to its end."""
        state = events.read()
        self.broken = state is State.BROKEN
        # A bare list needs no closing bracket: programs that crash leave it out, and viewers accept that.
        self.whole = self.bare and not self.broken

    def to_the_end(self) -> None:
        """Read what follows the events. A second list of events is read like the first."""
        while not self.bare and not self.broken and self._next_member_with_events():
            self._collector.repairs.add(
                RepairKind.REPEATED_EVENTS, 'the file holds "traceEvents" more than once; all of them were read'
            )
            self.through_events(EventList(self.window, self._collector))
        self.cut_at = self.window.offset
        if self.whole and self.window.data[:1] == b"}":
            self.window.drop(1)
        # To the very end also where the document has ended: only then is the checksum of a compressed file compared.
        if self.window.drain() and self.whole:
            self._collector.repairs.add(RepairKind.TRAILING_TEXT, "text after the end of the document; left out")
        self.end = self.window.offset

    def adopt(self, members: dict[str, bytes], whole: bool, broken: bool, end: int, cut_at: int) -> None:
        """Take over what another outline found that read the rest of the document."""
        self.members.update(members)
        self.whole, self.broken, self.end, self.cut_at = whole, broken, end, cut_at

    def _next_member_with_events(self) -> bool:
        window = self.window
        while True:
            token = window.next_token()
            if token == b"":
                return False
            if token == b"}":
                self.whole = self.found
                if self.found or not self._search():
                    return False
                continue
            if token == b",":
                window.drop(1)
                continue
            key = self._key() if token == b'"' and len(self.members) < _MOST_MEMBERS else None
            if key is None or window.next_token() != b":":
                if not self._search():
                    return False
                continue
            window.drop(1)
            opening = window.next_token()
            if key == _EVENTS and opening == b"[":
                window.drop(1)
                self.found = True
                return True
            value = self._value(opening)
            if value is not None:
                self.members[key] = value

    def _key(self) -> str | None:
        text = self._value(b'"')
        try:
            return msgspec.json.decode(text, type=str) if text is not None else None
        except msgspec.DecodeError:
            return None

    def _value(self, opening: bytes) -> bytes | None:
        """Pass over one value; its text, unless it was very long or the document ended in it."""
        window = self.window
        if opening not in (b"{", b"[", b'"'):
            at = 0
            while True:
                while at < len(window.data) and window.data[at] not in _SCALAR_END:
                    at += 1
                if at < len(window.data) or at > _MOST_KEPT or not window.more():
                    break
            text = window.data[:at]
            window.drop(at)
            return text
        nesting, kept, is_long = Nesting(), b"", False
        while True:
            end = nesting.end_in(window.data)
            kept += window.data[:end]
            window.drop(len(window.data) if end is None else end)
            inside = None if self.found else _EVENTS_LIST.search(kept)
            if inside:
                # A stray quote turned strings inside out: the scan would run through all the events.
                window.put_back(kept[inside.start() :])
                self._unreadable(kept[: inside.start()])
                return None
            if end is not None:
                return None if is_long else kept
            if len(kept) > _MOST_KEPT:
                kept, is_long = kept[-_MOST_OVERLAP:], True
            if not window.more():
                return None

    def _search(self) -> bool:
        """After damage: forward to the name of the list of events."""
        window = self.window
        while len(window.data) < _SHOWN and window.more():
            pass
        if not self.found:
            self._unreadable(window.data)
        while (at := window.data.find(_EVENTS_KEY)) < 0:
            window.drop(max(0, len(window.data) - len(_EVENTS_KEY) + 1))
            if not window.more():
                window.drop(len(window.data))
                return False
        window.drop(at)
        return True

    def _unreadable(self, text: bytes) -> None:
        self._collector.repairs.add(
            RepairKind.UNREADABLE_HEADER,
            "the text before the events is not JSON; what it says was left out",
            text[:_SHOWN].decode("utf-8", "replace"),
        )

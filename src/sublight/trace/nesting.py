"""Where one JSON value ends: strings and brackets followed, everything else passed over."""

import re

_NEXT = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class Nesting:
    """The state of a scan over one object, array or string, which may come in blocks."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def end_in(self, block: bytes, start: int = 0) -> int | None:
        """The index just after the value, or None if it goes on in the next block.

        The first block starts (at `start`) with the bracket or quote that opens the value.
        """
        at = start
        while True:
            if self._in_string:
                if self._escaped and at < len(block):
                    at += 1
                    self._escaped = False
                match = _IN_STRING.match(block, at)
                at = match.end() if match else at
                if at >= len(block):
                    return None
                if block[at] == 0x5C:  # a backslash whose other half is in the next block
                    self._escaped = True
                    return None
                self._in_string = False
                at += 1
            else:
                found = _NEXT.search(block, at)
                if found is None:
                    return None
                at = found.end()
                token = found.group()
                if token == b'"':
                    self._in_string = True
                    continue
                self._depth += 1 if token in b"{[" else -1
            if self._depth <= 0:
                return at

"""The text of a file, seen through a window that only moves forward."""

from collections.abc import Iterator

_SPACE = b" \t\r\n"


class Window:
    """What has been read and not yet dropped.

    Args:
        blocks: the text, in pieces of any size.
        offset: where in the whole text the first block begins.
    """

    def __init__(self, blocks: Iterator[bytes], offset: int = 0) -> None:
        self.data = b""
        self.offset = offset
        self.ended = False
        self._blocks = blocks

    def more(self) -> bool:
        """Read on; False at the end of the text."""
        for block in self._blocks:
            if block:
                self.data = self.data + block if self.data else block
                return True
        self.ended = True
        return False

    def drop(self, count: int) -> None:
        """Move the start of the window forward."""
        self.data = self.data[count:]
        self.offset += count

    def drain(self) -> bool:
        """Read and drop all that is left; whether there was anything but white space and padding."""
        something = False
        while True:
            something = something or bool(self.data.strip(_SPACE + b"\0"))
            self.drop(len(self.data))
            if not self.more():
                return something

    def put_back(self, text: bytes) -> None:
        """Move the start of the window back over text that was dropped from it."""
        self.data = text + self.data
        self.offset -= len(text)

    def drop_mark(self, mark: bytes) -> None:
        """Move past these bytes if the text begins with them."""
        while len(self.data) < len(mark) and self.more():
            pass
        if self.data.startswith(mark):
            self.drop(len(mark))

    def next_token(self) -> bytes:
        """Drop white space; the byte that follows, or nothing at the end."""
        while True:
            rest = self.data.lstrip(_SPACE)
            self.offset += len(self.data) - len(rest)
            self.data = rest
            if rest:
                return rest[:1]
            if not self.more():
                return b""

"""The lines of a log file, one at a time, whatever the file holds.

A server's log grows for weeks, is rotated in the middle of a line, and may have been cut, padded with zeros or mixed
with the output of other programs. Nothing is held but one line, and of a line without an end only its beginning.
"""

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from sublight.errors import InputFileError
from sublight.units import counted

LONGEST = 256 * 1024  # the echo of SGLang's arguments has 12 kB
_BLOCK_BYTES = 1 << 20
_HINT = "what vLLM or SGLang printed since its start (plain text or gzip)"
_OTHER = {
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "zstd -d FILE"),
    b"BZh": ("compressed with bzip2", "bunzip2 FILE"),
    b"\xfd7zXZ": ("compressed with xz", "unxz FILE"),
    b"PK\x03\x04": ("a zip archive", "unpack it and read the file inside"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
    b"\x7fELF": ("a program", _HINT),
    b"\x89PNG": ("a picture", _HINT),
    b"SQLite format 3\0": ("a database", _HINT),
}


class Damage:
    """What reading had to repair or leave out, counted."""

    def __init__(self) -> None:
        self.zero_bytes = 0
        self.long_lines = 0
        self.not_utf8 = 0
        self.cut = ""

    def said(self) -> tuple[str, ...]:
        found = []
        if self.cut:
            found.append(self.cut)
        if self.zero_bytes:
            found.append(f"{counted(self.zero_bytes, 'zero byte was', 'zero bytes were')} dropped")
        if self.long_lines:
            longer = counted(self.long_lines, "line is", "lines are")
            found.append(f"{longer} longer than {LONGEST:,} bytes; only the beginning was read")
        if self.not_utf8:
            found.append(
                f"{counted(self.not_utf8, 'line is', 'lines are')} not UTF-8; the bytes in question were replaced"
            )
        return tuple(found)


def log_name(path: str | Path) -> str:
    """How the log is called in evidence."""
    return "standard input" if str(path) == "-" else Path(path).name


def physical_lines(path: str | Path, damage: Damage) -> Iterator[str]:
    """Every line of a file ("-" is standard input), decoded, without its end; a line that was not ended counts.

    Raises InputFileError for what cannot be read, or is known to be something else.
    """
    asked = f"reading {path} as the log of an engine"
    try:
        with _opened(path, asked) as file:
            head = _head(file)
            for magic, (what, hint) in _OTHER.items():
                if head.startswith(magic):
                    raise InputFileError(asked, f"it is {what}", hint)
            yield from _lines(_blocks(file, head, damage), damage)
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), _HINT) from None


def _opened(path: str | Path, asked: str) -> BinaryIO:
    if str(path) == "-":
        if sys.stdin is None:
            raise InputFileError(asked, "this program has no standard input", "a path")
        return open(os.dup(sys.stdin.fileno()), "rb", buffering=0)  # noqa: PTH123 - there is no path
    try:
        mode = Path(path).stat().st_mode
    except ValueError as error:  # a zero byte in the name
        raise InputFileError(asked, str(error), _HINT) from None
    if not stat.S_ISREG(mode):
        found = "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file"
        raise InputFileError(asked, found, _HINT)
    return Path(path).open("rb", buffering=0)


def _head(file: BinaryIO) -> bytes:
    head = b""
    while len(head) < 16 and (more := file.read(16 - len(head))):
        head += more
    return head


class _Headed:
    """A file with the bytes that were already read from it in front."""

    def __init__(self, file: BinaryIO, head: bytes) -> None:
        self._file = file
        self._head = head

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._file.read(size)
        size = len(self._head) if size < 0 else size
        head, self._head = self._head[:size], self._head[size:]
        return head


def _blocks(file: BinaryIO, head: bytes, damage: Damage) -> Iterator[bytes]:
    source = _Headed(file, head)
    if not head.startswith(b"\x1f\x8b"):
        while block := source.read(_BLOCK_BYTES):
            yield block
        return
    with gzip.GzipFile(fileobj=cast(BinaryIO, source), mode="rb") as plain:  # it only reads
        while True:
            try:
                block = plain.read1(1 << 16)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                damage.cut = f"the gzip stream ends or breaks early ({error}); what came before was read"
                return
            if not block:
                return
            yield block


def _lines(blocks: Iterator[bytes], damage: Damage) -> Iterator[str]:
    held, dropping = b"", False
    for block in blocks:
        if b"\0" in block:
            size = len(block)
            block = block.translate(None, b"\0")  # noqa: PLW2901 - the same block, repaired
            damage.zero_bytes += size - len(block)
        *whole, rest = block.split(b"\n")
        if whole:
            first = held if dropping else held + whole[0]
            yield _text(first, damage)
            for line in whole[1:]:
                yield _text(line, damage)
            held, dropping = rest, False
        elif not dropping:
            held += rest
        if len(held) > LONGEST:
            held, dropping = held[: LONGEST + 1], True
    if held:
        yield _text(held, damage)


def _text(line: bytes, damage: Damage) -> str:
    if len(line) > LONGEST:
        damage.long_lines += 1
        line = line[:LONGEST]
    if line.startswith(b'{"'):
        line = _unpacked(line)
    try:
        return line.decode()
    except UnicodeDecodeError:
        damage.not_utf8 += 1
        return line.decode(errors="replace")


class _JsonLine(msgspec.Struct):
    """A line as Docker keeps it (log), or as a JSON formatter writes it, vLLM's own among them (message)."""

    log: str = ""
    message: str = ""
    process_name: str = msgspec.field(default="", name="processName")
    process: int = 0


def _unpacked(line: bytes) -> bytes:
    try:
        found = msgspec.json.decode(line, type=_JsonLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line
    if not found.log and not found.message:
        return line
    by = f"({found.process_name} pid={found.process}) " if found.process_name and found.message else ""
    text = (found.log or by + found.message).rstrip("\n").replace("\n", "\r")  # parts of one line, as it is in the file
    return text.encode(errors="replace")

"""The bytes of a trace file: from a path or from standard input, decompressed, in blocks, recognised by content.

Compressed files are decompressed in a thread, which runs beside the decoding because the libraries let go of the
interpreter; isal is used when it is installed, at a third of zlib's time.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import BinaryIO

from sublight.errors import InputFileError
from sublight.trace.compression import gunzipped, unzstd
from sublight.trace.repairs import RepairLog

BLOCK_BYTES = 1 << 21
_GZIP, _ZSTD, _SQLITE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\0"
_OTHER = {
    b"PK\x03\x04": ("a zip archive", "unpack it and read the file inside"),
    b"BZh": ("compressed with bzip2", "bunzip2 FILE"),
    b"\xfd7zXZ": ("compressed with xz", "unxz FILE"),
    b"\x04\x22\x4d\x18": ("compressed with lz4", "unlz4 FILE"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
    b"\x7fELF": ("a program", "the trace file that the profiler wrote"),
    b"\x89PNG": ("a picture", "the trace file that the profiler wrote"),
}
ANY_TRACE = "a torch profiler trace (JSON, plain, gzip or zstd) or an Nsight Systems export (nsys export --type sqlite)"


class Source:
    """An open file whose form is known.

    Attributes:
        name: how errors and reports call it.
        form: "json" or "sqlite".
        compression: "", "gzip" or "zstd".
        plain_path: the path, if the bytes on disk are the text itself.
        disk_bytes: size on disk, if known.
    """

    def __init__(self, path: str | Path, repairs: RepairLog, block_bytes: int = BLOCK_BYTES) -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        self._repairs = repairs
        self.block_bytes = block_bytes
        self._file = _opened(path, self.name)
        try:
            self._head = _read_fully(self._file, 64)
            self.form, self.compression = _recognised(self._head, self.name)
        except BaseException:
            self.close()
            raise
        self.disk_bytes = None if str(path) == "-" else os.fstat(self._file.fileno()).st_size
        self.plain_path = None if str(path) == "-" or self.compression else Path(path)

    def close(self) -> None:
        if sys.stdin is None or self._file is not sys.stdin.buffer:
            self._file.close()

    def blocks(self) -> Iterator[bytes]:
        """The text from its beginning."""
        raw = _Raw(self._file, self._head)
        if not self.compression:
            while block := raw.read(self.block_bytes):
                yield block
            return
        plain = gunzipped(raw, self._repairs) if self.compression == "gzip" else unzstd(raw, self._repairs, self.name)
        yield from _beside(_gathered(plain, self.block_bytes))


class _Raw:
    """A file with the bytes that were already read from it in front."""

    def __init__(self, file: BinaryIO, head: bytes) -> None:
        self._file = file
        self._head = head

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head or self._file.read(size)


def _opened(path: str | Path, name: str) -> BinaryIO:
    asked = f"reading the trace {name}"
    if str(path) == "-":
        if sys.stdin is None:
            raise InputFileError(asked, "this program has none", "a path")
        return sys.stdin.buffer
    target = Path(path)
    if target.is_dir():
        raise InputFileError(asked, "it is a folder", "one file of it, or all of them as the ranks of one run")
    try:
        # Unbuffered, because blocks are far larger than any buffer.
        return target.open("rb", buffering=0)
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), "a path that exists and can be read") from None


def _recognised(head: bytes, name: str) -> tuple[str, str]:
    asked = f"reading the trace {name}"
    if not head:
        raise InputFileError(asked, "it is empty", ANY_TRACE)
    if head.startswith(_SQLITE):
        return "sqlite", ""
    if name.endswith((".nsys-rep", ".qdrep")):
        export = Path(name).with_suffix(".sqlite")
        raise InputFileError(
            asked,
            "an Nsight Systems report can be read only by Nsight Systems itself",
            f"nsys export --type sqlite --output {export} {name}   and then read {export}",
        )
    if head.startswith(_GZIP):
        return "json", "gzip"
    if head.startswith(_ZSTD):
        return "json", "zstd"
    for magic, (what, hint) in _OTHER.items():
        if head.startswith(magic):
            raise InputFileError(asked, f"it is {what}", hint)
    if b"\0" in head:
        raise InputFileError(asked, "it is not text, and no form of trace that is known here", ANY_TRACE)
    return "json", ""


def _read_fully(file: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def _gathered(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in larger blocks."""
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= size:
            yield b"".join(held)
            held, length = [], 0
    if held:
        yield b"".join(held)


def _beside(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, made in a thread that is at most two ahead."""
    queue: Queue[bytes | BaseException | None] = Queue(maxsize=2)
    stopped = False

    def fill() -> None:
        try:
            for block in blocks:
                if stopped:
                    return
                queue.put(block)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    Thread(target=fill, daemon=True).start()
    try:
        while (block := queue.get()) is not None:
            if isinstance(block, BaseException):
                raise block
            yield block
    finally:
        stopped = True
        while not queue.empty():
            queue.get_nowait()

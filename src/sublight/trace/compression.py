"""Decompression that keeps what was whole: a stream cut short or damaged gives what came before, and says so."""

import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from sublight.errors import InputFileError
from sublight.trace.repairs import RepairKind, RepairLog

_INPUT_BYTES = 1 << 16
# What one call may give out is lost if the call fails, so damage costs at most this much text before it.
_OUTPUT_BYTES = 1 << 16
_EXTRA, _NAME, _COMMENT, _CHECKSUM = 4, 8, 16, 2


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _GzipInput:
    """Input of which single bytes, whole headers, or the rest of a buffer can be taken."""

    def __init__(self, raw: Readable) -> None:
        self._raw = raw
        self.held = b""

    def more(self) -> bool:
        block = self._raw.read(_INPUT_BYTES)
        self.held += block
        return bool(block)

    def take(self, count: int) -> bytes | None:
        while len(self.held) < count:
            if not self.more():
                return None
        taken, self.held = self.held[:count], self.held[count:]
        return taken

    def take_to_zero(self) -> bool:
        while (at := self.held.find(b"\0")) < 0:
            if len(self.held) > _INPUT_BYTES or not self.more():
                return False
        self.held = self.held[at + 1 :]
        return True

    def past_padding(self) -> bool:
        """Drop zeros; False if nothing else follows."""
        while not (rest := self.held.lstrip(b"\0")):
            self.held = b""
            if not self.more():
                return False
        self.held = rest
        return True


def gunzipped(raw: Readable, repairs: RepairLog) -> Iterator[bytes]:
    """The text of a gzip file of any number of members.

    Header and trailer are read here and the data as bare deflate, because libraries that do all of it throw away the
    end of the text when only the checksum behind it is wrong.
    """
    decompressor, checksum, failures = _deflate_library()
    source = _GzipInput(raw)
    members = 0

    def damaged(what: str) -> None:
        repairs.add(RepairKind.DAMAGED_COMPRESSION, f"gzip: {what}; the text before it was used")

    while True:
        if members and not source.past_padding():
            return
        if not _past_header(source):
            damaged("the header of the file is cut or wrong" if not members else "something follows that is not gzip")
            return
        members += 1
        inflate, check, length = decompressor(-15), 0, 0
        data = source.held
        while not inflate.eof:
            if not data:
                source.held = b""
                if not source.more():
                    damaged("the file is cut: it ends inside the compressed data")
                    if text := inflate.flush():
                        yield text
                    return
                data = source.held
            try:
                text = inflate.decompress(data, _OUTPUT_BYTES)
            except failures as error:
                damaged(f"the compressed data is wrong ({error})")
                return
            check, length = checksum(text, check), length + len(text)
            data = inflate.unconsumed_tail
            if text:
                yield text
        source.held = inflate.unused_data
        trailer = source.take(8)
        if trailer is None:
            damaged("the file is cut: it ends without its trailer")
            return
        if trailer != check.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little"):
            damaged("the checksum does not fit, so some of the text may be wrong")


def _past_header(source: _GzipInput) -> bool:
    fixed = source.take(10)
    if fixed is None or fixed[:3] != b"\x1f\x8b\x08":
        return False
    flags = fixed[3]
    if flags & _EXTRA:
        size = source.take(2)
        if size is None or source.take(int.from_bytes(size, "little")) is None:
            return False
    if flags & _NAME and not source.take_to_zero():
        return False
    if flags & _COMMENT and not source.take_to_zero():
        return False
    return not flags & _CHECKSUM or source.take(2) is not None


def _deflate_library() -> tuple[Callable[[int], Any], Callable[[bytes, int], int], tuple[type[Exception], ...]]:
    try:
        isal_zlib = importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib.decompressobj, zlib.crc32, (zlib.error,)
    return isal_zlib.decompressobj, isal_zlib.crc32, (isal_zlib.IsalError, zlib.error)


def unzstd(raw: Readable, repairs: RepairLog, name: str) -> Iterator[bytes]:
    """The text of a zstd file of any number of frames."""
    reader, failures = _zstd_library(raw, name)
    while True:
        try:
            text = reader.read(_OUTPUT_BYTES)
        except failures as error:
            repairs.add(
                RepairKind.DAMAGED_COMPRESSION,
                f"zstd: the compressed data is cut or wrong ({error}); the text before it was used",
            )
            return
        if not text:
            return
        yield text


def _zstd_library(raw: Readable, name: str) -> tuple[Readable, tuple[type[Exception], ...]]:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        pass
    else:
        return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True), (zstandard.ZstdError,)
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        raise InputFileError(
            f"reading the trace {name}",
            "it is compressed with zstd, and this Python has nothing to decompress it with",
            "pip install zstandard, or unzstd FILE",
        ) from None
    return zstd.ZstdFile(raw), (zstd.ZstdError, EOFError)

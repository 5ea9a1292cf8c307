"""`nvidia-smi topo -m` and `nvidia-smi topo -p2p r`: how each pair of GPUs is connected, and whether it may talk."""

import re
from collections.abc import Iterator

import msgspec

from sublight.tuning.parsers.values import kept, plain

_DEVICE = re.compile(r"(?:GPU|NIC|mlx5_)[0-9]+")
_PATH = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV[0-9]+")
_STATUS = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")
_CPUS = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_WORD = re.compile("|".join(p.pattern for p in (_DEVICE, _PATH, _STATUS, _CPUS)) + "|N/A|CPU|NUMA|GPU|Affinity|ID")


class Row(msgspec.Struct, frozen=True):
    """One device: what stands between it and each of the others, in the order of the columns."""

    name: str
    line: int
    cells: tuple[str, ...]
    cpus: str = ""
    numa: int | None = None


class Matrix(msgspec.Struct, frozen=True):
    devices: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def gpus(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.name.startswith("GPU"))

    @property
    def is_whole(self) -> bool:
        """Whether every GPU has a row and a column: a matrix can be cut where it was copied."""
        return [row.name for row in self.gpus] == [name for name in self.devices if name.startswith("GPU")]

    def pairs(self) -> tuple[tuple[str, str, str], ...]:
        """Every two GPUs once: their names, and what the row of the first says."""
        found = []
        for row in self.gpus:
            for device, cell in zip(self.devices, row.cells, strict=True):
                if device.startswith("GPU") and int(row.name[3:]) < int(device[3:]):
                    found.append((row.name, device, cell))
        return tuple(found)


def looks_like_topology(text: str) -> bool:
    return bool(parse_topology(text).rows)


def looks_like_p2p(text: str) -> bool:
    return bool(parse_p2p(text).rows)


def parse_topology(text: str) -> Matrix:
    """The first matrix of paths in the text; empty where there is none."""
    return next((found for found in _matrices(text) if _has_cells(found, _PATH)), Matrix((), ()))


def parse_p2p(text: str) -> Matrix:
    """The first matrix of peer access; a matrix of one card is none, for it says nothing."""
    found = (found for found in _matrices(text) if _has_cells(found, _STATUS) and not _has_cells(found, _PATH))
    return next(found, Matrix((), ()))


def keep(text: str) -> str:
    """Headers and rows of matrices, with the words that may stand in them."""
    return kept(text, _kept)


def _kept(raw: str) -> str:
    words = raw.split()
    if not words or not _DEVICE.fullmatch(words[0]):
        return ""
    return "\t".join(word if _WORD.fullmatch(word) else "-" for word in words)


def _matrices(text: str) -> Iterator[Matrix]:
    """Every matrix. Tabs may have become spaces on the way."""
    devices: tuple[str, ...] = ()
    rows: list[Row] = []
    for line, raw in enumerate([*plain(text).splitlines(), ""], 1):
        words = raw.split()
        if devices and words and _DEVICE.fullmatch(words[0]) and len(words) > len(devices):
            rows.append(_row(words, line, len(devices)))
            continue
        if rows:
            yield Matrix(devices, tuple(rows))
            devices, rows = (), []
        if words and _DEVICE.fullmatch(words[0]):
            devices = _leading(words)


def _leading(words: list[str]) -> tuple[str, ...]:
    devices = []
    for word in words:
        if not _DEVICE.fullmatch(word):
            break
        devices.append(word)
    return tuple(devices)


def _row(words: list[str], line: int, count: int) -> Row:
    rest = words[1 + count :]
    cpus = rest[0] if rest and _CPUS.fullmatch(rest[0]) else ""
    numa = rest[1] if cpus and len(rest) > 1 else ""
    return Row(words[0], line, tuple(words[1 : 1 + count]), cpus, int(numa) if numa.isdecimal() else None)


def _has_cells(matrix: Matrix, kind: re.Pattern[str]) -> bool:
    return bool(matrix.rows) and all(kind.fullmatch(cell) for row in matrix.rows for cell in row.cells)

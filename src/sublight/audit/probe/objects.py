"""For which GPUs compiled code was really built: read from the code objects themselves, never from names.

A shared library carries its GPU code in `.nv_fatbin`: containers, one a compiled source file, each with entries whose
header names kind (machine code or PTX) and exact target, also where the code behind it is compressed. A stand-alone
cubin is an ELF file whose flags hold the target's number; "a" and "f" stand in a note with the assembler's options.
Layouts were checked against what nvcc writes for each target and against `cuobjdump --list-elf`.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import time
from collections.abc import Iterator
from typing import Any

_FATBIN = 0xBA55ED50
_EM_CUDA = 190
_SUFFIX = {0: "", 1: "a", 2: "f"}  # bits 20 and 21 of an entry's flags
_KINDS = {1: "compute_", 2: "sm_"}
_CODE = re.compile(r"\.(so(\.\d+)*|cubin|fatbin)$")
_NOTE_TARGET = re.compile(rb"-arch[ =]sm_(\d{2,3}[af]?)")


def describe(roots: list[str], budget_s: float = 60, most_files: int = 60000) -> dict[str, dict[str, Any]]:
    """Every shared library, cubin and fatbin at or below each of `roots`.

    Returns root -> {"objects": [...], "left_out": n}. An object is {"path", "size", "mtime_ns", "kind", "units",
    "needed", "error"}; `units` is a list of [targets, how often]: what one compiled unit was built for, and how many
    were alike. What the time or the number of files does not allow is counted in `left_out`.
    """
    ends = time.monotonic() + budget_s
    found: dict[str, dict[str, Any]] = {}
    for root in roots:
        objects: list[dict[str, Any]] = []
        left_out = 0
        for path in _files(root):
            if len(objects) >= most_files or time.monotonic() > ends:
                left_out += 1
            else:
                objects.append(_inspect(path))
        found[root] = {"objects": objects, "left_out": left_out}
    return found


def _files(root: str) -> Iterator[str]:
    for path in [root] if os.path.isfile(root) else _below(root):
        name = os.path.basename(path)
        if _CODE.search(name) and not os.path.islink(path):
            yield path


def _below(root: str) -> Iterator[str]:
    for base, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            yield os.path.join(base, name)


def _inspect(path: str) -> dict[str, Any]:
    found: dict[str, Any] = {"path": path, "size": 0, "mtime_ns": 0, "kind": "", "units": [], "needed": [], "error": ""}
    try:
        state = os.stat(path)
        found.update(size=state.st_size, mtime_ns=state.st_mtime_ns)
        if not state.st_size:
            return dict(found, error="it is empty")
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found.update(_contents(data))
    except (OSError, ValueError, struct.error, IndexError) as error:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def _contents(data: mmap.mmap) -> dict[str, Any]:
    if struct.unpack_from("<I", data)[0] == _FATBIN:
        return {"kind": "fatbin", "units": _counted(_containers(data, 0, len(data)))}
    if data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
        raise ValueError("neither a 64-bit ELF file nor a fatbin")
    sections = _sections(data)
    if struct.unpack_from("<H", data, 18)[0] == _EM_CUDA:
        return {"kind": "cubin", "units": [[[_cubin_target(data, sections)], 1]]}
    units: list[tuple[str, ...]] = []
    for name, _, offset, size, _ in sections:
        if name == ".nv_fatbin":
            units += _containers(data, offset, min(offset + size, len(data)))
    return {"kind": "library", "units": _counted(units), "needed": _needed(data, sections)}


def _sections(data: mmap.mmap) -> list[tuple[str, int, int, int, int]]:
    """(name, type, offset, size, link) of every section."""
    start = struct.unpack_from("<Q", data, 40)[0]
    length, count, names = struct.unpack_from("<HHH", data, 58)
    if not start or not count:
        return []
    rows = [struct.unpack_from("<IIQQQQI", data, start + number * length) for number in range(count)]
    text = rows[names][4]
    return [(_string(data, text + row[0]), row[1], row[4], row[5], row[6]) for row in rows]


def _string(data: mmap.mmap, offset: int) -> str:
    end = data.find(b"\0", offset, offset + 4096)
    return bytes(data[offset:end]).decode("utf-8", "replace") if end >= 0 else ""


def _containers(data: mmap.mmap, offset: int, end: int) -> list[tuple[str, ...]]:
    """The targets of each container: a header of 16 bytes with the size of what follows, and entries behind it."""
    units: list[tuple[str, ...]] = []
    while offset + 16 <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, offset)
        if magic != _FATBIN or header < 16:
            offset += 8  # padding between containers of two linked objects
            continue
        units.append(tuple(sorted(_entries(data, offset + header, min(offset + header + size, end)))))
        offset += header + size
    return units


def _entries(data: mmap.mmap, offset: int, end: int) -> set[str]:
    targets: set[str] = set()
    while offset + 48 <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, offset)
        number = struct.unpack_from("<I", data, offset + 28)[0]
        flags = struct.unpack_from("<Q", data, offset + 40)[0]
        if not header:
            raise ValueError("an entry of a fatbin has no header")
        if kind in _KINDS:
            targets.add(f"{_KINDS[kind]}{number}{_SUFFIX.get(flags >> 20 & 3, '?')}")
        offset += header + size
    return targets


def _counted(units: list[tuple[str, ...]]) -> list[Any]:
    counts: dict[tuple[str, ...], int] = {}
    for unit in units:
        counts[unit] = counts.get(unit, 0) + 1
    return [[list(unit), count] for unit, count in sorted(counts.items())]


def _cubin_target(data: mmap.mmap, sections: list[tuple[str, int, int, int, int]]) -> str:
    """The exact target from the assembler's options where they were kept, else the number in the ELF flags.

    The flags hold it in their lowest byte up to ABI version 7 and in the second from version 8 on; they do not tell "a"
    and "f" apart, so a target from flags alone ends in "?".
    """
    for name, _, offset, size, _ in sections:
        if name.startswith(".note.nv"):
            match = _NOTE_TARGET.search(data[offset : offset + size])
            if match:
                return "sm_" + match.group(1).decode("ascii")
    flags = struct.unpack_from("<I", data, 48)[0]
    number = flags >> 8 & 0xFF if data[8] >= 8 else flags & 0xFF
    return f"sm_{number}?"


def _needed(data: mmap.mmap, sections: list[tuple[str, int, int, int, int]]) -> list[str]:
    """The shared libraries that the loader has to find first (DT_NEEDED)."""
    names = []
    for _, kind, offset, size, link in sections:
        if kind == 6 and link < len(sections):  # SHT_DYNAMIC, and the string table it is linked to
            text = sections[link][2]
            for place in range(offset, min(offset + size, len(data) - 15), 16):
                tag, value = struct.unpack_from("<QQ", data, place)
                if tag == 1:
                    names.append(_string(data, text + value))
    return names

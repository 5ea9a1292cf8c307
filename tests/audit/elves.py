"""Small ELF files and fatbins with chosen targets, written by hand after the layouts that nvcc writes."""

import struct
from collections.abc import Sequence

_SUFFIX = {"": 0, "a": 1 << 20, "f": 2 << 20}


def entry(target: str, payload: bytes = b"\0" * 32) -> bytes:
    """One entry of a container: "sm_120a" or "compute_90"."""
    kind, _, rest = target.partition("_")
    number = rest.rstrip("af")
    flags = 0x11 | _SUFFIX[rest[len(number) :]]
    header = struct.pack(
        "<HHIQIIHHIIIQQQ", 2 if kind == "sm" else 1, 0x101, 64, len(payload), 0, 0, 8, 1, int(number), 0, 0, flags, 0, 0
    )
    return header + b"\0" * (64 - len(header)) + payload


def container(targets: Sequence[str]) -> bytes:
    body = b"".join(entry(target) for target in targets)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf(sections: Sequence[tuple[str, int, bytes]], machine: int = 62, flags: int = 0, abi: int = 0) -> bytes:
    """A 64-bit ELF file with these sections (name, type, content); .dynamic is linked to the section behind it."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in sections) + b".shstrtab\0"
    everything = [*sections, (".shstrtab", 3, names)]
    body, rows = b"", [b"\0" * 64]
    for number, (name, kind, content) in enumerate(everything):
        link = number + 2 if name == ".dynamic" else 0
        row = struct.pack(
            "<IIQQQQIIQQ", names.index(name.encode() + b"\0"), kind, 0, 0, 64 + len(body), len(content), link, 0, 1, 0
        )
        rows.append(row)
        body += content
    head = struct.pack(
        "<4sBBBBB7xHHIQQQIHHHHHH",
        b"\x7fELF",
        2,
        1,
        1,
        65,
        abi,
        3,
        machine,
        1,
        0,
        0,
        64 + len(body),
        flags,
        64,
        0,
        0,
        64,
        len(rows),
        len(rows) - 1,
    )
    return head + body + b"".join(rows)


def library(units: Sequence[Sequence[str]], needed: Sequence[str] = ()) -> bytes:
    """A shared library with one fatbin container a unit, and the libraries it needs."""
    text = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    dynamic = b"".join(struct.pack("<QQ", 1, text.index(name.encode() + b"\0")) for name in needed)
    fatbins = b"".join(container(unit) for unit in units)
    return elf([(".nv_fatbin", 1, fatbins), (".dynamic", 6, dynamic), (".dynstr", 3, text)])


def cubin(target: str) -> bytes:
    """A stand-alone cubin as CUDA 13 writes it, with the assembler's options in a note."""
    number = int(target.removeprefix("sm_").rstrip("af"))
    note = b"tkinfo\0ptxas\0-arch " + target.encode() + b" -m 64\0"
    return elf([(".note.nv.tkinfo", 7, note)], machine=190, flags=0x6000002 | number << 8, abi=8)

"""A checkpoint as its safetensors headers tell it: every tensor's dtype, shape and place, without reading the weights.

The format is small (https://github.com/huggingface/safetensors, "Format"): eight bytes little-endian give the length
of a JSON object, which gives each tensor's dtype, shape and byte range; the ranges tile the rest of the file. Headers
of the largest models are read in well under a second, so what they say always wins over what a configuration lets
infer.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from sublight.errors import InputFileError
from sublight.facts.quantization.base import Finding, Quantization
from sublight.facts.quantization.headers import HeaderScheme
from sublight.facts.quantization.names import is_number, shortened
from sublight.files import is_present, read_small_file
from sublight.units import counted

INDEX = "model.safetensors.index.json"

_LONGEST_HEADER = 100_000_000  # the library's own limit
_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
_HINT = "downloading the file again; `sha256sum` tells whether it is the published one"


class StoredTensor(msgspec.Struct, frozen=True):
    """A tensor where it lies.

    Attributes:
        dtype: as safetensors spells it ("BF16", "F8_E4M3", "U8").
        shape: as stored; two four-bit codes count as one "U8".
        bytes: of its payload.
        file: name of the shard.
        offset: of its first byte in that file.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    file: str
    offset: int


class Checkpoint(msgspec.Struct, frozen=True):
    """All tensors of a folder.

    Attributes:
        folder: where the shards lie.
        tensors: by name.
        missing: shards that the index or the numbering of the others names and the folder lacks.
        unread: tensors that the index names and no header has.
    """

    folder: str
    tensors: dict[str, StoredTensor]
    missing: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()

    @property
    def total_bytes(self) -> int:
        """Payload of all tensors; headers are not counted."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    @property
    def files(self) -> list[str]:
        return sorted({tensor.file for tensor in self.tensors.values()})


def from_headers(checkpoint: Checkpoint, inferred: Quantization) -> Quantization:
    """The scheme as the headers of a checkpoint show it, the inferred one where they are silent."""
    findings = inferred.findings
    if checkpoint.missing:
        text = f"{counted(len(checkpoint.missing), 'shard')} missing ({shortened(list(checkpoint.missing))})"
        findings += (Finding("warn", "checkpoint", f"{text}: counted as the configuration says"),)
    return msgspec.structs.replace(
        inferred,
        source=f"{inferred.source}; headers of {counted(len(checkpoint.files), 'shard')} win",
        scheme=HeaderScheme(checkpoint, inferred),
        findings=findings,
    )


def read_checkpoint(folder: Path) -> Checkpoint:
    """All headers of a folder: the shards its index names, or without an index every safetensors file in it.

    Raises:
        InputFileError: no safetensors there, a file that is cut short or is none, or a tensor that is stored twice.
    """
    asked = f"reading the checkpoint {folder}"
    weight_map = _read_index(folder / INDEX) if is_present(folder / INDEX) else None
    try:
        present = {path.name for path in folder.iterdir() if path.name.endswith(".safetensors")}
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), "the folder that holds the checkpoint") from None
    wanted = set(weight_map.values()) if weight_map is not None else present | _numbered(present)
    tensors: dict[str, StoredTensor] = {}
    for name in sorted(wanted & present):
        for tensor, stored in read_header(folder / name).items():
            if tensor in tensors:
                found = f"{tensor} is stored twice, in {tensors[tensor].file} and in {name}"
                raise InputFileError(asked, found, "a folder with one copy of the checkpoint")
            tensors[tensor] = stored
    if not wanted & present:
        found = (
            f"it holds none of the {counted(len(wanted), 'shard')} of its index"
            if wanted
            else "it holds no safetensors file"
        )
        raise InputFileError(asked, found, "a folder with the checkpoint's *.safetensors files")
    unread = frozenset(weight_map or ()) - tensors.keys()
    return Checkpoint(str(folder), tensors, tuple(sorted(wanted - present)), unread)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, in the order they lie. Raises InputFileError for anything that is not a whole one."""
    asked = f"reading the header of {path}"
    try:
        if not path.is_file():
            raise InputFileError(asked, "this is no regular file", _HINT)
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(size - 8, _LONGEST_HEADER):
                found = f"it begins with a header length of {length}, and the file has {size} bytes"
                raise InputFileError(asked, f"{found}: cut short, or no safetensors file", _HINT)
            header = file.read(length)
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), "a file that can be read") from None
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = [(name, _ENTRY.decode(value)) for name, value in raw.items()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputFileError(asked, f"its header is not the JSON of one ({error})", _HINT) from None
    # Objects keep the last of two equal keys, which would hide one; each tensor has one pair of offsets.
    if header.count(b'"data_offsets"') > len(entries):
        raise InputFileError(asked, f"a name stands twice among its {len(entries)} tensors", _HINT)
    try:
        return dict(_placed(entries, path.name, 8 + length, size - 8 - length))
    except ValueError as error:
        raise InputFileError(asked, str(error), _HINT) from None


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_ENTRY = msgspec.json.Decoder(_Entry)


def _placed(
    entries: Iterable[tuple[str, _Entry]], file: str, start: int, size: int
) -> Iterable[tuple[str, StoredTensor]]:
    """The tensors in order of their bytes. Raises ValueError where these do not tile `size` bytes exactly."""
    at = 0
    for name, entry in sorted(entries, key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        bits = _BITS.get(entry.dtype)
        if bits is None:
            raise ValueError(f"{name} has dtype {entry.dtype!r}, which safetensors does not define")
        values = 1
        for length in entry.shape:
            if length < 0:
                raise ValueError(f"{name} has shape {list(entry.shape)}")
            values *= length
        if values * bits != (end - begin) * 8:
            raise ValueError(f"{name} is {entry.dtype} {list(entry.shape)} in {end - begin} bytes")
        if begin != at:
            raise ValueError(f"{name} begins at byte {begin} of the data, where byte {at} is the next")
        at = end
        yield name, StoredTensor(entry.dtype, entry.shape, end - begin, file, start + begin)
    if at != size:
        raise ValueError(f"its tensors take {at} bytes, and {size} follow the header: cut short, or something appended")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _read_index(path: Path) -> dict[str, str]:
    asked = f"reading {path}"
    data = read_small_file(path, asked, _HINT)
    try:
        weight_map = msgspec.json.decode(data, type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputFileError(asked, f"this is not an index of shards ({error})", _HINT) from None
    outside = next((name for name in weight_map.values() if "/" in name or "\\" in name), None)
    if outside is not None:
        raise InputFileError(asked, f"it names the shard {outside!r}, outside the folder", "shards beside the index")
    return weight_map


def _numbered(present: set[str]) -> set[str]:
    """Every shard of series such as model-00001-of-00004.safetensors of which some are there."""
    names: set[str] = set()
    for name in present:
        stem, of, total = name.removesuffix(".safetensors").rpartition("-of-")
        series, dash, number = stem.rpartition("-")
        if of and dash and is_number(number) and is_number(total) and int(total) <= 10_000:
            width = len(number)
            names |= {f"{series}-{i:0{width}}-of-{total}.safetensors" for i in range(1, int(total) + 1)}
    return names


__all__ = ["Checkpoint", "HeaderScheme", "StoredTensor", "from_headers", "read_checkpoint", "read_header"]

"""The values of scalar tensors: a seek and a read of a few bytes each, and nothing around them."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from struct import unpack
from typing import TYPE_CHECKING

from sublight.errors import InputFileError

if TYPE_CHECKING:
    from sublight.facts.checkpoint import Checkpoint, StoredTensor

# How each dtype is unpacked, and what goes before its bytes: BF16 is the upper half of a float32.
_UNPACKED = {"F32": ("<f", b""), "F16": ("<e", b""), "F64": ("<d", b""), "BF16": ("<f", b"\0\0")}

# A hundred thousand float32; the largest published shards hold some thousands.
BYTES_PER_SHARD = 400_000


def is_scalar(tensor: "StoredTensor") -> bool:
    """One floating-point number: shape [] in ModelOpt, [1] in compressed-tensors."""
    return prod(tensor.shape) == 1 and tensor.dtype in _UNPACKED


def read_scalars(checkpoint: "Checkpoint", scalars: Mapping[str, "StoredTensor"]) -> tuple[dict[str, float], int]:
    """(name -> value, how many were left out to stay within `BYTES_PER_SHARD`).

    Raises InputFileError where a file has changed under its header.
    """
    by_file: dict[str, list[tuple[int, str]]] = {}
    for name, tensor in scalars.items():
        by_file.setdefault(tensor.file, []).append((tensor.offset, name))
    values: dict[str, float] = {}
    left_out = 0
    for file, places in by_file.items():
        path = Path(checkpoint.folder) / file
        budget = BYTES_PER_SHARD
        try:
            with path.open("rb", buffering=0) as shard:
                for offset, name in sorted(places):
                    tensor = scalars[name]
                    budget -= tensor.bytes
                    if budget < 0:
                        left_out += 1
                        continue
                    shard.seek(offset)
                    values[name] = _value(shard.read(tensor.bytes), tensor)
        except OSError as error:
            raise _failure(path, error.strerror or str(error)) from None
        except ValueError as error:
            raise _failure(path, str(error)) from None
    return values, left_out


def _failure(path: Path, found: str) -> InputFileError:
    return InputFileError(f"reading the scales in {path}", found, "the checkpoint while nothing writes to it")


def _value(data: bytes, tensor: "StoredTensor") -> float:
    if len(data) != tensor.bytes:
        raise ValueError(f"the file ends inside the {tensor.bytes} bytes at {tensor.offset}")
    form, before = _UNPACKED[tensor.dtype]
    value: float = unpack(form, before + data)[0]
    return value

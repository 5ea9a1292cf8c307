"""NVFP4 and MXFP4 matrices as checkpoints store them, and back, with the bytes unchanged.

| | ModelOpt | compressed-tensors | gpt-oss (MXFP4) |
|---|---|---|---|
| codes | weight [rows, columns/2] | weight_packed [rows, columns/2] | blocks [..., rows, columns/32, 16] |
| block scales | weight_scale, E4M3, in rows | weight_scale, E4M3, in rows | scales, E8M0 as bytes |
| global | weight_scale_2, a multiplier, scalar | weight_global_scale, a divisor, [1] | none |
| activations | input_scale, a multiplier, scalar | input_global_scale, a divisor, [1] | none |

Everywhere the even place of a pair is the low nibble.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.numerics.formats import MXFP4, NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.numerics.scales import require_convention

Convention = Literal["modelopt", "compressed-tensors"]


@dataclass(frozen=True)
class _Names:
    codes: str
    scales: str
    above: str
    activations: str
    is_divisor: bool
    shape: tuple[int, ...]


_NAMES: dict[Convention, _Names] = {
    "modelopt": _Names("weight", "weight_scale", "weight_scale_2", "input_scale", False, ()),
    "compressed-tensors": _Names(
        "weight_packed", "weight_scale", "weight_global_scale", "input_global_scale", True, (1,)
    ),
}


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """One matrix of a checkpoint: its weight, and the scale of its input, where activations are quantised as well."""

    weight: Quantised
    input_scale: GlobalScale | None


def read_nvfp4(tensors: Mapping[str, Tensor], convention: Convention) -> StoredMatrix:
    """A matrix from its tensors, named by their last part ("weight_scale").

    Raises:
        KernelError: a tensor that is missing or of another type, or a global scale on the wrong side of 1.
    """
    names = _NAMES[convention]
    codes = _one(tensors, names.codes, convention, torch.uint8)
    scales = _one(tensors, names.scales, convention, torch.float8_e4m3fn)
    above = _one(tensors, names.above, convention, torch.float32)
    require_convention(names.above, above, is_divisor=names.is_divisor)
    given = tensors.get(names.activations)
    activations = None if given is None else GlobalScale(given.reshape(1), names.is_divisor)
    return StoredMatrix(Quantised(NVFP4, codes, scales, GlobalScale(above.reshape(1), names.is_divisor)), activations)


def write_nvfp4(matrix: StoredMatrix, convention: Convention) -> dict[str, Tensor]:
    """The tensors of `read_nvfp4`. Into the convention they came from, the bytes are the same.

    Raises:
        KernelError: a stack, or a matrix whose parts have global scales of their own: a checkpoint has one a matrix.
    """
    names = _NAMES[convention]
    weight = matrix.weight
    if weight.format is not NVFP4 or weight.global_scale is None or weight.global_scale.stored.numel() != 1:
        found = f"it is {weight.format.name} with {len(weight.shape)} dimensions, or has several global scales"
        raise KernelError(f"writing a matrix for {convention}", found, "one NVFP4 matrix with one global scale")
    tensors = {
        names.codes: weight.codes,
        names.scales: weight.scales,
        names.above: _as_stored(weight.global_scale, names),
    }
    if matrix.input_scale is not None:
        tensors[names.activations] = _as_stored(matrix.input_scale, names)
    return tensors


def read_gpt_oss(blocks: Tensor, scales: Tensor) -> Quantised:
    """MXFP4 from gpt-oss's tensors: blocks [..., rows, groups, 16] and scales [..., rows, groups], both bytes."""
    if blocks.dim() != scales.dim() + 1 or blocks.shape[:-1] != scales.shape or blocks.shape[-1] != 16:
        found = f"blocks are {list(blocks.shape)} and scales {list(scales.shape)}"
        raise KernelError("MXFP4 blocks and scales", found, "[..., rows, groups, 16] and [..., rows, groups]")
    return Quantised(MXFP4, blocks.flatten(-2), scales)


def write_gpt_oss(matrix: Quantised) -> tuple[Tensor, Tensor]:
    """The inverse of `read_gpt_oss`."""
    return matrix.codes.reshape(*matrix.scales.shape, 16), matrix.scales


def stack_experts(matrices: list[Quantised]) -> Quantised:
    """One stack of matrices of one shape and convention, an expert each. Raises KernelError where they differ."""
    kinds = {(m.format.name, m.shape, m.global_scale is not None and m.global_scale.is_divisor) for m in matrices}
    if len(kinds) != 1:
        shown = "; ".join(f"{name} {list(shape)}" for name, shape, _ in sorted(kinds, key=str)) or "none"
        raise KernelError("stacking the matrices of experts", f"they differ: {shown}", "one shape and one format")
    first = matrices[0]
    above = None
    if first.global_scale is not None:
        stored = torch.stack([m.global_scale.stored for m in matrices if m.global_scale is not None])
        above = GlobalScale(stored, first.global_scale.is_divisor)
    scales = torch.stack([m.scales.view(torch.uint8) for m in matrices]).view(first.scales.dtype)
    return Quantised(first.format, torch.stack([m.codes for m in matrices]), scales, above)


def join_gate_up(gate: Quantised, up: Quantised) -> Quantised:
    """w13 in the order gate, up. Each keeps its own global scale, which one scale for both cannot express exactly."""
    scales = torch.cat((gate.scales.view(torch.uint8), up.scales.view(torch.uint8)), dim=-2).view(gate.scales.dtype)
    above = None
    if gate.global_scale is not None and up.global_scale is not None:
        if gate.global_scale.is_divisor != up.global_scale.is_divisor:
            raise KernelError("joining gate and up", "one has a divisor and one a multiplier", "one convention")
        above = GlobalScale(
            torch.cat((gate.global_scale.stored, up.global_scale.stored), dim=-1), gate.global_scale.is_divisor
        )
    return Quantised(gate.format, torch.cat((gate.codes, up.codes), dim=-2), scales, above)


def _one(tensors: Mapping[str, Tensor], name: str, convention: Convention, dtype: torch.dtype) -> Tensor:
    found = tensors.get(name)
    if found is None:
        have = ", ".join(sorted(tensors)) or "nothing"
        raise KernelError(f"an NVFP4 matrix of {convention}", f"{name} is missing among {have}", "the other convention")
    if found.dtype != dtype:
        raise KernelError(f"{name} of {convention}", f"it is {found.dtype}", f"{dtype}")
    return found


def _as_stored(above: GlobalScale, names: _Names) -> Tensor:
    value = above.divisor if names.is_divisor else above.multiplier
    return value.reshape(names.shape)

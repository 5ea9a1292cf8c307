"""Quantised: codes, scales and their format in one object, so that none of them travels alone."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.contract import require_tensor

if TYPE_CHECKING:
    from sublight.kernels.numerics.formats import BlockFormat


@dataclass(frozen=True, eq=False)
class GlobalScale:
    """Scales above the blocks, as they were stored.

    A checkpoint that holds 2688/amax is not turned into amax/2688 on reading: two reciprocals in fp32 do not give
    every number back, and what is written again has to be what was read.

    Attributes:
        stored: fp32, [..., parts]: one a part of equal height (gate and up are two parts of w13), in the order of rows.
        is_divisor: values are divided by it (compressed-tensors) instead of multiplied (ModelOpt).
    """

    stored: Tensor
    is_divisor: bool = False

    @property
    def multiplier(self) -> Tensor:
        """What decoded values are multiplied by."""
        return self.stored.reciprocal() if self.is_divisor else self.stored

    @property
    def divisor(self) -> Tensor:
        """What values were multiplied by before their blocks were scaled."""
        return self.stored if self.is_divisor else self.stored.reciprocal()

    def spread(self, scale: Tensor, rows: int) -> Tensor:
        """`multiplier` or `divisor`, as every row has it: [..., rows, 1]."""
        return scale.repeat_interleave(rows // self.stored.shape[-1], dim=-1).unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class Quantised:
    """A matrix, or a stack of them, in a block format.

    Attributes:
        format: knows how to read the rest.
        codes: [..., rows, columns] in the format's code type; four-bit codes lie two in a byte, [..., rows, columns/2].
        scales: [..., rows/block_rows, columns/block], rounded up, in the format's scale type.
        global_scale: above the blocks; None where the format has none.
    """

    format: "BlockFormat"
    codes: Tensor
    scales: Tensor
    global_scale: GlobalScale | None = None

    def __post_init__(self) -> None:
        for name, tensor in (("codes", self.codes), ("scales", self.scales)):
            require_tensor(f"a {self.format.name} matrix", name, tensor, "[..., rows, columns] and the scales of it")
        wanted = self.format.scale_shape(self.shape)
        if tuple(self.scales.shape) != wanted:
            raise KernelError(
                f"a {self.format.name} matrix of {_shown(self.shape)}",
                f"its scales are {_shown(tuple(self.scales.shape))} where {_shown(wanted)} belong to it",
                f"one scale for {self.format.block_rows} x {self.format.block} values",
            )
        if (self.global_scale is not None) != self.format.has_global:
            found = "it has none" if self.global_scale is None else "the format has none"
            raise KernelError(f"a {self.format.name} matrix with its global scale", found, "both, or a format without")
        if self.global_scale is not None and self.shape[-2] % self.global_scale.stored.shape[-1]:
            parts = self.global_scale.stored.shape[-1]
            raise KernelError(
                f"{parts} global scales", f"{self.shape[-2]} rows have no {parts} equal parts", "one a part"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the values."""
        columns = self.codes.shape[-1] * self.format.codes_per_byte
        return (*self.codes.shape[:-1], columns)

    def dequantise(self) -> Tensor:
        """fp32 values. A NaN scale gives NaN."""
        return self.format.dequantise(self)

    def __getitem__(self, index: int) -> "Quantised":
        """One matrix of a stack."""
        above = self.global_scale
        one = None if above is None else replace(above, stored=above.stored[index])
        return replace(self, codes=self.codes[index], scales=self.scales[index], global_scale=one)

    def with_rows(self, order: Tensor, global_scale: GlobalScale | None) -> "Quantised":
        """The rows in another order, for formats whose scales belong to one row."""
        if self.format.block_rows != 1:
            raise KernelError(
                f"reordering single rows of {self.format.name}",
                f"{self.format.block_rows} rows share a scale",
                "whole blocks of rows, or dequantised values",
            )
        take = order.to(self.codes.device)
        return replace(
            self,
            codes=self.codes.index_select(-2, take),
            scales=_bits(self.scales).index_select(-2, take).view(self.scales.dtype),
            global_scale=global_scale,
        )


def _bits(tensor: Tensor) -> Tensor:
    """Eight-bit floats as bytes: moving data needs no arithmetic of theirs, which torch has little of."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def _shown(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"

"""The block formats: NVFP4, MXFP4, FP8 in 128x128 tiles and FP8 in rows of 128.

A format is the only source of facts about itself. Bits, blocks and bytes are those of the cost model
(`sublight.facts.formats`); here stand the types, the rule of quantisation, how far a value can move by it, and how far
a kernel's output may be from the oracle's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sublight.errors import KernelError, UnknownNameError
from sublight.facts import formats as facts
from sublight.kernels.contract import require_tensor
from sublight.kernels.numerics.blocks import reduce_blocks, spread_blocks
from sublight.kernels.numerics.minifloat import (
    E2M1_MAX,
    E4M3_MAX,
    E8M0_NAN,
    from_e2m1,
    from_e8m0,
    pack,
    to_e2m1,
    to_e4m3,
    to_e8m0,
    unpack,
)
from sublight.kernels.numerics.quantised import GlobalScale, Quantised

# The largest magnitude of a matrix becomes this before it is cut into blocks: then the largest block scale is 448.
NVFP4_RANGE = E2M1_MAX * E4M3_MAX
# What a kernel may differ from the oracle that reads the same codes, as a relative Frobenius norm. Rounding the output
# to bf16 moves a value by 2**-8 of itself at most and a norm by 1.7e-3; sums in another order add to it.
_BF16_OUTPUT = 3e-3


@dataclass(frozen=True)
class BlockFormat:
    """Codes, with a scale for every block of them.

    Attributes:
        facts: bits, blocks and bytes.
        code_dtype, scale_dtype: of the stored tensors.
        codes_per_byte: 2 where two codes share a byte.
        has_global: an fp32 scale stands above the blocks.
        value_error: how far a value can move, as a share of the largest magnitude of its block.
        kernel_error: how far a kernel's output may be from the oracle's.
        scale_of: (largest magnitude of each block, what values are multiplied by first) -> the block's stored scale.
        decode_scale, encode, decode: stored scale to fp32; scaled values to codes; codes to fp32.
    """

    facts: facts.Format
    code_dtype: torch.dtype
    scale_dtype: torch.dtype
    value_error: float
    scale_of: Callable[[Tensor, Tensor], Tensor]
    decode_scale: Callable[[Tensor], Tensor]
    encode: Callable[[Tensor], Tensor]
    decode: Callable[[Tensor], Tensor]
    codes_per_byte: int = 1
    has_global: bool = False
    kernel_error: float = _BF16_OUTPUT

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def block(self) -> int:
        """Values along a row that share a scale."""
        return self.facts.block

    @property
    def block_rows(self) -> int:
        return self.facts.block_rows

    @property
    def bits_per_value(self) -> float:
        """With block scales."""
        return self.facts.bits_per_value

    def scale_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of the scales of a matrix, or a stack of them; a block that the shape cuts through counts whole."""
        return (*shape[:-2], -(-shape[-2] // self.block_rows), -(-shape[-1] // self.block))

    def quantise(self, values: Tensor, global_scale: GlobalScale | None = None) -> Quantised:
        """Values [..., rows, columns] in this format.

        Args:
            values: finite; a weight that is not has no meaning, and the scale of its block would hide it.
            global_scale: above the blocks. Where it is left out, NVFP4 takes amax / 2688 of each matrix.

        Raises:
            KernelError: values that are not finite, or a row that is no whole number of four-bit blocks.
        """
        _require_matrix(self.name, values)
        count = int((~values.isfinite()).sum())
        if count:
            raise KernelError(f"quantising to {self.name}", f"{count} values are not finite", "finite values")
        return self.quantise_activations(values, global_scale)

    def quantise_activations(self, values: Tensor, global_scale: GlobalScale | None = None) -> Quantised:
        """The same where NaN has to stay NaN: it does, through the scale of its block. Infinity saturates.

        For NVFP4 the order of operations is that of FlashInfer's quantiser (scale = e4m3(divisor * (amax * 1/6)), then
        value * 1/(scale * 1/divisor)), with reciprocals rounded to nearest. Those of the hardware are approximate in
        the last bit, so a value on a tie can get the neighbouring code there.
        """
        _require_matrix(self.name, values)
        if values.shape[-1] % self.block and self.codes_per_byte > 1:
            found = f"{values.shape[-1]} columns are no whole groups of {self.block}"
            raise KernelError(f"quantising to {self.name}", found, f"a multiple of {self.block} columns")
        values = values.float()
        if self.has_global and global_scale is None:
            global_scale = amax_scale(values)
        above = torch.ones((), device=values.device)
        if global_scale is not None:
            above = global_scale.spread(global_scale.divisor, values.shape[-2])
        scales = self.scale_of(reduce_blocks(values.abs(), self.block_rows, self.block), above)
        factor = (self.decode_scale(scales) * above.reciprocal()).reciprocal()
        # A block whose scale rounds to zero is zero, whatever its codes say; 1/0 * 0 would make them NaN.
        factor = factor.masked_fill(factor.isinf(), 0.0)
        codes = self.encode(values * spread_blocks(factor, values.shape, self.block_rows, self.block))
        return Quantised(self, codes, scales, global_scale)

    def dequantise(self, matrix: Quantised) -> Tensor:
        """fp32: code times block scale (exact for four-bit codes), times the global scale, which rounds once."""
        values = self.decode(matrix.codes)
        values = values * spread_blocks(self.decode_scale(matrix.scales), values.shape, self.block_rows, self.block)
        above = matrix.global_scale
        return values if above is None else values * above.spread(above.multiplier, values.shape[-2])


def _require_matrix(name: str, values: Tensor) -> None:
    require_tensor(f"quantising to {name}", "values", values, "[..., rows, columns]")
    if values.dim() < 2:
        raise KernelError(f"quantising to {name}", f"its shape is {list(values.shape)}", "[..., rows, columns]")


def amax_scale(values: Tensor) -> GlobalScale:
    """amax / 2688 of each matrix; 1 for one without values or of zeros, or where the quotient is no normal number."""
    if values.numel() == 0:
        return GlobalScale(torch.ones(*values.shape[:-2], 1, device=values.device))
    amax = values.abs().amax(dim=(-2, -1)).unsqueeze(-1)
    scale = amax / NVFP4_RANGE
    return GlobalScale(scale.masked_fill(scale < torch.finfo(torch.float32).tiny, 1.0))


def _e4m3_scale(amax: Tensor, above: Tensor) -> Tensor:
    return to_e4m3(above * (amax * (1 / E2M1_MAX)))


def _power_of_two_scale(amax: Tensor, above: Tensor) -> Tensor:
    """The OCP rule: floor(log2(amax)) - 2, where 4 = 2**2 is the largest power of two in E2M1.

    frexp is exact where a logarithm is not. Zeros get the smallest scale, as in OCP's reference.
    """
    _, exponent = torch.frexp(amax * above)  # m * 2**exponent with 0.5 <= m < 1
    codes = to_e8m0(exponent - 1 - 2).masked_fill(amax == 0, 0)
    return codes.masked_fill(amax.isinf(), E8M0_NAN - 1).masked_fill(amax.isnan(), E8M0_NAN)


def _fp32_scale(amax: Tensor, above: Tensor) -> Tensor:
    scale = amax * above / E4M3_MAX
    return scale.masked_fill(scale == 0, 1.0)


def _as_float(values: Tensor) -> Tensor:
    return values.float()


def _encode_e2m1(values: Tensor) -> Tensor:
    return pack(to_e2m1(values))


def _decode_e2m1(packed: Tensor) -> Tensor:
    return from_e2m1(unpack(packed))


# The widest gap of E2M1 is 4 to 6, so a value moves by one scale at most; the scale is amax/6, rounded up by 1/16 at
# most while it is a normal E4M3 number: 17/96.
NVFP4 = BlockFormat(
    facts=facts.NVFP4,
    code_dtype=torch.uint8,
    scale_dtype=torch.float8_e4m3fn,
    codes_per_byte=2,
    has_global=True,
    value_error=17 / 96,
    scale_of=_e4m3_scale,
    decode_scale=_as_float,
    encode=_encode_e2m1,
    decode=_decode_e2m1,
)
# amax lies between 4 and 8 scales. Half the gap of 4 to 6 is one of 4 scales or more; 8 saturates to 6: 2 of 8.
MXFP4 = BlockFormat(
    facts=facts.MXFP4,
    code_dtype=torch.uint8,
    scale_dtype=torch.uint8,
    codes_per_byte=2,
    value_error=1 / 4,
    scale_of=_power_of_two_scale,
    decode_scale=from_e8m0,
    encode=_encode_e2m1,
    decode=_decode_e2m1,
)
# The widest gap of E4M3 is 32 of 448. What fp32 rounds on the way to the scale is added (2**-22).
FP8_BLOCK = BlockFormat(
    facts=facts.FP8_BLOCK,
    code_dtype=torch.float8_e4m3fn,
    scale_dtype=torch.float32,
    value_error=16 / 448 + 2**-22,
    scale_of=_fp32_scale,
    decode_scale=_as_float,
    encode=to_e4m3,
    decode=_as_float,
)
FP8_GROUP = BlockFormat(
    facts=facts.Format(
        name="fp8-group",
        title="FP8 in groups of 128",
        bits=8,
        compute="fp8",
        block=128,
        block_scale_bytes=4,
        source="DeepSeek-V3: activations, one FP32 scale per token and 128 channels",
    ),
    code_dtype=torch.float8_e4m3fn,
    scale_dtype=torch.float32,
    value_error=16 / 448 + 2**-22,
    scale_of=_fp32_scale,
    decode_scale=_as_float,
    encode=to_e4m3,
    decode=_as_float,
)

BLOCK_FORMATS = {f.name: f for f in (NVFP4, MXFP4, FP8_BLOCK, FP8_GROUP)}


def get_block_format(name: str) -> BlockFormat:
    """A format by its name. Raises UnknownNameError."""
    try:
        return BLOCK_FORMATS[name]
    except KeyError:
        raise UnknownNameError("block format", name, BLOCK_FORMATS) from None

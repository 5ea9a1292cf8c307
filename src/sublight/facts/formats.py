"""Number formats of weights: how many bytes a matrix takes, and which rate its product runs at.

A format is the only source of facts about itself. Two of them may store the same bits and still differ: NVFP4 with BF16
activations (W4A16) moves the bytes of NVFP4 and multiplies at the BF16 rate.
"""

import math
from functools import cache
from typing import Literal

import msgspec

from sublight.errors import UnknownNameError

Compute = Literal["fp4", "fp8", "bf16", "fp32"]


class Storage(msgspec.Struct, frozen=True):
    """Bytes of one tensor: the codes themselves, and every kind of scale or zero point beside them."""

    payload_bytes: float
    scale_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.payload_bytes + self.scale_bytes


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How the values of a tensor are stored.

    Attributes:
        name: as records and the command line spell it.
        title: as a reader spells it.
        bits: of one value, without scales.
        block: values along the input dimension that share a scale; 0 when only the whole tensor has one.
        block_rows: output rows that share it as well (128 for FP8 in 128x128 tiles).
        block_scale_bytes: of each block, zero point included.
        tensor_scale_bytes: of each tensor: global weight and activation scales.
        input_bytes: per input channel of each tensor (GPTQ's group index).
        row_scale_bytes: per output row (FP8 with a scale per channel).
        compute: the tensor-core rate its matrix product runs at where the hardware has it.
        source: where the layout is defined.
    """

    name: str
    title: str
    bits: float
    compute: Compute
    block: int = 0
    block_rows: int = 1
    block_scale_bytes: float = 0
    tensor_scale_bytes: int = 0
    input_bytes: int = 0
    row_scale_bytes: int = 0
    source: str = ""

    def storage(self, shape: tuple[int, ...]) -> Storage:
        """Bytes of a tensor of `shape`; the last dimension is the input, the one before it the output.

        A block that the shape cuts through counts whole, as it is stored.
        """
        values = math.prod(shape)
        payload = values * self.bits / 8
        if not self.block and not self.tensor_scale_bytes and not self.row_scale_bytes:
            return Storage(payload, 0)
        columns = shape[-1]
        rows = values // columns if columns else 0
        blocks = math.ceil(rows / self.block_rows) * math.ceil(columns / self.block) if self.block else 0
        scales = (
            blocks * self.block_scale_bytes
            + self.tensor_scale_bytes
            + columns * self.input_bytes
            + rows * self.row_scale_bytes
        )
        return Storage(payload, scales)

    @property
    def bits_per_value(self) -> float:
        """With block scales, for a matrix large enough that the rest does not count."""
        blocks = 8 * self.block_scale_bytes / (self.block * self.block_rows) if self.block else 0.0
        return self.bits + blocks

    @property
    def is_quantised(self) -> bool:
        return self.bits < 16


FP32 = Format(name="fp32", title="FP32", bits=32, compute="fp32", source="IEEE 754 binary32")
BF16 = Format(
    name="bf16", title="BF16", bits=16, compute="bf16", source="bfloat16: 1 sign, 8 exponent, 7 mantissa bits"
)
FP16 = Format(name="fp16", title="FP16", bits=16, compute="bf16", source="IEEE 754 binary16")
FP8 = Format(
    name="fp8",
    title="FP8",
    bits=8,
    compute="fp8",
    tensor_scale_bytes=8,
    source="OCP FP8 E4M3; ModelOpt and compressed-tensors keep one FP32 scale for weights and one for activations",
)
FP8_CHANNEL = Format(
    name="fp8-channel",
    title="FP8 per channel",
    bits=8,
    compute="fp8",
    row_scale_bytes=4,
    source="compressed-tensors, strategy channel: one FP32 scale an output row, activations quantised per token",
)
FP8_BLOCK = Format(
    name="fp8-block",
    title="FP8 block",
    bits=8,
    compute="fp8",
    block=128,
    block_rows=128,
    block_scale_bytes=4,
    source="DeepSeek-V3 release: weight_scale_inv, FP32, one per 128x128 tile; activations scaled per 1x128",
)
NVFP4 = Format(
    name="nvfp4",
    title="NVFP4",
    bits=4,
    compute="fp4",
    block=16,
    block_scale_bytes=1,
    tensor_scale_bytes=8,
    source="ModelOpt: E2M1 codes, one E4M3 scale per 16 values, FP32 weight_scale_2 and input_scale a tensor",
)
NVFP4_W4A16 = Format(
    name="nvfp4-w4a16",
    title="NVFP4 (W4A16)",
    bits=4,
    compute="bf16",
    block=16,
    block_scale_bytes=1,
    tensor_scale_bytes=4,
    source="as NVFP4 without an activation scale: weights are dequantised and multiplied in BF16",
)
MXFP4 = Format(
    name="mxfp4",
    title="MXFP4",
    bits=4,
    compute="bf16",
    block=32,
    block_scale_bytes=1,
    source="OCP microscaling: E2M1 codes, one E8M0 scale per 32 values; gpt-oss keeps activations in BF16",
)


@cache
def int4_group(group: int, *, zero_points: bool, group_index: bool = False) -> Format:
    """Four-bit integers with a 16-bit scale per group of inputs.

    Args:
        group: inputs that share a scale (32, 64, 128).
        zero_points: AWQ and asymmetric GPTQ store four more bits a group.
        group_index: GPTQ stores the group of each input as an int32 (g_idx).
    """
    suffix = ("-zp" if zero_points else "") + ("-idx" if group_index else "")
    return Format(
        name=f"int4-g{group}{suffix}",
        title=f"INT4 group {group}",
        bits=4,
        compute="bf16",
        block=group,
        block_scale_bytes=2.5 if zero_points else 2,
        input_bytes=4 if group_index else 0,
        source="AWQ qweight/scales/qzeros, GPTQ with g_idx, or compressed-tensors pack-quantized",
    )


FORMATS = {f.name: f for f in (FP32, BF16, FP16, FP8, FP8_CHANNEL, FP8_BLOCK, NVFP4, NVFP4_W4A16, MXFP4)}


def get_format(name: str) -> Format:
    """A format by the name it has in records. Raises UnknownNameError."""
    if name.startswith("int4-g"):
        size, *rest = name.removeprefix("int4-g").split("-")
        if size.isdecimal() and set(rest) <= {"zp", "idx"}:
            return int4_group(int(size), zero_points="zp" in rest, group_index="idx" in rest)
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownNameError("number format", name, FORMATS) from None

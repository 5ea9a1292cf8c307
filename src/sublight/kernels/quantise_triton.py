"""Activations to NVFP4 in Triton, in the layouts of the masked GEMM; with silu(gate) * up on the way, if wanted.

One program has one row of one group and 64 blocks of 16 values. The arithmetic is the reference's, operation by
operation, with divisions rounded to nearest; only the exponential is another function.
"""

# ruff: noqa: N803
# mypy: ignore-errors
# A language of its own in Python's clothes: names in capitals are compile-time constants, and types are inferred by it.

import triton
import triton.language as tl


@triton.jit
def _e2m1(values):
    """Codes 0 to 15: to nearest, ties to the even code, beyond 6 to 6; NaN to 6."""
    size = tl.abs(values)
    code = (size > 0.25).to(tl.uint8) + (size >= 0.75).to(tl.uint8) + (size > 1.25).to(tl.uint8)
    code += (size >= 1.75).to(tl.uint8) + (size > 2.5).to(tl.uint8) + (size >= 3.5).to(tl.uint8)
    code += (size > 5.0).to(tl.uint8)
    code = tl.where(values != values, 7, code)  # noqa: PLR0124 - NaN is what differs from itself
    sign = (values.to(tl.int32, bitcast=True) < 0) & (values == values)  # noqa: PLR0124
    return (code | sign.to(tl.uint8) << 3).to(tl.uint8)


@triton.jit
def _e4m3(values):
    """Codes 0 to 126 of numbers from 0 to 448: to nearest, ties to the even code.

    In whole numbers, because a cast to E4M3 needs compute capability 8.9, and Triton's interpreter rounds it wrongly.
    """
    bits = values.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (127 - 7) * 8
    # Below 2**-6 codes count steps of 2**-9; adding 1.5 * 2**23 leaves no bits for less than one.
    steps = (values * 512.0 + 12582912.0) - 12582912.0
    return tl.where(values < 0.015625, steps.to(tl.int32), normal)


@triton.jit
def nvfp4_blocks(x, above, BLOCKS: tl.constexpr):
    """Blocks [BLOCKS, 16] in fp32 to bytes of two codes [BLOCKS, 8] and scales [BLOCKS], under one global scale."""
    sizes = tl.abs(x)
    amax = tl.max(sizes, axis=1)
    broken = tl.max((sizes != sizes).to(tl.int32), axis=1) > 0  # noqa: PLR0124 - a maximum may pass NaN over
    code = _e4m3(tl.minimum(above * (amax * 0.16666667163372040), 448.0))  # a sixth, as fp32 has it
    scale = (code.to(tl.int16) << 7).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    divisor = scale * tl.div_rn(1.0, above)
    # A block whose scale rounds to zero is zero, whatever its values are.
    factor = tl.where(divisor == 0.0, 0.0, tl.div_rn(1.0, tl.where(divisor == 0.0, 1.0, divisor)))
    factor = tl.where(broken, float("nan"), factor)
    scaled = x * factor[:, None]
    low, high = tl.split(tl.reshape(_e2m1(scaled), (BLOCKS, 8, 2)))
    return low | high << 4, tl.where(broken, 0x7F, code).to(tl.uint8)


@triton.jit
def quantise_groups(
    values,
    mask,
    global_scale,
    codes,
    scales,
    m,
    k,
    scale_rows,
    scale_tiles,
    SILU: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Rows that do not count end at once: their codes and scales stay the zeros they were made as."""
    row, group = tl.program_id(0), tl.program_id(2).to(tl.int64)
    if row >= tl.load(mask + group):
        return
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    place = block[:, None] * 16 + tl.arange(0, 16)[None, :]
    inside = (block < k // 16)[:, None]
    at = group * m + row
    if SILU:
        gate = tl.load(values + at * 2 * k + place, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(values + at * 2 * k + k + place, mask=inside, other=0.0).to(tl.float32)
        x = (tl.div_rn(gate, 1.0 + tl.exp(-gate)) * up).to(values.dtype.element_ty).to(tl.float32)
    else:
        x = tl.load(values + at * k + place, mask=inside, other=0.0).to(tl.float32)
    packed, bits = nvfp4_blocks(x, tl.load(global_scale + group), BLOCKS)
    byte = block[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(codes + at * (k // 2) + byte, packed, mask=inside)
    tile = group * scale_rows * scale_tiles + row // 128 * scale_tiles + block // 4
    within = row % 32 * 16 + row % 128 // 32 * 4 + block % 4
    tl.store(scales + tile * 512 + within, bits, mask=block < k // 16)

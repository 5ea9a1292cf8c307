"""What the products of a layer of experts read, and what they do with it: weights of every format, FP4 units or not.

A decoded four-bit value with its block scale has six significant bits at most, so bf16 and fp16 hold it exactly. What
lies outside of a matrix is read as zero.
"""

# ruff: noqa: N803
# mypy: ignore-errors
# A language of its own in Python's clothes: names in capitals are compile-time constants, and types are inferred by it.

import triton
import triton.language as tl


@triton.jit
def _from_e4m3(bits):
    """fp32. E4M3's fields stand seven bits further left in fp16, whose exponent counts from 15 instead of 7: 2**8."""
    value = ((bits & 0x7F) << 7 | (bits & 0x80) << 8).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where((bits & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def _block_scale(scales, rows, inside, start, k, FORMAT: tl.constexpr, BLOCK_K: tl.constexpr):
    """fp32 [rows, scales of the block] of a four-bit format."""
    vec: tl.constexpr = 32 if FORMAT == "mxfp4" else 16
    group = start // vec + tl.arange(0, BLOCK_K // vec)
    mask = inside[:, None] & (group < k // vec)[None, :]
    bits = tl.load(scales + rows[:, None] * (k // vec) + group[None, :], mask=mask, other=0)
    if FORMAT == "mxfp4":
        exponent = bits.to(tl.int32)
        value = tl.where(exponent == 0, 0x400000, exponent << 23).to(tl.float32, bitcast=True)
        return tl.where(exponent == 255, float("nan"), value)
    return _from_e4m3(bits.to(tl.int16))


@triton.jit
def _values(
    codes,
    scales,
    rows,
    inside,
    start,
    k,
    FORMAT: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """[ROWS, BLOCK_K] in KIND, from column `start` on; zeros outside. FP8 comes without its scales."""
    if FORMAT == "nvfp4" or FORMAT == "mxfp4":  # noqa: PLR1714 - Triton has no sets
        vec: tl.constexpr = 32 if FORMAT == "mxfp4" else 16
        byte = start // 2 + tl.arange(0, BLOCK_K // 2)
        mask = inside[:, None] & (byte < k // 2)[None, :]
        word = tl.load(codes + rows[:, None] * (k // 2) + byte[None, :], mask=mask, other=0).to(tl.int16)
        scale = _block_scale(scales, rows, inside, start, k, FORMAT, BLOCK_K)
        # E2M1's fields stand nine bits further left in fp16, and its exponent counts from 1 instead of 15: 2**14.
        wide = tl.broadcast_to((scale * 16384.0)[:, :, None], (ROWS, BLOCK_K // vec, vec // 2))
        wide = tl.reshape(wide, (ROWS, BLOCK_K // 2))
        low = ((word & 0x7) << 9 | (word & 0x8) << 12).to(tl.float16, bitcast=True).to(tl.float32) * wide
        high = ((word & 0x70) << 5 | (word & 0x80) << 8).to(tl.float16, bitcast=True).to(tl.float32) * wide
        return tl.interleave(low.to(KIND), high.to(KIND))
    place = start + tl.arange(0, BLOCK_K)
    mask = inside[:, None] & (place < k)[None, :]
    at = codes + rows[:, None] * k + place[None, :]
    if FORMAT == "fp8-block":
        return _from_e4m3(tl.load(at, mask=mask, other=0).to(tl.int16)).to(KIND)
    return tl.load(at, mask=mask, other=0.0).to(KIND)


@triton.jit
def add_product(
    total,
    w,
    w_scale,
    rows,
    inside,
    x,
    x_scale,
    start,
    k,
    scale_row,
    scale_columns,
    FORMAT: tl.constexpr,
    NATIVE: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """total + weights [ROWS, BLOCK_K] times x: transposed values [BLOCK_K, m], or codes and scales where NATIVE."""
    if NATIVE:
        vec: tl.constexpr = 16
        byte = start // 2 + tl.arange(0, BLOCK_K // 2)
        group = start // vec + tl.arange(0, BLOCK_K // vec)
        mask = inside[:, None] & (byte < k // 2)[None, :]
        codes = tl.load(w + rows[:, None] * (k // 2) + byte[None, :], mask=mask, other=0)
        mask = inside[:, None] & (group < k // vec)[None, :]
        scale = tl.load(w_scale + rows[:, None] * (k // vec) + group[None, :], mask=mask, other=0.0)
        total = tl.dot_scaled(codes, scale, "e2m1", x, x_scale, "e2m1", total)
    elif FORMAT == "fp8-block":  # tiles of 128 x 128 share a scale, and BLOCK_K is 128
        values = _values(w, w_scale, rows, inside, start, k, FORMAT, KIND, ROWS, BLOCK_K)
        scale = tl.load(w_scale + scale_row * scale_columns + start // 128, mask=inside, other=0.0)
        total += tl.dot(values, x) * scale[:, None]
    else:
        values = _values(w, w_scale, rows, inside, start, k, FORMAT, KIND, ROWS, BLOCK_K)
        total = tl.dot(values, x, total)
    return total


@triton.jit
def given_rows(
    x,
    x_scale,
    rows,
    inside,
    start,
    k,
    X4: tl.constexpr,
    NATIVE: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """What `add_product` multiplies with: (x, scales), the second of no meaning where not NATIVE."""
    if NATIVE:
        byte = start // 2 + tl.arange(0, BLOCK_K // 2)
        group = start // 16 + tl.arange(0, BLOCK_K // 16)
        mask = inside[:, None] & (byte < k // 2)[None, :]
        codes = tl.load(x + rows[:, None] * (k // 2) + byte[None, :], mask=mask, other=0)
        mask = inside[:, None] & (group < k // 16)[None, :]
        values = codes
        scale = tl.load(x_scale + rows[:, None] * (k // 16) + group[None, :], mask=mask, other=0.0)
    else:
        kind: tl.constexpr = "nvfp4" if X4 else "bf16"
        values = _values(x, x_scale, rows, inside, start, k, kind, KIND, ROWS, BLOCK_K)
        scale = 0
    return tl.trans(values), scale

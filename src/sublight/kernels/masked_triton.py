"""The masked grouped GEMM in Triton, twice: with operands decoded to fp16, and with the FP4 units of newer GPUs.

**Decoded.** A decoded NVFP4 value is an E2M1 number (two significant bits) times an E4M3 one (four), at most 2688 and
no finer than 2**-10: exact in fp16. So both operands are decoded to fp16 and multiplied on the ordinary tensor cores
with fp32 sums, and the result is the oracle's but for the order of the sums. Even and odd columns are multiplied apart:
a byte holds one of each, and a product does not mind in which order its columns come.

**Native.** `tl.dot_scaled` hands codes and scales to the tensor core as they are. The weights are its left operand,
because that one comes in 128 rows at a time, and an expert has more of its own rows than tokens.

In both, what padding holds is never multiplied: codes beyond k, and scales beyond those of k, are read as zeros.
"""

# ruff: noqa: N803
# mypy: ignore-errors
# A language of its own in Python's clothes: names in capitals are compile-time constants, and types are inferred by it.

import triton
import triton.language as tl


@triton.jit
def _decoded(codes, scales, rows, limit, start, k, scale_tiles, ROWS: tl.constexpr, BYTES: tl.constexpr):
    """fp16 [ROWS, BYTES] twice: even and odd columns of one block, from column `start` on."""
    groups: tl.constexpr = BYTES // 8  # scales of the block: one for 8 bytes, 16 values
    place = start // 2 + tl.arange(0, BYTES)
    inside = (rows < limit)[:, None]
    packed = tl.load(
        codes + rows.to(tl.int64)[:, None] * (k // 2) + place[None, :],
        mask=inside & (place < k // 2)[None, :],
        other=0,
    )
    group = start // 16 + tl.arange(0, groups)
    tile = (rows // 128)[:, None] * scale_tiles + (group // 4)[None, :]
    within = (rows % 32 * 16 + rows % 128 // 32 * 4)[:, None] + (group % 4)[None, :]
    bits = tl.load(scales + tile.to(tl.int64) * 512 + within, mask=inside & (group < k // 16)[None, :], other=0).to(
        tl.int16
    )
    # E4M3's fields stand seven bits further left in fp16, whose exponent counts from 15 instead of 7: times 2**8.
    scale = ((bits & 0x7F) << 7 | (bits & 0x80) << 8).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    scale = tl.where((bits & 0x7F) == 0x7F, float("nan"), scale)
    # E2M1's fields stand nine bits further left, and its exponent counts from 1: times 2**14.
    word = packed.to(tl.int16)
    low = ((word & 0x7) << 9 | (word & 0x8) << 12).to(tl.float16, bitcast=True).to(tl.float32) * 16384.0
    high = ((word & 0x70) << 5 | (word & 0x80) << 8).to(tl.float16, bitcast=True).to(tl.float32) * 16384.0
    wide = tl.reshape(tl.broadcast_to(scale[:, :, None], (ROWS, groups, 8)), (ROWS, BYTES))
    return (low * wide).to(tl.float16), (high * wide).to(tl.float16)


@triton.jit
def decoded_product(
    lhs,
    lhs_scale,
    rhs,
    rhs_scale,
    out,
    masked_m,
    alpha,
    m,
    n,
    k,
    lhs_scale_rows,
    rhs_scale_rows,
    scale_tiles,
    HAS_ALPHA: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One [BLOCK_M, BLOCK_N] tile of one group. Tiles beyond the group's mask end at once."""
    group = tl.program_id(1).to(tl.int64)
    count = tl.load(masked_m + group)
    tiles_n = tl.cdiv(n, BLOCK_N)
    first = tl.program_id(0) // tiles_n * BLOCK_M
    if first >= count:
        return
    rows = first + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    lhs += group * m * (k // 2)
    rhs += group * n * (k // 2)
    lhs_scale += group * lhs_scale_rows * scale_tiles * 512
    rhs_scale += group * rhs_scale_rows * scale_tiles * 512
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        even, odd = _decoded(lhs, lhs_scale, rows, count, start, k, scale_tiles, BLOCK_M, BLOCK_K // 2)
        even_n, odd_n = _decoded(rhs, rhs_scale, columns, n, start, k, scale_tiles, BLOCK_N, BLOCK_K // 2)
        total = tl.dot(even, tl.trans(even_n), total)
        total = tl.dot(odd, tl.trans(odd_n), total)
    if HAS_ALPHA:
        total *= tl.load(alpha + group).to(tl.float32)
    where = out + group * m * n + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(where, total.to(out.dtype.element_ty), mask=(rows < count)[:, None] & (columns < n)[None, :])


@triton.jit
def _native_operand(codes, scales, rows, limit, start, k, scale_tiles, VEC: tl.constexpr, BLOCK_K: tl.constexpr):
    """Codes [rows, BLOCK_K / 2] and scales [rows, BLOCK_K / VEC] of one block, as they are stored."""
    place = start // 2 + tl.arange(0, BLOCK_K // 2)
    inside = (rows < limit)[:, None]
    packed = tl.load(
        codes + rows.to(tl.int64)[:, None] * (k // 2) + place[None, :],
        mask=inside & (place < k // 2)[None, :],
        other=0,
    )
    group = start // VEC + tl.arange(0, BLOCK_K // VEC)
    tile = (rows // 128)[:, None] * scale_tiles + (group // 4)[None, :]
    within = (rows % 32 * 16 + rows % 128 // 32 * 4)[:, None] + (group % 4)[None, :]
    scale = tl.load(scales + tile.to(tl.int64) * 512 + within, mask=inside & (group < k // VEC)[None, :], other=0.0)
    return packed, scale


@triton.jit
def native_product(
    lhs,
    lhs_scale,
    rhs,
    rhs_scale,
    out,
    masked_m,
    alpha,
    m,
    n,
    k,
    lhs_scale_rows,
    rhs_scale_rows,
    scale_tiles,
    HAS_ALPHA: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of one group, computed as [BLOCK_N, BLOCK_M]."""
    group = tl.program_id(1).to(tl.int64)
    count = tl.load(masked_m + group)
    tiles_n = tl.cdiv(n, BLOCK_N)
    first = tl.program_id(0) // tiles_n * BLOCK_M
    if first >= count:
        return
    rows = first + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    lhs += group * m * (k // 2)
    rhs += group * n * (k // 2)
    lhs_scale += group * lhs_scale_rows * scale_tiles * 512
    rhs_scale += group * rhs_scale_rows * scale_tiles * 512
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        x, x_scale = _native_operand(lhs, lhs_scale, rows, count, start, k, scale_tiles, VEC, BLOCK_K)
        w, w_scale = _native_operand(rhs, rhs_scale, columns, n, start, k, scale_tiles, VEC, BLOCK_K)
        total = tl.dot_scaled(w, w_scale, "e2m1", tl.trans(x), x_scale, "e2m1", total)
    if HAS_ALPHA:
        total *= tl.load(alpha + group).to(tl.float32)
    where = out + group * m * n + rows.to(tl.int64)[None, :] * n + columns[:, None]
    tl.store(where, total.to(out.dtype.element_ty), mask=(rows < count)[None, :] & (columns < n)[:, None])

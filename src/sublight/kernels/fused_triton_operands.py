"""What the products of a layer of experts read, and what they do with it: weights of every format, FP4 units or not.

A decoded four-bit value with its block scale has six significant bits at most, so bf16 and fp16 hold it exactly. Rows
are within their matrix, columns beyond it are read as zeros. The number of columns is a constant, from which Triton
sees how far loads are aligned: scales of a stride that is not known to be a multiple of four come byte by byte, each
waited for. There are four ways to multiply by four-bit weights:

    "plain"    decoded one by one in fp32; Triton's interpreter runs it
    "packed"   decoded two by two in registers, in half the instructions
    "unpack"   by the instruction that newer GPUs have for decoding, through `tl.dot_scaled` with bf16
    "fp4"      not decoded: codes and scales of both operands go to the FP4 units
"""

# ruff: noqa: N803, SIM300
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
def _block(values, rows, start, PER: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """[rows, BLOCK_K / PER] of a matrix of K columns, of which PER share an element."""
    place = start // PER + tl.arange(0, BLOCK_K // PER)
    at = values + rows[:, None] * (K // PER) + place[None, :]
    if K % BLOCK_K == 0:
        block = tl.load(at)
    else:
        zero: tl.constexpr = 0.0 if values.dtype.element_ty.is_floating() else 0
        block = tl.load(at, mask=(place < K // PER)[None, :] & (rows >= 0)[:, None], other=zero)
    return block


@triton.jit
def _block_scale(scales, rows, start, K: tl.constexpr, FORMAT: tl.constexpr, BLOCK_K: tl.constexpr):
    """fp32 [rows, scales of the block] of a four-bit format."""
    vec: tl.constexpr = 32 if FORMAT == "mxfp4" else 16
    bits = _block(scales, rows, start, vec, K, BLOCK_K)
    if FORMAT == "mxfp4":
        exponent = bits.to(tl.int32)
        value = tl.where(exponent == 0, 0x400000, exponent << 23).to(tl.float32, bitcast=True)
        return tl.where(exponent == 255, float("nan"), value)
    return _from_e4m3(bits.to(tl.int16))


# A word of eight codes to four pairs of numbers. The fields of E2M1 go where exponent and mantissa meet, so that a pair
# is a masked shift of the word, and every number is 2**126 (bf16) or 2**14 (fp16) too small. The scale that it is
# multiplied by puts 2**119 or 2**6 of that right: more does not fit into its type. `unit` is what is left. A product
# with -0 added is a multiplication for GPUs that have none for pairs of bf16.
_DECODE = """{{
.reg .b32 a, b, c, d, s;
{a}      and.b32 a, a, {field};
shl.b32  s, $4, 12;     lop3.b32 a, s, 0x80008000, a, 0xEA;
{b}      and.b32 b, b, {field};
shl.b32  s, $4, 8;      lop3.b32 b, s, 0x80008000, b, 0xEA;
{c}      and.b32 c, c, {field};
shl.b32  s, $4, 4;      lop3.b32 c, s, 0x80008000, c, 0xEA;
{d}      and.b32 d, d, {field};
lop3.b32 d, $4, 0x80008000, d, 0xEA;
mov.b32  s, 0x80008000;
fma.rn.{kind} a, a, $5, s;
fma.rn.{kind} b, b, $5, s;
fma.rn.{kind} c, c, $5, s;
fma.rn.{kind} d, d, $5, s;
prmt.b32 $0, a, b, 0x5410;
prmt.b32 $1, c, d, 0x5410;
prmt.b32 $2, a, b, 0x7632;
prmt.b32 $3, c, d, 0x7632;
}}"""


def _shifted(kind: str, field: str, *places: int) -> str:
    """The first pair's fields are `places[0]` bits too low, and so on."""
    moves = [f"shl.b32 {r}, $4, {p};" if p >= 0 else f"shr.b32 {r}, $4, {-p};" for r, p in zip("abcd", places)]  # noqa: B905
    return _DECODE.format(kind=kind, field=field, **dict(zip("abcd", moves)))  # noqa: B905


_DECODE_BF16 = tl.constexpr(_shifted("bf16x2", "0x01C001C0", 6, 2, -2, -6))
_DECODE_FP16 = tl.constexpr(_shifted("f16x2", "0x0E000E00", 9, 5, 1, -3))


@triton.jit
def unit(WAY: tl.constexpr, KIND: tl.constexpr, X4: tl.constexpr):
    """What a product in this way has to be multiplied by: for every decoded operand what its numbers are too small."""
    one: tl.constexpr = 128.0 if KIND == tl.bfloat16 else 256.0
    if WAY == "packed":
        return one * one if X4 else one
    return 1.0


@triton.jit
def _pairs(packed, scale, KIND: tl.constexpr):
    """Of eight columns in four bytes, the first four in one tensor, the other four in another."""
    registers: tl.constexpr = "=&r,=&r,=&r,=&r,r,r,r"
    if KIND == tl.bfloat16:
        both = tl.inline_asm_elementwise(
            _DECODE_BF16, registers, [packed, scale], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4
        )
    else:
        both = tl.inline_asm_elementwise(
            _DECODE_FP16, registers, [packed, scale], dtype=(tl.float16, tl.float16), is_pure=True, pack=4
        )
    return both


@triton.jit
def _values(
    codes,
    scales,
    rows,
    start,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    WAY: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """[ROWS, BLOCK_K] in KIND, from column `start` on; zeros outside. FP8 comes without its scales."""
    if FORMAT == "nvfp4" or FORMAT == "mxfp4":  # noqa: PLR1714 - Triton has no sets
        vec: tl.constexpr = 32 if FORMAT == "mxfp4" else 16
        packed = _block(codes, rows, start, 2, K, BLOCK_K)
        scale = _block_scale(scales, rows, start, K, FORMAT, BLOCK_K)
        if WAY == "packed":
            lift: tl.constexpr = 6.646139978924579e35 if KIND == tl.bfloat16 else 64.0  # 2**119, 2**6
            wide = tl.broadcast_to((scale * lift).to(KIND)[:, :, None], (ROWS, BLOCK_K // vec, vec // 2))
            wide = tl.reshape(wide, (ROWS, BLOCK_K // 2))
            low, high = _pairs(packed, wide, KIND)
            pairs = tl.join(tl.reshape(low, (ROWS, BLOCK_K // 8, 4)), tl.reshape(high, (ROWS, BLOCK_K // 8, 4)))
            values = tl.reshape(tl.permute(pairs, (0, 1, 3, 2)), (ROWS, BLOCK_K))
        else:
            word = packed.to(tl.int16)
            # E2M1's fields stand nine bits further left in fp16, and its exponent counts from 1 instead of 15: 2**14.
            wide = tl.broadcast_to((scale * 16384.0)[:, :, None], (ROWS, BLOCK_K // vec, vec // 2))
            wide = tl.reshape(wide, (ROWS, BLOCK_K // 2))
            low = ((word & 0x7) << 9 | (word & 0x8) << 12).to(tl.float16, bitcast=True).to(tl.float32) * wide
            high = ((word & 0x70) << 5 | (word & 0x80) << 8).to(tl.float16, bitcast=True).to(tl.float32) * wide
            values = tl.interleave(low.to(KIND), high.to(KIND))
    elif FORMAT == "fp8-block":
        values = _from_e4m3(_block(codes, rows, start, 1, K, BLOCK_K).to(tl.int16)).to(KIND)
    else:
        values = _block(codes, rows, start, 1, K, BLOCK_K).to(KIND)
    return values


@triton.jit
def add_product(
    total,
    w,
    w_scale,
    rows,
    x,
    x_scale,
    start,
    scale_row,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    WAY: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """total + weights [ROWS, BLOCK_K] times x, as `given_rows` gives it."""
    vec: tl.constexpr = 32 if FORMAT == "mxfp4" else 16
    if WAY == "fp4":
        codes = _block(w, rows, start, 2, K, BLOCK_K)
        scale = _block(w_scale, rows, start, vec, K, BLOCK_K)
        total = tl.dot_scaled(codes, scale, "e2m1", x, x_scale, "e2m1", total)
    elif WAY == "unpack":
        codes = _block(w, rows, start, 2, K, BLOCK_K)
        scale = _block(w_scale, rows, start, vec, K, BLOCK_K)
        total = tl.dot_scaled(codes, scale, "e2m1", x, None, "bf16", total)
    elif FORMAT == "fp8-block":  # tiles of 128 x 128 share a scale, and BLOCK_K is 128
        values = _values(w, w_scale, rows, start, K, FORMAT, WAY, KIND, ROWS, BLOCK_K)
        scale = tl.load(w_scale + scale_row * (K // 128) + start // 128)
        total += tl.dot(values, x) * scale[:, None]
    else:
        values = _values(w, w_scale, rows, start, K, FORMAT, WAY, KIND, ROWS, BLOCK_K)
        total = tl.dot(values, x, total)
    return total


@triton.jit
def given_rows(
    x,
    x_scale,
    rows,
    start,
    K: tl.constexpr,
    X4: tl.constexpr,
    WAY: tl.constexpr,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """What `add_product` multiplies with: x [BLOCK_K, rows] or its codes, and scales, which FP4 units alone read."""
    if WAY == "fp4":
        values = _block(x, rows, start, 2, K, BLOCK_K)
        scale = _block(x_scale, rows, start, 16, K, BLOCK_K)
    else:
        kind: tl.constexpr = "nvfp4" if X4 else "bf16"
        values = _values(x, x_scale, rows, start, K, kind, WAY, KIND, ROWS, BLOCK_K)
        scale = 0
    return tl.trans(values), scale

"""A layer of experts in Triton: pairs grouped on the GPU, two products with their epilogues, and a sum in fixed order.

One source for every format of weights, for activations as they are or in NVFP4, and for any GPU with or without FP4
units:

    group_pairs      where each expert's (token, expert) pairs stand in one list
    quantise_pairs   a row of input for each pair in NVFP4, under its expert's scale (W4A4 only)
    up_product       gate and up, their global scales and biases, the activation; in NVFP4 again for W4A4
    down_product     the second product, its global scale and bias, times the router's weight; fp32, a row a pair
    sum_pairs        the rows of each token, in the order of its experts

Weights are the left operand of both products, because an expert has more rows than tokens. They are read as the
checkpoint has them. Decoded four-bit values have six significant bits at most, so bf16 and fp16 hold them exactly.
"""

# ruff: noqa: N803, PLR0915
# mypy: ignore-errors
# A language of its own in Python's clothes: names in capitals are compile-time constants, and types are inferred by it.

import triton
import triton.language as tl

from sublight.kernels.fused_triton_operands import add_product, given_rows, unit
from sublight.kernels.quantise_triton import nvfp4_blocks

TYPES = {"bfloat16": tl.bfloat16, "float16": tl.float16}
# Earlier ones refuse NVFP4 beside bf16 in `tl.dot_scaled`.
UNPACKS = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)


@triton.jit(do_not_specialize=["pairs", "first"], do_not_specialize_on_alignment=["ids"])
def group_pairs(ids, counts, offsets, order, pairs, first, CHUNK: tl.constexpr):
    """One program an expert: how many pairs it has, where they start, and which they are, in their own order.

    Every program reads all numbers, which takes no atomics and gives the same order each time.
    """
    expert = tl.program_id(0)
    before, count = 0, 0
    for start in range(0, pairs, CHUNK):
        place = start + tl.arange(0, CHUNK)
        own = tl.where(place < pairs, tl.load(ids + place, mask=place < pairs, other=-1) - first, -1)
        before += tl.sum(((own >= 0) & (own < expert)).to(tl.int32))
        count += tl.sum((own == expert).to(tl.int32))
    tl.store(counts + expert, count)
    tl.store(offsets + expert, before)
    for start in range(0, pairs, CHUNK):
        place = start + tl.arange(0, CHUNK)
        own = tl.where(place < pairs, tl.load(ids + place, mask=place < pairs, other=-1) - first, -1)
        mine = (own == expert).to(tl.int32)
        tl.store(order + before + tl.cumsum(mine, 0) - 1, place, mask=mine != 0)
        before += tl.sum(mine)


@triton.jit(do_not_specialize=["first"], do_not_specialize_on_alignment=["ids"])
def quantise_pairs(
    x,
    ids,
    order,
    counts,
    offsets,
    global_scale,
    codes,
    scales,
    first,
    experts,
    hidden,
    TOP_K: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """One pair, and BLOCKS blocks of 16 of its token's values."""
    place = tl.program_id(0)
    if place >= tl.load(counts + experts - 1) + tl.load(offsets + experts - 1):
        return
    pair = tl.load(order + place)
    above = tl.load(global_scale + tl.load(ids + pair) - first)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    at = block[:, None] * 16 + tl.arange(0, 16)[None, :]
    inside = block < hidden // 16
    values = tl.load(x + (pair // TOP_K).to(tl.int64) * hidden + at, mask=inside[:, None], other=0.0).to(tl.float32)
    packed, bits = nvfp4_blocks(values, above, BLOCKS)
    row = place.to(tl.int64)
    byte = block[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(codes + row * (hidden // 2) + byte, packed, mask=inside[:, None])
    tl.store(scales + row * (hidden // 16) + block, bits, mask=inside)


@triton.jit
def _find(counts, offsets, experts, block, EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr):
    """Of all experts' blocks of rows in a row: whose this one is, its first place in the list, and its rows.

    The expert is EXPERTS or more where there is no such block.
    """
    number = tl.arange(0, EXPERTS)
    blocks = (tl.load(counts + number, mask=number < experts, other=0) + BLOCK_M - 1) // BLOCK_M
    expert = tl.sum((tl.cumsum(blocks, 0) <= block).to(tl.int32))
    own = tl.minimum(expert, experts - 1)
    start = (block - tl.sum(tl.where(number < own, blocks, 0))) * BLOCK_M
    return expert, tl.load(offsets + own) + start, tl.load(counts + own) - start


@triton.jit
def _row_of(channel, is_gate, WIDTH: tl.constexpr, ORDER: tl.constexpr):
    """Where a channel's row of gate, or of up, is in w13."""
    if ORDER == "interleaved":
        row = channel * 2 + tl.where(is_gate, 0, 1)
    elif ORDER == "up-gate":
        row = channel + tl.where(is_gate, WIDTH, 0)
    else:
        row = channel + tl.where(is_gate, 0, WIDTH)
    return row


@triton.jit
def _activated(gate, up, ACTIVATION: tl.constexpr):
    """fp32, as `sublight.kernels.activations` has them."""
    if ACTIVATION == "relu2":
        positive = tl.maximum(gate, 0.0)
        return positive * positive
    if ACTIVATION == "swiglu":
        return tl.div_rn(gate, 1.0 + tl.exp(-gate)) * up
    if ACTIVATION == "geglu":
        # 0.5 * (1 + tanh(z)) = 1 / (1 + exp(-2z))
        z = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        return gate / (1.0 + tl.exp(-z)) * up
    gate = tl.minimum(gate, 7.0)
    up = tl.minimum(tl.maximum(up, -7.0), 7.0)
    return gate / (1.0 + tl.exp(-1.702 * gate)) * (up + 1.0)


@triton.jit
def up_product(
    x,
    x_scale,
    x_global,
    w,
    w_scale,
    w_global,
    bias,
    out,
    out_scale,
    out_global,
    order,
    counts,
    offsets,
    experts,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    TOP_K: tl.constexpr,
    FORMAT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ORDER: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    X4: tl.constexpr,
    WAY: tl.constexpr,
    KIND: tl.constexpr,
    BETWEEN: tl.constexpr,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """BLOCK_N channels of one block of an expert's pairs, in the order of the list: [pairs, WIDTH].

    x is [tokens, HIDDEN], or for X4 codes and scales of each place in the list.
    """
    tiles: tl.constexpr = (WIDTH + BLOCK_N - 1) // BLOCK_N
    expert, place, count = _find(counts, offsets, experts, tl.program_id(0) // tiles, EXPERTS, BLOCK_M)
    if expert >= experts:
        return
    # Gate's rows and up's are one operand, so that what is multiplied with both is read once.
    parts: tl.constexpr = 1 if ACTIVATION == "relu2" else 2
    row = tl.arange(0, BLOCK_N * parts)
    own = tl.minimum(tl.program_id(0) % tiles * BLOCK_N + row % BLOCK_N, WIDTH - 1)  # beyond, nothing is written
    if parts == 2:
        own = _row_of(own, row < BLOCK_N, WIDTH, ORDER)
    base = expert.to(tl.int64) * (WIDTH * parts)
    scale_row = expert.to(tl.int64) * ((WIDTH * parts + 127) // 128) + own // 128

    slot = tl.arange(0, BLOCK_M)
    mine = slot < count
    pair = tl.load(order + place + tl.minimum(slot, count - 1))
    rows = (place + tl.minimum(slot, count - 1) if X4 else pair // TOP_K).to(tl.int64)
    total = tl.zeros((BLOCK_N * parts, BLOCK_M), dtype=tl.float32)
    for start in range(0, HIDDEN, BLOCK_K):
        given, given_scale = given_rows(x, x_scale, rows, start, HIDDEN, X4, WAY, KIND, BLOCK_M, BLOCK_K)
        total = add_product(
            total, w, w_scale, base + own, given, given_scale, start, scale_row,
            HIDDEN, FORMAT, WAY, KIND, BLOCK_N * parts, BLOCK_K,
        )  # fmt: skip
    if parts == 2:
        gate, up = tl.split(tl.permute(tl.reshape(total, (2, BLOCK_N, BLOCK_M)), (1, 2, 0)))
    else:
        gate, up = total, total
    above = unit(WAY, KIND, X4)
    if X4:
        above = above / tl.load(x_global + expert)
    if PARTS > 0:
        swapped: tl.constexpr = PARTS == 2 and ORDER == "up-gate"
        gate *= tl.load(w_global + expert * PARTS + (1 if swapped else 0)) * above
        up *= tl.load(w_global + expert * PARTS + (PARTS - 1 if not swapped else 0)) * above
    elif FORMAT == "mxfp4":
        gate *= above
        up *= above
    channel = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = channel < WIDTH
    if HAS_BIAS:
        gate_row = _row_of(channel, channel >= 0, WIDTH, ORDER) if parts == 2 else channel
        gate += tl.load(bias + base + gate_row, mask=inside, other=0.0).to(tl.float32)[:, None]
        if parts == 2:
            up_row = _row_of(channel, channel < 0, WIDTH, ORDER)
            up += tl.load(bias + base + up_row, mask=inside, other=0.0).to(tl.float32)[:, None]
    at = (place + slot).to(tl.int64)[:, None]
    if X4:
        inner = _activated(gate.to(BETWEEN).to(tl.float32), up.to(BETWEEN).to(tl.float32), ACTIVATION)
        inner = tl.trans(inner.to(BETWEEN).to(tl.float32))
        blocks: tl.constexpr = BLOCK_N // 16
        packed, bits = nvfp4_blocks(
            tl.reshape(inner, (BLOCK_M * blocks, 16)), tl.load(out_global + expert), BLOCK_M * blocks
        )
        byte = tl.program_id(0) % tiles * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
        group = tl.program_id(0) % tiles * blocks + tl.arange(0, blocks)
        packed = tl.reshape(packed, (BLOCK_M, BLOCK_N // 2))
        tl.store(out + at * (WIDTH // 2) + byte[None, :], packed, mask=mine[:, None] & (byte < WIDTH // 2)[None, :])
        bits = tl.reshape(bits, (BLOCK_M, blocks))
        tl.store(
            out_scale + at * (WIDTH // 16) + group[None, :], bits, mask=mine[:, None] & (group < WIDTH // 16)[None, :]
        )
    else:
        inner = _activated(gate, up, ACTIVATION).to(out.dtype.element_ty)
        tl.store(out + at * WIDTH + channel[None, :], tl.trans(inner), mask=mine[:, None] & inside[None, :])


@triton.jit(do_not_specialize_on_alignment=["weights"])
def down_product(
    x,
    x_scale,
    x_global,
    w,
    w_scale,
    w_global,
    bias,
    weights,
    out,
    order,
    counts,
    offsets,
    experts,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    FORMAT: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    X4: tl.constexpr,
    WAY: tl.constexpr,
    KIND: tl.constexpr,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """BLOCK_N channels of one block of an expert's pairs: fp32 [pairs, HIDDEN], a row where the pair itself stands."""
    tiles: tl.constexpr = (HIDDEN + BLOCK_N - 1) // BLOCK_N
    expert, place, count = _find(counts, offsets, experts, tl.program_id(0) // tiles, EXPERTS, BLOCK_M)
    if expert >= experts:
        return
    channel = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = channel < HIDDEN
    own = tl.minimum(channel, HIDDEN - 1)  # what is read beyond is not written
    base = expert.to(tl.int64) * HIDDEN
    scale_row = expert.to(tl.int64) * ((HIDDEN + 127) // 128) + own // 128
    slot = tl.arange(0, BLOCK_M)
    mine = slot < count
    rows = (place + tl.minimum(slot, count - 1)).to(tl.int64)
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        given, given_scale = given_rows(x, x_scale, rows, start, WIDTH, X4, WAY, KIND, BLOCK_M, BLOCK_K)
        total = add_product(
            total, w, w_scale, base + own, given, given_scale, start, scale_row,
            WIDTH, FORMAT, WAY, KIND, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    above = unit(WAY, KIND, X4)
    if X4:
        above = above / tl.load(x_global + expert)
    if PARTS > 0:
        above = above * tl.load(w_global + expert)
    if FORMAT == "nvfp4" or FORMAT == "mxfp4":  # noqa: PLR1714 - Triton has no sets
        total *= above
    if HAS_BIAS:
        total += tl.load(bias + base + channel, mask=inside, other=0.0).to(tl.float32)[:, None]
    pair = tl.load(order + place + slot, mask=mine, other=0)
    total *= tl.load(weights + pair, mask=mine, other=0.0)[None, :]
    at = out + pair.to(tl.int64)[:, None] * HIDDEN + channel[None, :]
    tl.store(at, tl.trans(total), mask=mine[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["first"], do_not_specialize_on_alignment=["ids", "out"])
def sum_pairs(rows, ids, out, first, experts, hidden, TOP_K: tl.constexpr, BLOCK: tl.constexpr):
    """One token's rows, those of experts held here, summed in fp32 and rounded once."""
    token = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < hidden
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for choice in range(TOP_K):
        own = tl.load(ids + token * TOP_K + choice + channel * 0) - first
        mask = inside & (own >= 0) & (own < experts)
        total += tl.load(rows + (token * TOP_K + choice) * hidden + channel, mask=mask, other=0.0)
    tl.store(out + token * hidden + channel, total.to(out.dtype.element_ty), mask=inside)

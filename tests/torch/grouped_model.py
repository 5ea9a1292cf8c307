"""The grouped kernels' index arithmetic on the CPU: the same addresses, lanes and fragments, without the GPU.

Each function does what its namesake in `moe_grouped.cu` does, with the numbers of a plan: copies into a ring slot, what
each lane reads of it, products of fragments, and who adds what to which row. Values are fp32 where the kernel's
operands are bf16, so agreement is close and any wrong index shows.
"""

import torch
from torch import Tensor

from sublight.kernels.cuda.grouped_plan import BLOCK_BYTES, GroupedPlan, Phase
from sublight.kernels.cuda.layout import DecodeWeights, decode_word, run_blocks

LANE = torch.arange(32)
G, T = LANE // 4, LANE % 4
Group = tuple[int, int, int]  # expert, first pair in the list, pairs


def sort_pairs(plan: GroupedPlan, ids: Tensor) -> tuple[list[int], list[Group]]:
    """Pairs by expert, and groups of nearly as many tiles each where an expert has more than one pass takes."""
    flat = ids.flatten().tolist()
    listed: list[int] = []
    groups: list[Group] = []
    most = 8 * plan.tiles
    for expert in range(plan.experts):
        own = [pair for pair, e in enumerate(flat) if e == expert]
        tiles, number = -(-len(own) // 8), -(-len(own) // most)
        for i in range(number):
            start, end = tiles * i // number * 8, tiles * (i + 1) // number * 8
            groups.append((expert, len(listed) + start, min(end, len(own)) - start))
        listed += own
    return listed, groups


def layer(plan: GroupedPlan, weights: DecodeWeights, x: Tensor, ids: Tensor, pair_weights: Tensor) -> Tensor:
    listed, groups = sort_pairs(plan, ids)
    read = ordered(x.float()) if plan.wgmma else x.float()
    h = torch.full((ids.numel(), plan.inter), torch.nan)
    for rows in range(-(-plan.inter // 16 // plan.up.units)):
        for expert, first, count in groups:
            pairs = listed[first : first + count]
            source = read[torch.tensor([p // plan.top_k for p in pairs])]
            for unit in range(plan.up.units):
                tile = rows * plan.up.units + unit
                if tile < plan.inter // 16:
                    sums = unit_sums(plan, plan.up, True, weights.w13[expert], rows, unit, source) * 16384
                    gate, up = sums[0] * weights.scale13[expert, 0], sums[1] * weights.scale13[expert, 1]
                    factor = weights.scale2[expert] * pair_weights.flatten()[pairs]
                    values = gate / (1 + (-gate).exp()) * up * factor
                    h[torch.tensor(pairs)[:, None], h_columns(plan, tile)] = values.T
    out = torch.zeros(x.shape[0], plan.hidden)
    for rows in range(-(-plan.hidden // 32 // plan.down.units)):
        for expert, first, count in groups:
            pairs = listed[first : first + count]
            source = h[pairs].bfloat16().float()
            for unit in range(plan.down.units):
                tile = (rows * plan.down.units + unit) * 2
                if tile < plan.hidden // 16:
                    sums = unit_sums(plan, plan.down, False, weights.w2[expert], rows, unit, source)
                    for i in range(2):
                        add_up(out, sums[i], [p // plan.top_k for p in pairs], (tile + i) * 16)
    return out * 16384


def unit_sums(
    plan: GroupedPlan, phase: Phase, up: bool, expert: Tensor, rows: int, unit: int, source: Tensor
) -> Tensor:
    """[2 tiles, 16 rows, pairs]: over all stages and the warps that share the unit."""
    blocks = (plan.hidden if up else plan.inter) // 64
    count = source.shape[0]
    sums = torch.zeros(2, 16, -(-count // 8) * 8)
    for stage in range(-(-blocks // phase.step)):
        here = min(phase.step, blocks - stage * phase.step)
        slot = copy_weights(plan, phase, up, expert.flatten(), rows, stage, here)
        x_rows = copy_rows(plan, phase, source, stage, here)
        for part in range(phase.split):
            for b in range(phase.blocks):
                if part * phase.blocks + b < here:
                    a = read_weights(plan, phase, up, slot, unit, part, b)
                    for n in range(sums.shape[2] // 8):
                        columns = read_rows(plan, phase, x_rows, part, b, n)
                        for i in range(2):
                            sums[i, :, n * 8 : n * 8 + 8] += products(a[i], columns)
    return sums[:, :, :count]


def copy_weights(
    plan: GroupedPlan, phase: Phase, up: bool, expert: Tensor, rows: int, stage: int, blocks: int
) -> Tensor:
    """A slot's weights: bytes, or -1 where nothing was copied."""
    slot = torch.full((phase.units * 2 * phase.step * BLOCK_BYTES,), -1, dtype=torch.int64)
    units = min(phase.units, (plan.inter // 16 if up else plan.hidden // 32) - rows * phase.units)

    def copy(to: int, start: int, size: int) -> None:
        assert to % 16 == start % 16 == size % 16 == 0
        slot[to : to + size] = expert[start : start + size].long()

    if up:
        k_blocks = plan.hidden // 64
        start = (rows * phase.units * k_blocks + stage * phase.step) * 2 * BLOCK_BYTES
        for u in range(units):
            size = 2 * BLOCK_BYTES
            copy(u * phase.step * size, start + u * k_blocks * size, blocks * size)
    else:
        run, tiles = run_blocks(plan.inter), plan.hidden // 16
        start = (stage * (phase.step // run) * tiles + rows * phase.units * 2) * run * BLOCK_BYTES
        for r in range(-(-blocks // run)):
            size = run * BLOCK_BYTES
            copy(r * phase.units * 2 * size, start + r * tiles * size, units * 2 * size)
    return slot


def copy_rows(plan: GroupedPlan, phase: Phase, source: Tensor, stage: int, blocks: int) -> Tensor:
    """A slot's rows, as values two bytes apart: NaN where nothing was copied."""
    part = source[:, stage * phase.step * 64 :][:, : blocks * 64]
    if plan.wgmma:
        return chunk_rows(plan, phase, part)
    stride = (phase.step * 128 + 16) // 2
    slot = torch.full((8 * plan.tiles * stride,), torch.nan)
    for n, row in enumerate(part):
        slot[n * stride : n * stride + len(row)] = row
    return slot


def chunk_rows(plan: GroupedPlan, phase: Phase, part: Tensor) -> Tensor:
    """16 bytes of each of eight rows together, then the next eight; then the next 16 bytes of all rows."""
    count, width = part.shape
    across = 8 * plan.tiles * 8  # values of all rows' 16 bytes
    slot = torch.full((phase.step * 8 * across,), torch.nan)
    for quad in range(-(-count // 8) * phase.step * 2):
        for lane in range(32):
            row = quad // (phase.step * 2) * 8 + lane % 8
            chunk = quad % (phase.step * 2) * 4 + lane // 8
            if row < count and chunk * 8 < width:
                to = chunk * across + row * 8
                slot[to : to + 8] = part[row, chunk * 8 : chunk * 8 + 8]
    return slot


def ordered(x: Tensor) -> Tensor:
    """`grouped_order`: thread i writes 16 bytes from four words that lie 32 bytes apart."""
    words = x.reshape(-1, 2)
    i = torch.arange(x.numel() // 8)
    start = i // 8 * 32 + i % 8
    return torch.cat([words[start + 8 * t] for t in range(4)], 1).reshape(x.shape)


def h_columns(plan: GroupedPlan, tile: int) -> Tensor:
    """Where the 16 values of a tile go in a row of h; lanes with an even number write two of them."""
    lane = torch.arange(0, 16, 2)
    first = (tile & ~3) * 16 + lane * 4 + (tile & 3) * 2 if plan.wgmma else tile * 16 + lane
    return torch.stack([first, first + 1], 1).flatten()


def read_weights(
    plan: GroupedPlan, phase: Phase, up: bool, slot: Tensor, unit: int, part: int, b: int
) -> list[list[Tensor]]:
    """[tile][mma] -> operand A as [4 registers, lane, 2 values], decoded and scaled by its block."""
    run = 1 if up else run_blocks(plan.inter)
    block0 = part * phase.blocks
    if up:
        base = (unit * phase.step + block0 + b) * 2 * BLOCK_BYTES
        starts = [base, base + 512]
        scale_at = [[base + 1024 + LANE * 4 + 2 * i + j for j in range(2)] for i in range(2)]
    else:
        base = ((block0 // run * phase.units + unit) * 2 * run + block0 % run) * BLOCK_BYTES
        base += (b // run * phase.units * 2 * run + b % run) * BLOCK_BYTES
        starts = [base, base + run * BLOCK_BYTES]
        scale_at = [[start + 512 + LANE * 2 + j for j in range(2)] for start in starts]
    tiles = []
    for start, places in zip(starts, scale_at, strict=True):
        scales = [slot[place].to(torch.uint8).view(torch.float8_e4m3fn).float() for place in places]
        codes = slot[start + LANE[:, None] * 16 + torch.arange(16)]
        assert bool((codes >= 0).all())
        words = codes.reshape(32, 4, 4) @ torch.tensor([1, 1 << 8, 1 << 16, 1 << 24])
        tiles.append([operand(words[:, i], scales) for i in range(4)])
    return tiles


def operand(words: Tensor, scales: list[Tensor]) -> Tensor:
    registers = []
    for number, bits in enumerate(decode_word(words)):
        halves = [(bits >> 16 * half & 0xFFFF) << 16 for half in range(2)]
        values = torch.stack([half.to(torch.int32).view(torch.float32) for half in halves], 1)
        registers.append(values.double() * 2.0**112 * scales[number % 2].double()[:, None])
    return torch.stack(registers).float()


def read_rows(plan: GroupedPlan, phase: Phase, slot: Tensor, part: int, b: int, n: int) -> list[Tensor]:
    """[mma] -> operand B of eight pairs, [16 columns of the weights as operand A counts them, 8]."""
    block = part * phase.blocks + b
    if plan.wgmma:
        return [described(plan, slot, (block * 8 + 2 * i) * 8 * plan.tiles * 8, n) for i in range(4)]
    stride = (phase.step * 128 + 16) // 2
    at = (n * 8 + G) * stride + block * 64 + T * 16
    values = slot[at[:, None] + torch.arange(16)]  # of the lane's column
    operands = []
    for i in range(4):
        operand = torch.zeros(16, 8)
        for register in range(2):
            for half in range(2):
                operand[2 * T + half + 8 * register, G] = values[:, 4 * i + 2 * register + half]
        operands.append(operand)
    return operands


def described(plan: GroupedPlan, slot: Tensor, start: int, n: int) -> Tensor:
    """What a matrix descriptor without swizzling says: core matrices of 8 rows x 16 bytes, two along the sum."""
    leading, stride = 8 * plan.tiles * 8, 64  # values between the two, and between groups of eight rows
    cores = [slot[start + k * leading + n * stride :][:64].reshape(8, 8) for k in range(2)]
    return torch.cat([core.T for core in cores])


def products(a: list[Tensor], b: list[Tensor]) -> Tensor:
    """Four steps of sixteen, operand A by the fragments of the PTX manual: [16 rows, 8 columns]."""
    total = torch.zeros(16, 8)
    for left, columns in zip(a, b, strict=True):
        rows = torch.zeros(16, 16)
        for register in range(4):
            for half in range(2):
                rows[G + 8 * (register % 2), 2 * T + half + 8 * (register // 2)] = left[register, :, half]
        total += rows @ columns
    return total


def add_up(out: Tensor, sums: Tensor, tokens: list[int], row0: int) -> None:
    """The exchange between four lanes with neighbouring rows, and the addition of four rows of a token."""
    odd, high = LANE & 4 > 0, LANE & 8 > 0
    for n in range(-(-sums.shape[1] // 8)):
        tile = torch.zeros(16, 8)
        tile[:, : min(8, sums.shape[1] - n * 8)] = sums[:, n * 8 : n * 8 + 8]
        v = [tile[G + 8 * (c // 2), 2 * T + c % 2] for c in range(4)]
        a, b = torch.where(odd, v[0], v[1])[LANE ^ 4], torch.where(odd, v[2], v[3])[LANE ^ 4]
        p0, p1 = torch.where(odd, a, v[0]), torch.where(odd, v[1], a)
        r0, r1 = torch.where(odd, b, v[2]), torch.where(odd, v[3], b)
        c, d = torch.where(high, p0, r0)[LANE ^ 8], torch.where(high, p1, r1)[LANE ^ 8]
        four = torch.stack(
            [torch.where(high, c, p0), torch.where(high, d, p1), torch.where(high, r0, c), torch.where(high, r1, d)], 1
        )
        row = row0 + high * 8 + (LANE >> 4) * 4
        at = n * 8 + 2 * T + odd
        for lane in range(32):
            if at[lane] < len(tokens):
                out[tokens[int(at[lane])], row[lane] : row[lane] + 4] += four[lane]

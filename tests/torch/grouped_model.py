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


def largest_first(plan: GroupedPlan, groups: list[Group]) -> list[Group]:
    """Each warp has 32 groups: it counts their sizes, then adds up those of larger groups and of earlier warps."""
    size = [plan.tiles - -(-count // 8) for _, _, count in groups]
    chunks = [size[i : i + 32] for i in range(0, len(size), 32)]
    sizes = [[chunk.count(k) for chunk in chunks] for k in range(plan.tiles)]
    placed: list[Group] = [(-1, -1, -1)] * len(groups)
    for c, chunk in enumerate(chunks):
        upto = [sum(map(sum, sizes[: k + 1])) for k in range(plan.tiles)]
        places = [upto[k] - sum(sizes[k]) + sum(sizes[k][:c]) for k in range(plan.tiles)]
        for lane, mine in enumerate(chunk):
            placed[places[mine] + chunk[:lane].count(mine)] = groups[c * 32 + lane]
    return placed


def layer(plan: GroupedPlan, weights: DecodeWeights, x: Tensor, ids: Tensor, pair_weights: Tensor) -> Tensor:
    listed, groups = sort_pairs(plan, ids)
    groups = largest_first(plan, groups)
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
                    if plan.wgmma:
                        write_tokens(plan, h, values, pairs, tile)
                    else:
                        h[torch.tensor(pairs)[:, None], tile * 16 + torch.arange(16)] = values.T
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
    step = phase.step(plan.wgmma)
    for stage in range(-(-blocks // step)):
        here = min(step, blocks - stage * step)
        slot = copy_weights(plan, phase, up, expert.flatten(), rows, stage, here)
        x_rows = copy_rows(plan, phase, source, stage, here)
        for warp in range(phase.team):
            halves = plan.wgmma and phase.team == 2  # a warp has one tile of the unit
            block0 = 0 if plan.wgmma else warp * phase.blocks
            for b in range(phase.blocks):
                if block0 + b < here:
                    a = read_weights(plan, phase, up, slot, unit, warp if halves else None, block0, b)
                    for n in range(sums.shape[2] // 8):
                        columns = read_rows(plan, phase, x_rows, block0 + b, n)
                        for i, left in enumerate(a):
                            sums[warp if halves else i, :, n * 8 : n * 8 + 8] += products(left, columns)
    return sums[:, :, :count]


def copy_weights(
    plan: GroupedPlan, phase: Phase, up: bool, expert: Tensor, rows: int, stage: int, blocks: int
) -> Tensor:
    """A slot's weights: bytes, or -1 where nothing was copied."""
    step = phase.step(plan.wgmma)
    slot = torch.full((phase.units * 2 * step * BLOCK_BYTES,), -1, dtype=torch.int64)
    units = min(phase.units, (plan.inter // 16 if up else plan.hidden // 32) - rows * phase.units)

    def copy(to: int, start: int, size: int) -> None:
        assert to % 16 == start % 16 == size % 16 == 0
        slot[to : to + size] = expert[start : start + size].long()

    if up:
        k_blocks = plan.hidden // 64
        start = (rows * phase.units * k_blocks + stage * step) * 2 * BLOCK_BYTES
        for u in range(units):
            size = 2 * BLOCK_BYTES
            copy(u * step * size, start + u * k_blocks * size, blocks * size)
    else:
        run, tiles = run_blocks(plan.inter), plan.hidden // 16
        start = (stage * (step // run) * tiles + rows * phase.units * 2) * run * BLOCK_BYTES
        for r in range(-(-blocks // run)):
            size = run * BLOCK_BYTES
            copy(r * phase.units * 2 * size, start + r * tiles * size, units * 2 * size)
    return slot


def copy_rows(plan: GroupedPlan, phase: Phase, source: Tensor, stage: int, blocks: int) -> Tensor:
    """A slot's rows, as values two bytes apart: NaN where nothing was copied.

    A warp has every so many tiles of eight rows, and each of its instructions 64 bytes of every row. For warpgroup
    products 16 bytes of each of eight rows lie together, then the next eight; then the next 16 bytes of all rows.
    """
    step, warps, (count, width) = phase.step(plan.wgmma), 2 if plan.wgmma else 3, source.shape
    row_bytes, chunk_bytes = (16, 8 * plan.tiles * 16) if plan.wgmma else (step * 128 + 16, 16)
    slot = torch.full((8 * plan.tiles * (step * 128 + (0 if plan.wgmma else 16)) // 2,), torch.nan)
    for part in range(warps):
        for k in range(-(-plan.tiles // warps)):
            for lane in range(32):
                row, chunk = part * 8 + lane % 8 + k * warps * 8, lane // 8
                for j in range(blocks * 2 if row < count else 0):
                    to = ((part * 8 + lane % 8) * row_bytes + chunk * chunk_bytes) // 2
                    to += (k * warps * 8 * row_bytes + j * 4 * chunk_bytes) // 2
                    start = stage * step * 64 + chunk * 8 + j * 32
                    assert start + 8 <= width
                    slot[to : to + 8] = source[row, start : start + 8]
    return slot


def ordered(x: Tensor) -> Tensor:
    """`grouped_order`: thread i writes 16 bytes from four words that lie 32 bytes apart."""
    words = x.reshape(-1, 2)
    i = torch.arange(x.numel() // 8)
    start = i // 8 * 32 + i % 8
    return torch.cat([words[start + 8 * t] for t in range(4)], 1).reshape(x.shape)


def column_of(tile: int, row: Tensor) -> Tensor:
    """Where a column pair of h goes so that `grouped_down` reads the order in which operand B has them."""
    return (tile & ~3) * 16 + row * 4 + (tile & 3) * 2


def write_tokens(plan: GroupedPlan, h: Tensor, values: Tensor, pairs: list[int], tile: int) -> None:
    """[16 rows, pairs] as lanes have them: neighbours in g exchange, and each writes two column pairs of one token."""
    odd = (G & 1).bool()
    for n in range(-(-len(pairs) // 8)):
        eight = torch.full((16, 8), torch.nan)
        eight[:, : min(8, len(pairs) - n * 8)] = values[:, n * 8 : n * 8 + 8]
        v = [eight[G + 8 * (c >> 1), 2 * T + (c & 1)] for c in range(4)]
        a, b = torch.where(odd, v[0], v[1])[LANE ^ 4], torch.where(odd, v[2], v[3])[LANE ^ 4]
        above = torch.stack([torch.where(odd, a, v[0]), torch.where(odd, v[1], a)], 1)
        below = torch.stack([torch.where(odd, b, v[2]), torch.where(odd, v[3], b)], 1)
        at = n * 8 + 2 * T + odd
        for lane in range(32):
            if at[lane] < len(pairs):
                row = pairs[int(at[lane])]
                for two, column in ((above, column_of(tile, G & 6)), (below, column_of(tile, (G & 6) + 8))):
                    h[row, column[lane] : column[lane] + 2] = two[lane]


def read_weights(
    plan: GroupedPlan, phase: Phase, up: bool, slot: Tensor, unit: int, tile: int | None, block0: int, b: int
) -> list[list[Tensor]]:
    """[tile][mma] -> operand A as [4 registers, lane, 2 values], decoded and scaled by its block; of one or both."""
    run = 1 if up else run_blocks(plan.inter)
    tile0 = tile or 0
    if up:
        at = (unit * phase.step(plan.wgmma) + block0 + b) * 2 * BLOCK_BYTES + tile0 * 512
        starts = [at, at + 512]
        scale_at = [[at - tile0 * 510 + 1024 + LANE * 4 + 2 * i + j for j in range(2)] for i in range(2)]
    else:
        at = ((block0 // run * phase.units + unit) * 2 + tile0) * run + block0 % run
        at = (at + b // run * phase.units * 2 * run + b % run) * BLOCK_BYTES
        starts = [at, at + run * BLOCK_BYTES]
        scale_at = [[start + 512 + LANE * 2 + j for j in range(2)] for start in starts]
    if tile is not None:
        starts, scale_at = starts[:1], scale_at[:1]
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


def read_rows(plan: GroupedPlan, phase: Phase, slot: Tensor, block: int, n: int) -> list[Tensor]:
    """[mma] -> operand B of eight pairs, [16 columns of the weights as operand A counts them, 8]."""
    if plan.wgmma:
        return [described(plan, slot, (block * 8 + 2 * i) * 8 * plan.tiles * 8, n) for i in range(4)]
    stride = (phase.step(False) * 128 + 16) // 2
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

"""The layout of NVFP4 experts that the decode kernel streams, and its exact inverse. Plain torch, any device.

Weights are cut into blocks of 16 rows x 64 columns, because that is what 32 lanes hold as operand A of four
`mma.m16n8k16`: lane (g, t) has columns 16t .. 16t + 15 of rows g and g + 8, so that it needs one scale a row. A block
is 512 bytes of codes (16 a lane, one 32-bit word an mma) and the scales. `w13` pairs a block of gate rows with the
block of up rows that they are multiplied by. README.md beside this file draws it.
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised

_BITS = np.uint32(0x81C081C0)  # where a bf16 has its sign and the three bits that an E2M1 code fills, in both halves
_WORD = 32
_UNORDERED = 0x7F  # E4M3 bytes from here up are NaN or negative


@dataclass(frozen=True, eq=False)
class DecodeWeights:
    """The experts of one rank as the decode kernel reads them; shared ones, cut into the same width, stand at the end.

    Attributes:
        w13: uint8 [experts, inter/16, hidden/64, 1152]: gate block, up block, and for each lane the scales of its gate
            rows g, g + 8 and of its up rows g, g + 8.
        w2: uint8 [experts, inter/(64 * run), hidden/16, 576 * run]: blocks, each followed by the scales of rows g,
            g + 8 of each lane. A run of two column blocks lies together where their number is even.
        scale13: fp32 [experts, 2], of gate and up.
        scale2: fp32 [experts].
        shared: of the experts above, how many every token goes to.
    """

    w13: Tensor
    w2: Tensor
    scale13: Tensor
    scale2: Tensor
    shared: int = field(default=0, kw_only=True)

    @property
    def experts(self) -> int:
        """Routed ones."""
        return self.w13.shape[0] - self.shared

    @property
    def hidden(self) -> int:
        return self.w13.shape[2] * 64

    @property
    def inter(self) -> int:
        return self.w13.shape[1] * 16

    def to(self, device: torch.device) -> "DecodeWeights":
        tensors = (self.w13, self.w2, self.scale13, self.scale2)
        return DecodeWeights(*(t.to(device) for t in tensors), shared=self.shared)

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.w13, self.w2, self.scale13, self.scale2))


def pack_experts(w13: Quantised, w2: Quantised, shared: tuple[Quantised, Quantised] | None = None) -> DecodeWeights:
    """Into the kernel's layout, an expert at a time.

    Args:
        w13: [experts, 2 * inter, hidden], gate rows before up rows, one global scale a matrix or one each.
        w2: [experts, hidden, inter].
        shared: w13 and w2 of one expert for every token, n times as wide; it becomes n experts.

    Raises:
        KernelError: not NVFP4, a width that is no multiple of 64, or a scale that is negative or NaN; a shared expert
            of another hidden size, or not n times as wide.
    """
    experts, rows, hidden = w13.shape
    inter = rows // 2
    _check(w13, w2)
    stacks = [(w13, w2)] if shared is None else [(w13, w2), _in_widths(*shared, inter, hidden)]
    count = sum(first.shape[0] for first, _ in stacks)
    packed13 = torch.empty(count, inter // 16, hidden // 64, 1152, dtype=torch.uint8, device=w13.codes.device)
    packed2 = torch.empty(count, *w2_shape(hidden, inter), dtype=torch.uint8, device=w2.codes.device)
    each = [(first[e], second[e]) for first, second in stacks for e in range(first.shape[0])]
    for e, (first, second) in enumerate(each):
        packed13[e] = _pack_pairs(first.codes, _bytes(first.scales))
        blocks = _pack_blocks(second.codes, _bytes(second.scales))
        packed2[e] = blocks.view(-1, run_blocks(inter), hidden // 16, 576).transpose(1, 2).flatten(2)
    scale13 = torch.cat([_multipliers(first).expand(first.shape[0], 2) for first, _ in stacks])
    scale2 = torch.cat([_multipliers(second).reshape(second.shape[0]) for _, second in stacks])
    return DecodeWeights(packed13, packed2, scale13, scale2, shared=count - experts)


def _in_widths(w13: Quantised, w2: Quantised, inter: int, hidden: int) -> tuple[Quantised, Quantised]:
    """One expert as several of width `inter`: the sum over its width falls into theirs."""
    _check(w13, w2)
    one, rows, columns = w13.shape
    asked = "a shared expert for the decode kernel"
    if one != 1 or columns != hidden:
        raise KernelError(
            asked, f"its w13 is {list(w13.shape)}", f"[1, rows, {hidden}]: one expert of this hidden size"
        )
    count = rows // 2 // inter
    if rows != 2 * count * inter:
        raise KernelError(asked, f"its width is {rows // 2}", f"a multiple of the routed experts' width, {inter}")

    def up_and_gate(t: Tensor) -> Tensor:
        return t.reshape(2, count, inter, -1).transpose(0, 1).reshape(count, 2 * inter, -1)

    def down(t: Tensor) -> Tensor:
        return t.reshape(hidden, count, -1).transpose(0, 1).contiguous()

    above = [GlobalScale(_multipliers(m).expand(count, -1)) for m in (w13, w2)]
    return (
        Quantised(NVFP4, up_and_gate(w13.codes), up_and_gate(w13.scales), above[0]),
        Quantised(NVFP4, down(w2.codes), down(w2.scales), above[1]),
    )


def _multipliers(matrices: Quantised) -> Tensor:
    """fp32 [experts, parts]."""
    above = matrices.global_scale
    assert above is not None  # the format has them
    return above.multiplier.float()


def unpack_experts(weights: DecodeWeights) -> tuple[Quantised, Quantised]:
    """The checkpoint's codes and scales again, bit for bit; global scales as multipliers, gate and up by themselves."""
    pairs = [_unpack_pairs(p) for p in weights.w13]
    runs = weights.w2.view(*weights.w2.shape[:3], -1, 576).transpose(2, 3)  # expert, run, block of the run, tile
    downs = [_unpack_blocks(p.flatten(0, 1)) for p in runs]
    return (
        _quantised(pairs, weights.scale13),
        _quantised(downs, weights.scale2.unsqueeze(-1)),
    )


def run_blocks(inter: int) -> int:
    """Column blocks of a row tile of w2 that lie together: a copy of two is larger and as easily balanced."""
    return 1 if inter // 64 % 2 else 2


def w2_shape(hidden: int, inter: int) -> tuple[int, int, int]:
    """Of one expert."""
    run = run_blocks(inter)
    return inter // 64 // run, hidden // 16, 576 * run


def _quantised(parts: list[tuple[Tensor, Tensor]], above: Tensor) -> Quantised:
    codes, scales = (torch.stack(side) for side in zip(*parts, strict=True))
    return Quantised(NVFP4, codes, scales.view(torch.float8_e4m3fn), GlobalScale(above))


def _check(w13: Quantised, w2: Quantised) -> None:
    asked = "packing experts for the decode kernel"
    for name, matrix in (("w13", w13), ("w2", w2)):
        if matrix.format.name != NVFP4.name:
            raise KernelError(asked, f"{name} is {matrix.format.name}", "nvfp4 weights")
        if bool((_bytes(matrix.scales) >= _UNORDERED).any()):
            raise KernelError(asked, f"a scale of {name} is negative or NaN", "scales as NVFP4 defines them, 0 to 448")
    experts, rows, hidden = w13.shape
    if w2.shape != (experts, hidden, rows // 2):
        wanted = [experts, hidden, rows // 2]
        raise KernelError(asked, f"w2 is {list(w2.shape)} beside w13 {list(w13.shape)}", f"w2 of {wanted}")
    for name, value in (("hidden_size", hidden), ("intermediate_size", rows // 2)):
        if value % 64:
            raise KernelError(asked, f"{name} {value} is no multiple of 64", "fewer tensor-parallel ranks")


def _bytes(scales: Tensor) -> Tensor:
    return scales.view(torch.uint8)


def _pack_pairs(codes: Tensor, scales: Tensor) -> Tensor:
    """[2 * inter, hidden/2], [2 * inter, hidden/16] -> [inter/16, hidden/64, 1152]."""
    words = _words(codes, 2).permute(1, 4, 0, 2, 3, 5)  # tile, block, matrix, g, t, mma
    tiles, blocks = words.shape[:2]
    lanes = _split(scales, 2, 4).permute(1, 4, 3, 5, 0, 2)  # tile, block, g, t, matrix, row g or g + 8
    flat = (words.reshape(tiles, blocks, -1).view(torch.uint8), lanes.reshape(tiles, blocks, -1))
    return torch.cat(flat, dim=-1)


def _pack_blocks(codes: Tensor, scales: Tensor) -> Tensor:
    """[hidden, inter/2], [hidden, inter/16] -> [inter/64, hidden/16, 576]."""
    words = _words(codes, 1)[0].permute(3, 0, 1, 2, 4)  # block, tile, g, t, mma
    blocks, tiles = words.shape[:2]
    lanes = _split(scales, 1, 4)[0].permute(3, 0, 2, 4, 1)  # block, tile, g, t, row g or g + 8
    flat = (words.reshape(blocks, tiles, -1).view(torch.uint8), lanes.reshape(blocks, tiles, -1))
    return torch.cat(flat, dim=-1)


def _unpack_pairs(packed: Tensor) -> tuple[Tensor, Tensor]:
    tiles, blocks = packed.shape[:2]
    words = packed[..., :1024].contiguous().view(torch.int32).view(tiles, blocks, 2, 8, 4, 4)
    lanes = packed[..., 1024:].reshape(tiles, blocks, 8, 4, 2, 2)
    codes = _codes(words.permute(2, 0, 3, 1, 4, 5))
    return codes, lanes.permute(4, 0, 5, 2, 1, 3).reshape(codes.shape[0], -1)


def _unpack_blocks(packed: Tensor) -> tuple[Tensor, Tensor]:
    blocks, tiles = packed.shape[:2]
    words = packed[..., :512].contiguous().view(torch.int32).view(blocks, tiles, 8, 4, 4)
    lanes = packed[..., 512:].reshape(blocks, tiles, 8, 4, 2)
    codes = _codes(words.permute(1, 2, 0, 3, 4).unsqueeze(0))
    return codes, lanes.permute(1, 4, 2, 0, 3).reshape(codes.shape[0], -1)


def _split(rows: Tensor, matrices: int, inner: int) -> Tensor:
    """[rows, n] -> [matrix, tile, half of the tile, g, block, inner]."""
    return rows.reshape(matrices, -1, 2, 8, rows.shape[1] // inner, inner)


def _words(codes: Tensor, matrices: int) -> Tensor:
    """Two bytes of row g and two of row g + 8 -> one word: [matrix, tile, g, t, block, mma]."""
    quads = codes.contiguous().view(torch.int16).long() & 0xFFFF
    parts = quads.reshape(matrices, -1, 2, 8, quads.shape[1] // 16, 4, 4)
    low, high = (torch.from_numpy(table).to(codes.device) for table in _tables())
    words = low[parts[:, :, 0]] ^ high[parts[:, :, 1]]  # matrix, tile, g, block, t, mma
    return words.permute(0, 1, 2, 4, 3, 5)


def _codes(words: Tensor) -> Tensor:
    """[matrix, tile, g, block, t, mma] -> [rows, columns/2]."""
    q = words.long() & 0xFFFFFFFF
    operands = decode_word(q)
    halves = [torch.zeros_like(q), torch.zeros_like(q)]  # of rows g and g + 8
    for number, operand in enumerate(operands):
        for half in range(2):
            bits = operand >> (16 * half)
            halves[number % 2] |= ((bits >> 6 & 7) | (bits >> 12 & 8)) << 4 * (2 * (number // 2) + half)
    both = torch.stack(halves, dim=2).to(torch.int32).to(torch.int16)  # matrix, tile, half, g, block, t, mma
    matrices, tiles, _, _, blocks = both.shape[:5]
    return both.reshape(matrices * tiles * 16, blocks * 16).view(torch.uint8)


def decode_word(q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the kernel's bit operations make of a word, as int64: four pairs of bf16 patterns, value times 2^-126.

    The registers of operand A: rows g and g + 8 with columns 4i, 4i + 1, then the same rows with 4i + 2, 4i + 3.
    """

    def turn(by: int) -> Tensor:
        return (q << by | q >> (_WORD - by)) & 0xFFFFFFFF

    bits = int(_BITS)
    shifted = q << 2 & 0xFFFFFFFF
    return q & bits, turn(12) & bits, (shifted ^ q << 6) & bits, (shifted ^ turn(8)) & bits


@cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Four codes of row g, and of row g + 8, -> their part of the word. The parts are joined by exclusive or."""
    inverse = _inverse()
    codes = np.arange(1 << 16, dtype=np.uint32)
    tables = []
    for row in range(2):
        table = np.zeros(1 << 16, dtype=np.uint32)
        for column in range(4):
            register, half = row + 2 * (column // 2), column % 2
            code = codes >> np.uint32(4 * column) & np.uint32(15)
            parts = np.array([_encode(inverse, register, half, c) for c in range(16)], dtype=np.uint32)
            table ^= parts[code]
        tables.append(table.view(np.int32))
    return tables[0], tables[1]


def _encode(inverse: dict[tuple[int, int], int], register: int, half: int, code: int) -> int:
    word = 0
    for bit, place in ((0, 6), (1, 7), (2, 8), (3, 15)):
        if code >> bit & 1:
            word ^= inverse[register, 16 * half + place]
    return word


@cache
def _inverse() -> dict[tuple[int, int], int]:
    """(register, bit) -> the word that sets that bit alone. Decoding is linear over GF(2), so it can be solved."""
    images = decode_word(torch.tensor([1 << i for i in range(_WORD)]))
    places = [bit for bit in range(_WORD) if int(_BITS) >> bit & 1]
    rows = []
    for i in range(_WORD):
        image = 0
        for register, operand in enumerate(images):
            for position, bit in enumerate(places):
                image |= (int(operand[i]) >> bit & 1) << (8 * register + position)
        rows.append((image, 1 << i))
    for column in range(_WORD):
        at = next(i for i in range(column, _WORD) if rows[i][0] >> column & 1)
        rows[column], rows[at] = rows[at], rows[column]
        image, word = rows[column]
        rows = [(a ^ image, b ^ word) if i != column and a >> column & 1 else (a, b) for i, (a, b) in enumerate(rows)]
    return {(i // 8, places[i % 8]): word for i, (_, word) in enumerate(rows)}

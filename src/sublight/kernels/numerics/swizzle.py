"""Layouts of block scales that tensor cores of compute capability 10 and 12 read.

One tile is 128 rows by 4 scales, 512 bytes in a row:

    row r, scale c  ->  tile (r // 128, c // 4), and in it byte (r % 32) * 16 + (r % 128 // 32) * 4 + c % 4

Tiles follow one another along the row of scales. A matrix that is no whole number of tiles is padded, and the padding
is part of what hardware reads: stale bytes in a padded column gave garbage at one degree of tensor parallelism, and
only when buffers were reused (vllm#48898). So padding is written as zeros here, and `dirty_padding` writes anything
else, to find a kernel that lets it matter.

The masked grouped GEMM of FlashInfer takes the same bytes for a stack of l matrices, seen as (32, 4, rm, 4, rk, l).
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from sublight.errors import KernelError

TILE_ROWS, TILE_SCALES = 128, 4


def padded(rows: int, scales: int) -> tuple[int, int]:
    """Rows and scales of whole tiles."""
    return -(-rows // TILE_ROWS) * TILE_ROWS, -(-scales // TILE_SCALES) * TILE_SCALES


def swizzle(scales: Tensor) -> Tensor:
    """[..., rows, scales] in rows to whole tiles in their order in memory: [..., rows padded, scales padded]."""
    rows, columns = padded(*scales.shape[-2:])
    filled = pad(_bytes(scales), (0, columns - scales.shape[-1], 0, rows - scales.shape[-2]))
    tiles = filled.reshape(*scales.shape[:-2], rows // TILE_ROWS, 4, 32, columns // TILE_SCALES, TILE_SCALES)
    return tiles.movedim((-2, -3, -4), (-4, -3, -2)).reshape(*scales.shape[:-2], rows, columns).view(scales.dtype)


def unswizzle(swizzled: Tensor, rows: int, scales: int) -> Tensor:
    """The inverse, without the padding. Raises KernelError where the size is not that of whole tiles."""
    wanted = padded(rows, scales)
    if tuple(swizzled.shape[-2:]) != wanted:
        found = f"they are {list(swizzled.shape[-2:])} where whole tiles of 128 x 4 are {list(wanted)}"
        raise KernelError(f"swizzled scales of {rows} rows and {scales} groups", found, "scales padded to whole tiles")
    tiles = _bytes(swizzled).reshape(
        *swizzled.shape[:-2], wanted[0] // TILE_ROWS, wanted[1] // TILE_SCALES, 32, 4, TILE_SCALES
    )
    linear = tiles.movedim((-4, -3, -2), (-2, -3, -4)).reshape(*swizzled.shape[:-2], *wanted)
    return linear[..., :rows, :scales].contiguous().view(swizzled.dtype)


def to_masked(scales: Tensor) -> Tensor:
    """[l, rows, scales] to the view (32, 4, rm, 4, rk, l) of memory (l, rm, rk, 32, 4, 4)."""
    rows, columns = padded(*scales.shape[-2:])
    tiles = swizzle(scales).reshape(scales.shape[0], rows // TILE_ROWS, columns // TILE_SCALES, 32, 4, TILE_SCALES)
    return tiles.permute(3, 4, 1, 5, 2, 0)


def from_masked(view: Tensor, rows: int, scales: int) -> Tensor:
    """The inverse of `to_masked`, whatever the view's strides. Raises KernelError as `unswizzle` does."""
    if view.dim() != 6 or tuple(view.shape[i] for i in (0, 1, 3)) != (32, 4, 4):
        found = f"they are {list(view.shape)}"
        raise KernelError("scales in the masked layout", found, "(32, 4, rows/128, 4, groups/4, l)")
    tiles = _bytes(view).permute(5, 2, 4, 0, 1, 3)
    stack, high, wide = tiles.shape[:3]
    flat = tiles.reshape(stack, high * TILE_ROWS, wide * TILE_SCALES).view(view.dtype)
    return unswizzle(flat, rows, scales)


def dirty_padding(swizzled: Tensor, rows: int, scales: int, byte: int) -> Tensor:
    """A copy with `byte` in every padded place, as memory that was used before has it."""
    own = swizzle(torch.ones(rows, scales, dtype=torch.uint8, device=swizzled.device))
    return _bytes(swizzled).masked_fill(own == 0, byte).view(swizzled.dtype)


def _bytes(scales: Tensor) -> Tensor:
    """Moving bytes needs no arithmetic, of which torch has little for eight-bit floats."""
    if scales.element_size() != 1:
        raise KernelError("swizzling block scales", f"they are {scales.dtype}", "scales of one byte (E4M3, E8M0)")
    return scales.view(torch.uint8)

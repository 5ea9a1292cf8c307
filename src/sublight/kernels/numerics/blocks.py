"""Blocks of a matrix: the largest of each, and one number of each spread over its values."""

from torch import Size, Tensor
from torch.nn.functional import pad


def reduce_blocks(sizes: Tensor, rows: int, columns: int) -> Tensor:
    """The largest of each block of [..., R, C]; a block at the edge that is not whole counts what it has.

    `sizes` are 0 or more, so that padding with 0 changes nothing.
    """
    padded = pad(sizes, (0, -sizes.shape[-1] % columns, 0, -sizes.shape[-2] % rows))
    high, wide = padded.shape[-2] // rows, padded.shape[-1] // columns
    return padded.reshape(*padded.shape[:-2], high, rows, wide, columns).amax(dim=(-3, -1))


def spread_blocks(scales: Tensor, shape: Size, rows: int, columns: int) -> Tensor:
    """Every value's own scale, as [..., R, C]."""
    wide = scales.repeat_interleave(columns, dim=-1)[..., : shape[-1]]
    return wide if rows == 1 else wide.repeat_interleave(rows, dim=-2)[..., : shape[-2], :]

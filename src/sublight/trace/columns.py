"""How many columns a GEMM kernel makes, as far as its name and grid tell: enough to say which product it cannot be."""

import re
from functools import cache

Grid = tuple[int, int, int]

_NVJET = re.compile(r"nvjet_(?:sm\d+_)?[a-z]+_(\d+)x(\d+)_\d+x\d+_(\d+)x(\d+)_")
_TRITON_TILES = (16, 32, 64, 128, 256)
_MOST_SPLITS = 32
_LARGE_GRID = 64


@cache
def can_make(name: str, grid: Grid | None, columns: int) -> bool | None:
    """Whether a launch of this kernel with this grid can make a result of so many columns; None if that is not told.

    nvjet names carry the tile (columns x tokens at decode sizes, where the result is transposed) and the cluster, which
    the grid is rounded up to; a split-K launch has a whole number of such grids. Triton's block matmuls have one block
    a tile in the first grid dimension.
    """
    if grid is None:
        return None
    blocks = grid[0] * grid[1] * grid[2]
    match = _NVJET.match(name)
    if match is not None:
        wide, high, across, down = map(int, match.groups())
        # Which of the two tile sides runs along the columns depends on the layout; either may fit.
        tiles = [tile for tile in {wide, high} if tile >= 16]
        if any(_nvjet_fits(blocks, columns, tile, across * down) for tile in tiles):
            return True
        # A grid about as large as the card whose blocks take several tiles each tells nothing of the columns.
        persistent = blocks >= _LARGE_GRID and all(-(-columns // tile) > blocks for tile in tiles)
        return None if persistent else False
    if name.startswith("_w8a8_") or name.startswith("_fp8_"):
        return any(blocks % -(-columns // tile) == 0 for tile in _TRITON_TILES)
    return None


def _nvjet_fits(blocks: int, columns: int, tile: int, cluster: int) -> bool:
    tiles = -(-columns // tile)
    rounded = -(-tiles // cluster) * cluster
    return any(blocks % count == 0 and blocks // count <= _MOST_SPLITS for count in {tiles, rounded})


def weight_bits(name: str) -> int | None:
    """Bits of the weights a GEMM kernel reads, where the name tells."""
    lowered = name.lower()
    if "marlin" in lowered or "fp4" in lowered or "e2m1" in lowered or "mxf4" in lowered:
        return 4
    if "fp8" in lowered or "w8a8" in lowered or "e4m3" in lowered or "nvjet_sm90_qq" in lowered:
        return 8
    if _NVJET.match(name):
        return 16
    return None

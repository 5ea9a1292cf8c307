"""How many bytes of shared memory a pipelined tile takes, and how deep a pipeline fits into a block's share.

The configurations that engines start with are tuned on parts with 227 KiB a block. On parts with 99 KiB the same tile
does not launch, and the server dies at its first long prompt rather than at its start (sglang#28019).
"""

import msgspec

from sublight.errors import KernelError


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a blocked product: [block_m, block_k] times [block_k, block_n], `stages` steps in flight.

    Attributes:
        bytes_per_value: of the operands as they lie in shared memory.
        held: stages that hold a buffer, as a difference from `stages`: Triton's pipeline of `num_stages` keeps one
            fewer in memory, as the last is in registers; a ring that is filled by bulk copies keeps them all.
    """

    block_m: int
    block_n: int
    block_k: int
    stages: int
    bytes_per_value: float
    held: int = -1

    @property
    def stage_bytes(self) -> int:
        return round((self.block_m + self.block_n) * self.block_k * self.bytes_per_value)

    @property
    def shared_memory_bytes(self) -> int:
        return max(1, self.stages + self.held) * self.stage_bytes

    def fits(self, limit_bytes: int) -> bool:
        return self.shared_memory_bytes <= limit_bytes


def deepest_stages(tile: Tile, limit_bytes: int, fixed_bytes: int = 0) -> int:
    """The most stages, up to the tile's own, that fit into a block's shared memory.

    Args:
        limit_bytes: the most a block can opt in to (`Gpu.shared_memory_per_block_bytes`).
        fixed_bytes: what the kernel keeps there besides.

    Raises:
        KernelError: not even one buffer fits.
    """
    buffers = (limit_bytes - fixed_bytes) // tile.stage_bytes
    if buffers < 1:
        size = f"{tile.block_m} x {tile.block_n} x {tile.block_k}"
        found = f"one stage takes {tile.stage_bytes} B of {limit_bytes - fixed_bytes} B"
        raise KernelError(f"a tile of {size} in shared memory", found, "a smaller tile")
    return min(tile.stages, buffers - tile.held)


def shared_memory_remark(what: str, tile: Tile, limit_bytes: int) -> str:
    """One line for a report: whether the tile fits, and what would."""
    need = tile.shared_memory_bytes
    if need <= limit_bytes:
        return f"{what}: {need} B of {limit_bytes} B a block"
    stages = deepest_stages(tile, limit_bytes)
    smaller = msgspec.structs.replace(tile, stages=stages)
    if not smaller.fits(limit_bytes):
        return f"{what}: {need} B > {limit_bytes} B a block, and no number of stages fits"
    return (
        f"{what}: {need} B > {limit_bytes} B a block, it will not launch. Largest that fits: "
        f"num_stages={stages} -> {smaller.shared_memory_bytes} B"
    )

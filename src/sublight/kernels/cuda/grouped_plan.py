"""The plan of the grouped kernels: units, stages and shared memory of both products. Pure arithmetic, no GPU, no torch.

What shared memory depends on is restated here from `moe_grouped.cu`, which asserts at compile time that both agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any

from sublight.errors import KernelError

_FILLERS = 4  # warps that fill the ring
BLOCK_BYTES = 576
MAX_EXPERTS = 1024
BUCKETS = (32, 64, 128, 256, 512, 1024)
_MAX_PAIRS = 12_288  # of a launch: their numbers take 24 KB of each CTA
_PART_BYTES = {
    True: 8 * 32 * 4,
    False: 8 * 36 * 4,
}  # what a warp exchanges of gate and up: with warpgroup products, without
_WGMMA_MEAN = 16.0  # tokens an expert from which warpgroup products are faster, measured; but for
_WGMMA_WIDTH = 256  # narrower experts they were not
_MOST_TILES = {True: 11, False: 6}  # of a pass, with warpgroup products and without: what registers hold,
_MOST_DOUBLE_TILES = 7  # and where a warp has two tiles of rows
_MAX_DEPTH = 12
_MAX_BYTES = 2**31  # offsets of rows are 32-bit, and so is an expert's size


@dataclass(frozen=True)
class Phase:
    """One of the two products.

    Attributes:
        units: pairs of 16-row tiles that a CTA takes at a time.
        team: warps of a unit, each with a part of its columns; with warpgroup products, each with one of its tiles.
        blocks: k64 blocks of a stage that a warp has.
        depth: stages of the ring.
    """

    units: int
    team: int
    blocks: int
    depth: int = 0

    def step(self, wgmma: bool) -> int:
        """k64 blocks of a stage."""
        return self.blocks if wgmma else self.team * self.blocks

    def stage_bytes(self, tiles: int, wgmma: bool) -> int:
        """Weights, and rows of activations: for `mma.sync` with 16 bytes more each."""
        step = self.step(wgmma)
        return self.units * 2 * step * BLOCK_BYTES + 8 * tiles * (step * 128 + (0 if wgmma else 16))


@dataclass(frozen=True)
class GroupedPlan:
    """Compile-time parameters of `moe_grouped.cu`.

    Attributes:
        hidden, inter, experts, top_k: the layer on one GPU.
        max_tokens: most tokens of a launch; fewer run as well.
        tiles: most tiles of eight tokens in one pass over an expert's weights.
        up, down: of gate and up, and of down.
        wgmma: Hopper's warpgroup products instead of `mma.sync`.
    """

    hidden: int
    inter: int
    experts: int
    top_k: int
    max_tokens: int
    tiles: int
    up: Phase
    down: Phase
    wgmma: bool

    @property
    def pairs(self) -> int:
        return self.max_tokens * self.top_k

    @property
    def warps(self) -> int:
        """That multiply."""
        return self.up.units * self.up.team

    @property
    def threads(self) -> int:
        """Of a CTA of the two products."""
        return (self.warps + _FILLERS) * 32

    @property
    def part_bytes(self) -> int:
        """Partial sums of gate and up, where warps share a unit."""
        return self.warps * _PART_BYTES[self.wgmma] if self.warps > self.up.units else 0

    @property
    def up_bytes(self) -> int:
        """Dynamic shared memory of the first kernel."""
        return self.up.depth * self.up.stage_bytes(self.tiles, self.wgmma) + self.part_bytes

    @property
    def down_bytes(self) -> int:
        return self.down.depth * self.down.stage_bytes(self.tiles, self.wgmma)

    @property
    def groups(self) -> int:
        """Of pairs that one pass takes, at most."""
        return min(self.experts + self.pairs // (8 * self.tiles), self.pairs)

    @property
    def overlap(self) -> bool:
        """Down starts on groups that are ready while gate and up run on. Measured: slower where items are small."""
        return self.wgmma and self.up.team == 1

    @property
    def counters(self) -> int:
        """32-bit words in global memory by which the kernels of a layer tell each other how far they are."""
        return 3 + self.groups

    @property
    def static_bytes(self) -> int:
        """Static shared memory, at most: barriers, groups, pairs by expert."""
        return ceil((36 * _MAX_DEPTH + 24 + 4 * self.warps + 8 * self.groups + 2 * self.pairs) / 128) * 128

    @property
    def sort_bytes(self) -> int:
        """What sorting takes of the ring, at most."""
        counts = self.warps * self.experts + self.pairs + self.tiles * ceil(self.groups / 32)
        return 2 * counts + 8 * self.groups + 2

    @property
    def shared_bytes(self) -> int:
        return max(self.up_bytes, self.down_bytes) + self.static_bytes

    def defines(self) -> dict[str, int]:
        return {
            "HIDDEN": self.hidden,
            "INTER": self.inter,
            "EXPERTS": self.experts,
            "TOPK": self.top_k,
            "MAX_M": self.max_tokens,
            "TILES": self.tiles,
            "UP_UNITS": self.up.units,
            "UP_BLOCKS": self.up.blocks,
            "UP_DEPTH": self.up.depth,
            "DOWN_UNITS": self.down.units,
            "DOWN_BLOCKS": self.down.blocks,
            "DOWN_DEPTH": self.down.depth,
            "WARPS": self.warps,
            "WGMMA": int(self.wgmma),
            "OVERLAP": int(self.overlap),
            "UP_BYTES": self.up_bytes,
            "DOWN_BYTES": self.down_bytes,
            "STATIC_BYTES": self.static_bytes,
            "SORT_BYTES": self.sort_bytes,
        }


def bucket(tokens: int, top_k: int) -> int:
    """The compiled size that takes this many tokens: the largest there is where they need several launches."""
    sizes = [size for size in BUCKETS if size * top_k <= _MAX_PAIRS]
    return next((size for size in sizes if size >= tokens), sizes[-1])


def plan_grouped(
    hidden: int,
    inter: int,
    experts: int,
    top_k: int,
    tokens: int,
    shared_limit: int,
    expert_ranks: int = 1,
    hopper: bool = True,
) -> GroupedPlan:
    """A plan that fits `shared_limit` bytes a CTA.

    Args:
        experts: on this GPU.
        tokens: of a call; what is over `bucket` of it takes several launches.
        shared_limit: what a block may use: 232,448 on SM90 and SM100, 101,376 on SM120.
        expert_ranks: ranks that the experts are dealt out to. It tells how many tokens an expert has on average, and
            so how many one pass should take; any routing is computed.
        hopper: whether the target has warpgroup products, as sm_90a alone does.

    Raises:
        KernelError: a dimension outside what the kernels take; it is named.
    """
    _check(hidden, inter, experts, top_k, tokens)
    size = bucket(tokens, top_k)
    mean = size * top_k / (experts * expert_ranks)
    wgmma = hopper and mean >= _WGMMA_MEAN and inter >= _WGMMA_WIDTH and _fills_warpgroups(inter // 16)
    for tiles in range(_tiles(mean, wgmma), 0, -1):
        for up in _up(hidden, inter, tiles, wgmma):
            for down in _down(inter, tiles, wgmma):
                plan = GroupedPlan(hidden, inter, experts, top_k, size, tiles, up, down, wgmma)
                deep = fitted(plan, shared_limit)
                if deep is not None:
                    return deep
    found = f"its smallest plan needs more than {shared_limit:,} bytes of shared memory a block"
    raise _wrong("num_experts", experts, found, "fewer experts a GPU")


def _tiles(mean: float, wgmma: bool) -> int:
    """Enough for nearly every expert where tokens go to experts at random, in one pass or in equal ones."""
    spread = sqrt(mean)
    enough = ceil((mean + 2.5 * spread) / 8)
    if not wgmma:
        return min(_MOST_TILES[wgmma], enough)
    passes = ceil((mean + spread) / 8 / _MOST_TILES[wgmma])
    return min(_MOST_TILES[wgmma], ceil(enough / passes))


def _up(hidden: int, inter: int, tiles: int, wgmma: bool) -> Iterator[Phase]:
    """Many tokens: more rows for each row of activations that is fetched. Few: small items, which balance."""
    if wgmma:
        yield _warpgroups(hidden, tiles, tiles <= _MOST_DOUBLE_TILES)
        return
    if tiles > 1 and inter // 16 % 8 == 0:
        yield Phase(8, 2, 2)
        yield Phase(8, 2, 1)
    yield Phase(4, 4, 1)


def _down(inter: int, tiles: int, wgmma: bool) -> Iterator[Phase]:
    if wgmma:
        yield _warpgroups(inter, tiles, True)
        return
    yield Phase(16, 1, 2)
    if inter // 64 % 2:
        yield Phase(16, 1, 1)
    yield Phase(8, 2, 1)


def _fills_warpgroups(units: int) -> bool:
    """Whether few of the sixteen units that a CTA takes at a time are none."""
    return ceil(units / 16) * 16 <= 1.25 * units


def _warpgroups(width: int, tiles: int, large: bool) -> Phase:
    """Both tiles of a unit in one warp as long as its registers hold the sums; stages that divide the width."""
    blocks = 2 if large and width // 64 % 2 == 0 else 1
    return Phase(16, 1, blocks) if tiles <= _MOST_DOUBLE_TILES else Phase(8, 2, blocks)


def fitted(plan: GroupedPlan, shared_limit: int) -> GroupedPlan | None:
    """With as many stages as fit, two at least; sorting takes place in the ring and needs room too."""
    room = shared_limit - plan.static_bytes
    up = min(_MAX_DEPTH, (room - plan.part_bytes) // plan.up.stage_bytes(plan.tiles, plan.wgmma))
    down = min(_MAX_DEPTH, room // plan.down.stage_bytes(plan.tiles, plan.wgmma))
    if min(up, down) < 2:
        return None
    chosen = replace(plan, up=replace(plan.up, depth=up), down=replace(plan.down, depth=down))
    return chosen if chosen.sort_bytes <= min(chosen.up_bytes - plan.part_bytes, chosen.down_bytes) else None


def _check(hidden: int, inter: int, experts: int, top_k: int, tokens: int) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_experts": experts,
        "top_k": top_k,
        "tokens": tokens,
    }
    for name, value in sizes.items():
        if not isinstance(value, int):
            raise _wrong(name, value, "it is no whole number", "a whole number")
        if value < 1:
            raise _wrong(name, value, "there is nothing to compute", f"a {name} of at least 1")
    for name, value in (("hidden_size", hidden), ("intermediate_size", inter)):
        if value % 64:
            raise _wrong(name, value, f"{value % 64} over a multiple of 64", "a multiple of 64")
        if hidden * inter * 2 >= _MAX_BYTES or value * 2 * _MAX_PAIRS >= _MAX_BYTES:
            raise _wrong(name, value, "one expert or its activations are over 2 GiB", "a smaller expert")
    if experts > MAX_EXPERTS:
        raise _wrong("num_experts", experts, f"it takes {MAX_EXPERTS} on one GPU", "more expert-parallel ranks")
    if top_k > _MAX_PAIRS // BUCKETS[0]:
        raise _wrong("top_k", top_k, f"it takes {_MAX_PAIRS // BUCKETS[0]}", "a smaller top_k")


def _wrong(dimension: str, value: Any, found: str, hint: str) -> KernelError:
    return KernelError(f"the grouped kernel with {dimension} {value}", found, hint)

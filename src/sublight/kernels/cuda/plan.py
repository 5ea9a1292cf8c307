"""The plan of a decode launch: who streams what, through how much shared memory. Pure arithmetic, no GPU, no torch.

The constants of the kernel that shared memory depends on are restated here; the kernel asserts at compile time that
both counts are the same.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from sublight.errors import KernelError

WARPS = 16
BLOCK_BYTES = 576
"""16 rows x 64 columns: 512 bytes of codes, 64 of scales."""
MAX_TOKENS = 16
MAX_EXPERTS = 1024
_PASS = 8  # tokens of an expert that one pass over its weights serves
_BUCKETS = (1, 2, 4, 8, 16)
_MAX_PAIRS = 254  # numbered by a byte, 255 is nobody
_MAX_SHARE = 7  # k64 blocks of a tile that a warp keeps the activations of in registers
_LANES = 32  # up to this many pairs each warp groups by itself; one token's experts have to be
_MAX_DEPTH = 32
_EXPERT_BYTES = 2**32  # offsets inside one expert are 32-bit


@dataclass(frozen=True)
class DecodePlan:
    """Compile-time parameters of `moe_decode.cu`.

    Attributes:
        hidden, inter, top_k: the layer.
        max_tokens: most tokens of a launch; fewer run as well.
        grid: CTAs. All have to be resident at once, one on a multiprocessor.
        piece: k64 blocks of a gate/up copy: small pieces hide arithmetic, large ones cost fewer instructions.
        items: down blocks of a ring slot.
        depth: ring slots a warp.
        team: warps that share a gate/up tile, each with a part of its columns.
    """

    hidden: int
    inter: int
    top_k: int
    max_tokens: int
    grid: int
    piece: int
    items: int
    depth: int
    team: int

    @property
    def cta_rows(self) -> int:
        """16-row tiles of the output that a CTA owns, at most."""
        return ceil(self.hidden // 16 / self.grid)

    @property
    def columns(self) -> int:
        """Of the down product, in whole tiles of eight."""
        return ceil(self.max_tokens / 8) * 8

    @property
    def slot_bytes(self) -> int:
        return BLOCK_BYTES * max(2 * self.piece, self.items * self.cta_rows)

    @property
    def stream_bytes(self) -> int:
        """Dynamic shared memory: the ring, which the last sum over the warps uses again."""
        return max(WARPS * self.depth * self.slot_bytes, WARPS * self.columns * (self.cta_rows * 16 + 4) * 4)

    @property
    def static_bytes(self) -> int:
        """Static shared memory, at most: partial sums, barriers, lists of pairs."""
        pairs = self.max_tokens * self.top_k
        few = pairs <= _LANES
        partial = WARPS * min(self.max_tokens, _PASS) * 128
        grouping = 0 if few else 4 * MAX_EXPERTS + 64 + 8 * pairs
        lists = pairs * (21 + self.columns + 2 * (WARPS if few else 1))
        return ceil((max(partial, grouping) + WARPS * self.depth * 12 + lists + 144) / 128) * 128

    @property
    def shared_bytes(self) -> int:
        return self.stream_bytes + self.static_bytes

    @property
    def exchange_words(self) -> int:
        """32-bit words of two values that pass between the two products."""
        return self.max_tokens * self.top_k * self.inter // 2

    def defines(self) -> dict[str, int]:
        return {
            "HIDDEN": self.hidden,
            "INTER": self.inter,
            "TOPK": self.top_k,
            "MAX_M": self.max_tokens,
            "GRID": self.grid,
            "PIECE": self.piece,
            "ITEMS": self.items,
            "DEPTH": self.depth,
            "TEAM": self.team,
            "STREAM_BYTES": self.stream_bytes,
            "STATIC_BYTES": self.static_bytes,
        }


def bucket(tokens: int) -> int:
    """The smallest compiled size that takes this many tokens."""
    return next(size for size in _BUCKETS if size >= tokens)


def plan_decode(
    hidden: int,
    inter: int,
    top_k: int,
    tokens: int,
    grid: int,
    shared_limit: int,
    piece: int | None = None,
    team: int | None = None,
) -> DecodePlan:
    """A plan that fits `shared_limit` bytes a CTA.

    Args:
        grid: multiprocessors of the GPU.
        shared_limit: what a block may use: 232,448 on SM90 and SM100, 101,376 on SM120.
        piece, team: as in the plan, where the default is not wanted.

    Raises:
        KernelError: a dimension outside what the kernel takes; it is named.
    """
    _check(hidden, inter, top_k, tokens)
    team = next((n for n in (4, 8) if ceil(hidden // 64 / n) <= _MAX_SHARE), WARPS) if team is None else team
    share = ceil(hidden // 64 / team)
    rows = ceil(hidden // 16 / grid)
    run = 1 if inter // 64 % 2 else 2
    size = bucket(tokens)
    pieces = dict.fromkeys((min(piece or _piece(rows, size), share), 1))
    most = 3 if 1 < rows < 4 and size == 4 else _MAX_DEPTH
    for whole in (True, False):  # blocks of w2 that lie together in one copy, or, where that has no room, apart
        for blocks in pieces:
            # a power of two, as h of two items is under way in turn
            items = max(run, 1 << max(0, (2 * blocks // rows).bit_length() - 1)) if whole else 1
            plan = _deepest(DecodePlan(hidden, inter, top_k, size, grid, blocks, items, 1, team), shared_limit, most)
            if plan is not None:
                return plan
    found = f"its smallest plan needs more than {shared_limit:,} bytes of shared memory a block"
    raise _wrong("hidden_size", hidden, found, "a smaller hidden_size, or the grouped kernel")


def _piece(rows: int, size: int) -> int:
    """Measured: small pieces hide arithmetic. Where a CTA owns one row tile, slots of down items are small already. At
    three and four tokens a shallow ring of single blocks is best: what a warp has asked for, no other can take."""
    if rows == 1:
        return 4 if size > 4 else 2
    return 1 if rows < 4 and size == 4 else 2


def _deepest(plan: DecodePlan, shared_limit: int, most: int) -> DecodePlan | None:
    """The plan with as many slots as fit; a warp looks one slot ahead, so two at least."""
    room = shared_limit - plan.static_bytes
    depth = min(room // (WARPS * (plan.slot_bytes + 12)), most)
    deep = replace(plan, depth=depth)
    return deep if depth > 1 and deep.shared_bytes <= shared_limit else None


def _check(hidden: int, inter: int, top_k: int, tokens: int) -> None:
    sizes: dict[str, Any] = {"hidden_size": hidden, "intermediate_size": inter, "top_k": top_k, "tokens": tokens}
    for name, value in sizes.items():
        if not isinstance(value, int):
            raise _wrong(name, value, "it is no whole number", "a whole number")
    if top_k < 1:
        raise _wrong("top_k", top_k, "a token has at least one expert", "a top_k of at least 1")
    for name, value in (("hidden_size", hidden), ("intermediate_size", inter)):
        if value < 64 or value % 64:
            raise _wrong(name, value, f"{value % 64} over a multiple of 64", "a multiple of 64")
        if hidden * inter * BLOCK_BYTES * 2 // 1024 >= _EXPERT_BYTES:
            raise _wrong(name, value, "one expert is over 4 GiB", "a smaller expert")
    if not 1 <= tokens <= MAX_TOKENS:
        raise _wrong("tokens", tokens, f"it takes 1 to {MAX_TOKENS}", "the grouped kernel")
    size = bucket(tokens)
    if size * top_k > _MAX_PAIRS or (size == 1 and top_k > _LANES):
        raise _wrong(
            "top_k", top_k, f"{size} tokens would be {size * top_k} pairs", "fewer tokens, or the grouped kernel"
        )


def _wrong(dimension: str, value: Any, found: str, hint: str) -> KernelError:
    return KernelError(f"the decode kernel with {dimension} {value}", found, hint)

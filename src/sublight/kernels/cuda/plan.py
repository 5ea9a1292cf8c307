"""The plan of a decode launch: who streams what, through how much shared memory. Pure arithmetic, no GPU, no torch.

The constants of the kernel that shared memory depends on are restated here; the kernel asserts at compile time that
both counts are the same.
"""

from dataclasses import dataclass
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
_BOTH = ((8, 4), (8, 8), (4, 12), (2, 14))  # down warps, and a team's beside them
_MAX_BOTH_SHARE = 8
_MANY_TURNS = 5  # tiles a CTA from which down work fits beside gate/up work at one and two tokens as well,
_NARROW = 32  # unless a tile has this few column blocks
_LANES = 32  # up to this many pairs each warp groups by itself; one token's experts have to be
_EXPERT_BYTES = 2**32  # offsets inside one expert are 32-bit


@dataclass(frozen=True)
class RouterPlan:
    """A router that the kernel runs itself, as compile-time numbers.

    Attributes:
        sigmoid: scores are sigmoids; otherwise they are a softmax.
        experts: that there are logits of, over all ranks.
        bias: a correction takes part in choosing.
        groups, top_groups, renormalise: as in `sublight.kernels.routing.Router`.
    """

    sigmoid: bool
    experts: int
    bias: bool
    groups: int = 1
    top_groups: int = 1
    renormalise: bool = True

    def defines(self) -> dict[str, int]:
        return {
            "ROUTER": 2 if self.sigmoid else 1,
            "ROUTED": self.experts,
            "BIAS": int(self.bias),
            "GROUPS": self.groups,
            "TOP_GROUPS": self.top_groups,
            "RENORMALISE": int(self.renormalise),
        }


@dataclass(frozen=True)
class DecodePlan:
    """Compile-time parameters of `moe_decode.cu`.

    Attributes:
        hidden, inter, top_k: the layer.
        max_tokens: most tokens of a launch; fewer run as well.
        grid: CTAs. All have to be resident at once, one on a multiprocessor.
        piece: k64 blocks of a gate/up copy: small pieces hide arithmetic, large ones cost fewer instructions.
        items: down blocks of a ring slot.
        depth: ring slots a warp. Two: what a warp has asked for, no other can take, so a deeper ring balances worse.
        team: warps that share a gate/up tile, each with a part of its columns.
        down_warps: of the sixteen, how many take down blocks from the start, while the others make their input.
        shared: experts that every token goes to.
        router: that the kernel runs itself; None where experts and weights come in.
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
    down_warps: int = 0
    shared: int = 0
    router: RouterPlan | None = None

    @property
    def pairs(self) -> int:
        """(token, expert) pairs, shared experts included."""
        return self.max_tokens * (self.top_k + self.shared)

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
        chosen = self.max_tokens * self.top_k
        few = chosen <= _LANES
        partial = WARPS * min(self.max_tokens, _PASS) * 128
        grouping = 0 if few else 4 * MAX_EXPERTS + 64 + 8 * chosen
        lists = self.pairs * (21 + self.columns + 2 * (WARPS if few else 1)) + (8 * chosen if self.router else 0)
        return ceil((max(partial, grouping) + WARPS * self.depth * 12 + lists + 144) / 128) * 128

    @property
    def shared_bytes(self) -> int:
        return self.stream_bytes + self.static_bytes

    @property
    def exchange_words(self) -> int:
        """32-bit words of two values that pass between the two products."""
        return self.pairs * self.inter // 2

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
            "DOWN_WARPS": self.down_warps,
            "SHARED": self.shared,
            **({"ROUTER": 0} if self.router is None else self.router.defines()),
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
    shared: int = 0,
    router: RouterPlan | None = None,
) -> DecodePlan:
    """A plan that fits `shared_limit` bytes a CTA.

    Args:
        grid: multiprocessors of the GPU.
        shared_limit: what a block may use: 232,448 on SM90 and SM100, 101,376 on SM120.
        piece, team: as in the plan, where the default is not wanted.
        shared, router: as in the plan.

    Raises:
        KernelError: a dimension outside what the kernel takes; it is named.
    """
    _check(hidden, inter, top_k, tokens, shared)
    if router is not None:
        _check_router(router, top_k)
    size = bucket(tokens)
    rows = ceil(hidden // 16 / grid)
    down, team = (WARPS % team, team) if team else _split(hidden // 64, size, size * top_k * inter // 16 / grid)
    share = ceil(hidden // 64 / team)
    run = 1 if inter // 64 % 2 else 2
    pieces = dict.fromkeys(min(n, share) for n in (piece or _piece(rows, size, down), 2, 1))
    # blocks of w2 that lie together in one copy, or, where that has no room or would be most of the work, apart
    together = max(run, 1 << max(0, (4 // rows).bit_length() - 1))  # a power of two: h of two is under way in turn
    if size == 1 and not down:
        together = run if run * rows <= 4 else 1
    for items in dict.fromkeys((together, 1)):
        for blocks in pieces:
            wanted = DecodePlan(hidden, inter, top_k, size, grid, blocks, items, 2, team, down, shared, router)
            if wanted.shared_bytes <= shared_limit:
                return wanted
    found = f"its smallest plan needs more than {shared_limit:,} bytes of shared memory a block"
    raise _wrong("hidden_size", hidden, found, "a smaller hidden_size, or the grouped kernel")


def _split(blocks: int, size: int, turns: float) -> tuple[int, int]:
    """Warps that take down items from the start, and warps of a team.

    Measured: from three tokens on, or where a CTA has many tiles, down work beside gate/up work pays. The team is the
    smallest whose activations have room in registers.
    """
    splits = _BOTH if size > 2 or (turns > _MANY_TURNS and blocks > _NARROW) else ()
    return next(((down, team) for down, team in splits if ceil(blocks / team) <= _MAX_BOTH_SHARE), None) or (
        0,
        next((team for team in (4, 8) if ceil(blocks / team) <= _MAX_SHARE), WARPS),
    )


def _piece(rows: int, size: int, down: int) -> int:
    """Measured: small pieces hide arithmetic, and a warp's two slots of them have to cover the way to memory."""
    if down:
        return 2 if down == 4 else 4
    return 3 if size > 1 and rows > 1 else 2


def _check(hidden: int, inter: int, top_k: int, tokens: int, shared: int) -> None:
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
    pairs = size * (top_k + shared)
    if pairs > _MAX_PAIRS or (size == 1 and top_k > _LANES):
        beside = f" with {shared} shared experts" if shared else ""
        found = f"{size} tokens would be {pairs} pairs{beside}"
        raise _wrong("top_k", top_k, found, "fewer tokens, or the grouped kernel")


def _check_router(router: RouterPlan, top_k: int) -> None:
    experts, groups = router.experts, router.groups
    if not 1 <= experts <= MAX_EXPERTS:
        raise _wrong("num_experts", experts, f"its router takes 1 to {MAX_EXPERTS}", "expert numbers that are given")
    if groups > _LANES or experts % groups:
        found = f"{experts} experts in {groups} groups"
        raise _wrong("num_experts", experts, found, f"at most {_LANES} equal groups")
    allowed = experts // groups * router.top_groups
    if top_k > min(allowed, _LANES):
        raise _wrong("top_k", top_k, f"its router chooses at most {min(allowed, _LANES)}", "expert numbers given")


def _wrong(dimension: str, value: Any, found: str, hint: str) -> KernelError:
    return KernelError(f"the decode kernel with {dimension} {value}", found, hint)

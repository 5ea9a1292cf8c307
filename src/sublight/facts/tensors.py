"""The inventory: every tensor of a checkpoint, once, with how ranks share it and what a decode step reads of it.

Parameters, checkpoint bytes and bytes per step are three sums over this one list, so they cannot disagree. Tensors that
differ only in their layer or their expert are one entry with a list of layers and a number of copies.
"""

import math
from typing import Literal

import msgspec

from sublight.facts.formats import Format, Storage

Stage = Literal["main", "mtp"]
Kind = Literal["linear", "gate", "embedding", "vector", "conv"]

# Which group of ranks cuts a tensor. Under data-parallel attention, "attention", "shared" and "router" stay whole on
# the rank that owns the request, while "dense", "head" and "embedding" are still cut over all ranks.
Part = Literal["attention", "dense", "shared", "router", "experts", "head", "embedding", "replicated"]

# What one step reads: all of it, one row a token, or the matrices of the experts that some token was routed to.
Read = Literal["every step", "one row a token", "routed experts", "never"]


class Cut(msgspec.Struct, frozen=True):
    """How a tensor may be divided over ranks.

    Attributes:
        axis: 0 cuts the output dimension, 1 the input dimension.
        units: indivisible pieces along it: heads, experts' channels, vocabulary rows. A rank holds whole units; with
            more ranks than units, several ranks hold the same one (KV heads under wide tensor parallelism).
    """

    axis: Literal[0, 1]
    units: int


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor, or all tensors that differ from it only in layer and expert.

    Attributes:
        module: name in the checkpoint, with {layer} and {expert} where they differ.
        leaf: the parameter's own name, "weight" unless said.
        row: row of the step that reads it (`sublight.rows`).
        stage: the model itself, or its multi-token-prediction layers.
        layers: which layers have it; empty for a tensor outside the layers.
        copies: how many a layer holds (experts).
        shape: of one, (out, in) for matrices.
        format: how it is stored.
        kind: "linear" and "gate" are multiplied; the others only read.
        part: which ranks share it.
        cut: how; None means every rank of its part holds all of it.
        read: what a step reads of it.
        tied: the same storage as another tensor of the list: counted in neither parameters nor checkpoint bytes.
    """

    module: str
    leaf: str
    row: str
    stage: Stage
    layers: tuple[int, ...]
    copies: int
    shape: tuple[int, ...]
    format: Format
    kind: Kind
    part: Part
    cut: Cut | None
    read: Read
    tied: bool = False

    @property
    def name(self) -> str:
        return f"{self.module}.{self.leaf}"

    @property
    def count(self) -> int:
        """How many tensors the entry stands for."""
        return max(1, len(self.layers)) * self.copies

    @property
    def values(self) -> int:
        """Elements of one."""
        return math.prod(self.shape)

    @property
    def parameters(self) -> int:
        """Elements of all of them; nothing for a tied tensor."""
        return 0 if self.tied else self.values * self.count

    @property
    def storage(self) -> Storage:
        """Bytes of all of them in the checkpoint; nothing for a tied tensor."""
        if self.tied:
            return Storage(0, 0)
        one = self.format.storage(self.shape)
        return Storage(one.payload_bytes * self.count, one.scale_bytes * self.count)

    @property
    def is_matrix(self) -> bool:
        return self.kind in ("linear", "gate")


CacheKind = Literal["kv", "latent", "index", "state"]


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """What a layer remembers of the tokens before: keys and values that grow, or a state that does not.

    Attributes:
        row: row of the step that reads it.
        kind: "kv" per head, "latent" (MLA: one vector for all heads), "index" (keys of a sparse-attention indexer), or
            "state" (linear attention, Mamba: fixed size).
        layers: which layers keep one.
        heads: units that tensor parallelism can divide; 1 means every rank keeps all of it.
        values_per_head: cached values per token and head (K and V together), or values of the state per head.
        bytes_per_value: 0 where the workload's KV format decides; set where the kind fixes it (index keys, states).
        latent_split: (values without, values with rotary position) of a latent, for formats that store the two apart.
        window: attention reads at most this many tokens back.
        chunk: attention reads back to the last multiple of this (Llama-4).
        top_k: attention reads this many picked tokens once there are more.
        query_heads: heads that attend, cut over attention ranks.
        flops_per_head: multiply-adds count two, per query head: for each key read (kv, latent, index) or for each token
            (state).
        borrowed: another layer's cache, which these layers read and neither write nor hold (Gemma-4 E2B, E4B).
    """

    row: str
    kind: CacheKind
    stage: Stage
    layers: tuple[int, ...]
    heads: int
    values_per_head: int
    query_heads: int
    flops_per_head: int
    bytes_per_value: float = 0
    latent_split: tuple[int, int] | None = None
    window: int | None = None
    chunk: int | None = None
    top_k: int | None = None
    borrowed: bool = False

    @property
    def values_per_token(self) -> int:
        """Of one layer, over all heads (for a state: per sequence)."""
        return self.heads * self.values_per_head

    @property
    def grows(self) -> bool:
        return self.kind != "state"

    def tokens_read(self, context: int) -> int:
        """How many cached tokens one query token reads of `context`."""
        if self.chunk is not None:
            context = (context - 1) % self.chunk + 1 if context else 0
        bounds = [b for b in (context, self.window, self.top_k) if b is not None]
        return min(bounds)

"""The rows of a decode step: the one vocabulary that floors, attainable times and measured times are joined on.

A row is one kind of launch of the step as engines run it (fused where every engine fuses: q_a with kv_a, gate with up).
`group` is the coarser name a reader knows it by; `order` is its place in a table, where rows of a group lie together.
"""

from enum import StrEnum

import msgspec


class Group(StrEnum):
    EMBEDDING = "embedding"
    ATTENTION_PROJECTIONS = "attention projections"
    ATTENTION_CORE = "attention core"
    INDEXER = "indexer"
    LINEAR_ATTENTION = "linear attention"
    ROUTER = "router"
    ROUTED_EXPERTS = "routed experts"
    SHARED_EXPERTS = "shared experts"
    DENSE_MLP = "dense MLP"
    NORMS = "norms and elementwise"
    LM_HEAD = "lm_head"
    SAMPLING = "sampling"
    COLLECTIVES = "collectives"


class Row(msgspec.Struct, frozen=True):
    id: str
    title: str
    group: Group
    order: int


def _rows(*entries: tuple[str, str, Group]) -> dict[str, Row]:
    return {id_: Row(id_, title, group, order) for order, (id_, title, group) in enumerate(entries)}


ROWS = _rows(
    ("embedding", "token embedding", Group.EMBEDDING),
    ("norms", "norms", Group.NORMS),
    ("mtp.in", "MTP input projection", Group.ATTENTION_PROJECTIONS),
    ("attn.qkv", "QKV projection", Group.ATTENTION_PROJECTIONS),
    ("attn.qkv_a", "q_a + kv_a", Group.ATTENTION_PROJECTIONS),
    ("attn.q_b", "q_b", Group.ATTENTION_PROJECTIONS),
    ("attn.absorb_k", "W_UK absorb", Group.ATTENTION_PROJECTIONS),
    ("attn.absorb_v", "W_UV", Group.ATTENTION_PROJECTIONS),
    ("attn.o", "o_proj", Group.ATTENTION_PROJECTIONS),
    ("indexer.q", "indexer wq_b", Group.INDEXER),
    ("indexer.k", "indexer wk + weights", Group.INDEXER),
    ("indexer.scores", "index scores + top-k", Group.INDEXER),
    ("attn.core", "attention", Group.ATTENTION_CORE),
    ("linear.in", "linear attention in", Group.LINEAR_ATTENTION),
    ("linear.state", "linear attention state", Group.LINEAR_ATTENTION),
    ("linear.out", "linear attention out", Group.LINEAR_ATTENTION),
    ("mamba.in", "Mamba in_proj", Group.LINEAR_ATTENTION),
    ("mamba.state", "Mamba conv + state", Group.LINEAR_ATTENTION),
    ("mamba.out", "Mamba out_proj", Group.LINEAR_ATTENTION),
    ("mlp.dense", "dense MLP", Group.DENSE_MLP),
    ("moe.router", "router", Group.ROUTER),
    ("moe.latent", "latent expert projections", Group.ROUTED_EXPERTS),
    ("moe.experts", "routed experts", Group.ROUTED_EXPERTS),
    ("moe.shared", "shared expert", Group.SHARED_EXPERTS),
    ("head", "lm_head", Group.LM_HEAD),
    ("sampling", "sampling", Group.SAMPLING),
    ("comm.embedding", "all-reduce after embedding", Group.COLLECTIVES),
    ("comm.attention", "all-reduce after attention", Group.COLLECTIVES),
    ("comm.mlp", "all-reduce after MLP/MoE", Group.COLLECTIVES),
    ("comm.gather", "all-gather of hidden states", Group.COLLECTIVES),
    ("comm.tokens", "all-to-all of tokens", Group.COLLECTIVES),
    ("comm.scatter", "reduce-scatter of hidden states", Group.COLLECTIVES),
    ("comm.logits", "all-gather of logits", Group.COLLECTIVES),
    ("comm.pipeline", "pipeline hand-off", Group.COLLECTIVES),
)

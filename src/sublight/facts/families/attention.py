"""Grouped-query attention: what most families have in some or all of their layers."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory
from sublight.facts.tensors import Cut, Read

_EVERY_STEP: Read = "every step"
_NEVER: Read = "never"


class _Reach(NamedTuple):
    """How far back the layers of `limited` look; others see the whole context."""

    window: int | None
    chunk: int | None
    limited: Sequence[int]


def grouped_query_attention(
    fields: Fields,
    inventory: Inventory,
    layers: Sequence[int],
    *,
    path: str = "self_attn",
    head_dim: int | None = None,
    kv_heads: int | None = None,
    qk_norm: Literal["", "head", "full"] = "",
    bias: bool = False,
    output_bias: bool = False,
    gated: bool = False,
    shared_kv: bool = False,
    window: int | None = None,
    chunk: int | None = None,
    limited: Sequence[int] | None = None,
    borrowers: Sequence[int] = (),
) -> None:
    """Attention with fewer key and value heads than query heads.

    Args:
        qk_norm: queries and keys are normalised by "head", or over all heads together ("full").
        gated: q_proj carries an output gate of the same width (Qwen3-Next, Qwen3.5).
        shared_kv: keys and values come from one projection (Gemma-4's global layers). They are still normalised and
            rotated apart, so the cache holds both.
        window, chunk: how far back a layer looks, as in `tensors.Cache`.
        limited: the layers that look no farther; all of them when not given.
        borrowers: further layers, which attend to the cache of one of `layers`. The first releases of Gemma-4 hold key
            and value projections for them as well, which nothing reads (vllm-project/tpu-inference#3299).
    """
    hidden = inventory.hidden
    heads, kv, size = _head_sizes(fields, inventory, head_dim, kv_heads)
    by_head, by_kv_head = Cut(0, heads), Cut(0, kv)
    everywhere = [*layers, *borrowers]

    def project(name: str, shape: tuple[int, int], row: str, cut: Cut, has_bias: bool) -> None:
        mine = name in ("q_proj", "o_proj")
        for these, read in ((everywhere if mine else layers, _EVERY_STEP), ([] if mine else borrowers, _NEVER)):
            if these:
                module = inventory.layer(f"{path}.{name}")
                inventory.matrix(module, shape, row, "attention", layers=these, cut=cut, bias=has_bias, read=read)

    project("q_proj", (heads * size * (2 if gated else 1), hidden), "attn.qkv", by_head, bias)
    project("k_proj", (kv * size, hidden), "attn.qkv", by_kv_head, bias)
    if not shared_kv:
        project("v_proj", (kv * size, hidden), "attn.qkv", by_kv_head, bias)
    project("o_proj", (hidden, heads * size), "attn.o", Cut(1, heads), output_bias)
    if qk_norm == "head":
        inventory.norm(f"{path}.q_norm", size, everywhere)
        inventory.norm(f"{path}.k_norm", size, layers)
        if borrowers:
            inventory.vector(inventory.layer(f"{path}.k_norm"), (size,), layers=borrowers, read=_NEVER)
    elif qk_norm == "full":
        for name, width, cut in (("q_norm", heads * size, by_head), ("k_norm", kv * size, by_kv_head)):
            inventory.vector(inventory.layer(f"{path}.{name}"), (width,), "norms", "attention", layers=layers, cut=cut)
    reach = _Reach(window, chunk, everywhere if limited is None else limited)
    _keys_and_values(inventory, layers, heads, kv, size, reach)
    _keys_and_values(inventory, borrowers, heads, kv, size, reach, borrowed=True)


def _keys_and_values(
    inventory: Inventory,
    layers: Sequence[int],
    heads: int,
    kv_heads: int,
    size: int,
    reach: _Reach,
    *,
    borrowed: bool = False,
) -> None:
    """Caches of `layers`: a key and a value of `size` for each key-value head, read by `heads` queries."""
    near = set(reach.limited) if reach.window or reach.chunk else set()
    for these, window, chunk in (
        ([i for i in layers if i not in near], None, None),
        ([i for i in layers if i in near], reach.window, reach.chunk),
    ):
        inventory.cache(
            row="attn.core",
            kind="kv",
            layers=tuple(these),
            heads=kv_heads,
            values_per_head=2 * size,
            query_heads=heads,
            flops_per_head=2 * (size + size),
            window=window,
            chunk=chunk,
            borrowed=borrowed,
        )


def _head_sizes(
    fields: Fields, inventory: Inventory, head_dim: int | None, kv_heads: int | None
) -> tuple[int, int, int]:
    """Query heads, key-value heads, and the size of one."""
    heads = fields.size("num_attention_heads")
    kv = kv_heads or fields.size("num_key_value_heads", default=heads)
    inventory.heads, inventory.kv_heads = heads, inventory.kv_heads or kv
    if heads % kv:
        raise fields.error(
            f"{heads} attention heads do not divide over {kv} key-value heads", "the model's own config.json"
        )
    size = head_dim or fields.size("head_dim", default=0)
    if not size and inventory.hidden % heads:
        raise fields.error(
            f"it has no head_dim, and {inventory.hidden} is no multiple of {heads} heads", "its head_dim"
        )
    return heads, kv, size or inventory.hidden // heads

"""Llama-4 (text): chunked attention with a full layer now and then, experts in every layer or every second one.

Shapes from transformers, modeling_llama4.py and configuration_llama4.py. `intermediate_size` is the width of an expert
and of the shared expert, `intermediate_size_mlp` that of a dense layer. Norms of queries and keys have no weights.
"""

from collections.abc import Sequence

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.placement import every, layers_by_type
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe

# `no_rope_layer_interval` of the reference where a configuration leaves it out, as the released ones do: every fourth
# layer goes without rotary positions, and those layers see the whole context.
_FULL_EVERY = 4


def llama4(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    layers = list(range(inventory.layers))
    bias = fields.flag("attention_bias")
    chunk = fields.size("attention_chunk_size") if "attention_chunk_size" in fields else None
    grouped_query_attention(
        fields,
        inventory,
        layers,
        bias=bias,
        output_bias=bias,
        chunk=chunk,
        limited=_chunked_layers(fields, inventory),
    )
    parts.two_norms(inventory, layers)
    sparse = _moe_layers(fields, inventory)
    dense = sorted(set(layers) - set(sparse))
    if dense:
        width = fields.size("intermediate_size_mlp")
        parts.gated_mlp(inventory, "feed_forward", width, dense, "mlp.dense", "dense")
    if sparse:
        _experts(fields, inventory, sparse)


def _experts(fields: Fields, inventory: Inventory, layers: Sequence[int]) -> None:
    moe = inventory.moe = Moe(
        experts=fields.size("num_local_experts"),
        top_k=fields.size("num_experts_per_tok"),
        layers=len(layers),
        width=fields.size("intermediate_size"),
        shared=1,
    )
    parts.router(inventory, "feed_forward.router", moe, layers, linear=True)
    parts.stacked_experts(inventory, "feed_forward.experts", moe, layers)
    parts.gated_mlp(inventory, "feed_forward.shared_expert", moe.width, layers, "moe.shared", "shared")


def _moe_layers(fields: Fields, inventory: Inventory) -> list[int]:
    listed = fields.sizes("moe_layers")
    if listed is None:
        return every(fields.size("interleave_moe_layer_step"), inventory.layers)
    beyond = [i for i in listed if i >= inventory.layers]
    if beyond:
        raise fields.error(f"moe_layers names layer {beyond[0]} of {inventory.layers}", "layers that the model has")
    return sorted(set(listed))


def _chunked_layers(fields: Fields, inventory: Inventory) -> list[int]:
    """Layers with rotary positions, which look back within a chunk only. An empty `no_rope_layers` counts as absent."""
    by_type = layers_by_type(fields, inventory, ("chunked_attention", "full_attention"))
    if by_type is not None:
        return by_type["chunked_attention"]
    # One flag a layer; despite the field's name, 1 says that the layer has rotary positions.
    flags = fields.sizes("no_rope_layers", inventory.layers) if fields.data.get("no_rope_layers") else None
    if flags is not None:
        return [i for i, rotary in enumerate(flags) if rotary]
    full = every(fields.size("no_rope_layer_interval", default=_FULL_EVERY), inventory.layers)
    return sorted(set(range(inventory.layers)) - set(full))

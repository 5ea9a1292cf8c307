"""Gemma-4 (text): sliding and full layers of different head sizes, and in the mixtures an MLP and experts side by side.

Shapes from transformers, modeling_gemma4.py and configuration_gemma4.py; what is whole on every rank from sglang,
gemma4_causal.py. `hidden_size_per_layer_input` gives each layer an embedding of its own (E2B, E4B), and the last
`num_kv_shared_layers` layers attend to the cache of the last layer of their type before them.
"""

from collections.abc import Sequence

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.placement import layers_by_type
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe
from sublight.facts.tensors import Cut

_TYPES = ("sliding_attention", "full_attention")
_MOE_NORMS = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")


def gemma4(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory, tied_by_default=True)
    layers = range(inventory.layers)
    by_type = layers_by_type(fields, inventory, _TYPES)
    if by_type is None:
        raise fields.error(
            "it has no layer_types, so which layers look how far is not known", "the model's own config.json, whole"
        )
    sharing = _sharing_layers(fields, inventory, by_type)
    for type_ in _TYPES:
        own = [i for i in by_type[type_] if i not in sharing]
        _attention(fields, inventory, type_, own, [i for i in by_type[type_] if i in sharing])
    for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
        inventory.norm(name, inventory.hidden, layers)
    parts.two_norms(inventory, layers)
    inventory.vector(f"{inventory.root}.layers.{{layer}}", (1,), layers=layers, leaf="layer_scalar")
    _mlp(fields, inventory, sharing)
    if fields.flag("enable_moe_block"):
        _experts(fields, inventory, layers)
    if fields.size("hidden_size_per_layer_input", default=0, least=0):
        _layer_inputs(fields, inventory, layers)


def _sharing_layers(fields: Fields, inventory: Inventory, by_type: dict[str, list[int]]) -> Sequence[int]:
    """The last layers, which keep no keys and values of their own."""
    count = fields.size("num_kv_shared_layers", default=0, least=0)
    if count >= inventory.layers:
        raise fields.error(
            f"num_kv_shared_layers is {count} of {inventory.layers} layers", "fewer, so that some layer keeps a cache"
        )
    sharing = range(inventory.layers - count, inventory.layers)
    for type_, these in by_type.items():
        if these and these[0] in sharing:
            raise fields.error(
                f"every layer of {type_} is one of the {count} that share a cache, and none before them keeps one",
                "the model's own config.json",
            )
    return sharing


def _attention(fields: Fields, inventory: Inventory, type_: str, own: Sequence[int], sharing: Sequence[int]) -> None:
    """The layers of one type. Full layers have larger and fewer heads, and may take their values from the keys."""
    if not own:
        return
    full = type_ == "full_attention"
    one_projection = full and fields.flag("attention_k_eq_v")
    few = one_projection and "num_global_key_value_heads" in fields
    bias = fields.flag("attention_bias")
    grouped_query_attention(
        fields,
        inventory,
        own,
        head_dim=fields.size("global_head_dim") if full else fields.size("head_dim"),
        kv_heads=fields.size("num_global_key_value_heads") if few else None,
        qk_norm="head",
        bias=bias,
        output_bias=bias,
        shared_kv=one_projection,
        window=None if full else fields.size("sliding_window"),
        borrowers=sharing,
    )


def _mlp(fields: Fields, inventory: Inventory, sharing: Sequence[int]) -> None:
    width = fields.size("intermediate_size")
    wide = list(sharing) if fields.flag("use_double_wide_mlp") else []
    usual = [i for i in range(inventory.layers) if i not in wide]
    for these, factor in ((usual, 1), (wide, 2)):
        if these:
            parts.gated_mlp(inventory, "mlp", factor * width, these, "mlp.dense", "dense")


def _experts(fields: Fields, inventory: Inventory, layers: Sequence[int]) -> None:
    """Beside the MLP, not instead of it: each half has its own norms, so each is reduced over the ranks by itself."""
    moe = inventory.moe = Moe(
        experts=fields.size("num_experts"),
        top_k=fields.size("top_k_experts", "num_experts_per_tok"),
        layers=len(layers),
        width=fields.size("moe_intermediate_size"),
    )
    parts.router(inventory, "router.proj", moe, layers, linear=True)
    router = inventory.layer("router")
    inventory.vector(router, (inventory.hidden,), "moe.router", "router", layers=layers, leaf="scale")
    inventory.vector(router, (moe.experts,), "moe.router", "router", layers=layers, leaf="per_expert_scale")
    parts.stacked_experts(inventory, "experts", moe, layers)
    for name in _MOE_NORMS:
        inventory.norm(name, inventory.hidden, layers)


def _layer_inputs(fields: Fields, inventory: Inventory, layers: Sequence[int]) -> None:
    """Per-layer inputs: one wide row of a second embedding a token, mixed with a projection of the first, then gated
    into every layer after its MLP. Engines keep all but the embedding whole on every rank."""
    root, hidden = inventory.root, inventory.hidden
    size = fields.size("hidden_size_per_layer_input")
    vocab, wide = fields.size("vocab_size_per_layer_input", default=inventory.vocab), inventory.layers * size
    inventory.matrix(
        f"{root}.embed_tokens_per_layer",
        (vocab, wide),
        "embedding",
        "embedding",
        cut=Cut(0, vocab),
        read="one row a token",
        module_class="Embedding",
    )
    inventory.matrix(f"{root}.per_layer_model_projection", (wide, hidden), "embedding", "replicated")
    inventory.vector(f"{root}.per_layer_projection_norm", (size,))
    for name, shape in (("per_layer_input_gate", (size, hidden)), ("per_layer_projection", (hidden, size))):
        inventory.matrix(inventory.layer(name), shape, "mlp.dense", "replicated", layers=layers)
    inventory.norm("post_per_layer_input_norm", hidden, layers)

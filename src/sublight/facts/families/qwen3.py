"""Qwen3, dense and mixture of experts: grouped-query attention with normalised queries and keys, no shared expert.

Shapes from transformers, modeling_qwen3.py, modeling_qwen3_moe.py and modeling_qwen3_vl_moe.py. In the mixtures
`intermediate_size` is used only by layers that `mlp_only_layers` or `decoder_sparse_step` leave dense; the released
models have none.
"""

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.placement import moe_layers, sliding_layers
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe


def qwen3(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    layers = list(range(inventory.layers))
    _attention(fields, inventory, layers)
    parts.gated_mlp(inventory, "mlp", fields.size("intermediate_size"), layers, "mlp.dense", "dense")


def qwen3_moe(fields: Fields, inventory: Inventory) -> None:
    _mixture(fields, inventory, stacked=False)


def qwen3_vl_moe(fields: Fields, inventory: Inventory) -> None:
    """The language model of Qwen3-VL: the same, with its experts stacked in the release."""
    _mixture(fields, inventory, stacked=True)


def _mixture(fields: Fields, inventory: Inventory, *, stacked: bool) -> None:
    parts.ends(fields, inventory)
    layers = list(range(inventory.layers))
    _attention(fields, inventory, layers)
    sparse = moe_layers(fields, inventory)
    dense = sorted(set(layers) - set(sparse))
    if dense:
        parts.gated_mlp(inventory, "mlp", fields.size("intermediate_size"), dense, "mlp.dense", "dense")
    if not sparse:
        return
    moe = inventory.moe = Moe(
        experts=fields.size("num_experts", "num_local_experts"),
        top_k=fields.size("num_experts_per_tok"),
        layers=len(sparse),
        width=fields.size("moe_intermediate_size"),
    )
    parts.router(inventory, "mlp.gate", moe, sparse, linear=True)
    if stacked:
        parts.stacked_experts(inventory, "mlp.experts", moe, sparse)
        return
    parts.gated_mlp(inventory, "mlp.experts.{expert}", moe.width, sparse, "moe.experts", "experts", copies=moe.experts)


def _attention(fields: Fields, inventory: Inventory, layers: list[int]) -> None:
    window, limited = sliding_layers(fields, inventory)
    bias = fields.flag("attention_bias")
    grouped_query_attention(
        fields,
        inventory,
        layers,
        qk_norm="head",
        bias=bias,
        output_bias=bias,
        window=window,
        limited=limited,
    )
    parts.two_norms(inventory, layers)

"""Mixtral: grouped-query attention over a mixture of experts in every layer, its matrices called w1, w3 and w2.

Shapes from transformers, modeling_mixtral.py, names from the release (conversion_mapping.py maps them). The expert's
width is `intermediate_size`.
"""

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe


def mixtral(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    layers = list(range(inventory.layers))
    window = fields.size("sliding_window") if "sliding_window" in fields else None
    grouped_query_attention(fields, inventory, layers, window=window)
    parts.two_norms(inventory, layers)
    moe = inventory.moe = Moe(
        experts=fields.size("num_local_experts"),
        top_k=fields.size("num_experts_per_tok"),
        layers=len(layers),
        width=fields.size("intermediate_size"),
    )
    parts.router(inventory, "block_sparse_moe.gate", moe, layers, linear=True)
    parts.gated_mlp(
        inventory,
        "block_sparse_moe.experts.{expert}",
        moe.width,
        layers,
        "moe.experts",
        "experts",
        copies=moe.experts,
        names=("w1", "w3", "w2"),
    )

"""gpt-oss: alternating sliding and full attention with sinks, biases throughout, experts stacked and stored in MXFP4.

Shapes from transformers, modeling_gpt_oss.py. The expert's width is `intermediate_size`. The releases keep the experts
stacked, as `gate_up_proj_blocks` with `gate_up_proj_scales` beside them; biases, router and attention stay BF16.
"""

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.placement import layers_by_type
from sublight.facts.fields import Fields
from sublight.facts.formats import BF16
from sublight.facts.inventory import Inventory, Moe
from sublight.facts.tensors import Cut


def gpt_oss(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    layers = list(range(inventory.layers))
    by_type = layers_by_type(fields, inventory, ("sliding_attention", "full_attention"))
    # The reference alternates, sliding first, where the field is absent.
    sliding = by_type["sliding_attention"] if by_type is not None else layers[::2]
    bias = fields.flag("attention_bias", True)
    grouped_query_attention(
        fields,
        inventory,
        layers,
        bias=bias,
        output_bias=bias,
        window=fields.size("sliding_window") if sliding else None,
        limited=sliding,
    )
    inventory.vector(
        inventory.layer("self_attn"),
        (inventory.heads,),
        "attn.core",
        "attention",
        layers=layers,
        leaf="sinks",
        cut=Cut(0, inventory.heads),
    )
    parts.two_norms(inventory, layers)
    moe = inventory.moe = Moe(
        experts=fields.size("num_local_experts", "num_experts"),
        top_k=fields.size("num_experts_per_tok", "experts_per_token"),
        layers=len(layers),
        width=fields.size("intermediate_size"),
    )
    parts.router(inventory, "mlp.router", moe, layers, linear=True, bias="mlp.router.bias", bias_format=BF16)
    parts.stacked_experts(inventory, "mlp.experts", moe, layers, always=True, bias=True)

"""Routed and shared experts as DeepSeek names them; GLM-4.5 and its successors took them over.

Shapes from transformers, modeling_deepseek_v3.py and modeling_glm4_moe.py. The shared experts of a layer are one MLP,
as wide as all of them together.
"""

from collections.abc import Sequence

from sublight.facts.families import parts
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe


def read_moe(fields: Fields, layers: int) -> Moe:
    """The experts of `layers` layers."""
    return Moe(
        experts=fields.size("n_routed_experts"),
        top_k=fields.size("num_experts_per_tok"),
        layers=layers,
        width=fields.size("moe_intermediate_size"),
        shared=fields.size("n_shared_experts", default=0, least=0),
        groups=fields.size("n_group", default=1),
        top_groups=fields.size("topk_group", default=1),
    )


def experts(fields: Fields, inventory: Inventory, moe: Moe, layers: Sequence[int]) -> None:
    """Router, routed experts and shared experts."""
    # DeepSeek-V2 routes by softmax and has no correction bias; noaux_tc is what introduced it.
    corrected = (
        fields.text("topk_method", "noaux_tc") == "noaux_tc" and fields.text("scoring_func", "sigmoid") == "sigmoid"
    )
    bias = "mlp.gate.e_score_correction_bias" if corrected else ""
    parts.router(inventory, "mlp.gate", moe, layers, linear=False, bias=bias)
    parts.gated_mlp(inventory, "mlp.experts.{expert}", moe.width, layers, "moe.experts", "experts", copies=moe.experts)
    if moe.shared:
        parts.gated_mlp(inventory, "mlp.shared_experts", moe.width * moe.shared, layers, "moe.shared", "shared")

"""MiniMax-M2, M2.1, M2.5: grouped-query attention, a mixture of experts in every layer, routed by sigmoids.

Shapes from transformers, modeling_minimax_m2.py, names from the release (`block_sparse_moe`, w1, w3, w2). The expert's
width is `intermediate_size`. Queries and keys are normalised over all heads together, so those norms are cut with the
heads (sglang minimax_m2.py, MiniMaxM2RMSNormTP). The router is stored, held and multiplied in FP32 (sglang and vllm
minimax_m2.py: params_dtype float32; NVIDIA-NeMo/Automodel#3674 on what the release stores).
"""

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.fields import Fields
from sublight.facts.formats import FP32
from sublight.facts.inventory import Inventory, Moe


def minimax_m2(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    _refuse_other_forms(fields, inventory)
    layers = list(range(inventory.layers))
    grouped_query_attention(
        fields,
        inventory,
        layers,
        qk_norm="full" if fields.flag("use_qk_norm") else "",
    )
    parts.two_norms(inventory, layers)
    moe = inventory.moe = Moe(
        experts=fields.size("num_local_experts"),
        top_k=fields.size("num_experts_per_tok"),
        layers=len(layers),
        width=fields.size("intermediate_size"),
    )
    bias = "block_sparse_moe.e_score_correction_bias" if fields.flag("use_routing_bias") else ""
    parts.router(inventory, "block_sparse_moe.gate", moe, layers, linear=True, bias=bias, stored=FP32)
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
    declared = fields.size("num_mtp_modules", default=0, least=0)
    if fields.flag("use_mtp") and declared:
        # MiniMax-AI/MiniMax-M2.5#8, MiniMax-AI/MiniMax-M2.7#16: no tensor of the releases belongs to them.
        inventory.note(
            "info",
            "MTP",
            f"{declared} modules are declared, but the releases hold no weights for them: none is counted",
        )


def _refuse_other_forms(fields: Fields, inventory: Inventory) -> None:
    """Forms that the configuration can say and no MiniMax-M2 has; counting them as if it had would be a guess."""
    shared = fields.size("shared_intermediate_size", default=0, least=0)
    if shared:
        raise fields.error(
            f"shared_intermediate_size is {shared}, and no MiniMax-M2 has shared experts", "shared_intermediate_size 0"
        )
    kinds = fields.sizes("attn_type_list", inventory.layers)
    if kinds is not None and set(kinds) != {1}:
        raise fields.error(
            f"attn_type_list holds {sorted(set(kinds))}, and every layer of MiniMax-M2 is full attention (1)",
            "1 for each layer in attn_type_list",
        )
    norm = fields.text("qk_norm_type", "per_layer")
    if norm != "per_layer":
        raise fields.error(f'qk_norm_type is "{norm}"', '"per_layer", over all heads together')

"""Qwen3-Next, Qwen3.5 and Qwen3.6: gated delta nets with gated full attention every few layers.

Shapes from transformers, modeling_qwen3_next.py, modeling_qwen3_5.py and modeling_qwen3_5_moe.py; the MTP layer from
sglang and vllm, qwen3_next_mtp.py and qwen3_5_mtp.py. Qwen3-Next keeps one matrix per expert and packs what goes into a
delta net; Qwen3.5 stacks its experts and keeps those matrices apart. A_log and the delta net's norm are FP32 in the
Qwen3.5 releases and BF16 in Qwen3.6, whose configurations are alike (vllm-project/vllm#51836): FP32 is counted for
both, less than 100 kB more than Qwen3.6 holds.
"""

from collections.abc import Sequence

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.gated_delta import gated_delta_net, hybrid_layers
from sublight.facts.families.placement import moe_layers
from sublight.facts.fields import Fields
from sublight.facts.formats import FP32
from sublight.facts.inventory import Inventory, Moe


def qwen3_next(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    linear, full = hybrid_layers(fields, inventory)
    gated_delta_net(fields, inventory, linear, packed=True)
    _full_attention(fields, inventory, full)
    parts.two_norms(inventory, range(inventory.layers))
    sparse = moe_layers(fields, inventory)
    _dense(fields, inventory, sorted(set(range(inventory.layers)) - set(sparse)))
    _experts(fields, inventory, sparse, stacked=False)
    if not _mtp(fields, inventory, mixture=True, stacked=False):
        inventory.note(
            "info", "MTP", "this configuration declares no MTP layer; some releases of Qwen3-Next hold one all the same"
        )


def qwen3_5_moe(fields: Fields, inventory: Inventory) -> None:
    _qwen3_5_attention(fields, inventory)
    sparse = moe_layers(fields, inventory)
    _dense(fields, inventory, sorted(set(range(inventory.layers)) - set(sparse)))
    _experts(fields, inventory, sparse, stacked=True)
    _mtp(fields, inventory, mixture=True, stacked=True)


def qwen3_5(fields: Fields, inventory: Inventory) -> None:
    """The dense sizes of Qwen3.5."""
    _qwen3_5_attention(fields, inventory)
    _dense(fields, inventory, range(inventory.layers))
    _mtp(fields, inventory, mixture=False)


def _qwen3_5_attention(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    linear, full = hybrid_layers(fields, inventory)
    gated_delta_net(fields, inventory, linear, packed=False, state_parameters=FP32)
    _full_attention(fields, inventory, full)
    parts.two_norms(inventory, range(inventory.layers))


def _full_attention(fields: Fields, inventory: Inventory, layers: Sequence[int]) -> None:
    if not layers:
        return
    bias = fields.flag("attention_bias")
    grouped_query_attention(
        fields,
        inventory,
        layers,
        qk_norm="head",
        bias=bias,
        output_bias=bias,
        gated=fields.flag("attn_output_gate", True),
    )


def _dense(fields: Fields, inventory: Inventory, layers: Sequence[int]) -> None:
    if layers:
        parts.gated_mlp(inventory, "mlp", fields.size("intermediate_size"), layers, "mlp.dense", "dense")


def _experts(fields: Fields, inventory: Inventory, layers: Sequence[int], *, stacked: bool) -> None:
    if not layers:
        return
    shared = fields.size("shared_expert_intermediate_size", default=0, least=0)
    moe = Moe(
        experts=fields.size("num_experts"),
        top_k=fields.size("num_experts_per_tok"),
        layers=len(layers),
        width=fields.size("moe_intermediate_size"),
        shared=1 if shared else 0,
    )
    inventory.moe = inventory.moe or moe
    parts.router(inventory, "mlp.gate", moe, layers, linear=not stacked)
    if stacked:
        parts.stacked_experts(inventory, "mlp.experts", moe, layers)
    else:
        path = "mlp.experts.{expert}"
        parts.gated_mlp(inventory, path, moe.width, layers, "moe.experts", "experts", copies=moe.experts)
    if shared:
        parts.gated_mlp(inventory, "mlp.shared_expert", shared, layers, "moe.shared", "shared")
        # One row, whole on every rank: it says how much of the shared expert's output a token takes.
        inventory.matrix(
            inventory.layer("mlp.shared_expert_gate"), (1, inventory.hidden), "moe.shared", "shared", layers=layers
        )


def _mtp(fields: Fields, inventory: Inventory, *, mixture: bool, stacked: bool = False) -> bool:
    """Layers of full attention under their own prefix, fed through `fc`; whether there are any.

    Their embedding and lm_head are the model's. `fc` stays in BF16 in every quantised release.
    """
    count = fields.size("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0, least=0)
    if not count:
        return False
    if fields.flag("mtp_use_dedicated_embeddings"):
        raise fields.error(
            "mtp_use_dedicated_embeddings is true, and no released model shows what they are called",
            "a model whose MTP layers use its own embedding",
        )
    layers, hidden = range(count), inventory.hidden
    with inventory.mtp("mtp", modules=count):
        inventory.matrix("mtp.fc", (hidden, 2 * hidden), "mtp.in", "replicated", fixed=True)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            inventory.vector(f"mtp.{name}", (hidden,))
        _full_attention(fields, inventory, layers)
        parts.two_norms(inventory, layers)
        if mixture:
            _experts(fields, inventory, layers, stacked=stacked)
        else:
            _dense(fields, inventory, layers)
    return True

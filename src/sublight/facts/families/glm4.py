"""GLM-4.5, GLM-4.6, GLM-4.7: grouped-query attention over DeepSeek-like experts.

Shapes from transformers, modeling_glm4_moe.py. q, k and v have biases where `attention_bias` says so and o_proj never
has; the partial rotary embedding changes no size. The releases store the router in BF16, which SGLang widens to FP32 as
it loads.
"""

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.deepseek_moe import experts, read_moe
from sublight.facts.families.placement import moe_layers
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory


def glm4_moe(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    layers = list(range(inventory.layers))
    _attention(fields, inventory, layers)
    sparse = moe_layers(fields, inventory)
    dense = sorted(set(layers) - set(sparse))
    if dense:
        parts.gated_mlp(inventory, "mlp", fields.size("intermediate_size"), dense, "mlp.dense", "dense")
    if not sparse:
        return
    moe = inventory.moe = read_moe(fields, len(sparse))
    experts(fields, inventory, moe, sparse)
    count = fields.size("num_nextn_predict_layers", default=0, least=0)
    if count:
        drafting = list(range(inventory.layers, inventory.layers + count))
        with inventory.mtp(modules=count):
            _attention(fields, inventory, drafting)
            experts(fields, inventory, moe, drafting)
            parts.next_token_input(inventory, drafting)


def _attention(fields: Fields, inventory: Inventory, layers: list[int]) -> None:
    grouped_query_attention(
        fields,
        inventory,
        layers,
        qk_norm="head" if fields.flag("use_qk_norm") else "",
        bias=fields.flag("attention_bias"),
    )
    parts.two_norms(inventory, layers)

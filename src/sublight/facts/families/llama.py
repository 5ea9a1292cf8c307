"""Dense models of Llama's form: Llama 2 and 3, Mistral, Qwen2 and Qwen2.5.

Shapes from transformers, modeling_llama.py, modeling_mistral.py and modeling_qwen2.py. Llama says its biases in the
configuration, Mistral has none, Qwen2 has them on q, k and v without saying so. The first Mistral-7B looks at most
`sliding_window` tokens back in every layer; in later releases the field is null.
"""

from collections.abc import Sequence

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.placement import sliding_layers
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory


def llama(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    bias = fields.flag("attention_bias")
    _layers(fields, inventory, bias=bias, output_bias=bias)


def mistral(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    _layers(fields, inventory, window=fields.size("sliding_window") if "sliding_window" in fields else None)


def qwen2(fields: Fields, inventory: Inventory) -> None:
    parts.ends(fields, inventory)
    window, limited = sliding_layers(fields, inventory)
    _layers(fields, inventory, bias=True, window=window, limited=limited)


def _layers(
    fields: Fields,
    inventory: Inventory,
    *,
    bias: bool = False,
    output_bias: bool = False,
    window: int | None = None,
    limited: Sequence[int] | None = None,
) -> None:
    layers = list(range(inventory.layers))
    grouped_query_attention(
        fields, inventory, layers, bias=bias, output_bias=output_bias, window=window, limited=limited
    )
    parts.two_norms(inventory, layers)
    width, mlp_bias = fields.size("intermediate_size"), fields.flag("mlp_bias")
    parts.gated_mlp(inventory, "mlp", width, layers, "mlp.dense", "dense", bias=mlp_bias)

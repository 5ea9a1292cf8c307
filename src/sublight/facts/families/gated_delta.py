"""Gated DeltaNet: the linear attention of Qwen3-Next and Qwen3.5.

Shapes from transformers, modeling_qwen3_next.py and modeling_qwen3_5.py. Several value heads share a key head, so key
heads with their value heads are the pieces that tensor parallelism can divide (sglang qwen3_next.py).

A token's step on the state S [key, value] of one value head, from the gated delta rule (arXiv 2412.06464, and
`torch_recurrent_gated_delta_rule` in the modeling files): decay S by a scalar (1 operation a value of S), read what it
holds for the key (2), add the outer product of key and correction (2), read it for the query (2): 7 operations a value
of S. What is only as large as a head (gates, the correction itself, norms) is left out. They run in FP32 on the
ordinary cores; the state's bytes bind them at any batch.
"""

from collections.abc import Sequence

from sublight.facts.families.placement import every, layers_by_type
from sublight.facts.families.states import convolution_state, recurrent_bytes, recurrent_state
from sublight.facts.fields import Fields
from sublight.facts.formats import BF16, Format
from sublight.facts.inventory import Inventory
from sublight.facts.tensors import Cut

_FLOPS_PER_VALUE = 7


def hybrid_layers(fields: Fields, inventory: Inventory) -> tuple[list[int], list[int]]:
    """Layers with linear attention and layers with full attention: by name, else every `full_attention_interval`-th."""
    by_type = layers_by_type(fields, inventory, ("linear_attention", "full_attention"))
    interval = fields.size("full_attention_interval") if "full_attention_interval" in fields else None
    if by_type is None and interval is None:
        raise fields.error(
            "it has no layer_types or full_attention_interval, so which layers are linear is not known",
            "the model's own config.json, whole",
        )
    counted = every(interval, inventory.layers) if interval is not None else []
    full = by_type["full_attention"] if by_type is not None else counted
    if by_type is not None and interval is not None and full != counted:
        inventory.note(
            "warn",
            "placement of full attention",
            f"layer_types gives {len(full)} layers, full_attention_interval {len(counted)}; layer_types was used",
        )
    return sorted(set(range(inventory.layers)) - set(full)), full


def gated_delta_net(
    fields: Fields, inventory: Inventory, layers: Sequence[int], *, packed: bool, state_parameters: Format = BF16
) -> None:
    """One layer's linear attention.

    Args:
        packed: the release keeps q, k, v and z in one matrix and b and a in another (Qwen3-Next); else there are four.
        state_parameters: how A_log and the output norm are stored.
    """
    if not layers:
        return
    keys, values = fields.size("linear_num_key_heads"), fields.size("linear_num_value_heads")
    key, value = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    kernel = fields.size("linear_conv_kernel_dim")
    if values % keys:
        raise fields.error(
            f"{values} linear value heads do not divide over {keys} key heads", "the model's own config.json"
        )
    hidden = inventory.hidden
    mixed = 2 * keys * key + values * value
    by_key_head = Cut(0, keys)
    inward = {
        True: {"in_proj_qkvz": mixed + values * value, "in_proj_ba": 2 * values},
        False: {"in_proj_qkv": mixed, "in_proj_z": values * value, "in_proj_b": values, "in_proj_a": values},
    }[packed]

    def path(name: str) -> str:
        return inventory.layer(f"linear_attn.{name}")

    for name, out in inward.items():
        inventory.matrix(path(name), (out, hidden), "linear.in", "attention", layers=layers, cut=by_key_head)
    inventory.matrix(
        path("conv1d"),
        (mixed, kernel),
        "linear.state",
        "attention",
        layers=layers,
        cut=by_key_head,
        module_class="Conv1d",
    )
    linear = inventory.layer("linear_attn")
    for leaf, format_ in (("dt_bias", BF16), ("A_log", state_parameters)):
        inventory.vector(
            linear, (values,), "linear.state", "attention", layers=layers, leaf=leaf, cut=by_key_head, format=format_
        )
    # One norm for all heads: of a head's width, and whole on every rank.
    inventory.vector(path("norm"), (value,), "linear.state", "attention", layers=layers, format=state_parameters)
    inventory.matrix(
        path("out_proj"), (hidden, values * value), "linear.out", "attention", layers=layers, cut=Cut(1, keys)
    )
    recurrent_state(
        inventory,
        "linear.state",
        layers,
        heads=values,
        values=key * value,
        value_bytes=recurrent_bytes(fields, "mamba_ssm_dtype"),
        flops=_FLOPS_PER_VALUE * key * value,
    )
    convolution_state(inventory, "linear.state", layers, units=keys, channels=mixed, kernel=kernel)

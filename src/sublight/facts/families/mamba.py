"""Mamba-2: the state-space mixer of Nemotron-H and its kin.

Shapes from transformers, modeling_nemotron_h.py (NemotronHMamba2Mixer). Its width is heads times their size; `expand`
is not read, for in Nemotron-3 it says something else. in_proj gives gate, input, B, C and the time steps, in that
order; the convolution runs over input, B and C.

Heads of a group share B and C, so groups with their heads are the pieces that tensor parallelism can divide: engines
refuse more ranks than groups, except for a single group, which they copy to every rank (sglang layers/attention/mamba,
MambaMixer2). That copy is not counted here.

A token's step on the state h [size, state] of one head (arXiv 2405.21060, section 3): decay h (1 operation a value),
add the outer product of input and B (2), read it with C (2): 5 operations a value of h. What is only as large as a head
is left out. They run in FP32 on the ordinary cores; the state's bytes bind them at any batch.
"""

from collections.abc import Sequence

from sublight.facts.families.states import convolution_state, recurrent_bytes, recurrent_state
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory
from sublight.facts.tensors import Cut

_FLOPS_PER_VALUE = 5


def mamba2(fields: Fields, inventory: Inventory, layers: Sequence[int], path: str) -> None:
    """One layer's mixer, its tensors under `path`."""
    if not layers:
        return
    heads, size = fields.size("mamba_num_heads"), fields.size("mamba_head_dim")
    groups = fields.size("n_groups", "mamba_n_groups")
    state, kernel = fields.size("ssm_state_size"), fields.size("conv_kernel", "mamba_d_conv")
    if heads % groups:
        raise fields.error(f"{heads} Mamba heads do not divide over {groups} groups", "the model's own config.json")
    hidden, width = inventory.hidden, heads * size
    mixed = width + 2 * groups * state
    units = groups if groups > 1 else heads
    by_group = Cut(0, units)
    bias = fields.flag("use_bias")

    def name(part: str) -> str:
        return inventory.layer(f"{path}.{part}")

    inventory.matrix(
        name("in_proj"),
        (width + mixed + heads, hidden),
        "mamba.in",
        "attention",
        layers=layers,
        cut=by_group,
        bias=bias,
    )
    inventory.matrix(
        name("conv1d"),
        (mixed, kernel),
        "mamba.state",
        "attention",
        layers=layers,
        cut=by_group,
        bias=fields.flag("use_conv_bias", True),
        module_class="Conv1d",
    )
    for leaf in ("A_log", "D", "dt_bias"):
        inventory.vector(
            inventory.layer(path), (heads,), "mamba.state", "attention", layers=layers, leaf=leaf, cut=by_group
        )
    inventory.vector(name("norm"), (width,), "mamba.state", "attention", layers=layers, cut=by_group)
    inventory.matrix(
        name("out_proj"), (hidden, width), "mamba.out", "attention", layers=layers, cut=Cut(1, units), bias=bias
    )
    recurrent_state(
        inventory,
        "mamba.state",
        layers,
        heads=heads,
        values=size * state,
        value_bytes=recurrent_bytes(fields, "mamba_ssm_cache_dtype", "mamba_ssm_dtype"),
        flops=_FLOPS_PER_VALUE * size * state,
    )
    convolution_state(inventory, "mamba.state", layers, units=units, channels=mixed, kernel=kernel)

"""What layers without a growing cache keep of a sequence: a recurrent state, and the last inputs of a convolution."""

from collections.abc import Sequence

from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory
from sublight.facts.quantization.base import DTYPES

# The convolution's window holds hidden states, and engines keep it as those (sglang configs/mamba_utils.py: bfloat16
# unless an environment variable says otherwise; vllm: the model's dtype).
_CONV_BYTES = 2


def recurrent_bytes(fields: Fields, *keys: str) -> float:
    """Bytes of one value of the recurrent state: as the first of `keys` says, FP32 when none is there.

    FP32 is SGLang's default (configs/mamba_utils.py, mamba2_state_dtype) and what the released configurations name.
    Both engines let the user choose another; vLLM takes the model's own dtype for a configuration that names none.
    """
    for key in keys:
        name = fields.text(key)
        if name:
            if name not in DTYPES:
                raise fields.error(f'{key} is "{name}"', " or ".join(f'"{dtype}"' for dtype in DTYPES))
            return DTYPES[name].bits / 8
    return DTYPES["float32"].bits / 8


def recurrent_state(
    inventory: Inventory, row: str, layers: Sequence[int], *, heads: int, values: int, value_bytes: float, flops: int
) -> None:
    """The recurrent state: `values` a head, `flops` a head and token."""
    inventory.cache(
        row=row,
        kind="state",
        layers=tuple(layers),
        heads=heads,
        values_per_head=values,
        bytes_per_value=value_bytes,
        query_heads=heads,
        flops_per_head=flops,
    )


def convolution_state(
    inventory: Inventory, row: str, layers: Sequence[int], *, units: int, channels: int, kernel: int
) -> None:
    """The inputs that a causal convolution still needs: kernel - 1 a channel. A token costs a product a tap.

    Args:
        units: pieces that tensor parallelism can divide, which the channels are made of.
    """
    inventory.cache(
        row=row,
        kind="state",
        layers=tuple(layers),
        heads=units,
        values_per_head=channels // units * (kernel - 1),
        bytes_per_value=_CONV_BYTES,
        query_heads=units,
        flops_per_head=2 * kernel * (channels // units),
    )

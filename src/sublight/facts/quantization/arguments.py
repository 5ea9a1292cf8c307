"""`QuantizationArgs` of compressed-tensors, which ModelOpt also writes into config.json: bits, type, group, strategy.

Which format a pair of them (weights, activations) means follows the library's compressors (compressed-tensors 0.20.1,
`can_compress` of each in `compressors/`): four-bit floats in groups of 16 are NVFP4 and in groups of 32 MXFP4,
whatever the strategy is called; FP8 is told apart by strategy; all integers are packed.
"""

from typing import Any, Literal

import msgspec

from sublight.facts.fields import Fields
from sublight.facts.formats import FP8, FP8_CHANNEL, MXFP4, NVFP4, Compute, Format
from sublight.facts.quantization.names import is_number
from sublight.facts.quantization.variants import MXFP8, at_rate, fp8_blocks, integers


class Arguments(msgspec.Struct, frozen=True):
    """How one tensor of a group is quantised.

    Attributes:
        bits, kind: "float" or "int".
        group: values that share a scale; 0 when a whole row or tensor does.
        strategy: "tensor", "channel", "group", "tensor_group", "block", "token", or "" when not said.
        block: rows and columns of a tile, for strategy "block".
        symmetric: no zero points.
        reordered: inputs are regrouped, and the group of each is stored (g_idx).
    """

    bits: int
    kind: Literal["float", "int"]
    group: int = 0
    strategy: str = ""
    block: tuple[int, int] | None = None
    symmetric: bool = True
    reordered: bool = False


def read_arguments(fields: Fields) -> Arguments:
    """The arguments in a `weights` or `input_activations` object. Raises ConfigError."""
    kind = fields.text("type", "int").lower()
    if kind not in ("float", "int"):
        raise fields.error(f"type is {kind!r}", 'type "float" or "int"')
    group = fields.data.get("group_size")
    if group is not None and (isinstance(group, bool) or not isinstance(group, int) or group == 0 or group < -1):
        raise fields.error(f"group_size is {group!r}", "a group size above 0, or -1 for whole rows")
    block = fields.data.get("block_structure")
    if isinstance(block, str):
        block = [int(part) if is_number(part) else part for part in block.lower().split("x")]
    if block is not None and not _is_tile(block):
        raise fields.error(f"block_structure is {block!r}", "two whole numbers, such as [128, 128]")
    order = fields.data.get("actorder")
    return Arguments(
        bits=fields.size("num_bits", default=8),
        kind="float" if kind == "float" else "int",
        group=0 if group is None or group < 0 else group,
        strategy=fields.text("strategy").lower(),
        block=None if block is None else (block[0], block[1]),
        symmetric=fields.flag("symmetric", True),
        reordered=isinstance(order, str) and order.lower() in ("group", "dynamic"),
    )


def _is_tile(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in value)
    )


def format_of_group(weights: Arguments, activations: Arguments | None, fields: Fields) -> Format:
    """The format of a group's modules. Raises ConfigError for a combination that no compressor stores.

    Args:
        weights: how the weights are stored.
        activations: None for a weight-only group, which multiplies in BF16.
        fields: names the group in an error.
    """
    return at_rate(_stored(weights, fields), _rate(weights, activations, fields))


def _stored(weights: Arguments, fields: Fields) -> Format:
    bits, group = weights.bits, weights.group
    if weights.kind == "int" and 2 <= bits <= 8:
        # "block" never holds for integers in the library; "tensor" keeps one scale, which a row's two bytes bound.
        return integers(bits, group, zero_points=not weights.symmetric, group_index=weights.reordered and bool(group))
    if weights.kind == "float" and bits == 4 and group in (16, 32):
        return NVFP4 if group == 16 else MXFP4
    if weights.kind == "float" and bits == 8:
        if weights.block is not None:
            return fp8_blocks(*weights.block)
        if group == 32:
            return MXFP8
        if not group and weights.strategy in ("", "tensor"):
            return FP8
        if not group and weights.strategy == "channel":
            return FP8_CHANNEL
    what = f"{bits}-bit {weights.kind} weights"
    if group:
        what += f" in groups of {group}"
    if weights.strategy:
        what += f", strategy {weights.strategy!r}"
    raise fields.error(
        f"it asks for {what}, which no format known here stores",
        "4-bit floats in groups of 16 (NVFP4) or 32 (MXFP4), 8-bit floats (FP8), or 2- to 8-bit integers",
    )


def _rate(weights: Arguments, activations: Arguments | None, fields: Fields) -> Compute:
    if activations is None or activations.bits >= 16:
        return "bf16"
    if activations.kind == "float" and activations.bits == 4 and weights.bits == 4:
        return "fp4"
    if activations.bits == 8:
        return "fp8"
    raise fields.error(
        f"it multiplies {weights.bits}-bit weights with {activations.bits}-bit {activations.kind} activations",
        "activations of 8 or 16 bits, or 4-bit floats with 4-bit weights",
    )


_KV_ALGORITHMS = {"fp8": "fp8", "float8": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "int8": "int8"}
_KV_TYPES = {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8"}


def kv_cache_format(fields: Fields, *keys: str) -> str:
    """What the first of `keys` that is there declares for the KV cache: "fp8", "nvfp4", "int8", or "" for nothing.

    ModelOpt writes a name (`kv_cache_quant_algo`) or an object of type and bits (`kv_cache_scheme`). "none" and
    "auto" count as nothing, as engines take them.
    """
    key = next((k for k in keys if k in fields), None)
    if key is None:
        return ""
    value = fields.data[key]
    if isinstance(value, dict):
        arguments = read_arguments(Fields(value, f"{fields.name} ({key})"))
        found = _KV_TYPES.get((arguments.kind, arguments.bits))
    elif isinstance(value, str):
        if value.strip().lower() in ("", "none", "null", "auto"):
            return ""
        found = _KV_ALGORITHMS.get(value.strip().lower().split("_")[0])
    else:
        found = None
    if found is None:
        raise fields.error(
            f"{key} is {value!r}, which is no KV format known here", "FP8, NVFP4 or INT8, or no such field"
        )
    return found

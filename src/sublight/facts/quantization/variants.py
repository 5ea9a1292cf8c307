"""Formats of fewer checkpoints, made from those of `facts.formats`: other blocks, other integers, another rate.

A name is a base and, where the rate is not the base's own, a suffix: "nvfp4-a8" is NVFP4 multiplied at the FP8 rate,
"fp8-channel-a16" FP8 weights multiplied in BF16. `format_named` reads every such name back.
"""

from functools import cache

import msgspec

from sublight.errors import UnknownNameError
from sublight.facts.formats import FORMATS, FP8_BLOCK, NVFP4, NVFP4_W4A16, Compute, Format, get_format, int4_group
from sublight.facts.quantization.names import is_number

MXFP8 = Format(
    name="mxfp8",
    title="MXFP8",
    bits=8,
    compute="fp8",
    block=32,
    block_scale_bytes=1,
    source="OCP microscaling: E4M3 codes, one E8M0 scale per 32 values",
)

_SUFFIX: dict[Compute, str] = {"bf16": "-a16", "fp8": "-a8", "fp4": "-a4"}


@cache
def fp8_blocks(rows: int, columns: int) -> Format:
    """FP8 with one FP32 scale per tile of `rows` outputs and `columns` inputs."""
    if (rows, columns) == (FP8_BLOCK.block_rows, FP8_BLOCK.block):
        return FP8_BLOCK
    return msgspec.structs.replace(
        FP8_BLOCK,
        name=f"fp8-block-{rows}x{columns}",
        title=f"FP8 block {rows}x{columns}",
        block=columns,
        block_rows=rows,
        source=f"weight_block_size [{rows}, {columns}]: one FP32 scale a tile",
    )


@cache
def integers(bits: int, group: int, *, zero_points: bool = False, group_index: bool = False) -> Format:
    """Integers with a 16-bit scale per group of inputs, or per output row where `group` is 0; multiplied in BF16."""
    if bits == 4 and group:
        return int4_group(group, zero_points=zero_points, group_index=group_index)
    scale = 2 + bits / 8 if zero_points else 2
    suffix = ("-zp" if zero_points else "") + ("-idx" if group_index else "")
    return Format(
        name=f"int{bits}-g{group}{suffix}" if group else f"int{bits}-channel{suffix}",
        title=f"INT{bits} group {group}" if group else f"INT{bits} per channel",
        bits=bits,
        compute="bf16",
        block=group,
        block_scale_bytes=scale if group else 0,
        row_scale_bytes=0 if group else round(scale),
        input_bytes=4 if group_index else 0,
        source="GPTQ, or compressed-tensors pack-quantized and int-quantized",
    )


@cache
def at_rate(base: Format, compute: Compute) -> Format:
    """The same stored bytes, multiplied at another rate because activations are kept in another format.

    INT8 activations are counted at the FP8 rate, the nearest one that GPU tables carry; readers add a finding that
    says so.
    """
    if compute == base.compute:
        return base
    if base is NVFP4 and compute == "bf16":
        return NVFP4_W4A16
    if base is NVFP4_W4A16:
        return at_rate(NVFP4, compute)
    suffix = _SUFFIX[compute]
    return msgspec.structs.replace(
        base, name=base.name + suffix, title=f"{base.title} (A{suffix[2:]})", compute=compute
    )


def format_named(name: str) -> Format:
    """Any format by its name in records, those of this module included. Raises UnknownNameError."""
    for compute, suffix in _SUFFIX.items():
        if name.endswith(suffix) and name not in FORMATS:
            return at_rate(format_named(name.removesuffix(suffix)), compute)
    if name == MXFP8.name:
        return MXFP8
    rows, cross, columns = name.removeprefix("fp8-block-").partition("x")
    if name.startswith("fp8-block-") and cross and is_number(rows) and is_number(columns):
        return fp8_blocks(int(rows), int(columns))
    kind, *rest = name.split("-")
    bits = kind.removeprefix("int")
    if kind.startswith("int") and is_number(bits) and rest and set(rest[1:]) <= {"zp", "idx"}:
        group = rest[0].removeprefix("g")
        if rest[0] == "channel" or is_number(group):
            size = 0 if rest[0] == "channel" else int(group)
            return integers(int(bits), size, zero_points="zp" in rest, group_index="idx" in rest)
    try:
        return get_format(name)
    except UnknownNameError as error:
        known = [*FORMATS, MXFP8.name, "int4-g128", "int8-channel", "fp8-block-64x64"]
        raise UnknownNameError("number format", name, known) from error

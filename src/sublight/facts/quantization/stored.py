"""The format of a module, from the tensors that are stored for it.

| tensors of a module | format |
|---|---|
| `weight` BF16, F16, F32 | that |
| `weight` U8, `weight_scale` F8_E4M3, `weight_scale_2`, `input_scale` | NVFP4 (ModelOpt); W4A16 without the last |
| `weight_packed` U8, `weight_scale`, `weight_global_scale`, `input_global_scale` | the same (compressed-tensors) |
| `weight` F8, `weight_scale_inv` or `weight_scale` | FP8 with a scale, one a row, or one a tile, by its shape |
| U8 or I8 codes with U8 or F8_E8M0 scales; `*_blocks` and `*_scales` U8 | MXFP4 |
| `weight_packed` I32; `qweight` with `scales` | integers in groups |

Where the stored layout is that of the inferred format the inferred one is kept: a header shows bytes, not the rate at
which a product runs, nor which of GPTQ's helper tensors a kernel reads.
"""

from collections.abc import Callable, Mapping
from math import ceil, prod
from typing import TYPE_CHECKING

from sublight.facts.formats import BF16, FP8, FP8_CHANNEL, FP16, FP32, MXFP4, NVFP4, NVFP4_W4A16, Format
from sublight.facts.quantization.variants import MXFP8, fp8_blocks, integers

if TYPE_CHECKING:
    from sublight.facts.checkpoint import StoredTensor

    Tensors = Mapping[str, StoredTensor]
    Leaf = Callable[[str], StoredTensor | None]

PLAIN: dict[str, Format] = {"BF16": BF16, "F16": FP16, "F32": FP32}
_POWERS = ("U8", "F8_E8M0")
_SCALES = ("weight_scale", "weight_scale_inv", "scale")
# What only quantised weights have; beside a plain weight they are a contradiction.
TRACES = ("weight_scale", "weight_scale_2", "weight_scale_inv", "weight_global_scale", "input_scale")


def stored_format(module: str, tensors: "Tensors", inputs: int, inferred: Format, calibrated: bool) -> Format | None:
    """The format of `module` as stored, or None where nothing is stored under its name.

    Args:
        module: name of the module, or of a bare parameter.
        tensors: of the whole checkpoint.
        inputs: input channels of the module, which packed integers do not show.
        inferred: kept where the stored layout is its own.
        calibrated: some module beside this one has an activation scale, so a missing one is an accident.
    """
    found = _found(module, tensors, inputs, calibrated)
    return inferred if found is not None and _same_layout(found, inferred) else found


def _same_layout(found: Format, inferred: Format) -> bool:
    if found in (NVFP4, NVFP4_W4A16) and inferred in (NVFP4, NVFP4_W4A16):
        return False  # the activation scale tells these two apart
    mine, theirs = ((f.name.split("-")[0], f.block, f.block_rows, f.row_scale_bytes) for f in (found, inferred))
    return mine == theirs and found.is_quantised


def _found(module: str, tensors: "Tensors", inputs: int, calibrated: bool) -> Format | None:
    def get(leaf: str) -> "StoredTensor | None":
        return tensors.get(f"{module}.{leaf}")

    if f"{module}_blocks" in tensors and f"{module}_scales" in tensors:
        return MXFP4
    qweight, scales = get("qweight"), get("scales")
    if qweight is not None and scales is not None:
        return _transposed_integers(qweight, scales, inputs, get("qzeros") is not None)
    weight = get("weight_packed") or get("weight") or tensors.get(module)
    if weight is None:
        return None
    if weight.dtype in PLAIN:
        return PLAIN[weight.dtype]
    scale = next((s for leaf in _SCALES if (s := get(leaf)) is not None), None)
    if weight.dtype == "I32" and scale is not None:
        return _packed_integers(weight, scale, inputs, get)
    if weight.dtype in ("U8", "I8") and scale is not None and _is_four_bit(weight, scale):
        if scale.dtype in _POWERS:
            return MXFP4
        active = calibrated or get("input_scale") is not None or get("input_global_scale") is not None
        return NVFP4 if active else NVFP4_W4A16
    if weight.dtype == "I8":
        groups = scale.shape[-1] if scale is not None and len(scale.shape) == 2 else 1
        return integers(8, weight.shape[-1] // groups if groups > 1 else 0)
    if weight.dtype.startswith("F8"):
        return _fp8(weight, scale)
    return None


def _is_four_bit(weight: "StoredTensor", scale: "StoredTensor") -> bool:
    """Two codes a byte: the scales cover 16 or 32 values each, that is 8 or 16 stored bytes."""
    columns = weight.shape[-1] if weight.shape else 0
    per_scale = 16 if scale.dtype in _POWERS else 8
    return scale.dtype in (*_POWERS, "F8_E4M3") and bool(scale.shape) and scale.shape[-1] == ceil(columns / per_scale)


def _fp8(weight: "StoredTensor", scale: "StoredTensor | None") -> Format | None:
    if scale is None or prod(scale.shape) == 1:
        return FP8
    if len(weight.shape) < 2:
        return None
    rows, columns = weight.shape[-2:]
    # ModelOpt keeps the ones of a tiled view: [row tiles, 1, column tiles, 1].
    sizes = [n for n in scale.shape[-4:] if n != 1] if len(scale.shape) == 4 else list(scale.shape)
    if prod(sizes) == rows * prod(weight.shape[:-2]):
        return FP8_CHANNEL
    if scale.dtype in _POWERS and sizes[-1] == ceil(columns / 32) and sizes[-2:-1] == [rows]:
        return MXFP8
    tiles = (*sizes[-2:-1], sizes[-1]) if len(sizes) >= 2 else (ceil(rows / 128), sizes[0])
    return fp8_blocks(_tile(rows, tiles[0]), _tile(columns, tiles[1]))


def _tile(length: int, tiles: int) -> int:
    """The size of tiles of which `tiles` cover `length`: 128 if it can be, else the smallest power of two that does."""
    powers = (128, *(1 << shift for shift in range(13)))
    return next((size for size in powers if ceil(length / size) == tiles), ceil(length / max(1, tiles)))


def _packed_integers(
    weight: "StoredTensor", scale: "StoredTensor", inputs: int, get: "Callable[[str], StoredTensor | None]"
) -> Format:
    """compressed-tensors: codes along the input in int32 words; scales [out, groups]."""
    bits = round(32 * weight.shape[-1] / max(1, inputs))
    groups = scale.shape[-1] if len(scale.shape) >= 2 else 1
    return integers(
        bits,
        ceil(inputs / groups) if groups > 1 else 0,
        zero_points=get("weight_zero_point") is not None,
        group_index=get("weight_g_idx") is not None,
    )


def _transposed_integers(qweight: "StoredTensor", scales: "StoredTensor", inputs: int, zero_points: bool) -> Format:
    """GPTQ packs along the input ([in x bits / 32, out]), AWQ along the output; scales are [groups, out] in both."""
    groups, outputs = scales.shape[-2:] if len(scales.shape) >= 2 else (1, max(1, prod(scales.shape)))
    bits = round(32 * prod(qweight.shape[-2:]) / max(1, inputs * outputs))
    return integers(bits, ceil(inputs / groups) if groups > 1 else 0, zero_points=zero_points)

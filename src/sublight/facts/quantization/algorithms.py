"""ModelOpt's names for what it stores (`quant_algo`), and the format each one is.

From modelopt 0.47, `export/quant_utils.py` (`process_layer_quant_config`) and `export/convert_hf_config.py`
(`_quant_algo_to_group_config`); FP8_BLOCK_SCALES is TensorRT-LLM's name for FP8_PB_WO. SVDQuant (NVFP4_SVD) is not
here: its low-rank matrices beside each weight have a rank that the algorithm's name does not give.
"""

from sublight.errors import near_misses
from sublight.facts.fields import Fields
from sublight.facts.formats import FP8, FP8_CHANNEL, MXFP4, NVFP4, NVFP4_W4A16, Compute, Format
from sublight.facts.quantization.variants import MXFP8, at_rate, fp8_blocks, integers

MIXED = "MIXED_PRECISION"

_FORMATS: dict[str, Format] = {
    "FP8": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": NVFP4_W4A16,
    "W4A8_NVFP4_FP8": at_rate(NVFP4, "fp8"),
    "W4A16_MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": at_rate(MXFP4, "fp8"),
    "MXFP8": MXFP8,
    "W8A16": integers(8, 0),
    "W8A8_SQ_PER_CHANNEL": at_rate(integers(8, 0), "fp8"),
}
# These have a group that the file may choose; the number is what the exporter takes when it says none.
_TILES = {"FP8_PB_WO": 128, "FP8_PB_REAL": 128, "FP8_BLOCK_SCALES": 128}
_INT4: dict[str, Compute] = {"W4A16_AWQ": "bf16", "W4A8_AWQ": "fp8"}
# Formats whose group is part of their definition; another number there means another format.
_FIXED_GROUP = {"NVFP4": 16, "MXFP4": 32, "MXFP8": 32}


def algorithm_format(algorithm: str, group: int, fields: Fields) -> Format:
    """The format an algorithm stores; `group` 0 where the file does not say. Raises ConfigError."""
    if algorithm in _TILES:
        return fp8_blocks(group or _TILES[algorithm], group or _TILES[algorithm])
    if algorithm in _INT4:
        return at_rate(integers(4, group or 128), _INT4[algorithm])
    if algorithm not in _FORMATS:
        known = [*_FORMATS, *_TILES, *_INT4, MIXED]
        near = near_misses(algorithm, known) if algorithm != "NVFP4_SVD" else []
        raise fields.error(f"quant_algo is {algorithm!r}, which is not known here", " or ".join(near or known))
    wanted = next((size for name, size in _FIXED_GROUP.items() if name in algorithm), None)
    if wanted is not None and group not in (0, wanted):
        raise fields.error(
            f"group_size is {group} for {algorithm}", f"group_size {wanted}, which the format is defined with"
        )
    return _FORMATS[algorithm]

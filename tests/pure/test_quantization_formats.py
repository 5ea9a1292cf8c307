"""Formats beyond the common ones: their bytes, their rates, and their names read back."""

import pytest

from sublight.errors import UnknownNameError
from sublight.facts.formats import FORMATS, FP8, FP8_BLOCK, FP8_CHANNEL, MXFP4, NVFP4, NVFP4_W4A16, int4_group
from sublight.facts.quantization.summary import described, summary
from sublight.facts.quantization.variants import MXFP8, at_rate, format_named, fp8_blocks, integers

MADE = [
    MXFP8,
    fp8_blocks(64, 128),
    integers(8, 128),
    integers(8, 0, zero_points=True),
    integers(3, 64, zero_points=True, group_index=True),
    integers(4, 0),
    int4_group(32, zero_points=True, group_index=True),
    at_rate(NVFP4, "fp8"),
    at_rate(MXFP4, "fp8"),
    at_rate(MXFP4, "fp4"),
    at_rate(FP8_CHANNEL, "bf16"),
    at_rate(fp8_blocks(64, 128), "bf16"),
    at_rate(integers(8, 0), "fp8"),
    at_rate(int4_group(128, zero_points=False), "fp8"),
]


@pytest.mark.parametrize("format", [*FORMATS.values(), *MADE], ids=lambda f: f.name)
def test_names_are_read_back(format):
    assert format_named(format.name) == format


@pytest.mark.parametrize("name", ["", "fp9", "int4", "int4-g", "int8-gx", "fp8-block-64", "mxfp4-a5", "intx-g8"])
def test_other_names_are_refused(name: str):
    with pytest.raises(UnknownNameError):
        format_named(name)


def test_the_common_ones_are_the_common_ones():
    assert fp8_blocks(128, 128) is FP8_BLOCK
    assert integers(4, 64) == int4_group(64, zero_points=False)
    assert at_rate(NVFP4, "bf16") is NVFP4_W4A16
    assert at_rate(NVFP4_W4A16, "fp4") is NVFP4
    assert at_rate(FP8, "fp8") is FP8


def test_bytes():
    shape = (256, 384)
    assert MXFP8.storage(shape).total_bytes == 256 * 384 + 256 * 12
    # 256 x 384 in tiles of 64 x 128: 4 x 3 tiles of one FP32 scale each.
    assert fp8_blocks(64, 128).storage(shape).total_bytes == 256 * 384 + 12 * 4
    # Groups of 128: 3 a row, two bytes each, and one more for an eight-bit zero point.
    assert integers(8, 128, zero_points=True).storage(shape).total_bytes == 256 * 384 + 256 * 3 * 3
    assert integers(8, 0).storage(shape).total_bytes == 256 * 384 + 256 * 2
    assert at_rate(NVFP4, "fp8").storage(shape) == NVFP4.storage(shape)
    assert at_rate(NVFP4, "fp8").compute == "fp8"


def test_one_line_for_a_reader():
    assert described(NVFP4) == "NVFP4, group 16"
    assert described(FP8_BLOCK) == "FP8 block 128x128"
    assert described(fp8_blocks(64, 32)) == "FP8 block 64x32"
    assert described(int4_group(32, zero_points=False)) == "INT4 group 32"
    assert described(FP8_CHANNEL) == "FP8 per channel"
    assert summary("FP8", "", 0) == "FP8, no exclusions"
    assert summary("FP8", "nvfp4", 1) == "FP8, KV NVFP4, 1 exclusion"

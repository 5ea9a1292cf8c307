"""Widths under tensor parallelism: groups that a cut goes through, and padding."""

import pytest

from sublight.errors import UsageError
from sublight.facts.model import read_model
from sublight.kernels.alignment import ALIGNMENTS, rank_widths, widths_by_backend


@pytest.mark.parametrize(
    ("model", "group", "ranks", "wanted"),
    [
        (
            "nemotron-3-nano-30b-a3b-nvfp4",
            16,
            (1, 2, 4, 8),
            [
                "TP1 1856 ok",
                "TP2 928 -> 960 (+3.4 %)",
                "TP4 464 -> 512 (+10.3 %)",
                "TP8 232 splits a group of 16 (14.5 groups)",
            ],
        ),
        (
            "gemma-4-26b-a4b-nvfp4",
            16,
            (2, 4, 8),
            ["TP2 352 -> 384 (+9.1 %)", "TP4 176 -> 192 (+9.1 %)", "TP8 88 splits a group of 16 (5.5 groups)"],
        ),
    ],
)
def test_published_experts_over_ranks(model: str, group: int, ranks: tuple[int, ...], wanted: list[str]) -> None:
    moe = read_model(model).moe
    assert moe is not None
    assert [str(row) for row in rank_widths(moe.width, group, ranks)] == wanted


def test_a_width_of_640() -> None:
    assert [str(row) for row in rank_widths(640, 16, (4, 8))] == ["TP4 160 -> 192 (+20.0 %)", "TP8 80 -> 128 (+60.0 %)"]


def test_groups_of_32_split_earlier() -> None:
    rows = rank_widths(2880, 32, (2, 4, 8), step=32)
    assert [str(row) for row in rows] == [
        "TP2 1440 ok",
        "TP4 720 splits a group of 32 (22.5 groups)",
        "TP8 360 splits a group of 32 (11.25 groups)",
    ]


def test_steps_by_backend() -> None:
    steps = {name: (a.step(6144), a.step(6144, gated=False), a.hidden, a.pads) for name, a in ALIGNMENTS.items()}
    assert steps == {
        "marlin": (64, 64, 128, True),
        "flashinfer_trtllm": (64, 128, 256, True),
        "flashinfer_cutedsl": (64, 128, 256, True),
        "grouped_gemm_nt_masked": (32, 32, 32, False),
        "sublight": (64, 64, 64, False),
    }
    assert all(a.source for a in ALIGNMENTS.values())


def test_a_hidden_size_of_half_a_tile_is_made_up_for_by_the_width() -> None:
    marlin = ALIGNMENTS["marlin"]
    assert (marlin.step(2880), marlin.step(2688)) == (128, 64)  # 22.5 and 21 tiles of 128
    assert marlin.step(2900) == 64  # 22.66: read as 23 whole ones
    assert (marlin.padded_hidden(2880), marlin.padded_hidden(2900)) == (2880, 2944)
    assert ALIGNMENTS["flashinfer_trtllm"].padded_hidden(2688) == 2816


def test_one_layer_by_backend() -> None:
    # No gate, so that the rows of w13 are the width itself.
    rows = widths_by_backend(1856, 2688, 16, (2, 4), gated=False)
    assert {name: [row.padded for row in found] for name, found in rows.items()} == {
        "marlin": [960, 512],
        "flashinfer_trtllm": [1024, 512],
        "flashinfer_cutedsl": [1024, 512],
        "grouped_gemm_nt_masked": [928, 480],
        "sublight": [960, 512],
    }
    assert rows["marlin"][1].extra_bytes(2688, 4.5, gated=False) == 48 * 2688 * 2 * 4.5 / 8
    assert rows["grouped_gemm_nt_masked"][0].extra_bytes(2688, 4.5) == 0


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(UsageError, match="a size is below 1"):
        rank_widths(0, 16)

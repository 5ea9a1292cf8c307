"""Widths under tensor parallelism: groups that a cut goes through, and padding."""

import pytest

from sublight.errors import UsageError
from sublight.facts.model import read_model
from sublight.kernels.alignment import ALIGNMENTS, rank_widths


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
    steps = {name: (a.step(gated=True), a.step(gated=False), a.hidden, a.pads) for name, a in ALIGNMENTS.items()}
    assert steps["marlin"] == (64, 64, 128, True)
    assert steps["flashinfer_trtllm"] == (64, 128, 256, True)
    assert steps["sublight"] == (64, 64, 64, False)
    assert all(a.source for a in ALIGNMENTS.values())
    # Nemotron has no gate: the same rank pads further there.
    assert [row.padded for row in rank_widths(1856, 16, (2,), step=ALIGNMENTS["flashinfer_trtllm"].step(False))] == [
        1024
    ]


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(UsageError, match="a size is below 1"):
        rank_widths(0, 16)

"""Plans of the grouped kernels: what they promise the compiler, and what they refuse; and which kernel a layer gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.errors import KernelError
from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.facts.workload import Layout
from sublight.kernels.cuda.grouped_plan import BUCKETS, bucket, plan_grouped
from sublight.kernels.grouped import most_for_decode
from sublight.kernels.heuristics import choose
from sublight.kernels.problem import MoeProblem

SM90_BYTES, SM120_BYTES = 232_448, 101_376


@given(
    st.integers(1, 160),
    st.integers(1, 64),
    st.integers(1, 512),
    st.integers(1, 10),
    st.integers(1, 20_000),
    st.sampled_from([1, 8]),
    st.sampled_from([(SM90_BYTES, True), (SM90_BYTES, False), (SM120_BYTES, False)]),
)
def test_a_plan_fits_and_covers_the_layer(
    hidden_blocks: int, inter_blocks: int, experts: int, top_k: int, tokens: int, ranks: int, card: tuple[int, bool]
) -> None:
    limit, hopper = card
    plan = plan_grouped(64 * hidden_blocks, 64 * inter_blocks, experts, top_k, tokens, limit, ranks, hopper)
    assert plan.shared_bytes <= limit
    assert plan.max_tokens in BUCKETS
    assert plan.max_tokens >= tokens or plan.max_tokens == max(b for b in BUCKETS if b * top_k <= 12_288)
    run = 1 if inter_blocks % 2 else 2
    for phase in (plan.up, plan.down):
        assert 2 <= phase.depth <= 12
        assert phase.units * phase.team == plan.warps == 16
        assert phase.team in ((1, 2) if plan.wgmma else (1, 2, 4))
        assert phase.stage_bytes(plan.tiles, plan.wgmma) % 16 == 0
    if plan.wgmma:  # whole stages, and sums that registers hold
        assert hidden_blocks % plan.up.step(True) == inter_blocks % plan.down.step(True) == 0
        assert plan.tiles <= (7 if plan.up.team == 1 else 11)
    assert plan.down.step(plan.wgmma) % run == 0
    assert plan.down.blocks % run == 0 or plan.down.blocks == 1
    assert hopper or not plan.wgmma
    assert plan.sort_bytes <= min(plan.up.depth * plan.up.stage_bytes(plan.tiles, plan.wgmma), plan.down_bytes)
    assert plan.sort_bytes >= 2 * (plan.warps * experts + plan.pairs) + 8 * min(experts, plan.pairs)
    assert not plan.overlap or plan.wgmma


def test_the_size_of_a_launch() -> None:
    assert [bucket(tokens, 8) for tokens in (1, 17, 32, 33, 1024, 1025, 16_384)] == [32, 32, 32, 64, 1024, 1024, 1024]
    assert bucket(1024, 16) == 512  # 12,288 pairs at most


@pytest.mark.parametrize(
    ("hidden", "inter", "experts", "top_k", "tokens", "named"),
    [
        (6100, 256, 8, 1, 64, "hidden_size 6100: 20 over a multiple of 64"),
        (6144, 0, 8, 1, 64, "intermediate_size 0: there is nothing to compute"),
        (6144, 256, 8, 1, 0, "tokens 0: there is nothing to compute"),
        (6144, 256, 2048, 1, 64, "num_experts 2048: it takes 1024 on one GPU"),
        (6144, 256, 8, 500, 64, "top_k 500: it takes 384"),
        (6144, 256, 8, "8", 64, "top_k 8: it is no whole number"),
        (65536, 65536, 8, 1, 64, "hidden_size 65536: one expert or its activations are over 2 GiB"),
        (131072, 64, 8, 1, 64, "hidden_size 131072: one expert or its activations are over 2 GiB"),
    ],
)
def test_what_it_does_not_take_is_named(
    hidden: int, inter: int, experts: int, top_k: int, tokens: int, named: str
) -> None:
    with pytest.raises(KernelError, match=named):
        plan_grouped(hidden, inter, experts, top_k, tokens, SM90_BYTES)


def test_too_little_shared_memory_is_refused() -> None:
    with pytest.raises(KernelError, match="num_experts 256: its smallest plan needs more than 49,152 bytes"):
        plan_grouped(6144, 256, 256, 8, 1024, 49_152)


@pytest.mark.parametrize(("top_k", "most"), [(8, 16), (17, 8), (40, 4), (300, 0)])
def test_the_decode_kernel_has_the_calls_that_it_takes(top_k: int, most: int) -> None:
    assert most_for_decode(6144, 256, top_k, 132, SM90_BYTES) == most


@pytest.mark.parametrize(
    ("layer", "tokens", "wgmma", "tiles", "up_units"),
    [
        ((6144, 256, 256, 8), 64, False, 1, 4),
        ((6144, 256, 256, 8), 128, False, 2, 8),
        ((6144, 256, 256, 8), 1024, True, 6, 16),
        ((2048, 768, 128, 8), 128, False, 2, 8),
        ((2048, 768, 128, 8), 256, True, 4, 16),
        ((2048, 768, 128, 8), 1024, True, 11, 8),
        ((7168, 2048, 256, 8), 1024, True, 6, 16),
        ((2048, 320, 64, 8), 1024, False, 6, 4),
    ],
)
def test_the_plans_that_were_measured_best(
    layer: tuple[int, int, int, int], tokens: int, wgmma: bool, tiles: int, up_units: int
) -> None:
    plan = plan_grouped(*layer, tokens, SM90_BYTES)
    assert (plan.wgmma, plan.tiles, plan.up.units) == (wgmma, tiles, up_units)


def test_the_grouped_kernel_is_chosen_above_the_decode_kernel() -> None:
    glm = read_model("glm-5-nvfp4")
    for tokens, name in ((16, "decode"), (17, "grouped"), (100_000, "grouped")):
        choice = choose(MoeProblem.of(glm, Layout(tp=8), tokens), get_gpu("h200"))
        assert choice.kernel.name == name
    assert choice.configuration["MAX_M"] == 1024
    assert choose(MoeProblem.of(glm, Layout(tp=8), 4), get_gpu("h200")).refused.get("grouped", "") == ""

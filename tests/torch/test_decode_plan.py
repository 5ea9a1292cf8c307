"""Plans of the decode kernel: what they promise the compiler, and what they refuse."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sublight.errors import KernelError
from sublight.kernels.cuda.plan import WARPS, RouterPlan, bucket, plan_decode

SM90_BYTES, SM120_BYTES = 232_448, 101_376


@given(
    st.integers(1, 160),
    st.integers(1, 64),
    st.integers(1, 10),
    st.integers(1, 16),
    st.sampled_from([132, 148, 188]),
    st.sampled_from([SM90_BYTES, SM120_BYTES]),
)
def test_a_plan_fits_and_covers_the_layer(
    hidden_blocks: int, inter_blocks: int, top_k: int, tokens: int, grid: int, limit: int
) -> None:
    assume(limit == SM90_BYTES or hidden_blocks <= 128)  # beyond, see below
    hidden, inter = 64 * hidden_blocks, 64 * inter_blocks
    plan = plan_decode(hidden, inter, top_k, tokens, grid, limit)
    assert plan.shared_bytes <= limit
    assert plan.max_tokens == bucket(tokens) >= tokens
    assert plan.cta_rows * grid >= hidden // 16
    assert plan.depth >= 2
    assert plan.items == 1 or plan.items % 2 == 0
    assert (WARPS - plan.down_warps) % plan.team == 0
    assert plan.stream_bytes >= WARPS * plan.depth * 2 * plan.piece * 576
    assert plan.slot_bytes % 16 == 0


def test_the_plan_of_a_known_layer() -> None:
    plan = plan_decode(6144, 256, 8, 4, 132, SM90_BYTES)
    assert (plan.piece, plan.items, plan.depth, plan.team, plan.down_warps) == (2, 2, 2, 12, 4)
    assert plan.stream_bytes == 16 * 2 * 3456
    assert plan.exchange_words == 4 * 8 * 128
    defines = plan.defines()
    assert (defines["HIDDEN"], defines["MAX_M"], defines["GRID"], defines["STREAM_BYTES"]) == (6144, 4, 132, 110_592)


def test_down_warps_from_four_tokens_on() -> None:
    """The smallest team whose share of a tile's columns has room in registers, beside warps for the down product."""
    assert plan_decode(7168, 2048, 8, 1, 132, SM90_BYTES).down_warps == 2  # and where a CTA has many tiles
    splits = {}
    for hidden in (2048, 4096, 6144, 7168, 8192):
        plans = [plan_decode(hidden, 256, 8, tokens, 132, SM90_BYTES) for tokens in (1, 2, 3, 16)]
        splits[hidden] = [(plan.down_warps, plan.team) for plan in plans]
    assert splits == {
        2048: [(0, 8), (0, 8), (8, 4), (8, 4)],
        4096: [(0, 16), (0, 16), (8, 8), (8, 8)],
        6144: [(0, 16), (0, 16), (4, 12), (4, 12)],
        7168: [(0, 16), (0, 16), (2, 14), (2, 14)],
        8192: [(0, 16), (0, 16), (0, 16), (0, 16)],
    }


def test_rows_that_a_small_block_has_no_room_for_are_refused() -> None:
    assert plan_decode(16384, 256, 8, 16, 132, SM90_BYTES).depth == 2
    with pytest.raises(KernelError, match=r"hidden_size 16384: its smallest plan needs more than 101,376 bytes"):
        plan_decode(16384, 256, 8, 16, 132, SM120_BYTES)


@pytest.mark.parametrize(
    ("hidden", "inter", "top_k", "tokens", "named"),
    [
        (6100, 256, 8, 1, "hidden_size 6100"),
        (6144, 0, 8, 1, "intermediate_size 0"),
        (6144, 256, 8, 17, "tokens 17"),
        (6144, 256, 8, 0, "tokens 0"),
        (6144, 256, 33, 1, "top_k 33"),
        (6144, 256, 0, 1, "top_k 0: a token has at least one expert"),
        (6144.0, 256, 8, 1, "hidden_size 6144.0: it is no whole number"),
        (6144, 256, "8", 1, "top_k 8: it is no whole number"),
        (6144, 256, 8, None, "tokens None: it is no whole number"),
        (6144, 256, 16, 16, "top_k 16"),
        (65536, 65536, 8, 1, "hidden_size 65536"),
        (131072, 64, 8, 1, "hidden_size 131072"),
    ],
)
def test_what_it_does_not_take_is_named(hidden: int, inter: int, top_k: int, tokens: int, named: str) -> None:
    with pytest.raises(KernelError, match=named):
        plan_decode(hidden, inter, top_k, tokens, 132, SM90_BYTES)


def test_shared_experts_and_a_router_are_counted() -> None:
    router = RouterPlan(sigmoid=True, experts=256, bias=True, groups=8, top_groups=4)
    plain = plan_decode(6144, 256, 8, 16, 132, SM90_BYTES)
    whole = plan_decode(6144, 256, 8, 16, 132, SM90_BYTES, shared=2, router=router)
    assert (plain.pairs, whole.pairs) == (128, 160)
    assert whole.exchange_words == 160 * 128
    assert whole.static_bytes - plain.static_bytes >= 8 * 128 + 32 * (21 + 16 + 2) - 128
    assert plain.defines()["ROUTER"] == 0 and plain.defines()["SHARED"] == 0
    defines = whole.defines()
    assert (defines["ROUTER"], defines["ROUTED"], defines["BIAS"], defines["SHARED"]) == (2, 256, 1, 2)
    assert (defines["GROUPS"], defines["TOP_GROUPS"], defines["RENORMALISE"]) == (8, 4, 1)


@pytest.mark.parametrize(
    ("top_k", "shared", "router", "named"),
    [
        (8, 8, None, "top_k 8: 16 tokens would be 256 pairs with 8 shared experts"),
        (8, 0, RouterPlan(True, 1025, False), "num_experts 1025: its router takes 1 to 1024"),
        (8, 0, RouterPlan(True, 256, False, 64, 8), "num_experts 256: 256 experts in 64 groups"),
        (8, 0, RouterPlan(True, 100, False, 8, 8), "num_experts 100: 100 experts in 8 groups"),
        (9, 0, RouterPlan(True, 64, False, 8, 1), "top_k 9: its router chooses at most 8"),
    ],
)
def test_what_cannot_be_fused_is_named(top_k: int, shared: int, router: RouterPlan | None, named: str) -> None:
    with pytest.raises(KernelError, match=named):
        plan_decode(6144, 256, top_k, 16, 132, SM90_BYTES, shared=shared, router=router)

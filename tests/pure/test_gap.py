"""A measured step against its floor: claims, standing, and the next measurements."""

from pathlib import Path

import pytest

from sublight import records
from sublight.errors import UnknownNameError, UsageError
from sublight.facts.gpu import get_gpu
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Speculation, Workload
from sublight.gap.compare import Gap, compare, measured_from_record, measured_from_text
from sublight.limits.decode import DecodeLimit, decode_limit
from sublight.records import Evidence, Figure
from sublight.report.views import record_types


def limit(gpu: str = "rtx-pro-6000-workstation", **work: object) -> DecodeLimit:
    card = get_gpu(gpu)
    workload = Workload(layout=Layout(tp=8), **work)  # type: ignore[arg-type]
    return decode_limit(read_model("glm-5-nvfp4"), card, workload, interconnect_for(card))


@pytest.fixture(scope="module")
def floor() -> DecodeLimit:
    return limit()


def given(seconds: float) -> Figure:
    return Figure(seconds, Evidence.GIVEN, "test")


@pytest.fixture(scope="module")
def campaign(floor: DecodeLimit) -> Gap:
    step, text = measured_from_text("10.36 tok/s", floor)
    return compare(floor, step, text, floor_claim="309 tok/s", part_claims=["bf16+allreduce=8.9ms"])


def test_ratios_for_what_they_are(campaign: Gap) -> None:
    claim = campaign.claimed_floor
    assert claim is not None
    assert campaign.measured_s.known * 1e3 == pytest.approx(96.53, abs=0.01)
    assert claim.claimed_s * 1e3 == pytest.approx(3.236, abs=0.001)
    assert claim.share_of_measured == pytest.approx(0.0335, abs=0.0001)  # the campaign's 3.4 %
    assert campaign.measured_s.known / claim.claimed_s == pytest.approx(29.8, abs=0.1)  # and its 30x
    assert campaign.ratio == pytest.approx(96.53 / 6.643, rel=1e-3)
    assert campaign.unexplained_s * 1e3 == pytest.approx(96.53 - 6.64, abs=0.01)


def test_what_the_claimed_floor_leaves_out(campaign: Gap) -> None:
    claim = campaign.claimed_floor
    assert claim is not None
    assert claim.left_out == ("replication", "caches", "collectives")
    assert claim.room_s * 1e3 == pytest.approx(3.236 - 3.073, abs=0.002)
    assert claim.left_out_s == pytest.approx(campaign.floor_s - claim.naive_s)


def test_a_floor_with_room_leaves_nothing_out(floor: DecodeLimit) -> None:
    claim = compare(floor, given(0.02), "20ms", floor_claim="6.7ms").claimed_floor
    assert claim is not None and claim.left_out == ()
    below = compare(floor, given(0.02), "20ms", floor_claim="2ms").claimed_floor
    assert below is not None and below.room_s < 0


def test_a_subtraction_is_no_measurement_of_fp4_work(campaign: Gap) -> None:
    (part,) = campaign.claimed_parts
    assert part.claimed_s == pytest.approx(8.9e-3)
    assert "moe.experts" not in part.rows and "attn.o" in part.rows and "comm.mlp" in part.rows
    assert part.rest_s * 1e3 == pytest.approx(96.53 - 8.9, abs=0.01)
    # 75 x (71.3 + 25.0 + 5.6) us and 3 x 35.1 us, as measured elsewhere.
    assert part.rest_fp4_published_s is not None
    assert part.rest_fp4_published_s * 1e3 == pytest.approx((75 * (71.3 + 25.0 + 5.6) + 3 * 35.1) / 1e3, rel=1e-9)
    assert part.rest_fp4_floor_s * 1e3 == pytest.approx((1592.5 + 199.1 + 47.8) / 1792, rel=1e-3)
    assert part.published_s is not None
    # q_a, q_b, W_UK + W_UV, o_proj, indexer, router, lm_head, and 157 all-reduces.
    us = 78 * (25.2 + 6.9 + 8.7 + 16.9 + 6.7 + 5.7) + 75 * 8.9 + 169.9 + 157 * 26.9
    assert part.published_s * 1e6 == pytest.approx(us, rel=1e-9)


def test_published_kernels_are_those_of_this_very_shape(floor: DecodeLimit) -> None:
    assert {p.id for p in compare(floor, given(0.02), "20ms").published} >= {"moe.experts", "attn.o"}
    assert compare(limit(batch=2), given(0.02), "20ms").published == ()
    assert compare(limit("b200"), given(0.02), "20ms").published == ()


def test_next_steps_are_ranked_and_bounded(campaign: Gap) -> None:
    sizes = [s.explains_high_s for s in campaign.steps]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) == pytest.approx(campaign.unexplained_s)
    steps = {s.id: s for s in campaign.steps}
    assert next(iter(steps)) == "trace"
    assert set(steps) == {"trace", "p2p", "cuda-graph", "kernels", "all-reduce", "graph-gaps", "edition"}
    # The Server card reads the same bytes at 1597 GB/s.
    assert steps["edition"].explains_high_s * 1e3 == pytest.approx(5.19 * (1792 / 1597 - 1), rel=2e-3)
    assert steps["all-reduce"].explains_high_s * 1e3 == pytest.approx(9.44 - 6.64, abs=0.01)
    assert steps["cuda-graph"].explains_low_s == pytest.approx(campaign.limit.launches * 5e-6)


@pytest.mark.parametrize(
    ("seconds", "standing"),
    [(97e-3, "above"), (6.7e-3, "above"), (6.0e-3, "below the best collectives"), (5.0e-3, "below memory")],
)
def test_a_measurement_below_the_floor_is_an_error_to_explain(
    floor: DecodeLimit, seconds: float, standing: str
) -> None:
    gap = compare(floor, given(seconds), "x")
    assert gap.standing == standing
    if standing != "above":
        assert gap.steps == ()


def test_a_verified_step_is_held_against_its_own_width() -> None:
    wide = limit(speculation=Speculation(draft_length=3, verify_width=4, tokens_per_step=2.5))
    step, _ = measured_from_text("100 tok/s", wide)
    assert step.known == pytest.approx(2.5 / 100)
    unknown = limit(speculation=Speculation(draft_length=3, verify_width=4))
    with pytest.raises(UsageError, match="tokens a step are not known"):
        measured_from_text("100 tok/s", unknown)


def test_a_saved_gap_is_a_measurement_of_the_same_workload_only(campaign: Gap, tmp_path: Path) -> None:
    path = tmp_path / "gap.json"
    records.save(campaign, path)
    assert records.load(path, record_types()) == campaign
    step, text = measured_from_record(path, limit("b200"))
    assert step.known == campaign.measured_s.known
    assert (text, step.source) == ("10.36 tok/s", "gap.json: --measured")
    with pytest.raises(UsageError, match="batch 1, verify width 1"):
        measured_from_record(path, limit(batch=4))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("bf16", "no '='"),
        ("bf16=8.9", "no unit"),
        ("bf16=200ms", "longer than the whole step"),
        ("bf61=8.9ms", "no such name"),
    ],
)
def test_claims_that_cannot_be_read(floor: DecodeLimit, text: str, error: str) -> None:
    with pytest.raises((UsageError, UnknownNameError)) as raised:
        compare(floor, given(0.097), "97ms", part_claims=[text])
    assert error in raised.value.found


@pytest.mark.parametrize(
    "name", ["attention", "experts", "moe", "routed-experts", "lm-head", "dense-mlp", "attn.q_b", "nvfp4"]
)
def test_names_of_parts(floor: DecodeLimit, name: str) -> None:
    (part,) = compare(floor, given(0.097), "97ms", part_claims=[f"{name}=1ms"]).claimed_parts
    assert part.rows and part.floor_s > 0

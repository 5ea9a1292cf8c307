"""A measured step against its floor: claims, standing, and the next measurements."""

from pathlib import Path

import pytest

from sublight import records
from sublight.errors import UnknownNameError, UsageError
from sublight.facts.gpu import get_gpu
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import read_model
from sublight.facts.published import PublishedKernel, published_kernels
from sublight.facts.workload import Layout, Routing, Speculation, Workload
from sublight.gap.compare import Gap, compare, measured_from_record, measured_from_text
from sublight.gap.next_steps import next_steps
from sublight.gap.same import differences
from sublight.limits.decode import DecodeLimit, decode_limit
from sublight.records import Evidence, Figure
from sublight.report.views import record_types


def limit(gpu: str = "rtx-pro-6000-workstation", model: str = "glm-5-nvfp4", **work: object) -> DecodeLimit:
    card = get_gpu(gpu)
    workload = Workload(**{"layout": Layout(tp=8)} | work)  # type: ignore[arg-type]
    return decode_limit(read_model(model), card, workload, interconnect_for(card))


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
    assert set(steps) == {"trace", "p2p", "cuda-graph", "kernels", "ops", "all-reduce", "graph-gaps", "edition"}
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
    step, text = measured_from_record(path, limit())
    assert step.known == campaign.measured_s.known
    assert (text, step.source) == ("10.36 tok/s", "gap.json: --measured")


@pytest.mark.parametrize(
    ("gpu", "work", "differs"),
    [
        ("rtx-pro-6000-server", {}, ["card: rtx-pro-6000-workstation, asked is rtx-pro-6000-server"]),
        ("b200", {}, ["card: rtx-pro-6000-workstation, asked is b200", "link: pcie5-switch, asked is nvlink5"]),
        (None, {"batch": 4}, ["batch: 1, asked is 4"]),
        (None, {"context": 8192}, ["context: 1,024, asked is 8,192"]),
        (None, {"kv_dtype": "fp8"}, ["KV cache: bf16, asked is fp8"]),
        (None, {"layout": Layout(tp=8, ep=8)}, ["layout: TP8, asked is TP8 + EP8"]),
        (None, {"layout": Layout(tp=8, dp=8)}, ["layout: TP8, asked is TP8 + DP attention 8"]),
        (None, {"layout": Layout(tp=4, pp=2)}, ["layout: TP8, asked is TP4 + PP2"]),
        (None, {"layout": Layout(tp=4)}, ["cards: 8, asked is 4", "layout: TP8, asked is TP4"]),
        (
            None,
            {"speculation": Speculation(draft_length=1, verify_width=2, tokens_per_step=1.9)},
            ["speculation: none (verify width 1), asked is draft 1, verify width 2, 1.9 tokens a step"],
        ),
    ],
)
def test_what_defines_a_step_has_to_be_the_same(
    floor: DecodeLimit, gpu: str | None, work: dict[str, object], differs: list[str]
) -> None:
    assert differences(limit(gpu or "rtx-pro-6000-workstation", **work), floor) == differs


def test_counts_of_experts_are_a_closer_look_at_the_same_step(floor: DecodeLimit) -> None:
    seen = limit(routing=Routing((1.0,) * 256, "a.json"))
    other = limit(routing=Routing((2.0,) * 128 + (1.0,) * 128, "b.json"))
    assert differences(seen, floor) == differences(floor, seen) == differences(seen, seen) == []
    assert differences(seen, other) == ["expert counts: others than those asked for"]


def test_a_record_of_another_step_is_refused_with_the_list(campaign: Gap, tmp_path: Path) -> None:
    records.save(campaign, tmp_path / "gap.json")
    with pytest.raises(UsageError) as raised:
        measured_from_record(tmp_path / "gap.json", limit("rtx-pro-6000-server", batch=4))
    assert raised.value.found == (
        "it was measured in another step: card: rtx-pro-6000-workstation, asked is rtx-pro-6000-server; "
        "batch: 1, asked is 4"
    )


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


def test_published_kernels_are_of_plain_tensor_parallelism(floor: DecodeLimit) -> None:
    """Experts on other ranks, attention of other requests, or half the layers: other shapes, other messages."""
    for layout in (Layout(tp=8, ep=8), Layout(tp=8, dp=8), Layout(tp=8, pp=2)):
        assert compare(limit(layout=layout), given(0.02), "20ms").published == (), layout


def test_published_kernels_are_of_rows_stored_as_they_were_timed() -> None:
    """BF16 products say nothing of an FP8 checkpoint: only its router, its head and the messages are alike."""
    gap = compare(limit("rtx-pro-6000-server", model="glm-5-fp8"), given(0.03), "30ms")
    alike = {
        "moe.router": 75 * 8.9,
        "head": 169.9,
        "comm.embedding": 26.9,
        "comm.attention": 78 * 26.9,
        "comm.mlp": 78 * 26.9,
    }
    assert {p.id: pytest.approx(p.seconds * 1e6) for p in gap.published} == alike
    floors = {r.id: r.time_s for r in gap.limit.rows}
    ops = next(s for s in gap.steps if s.id == "ops")
    extra = (alike["moe.router"] + alike["head"]) * 1e-6 - floors["moe.router"] - floors["head"]
    assert ops.explains_high_s == pytest.approx(extra)


def test_one_time_for_two_rows_is_split_by_their_bytes(campaign: Gap) -> None:
    """W_UK has 1536 of the 3584 rows of the two halves that were timed together."""
    seconds = {p.id: p.seconds for p in campaign.published}
    assert seconds["attn.absorb_k"] * 1e6 == pytest.approx(78 * 8.7 * 1536 / 3584)
    assert seconds["attn.absorb_v"] * 1e6 == pytest.approx(78 * 8.7 * 2048 / 3584)


def test_every_published_kernel_of_weights_says_in_which_format() -> None:
    published = published_kernels(
        "rtx-pro-6000-server", 8, 1, model_type="glm_moe_dsa", hidden=6144, experts=256, expert_width=2048
    )
    assert published is not None
    formats = {row: kernel.formats for kernel in published.kernel for row in kernel.rows}
    assert formats["attn.qkv_a"] == formats["head"] == ("BF16",)
    assert formats["moe.experts"] == ("NVFP4",)
    assert formats["comm.mlp"] == ()
    with pytest.raises(ValueError, match="need the formats"):
        PublishedKernel(rows=("attn.o",), us=1.0, note="")


def test_faster_than_rows_one_by_one_is_not_yet_against_physics() -> None:
    """Where some rows wait for memory and some for arithmetic, perfect overlap of the two is the last bound."""
    many = limit(batch=512)
    strict, rows = many.totals.strict_s, many.totals.rows_s
    assert strict < 0.99 * rows
    between = compare(many, given((strict + rows) / 2), "x")
    assert between.standing == "below the best collectives"
    assert compare(many, given(strict * 0.999), "x").standing == "below memory"


def test_a_claimed_rate_counts_tokens_and_a_floor_steps() -> None:
    wide = limit(speculation=Speculation(draft_length=3, verify_width=4, tokens_per_step=2.5))
    claim = compare(wide, given(0.1), "100ms", floor_claim="100 tok/s").claimed_floor
    assert claim is not None and claim.claimed_s == pytest.approx(2.5 / 100)


def test_the_rest_of_a_claim_holds_only_what_it_does_not_name(floor: DecodeLimit) -> None:
    (part,) = compare(floor, given(0.097), "97ms", part_claims=["experts=5ms"]).claimed_parts
    assert part.rows == ("moe.experts", "moe.shared")
    assert part.rest_fp4_floor_s == pytest.approx(floor.row("mlp.dense").time_s)
    assert part.rest_fp4_published_s == pytest.approx(3 * 35.1e-6)


def test_sizes_of_the_next_steps(campaign: Gap) -> None:
    steps = {s.id: s for s in campaign.steps}
    totals = campaign.limit.totals
    # Staged through host memory a message takes 15 times as long: 14 times more.
    assert steps["p2p"].explains_high_s == pytest.approx(14 * (totals.best_s.known - totals.rows_s))
    assert steps["edition"].explains_high_s == pytest.approx(totals.memory_s * (1792 / 1597 - 1))
    b200 = compare(limit("b200"), given(0.05), "50ms")
    bandwidth = next(s for s in b200.steps if s.id == "bandwidth")
    assert bandwidth.explains_high_s == pytest.approx(b200.limit.totals.memory_s * (7700 / 6837 - 1))


def test_kernels_are_timed_by_the_benchmark_that_has_them(campaign: Gap) -> None:
    steps = {s.id: s for s in campaign.steps}
    assert steps["kernels"].command == "sublight bench kernels glm-5-nvfp4 --tp 8"
    assert steps["ops"].command == "sublight bench ops glm-5-nvfp4 --tp 8 --batch 1 --context 1024"
    assert steps["all-reduce"].command == "sublight bench comm glm-5-nvfp4 --tp 8 --batch 1"
    floors = {r.id: r.time_s for r in campaign.limit.rows if r.stage == "main"}
    above = {p.id: p.seconds - floors[p.id] for p in campaign.published if p.id in floors}
    assert steps["kernels"].explains_high_s == pytest.approx(above.pop("moe.experts"))
    assert steps["ops"].explains_high_s == pytest.approx(sum(above.values()))
    cut = limit("h200", layout=Layout(tp=8, ep=4, dp=2), batch=4)
    steps = {s.id: s for s in next_steps(cut, 1.0, {"moe.experts": 0.1, "head": 0.05, "comm.mlp": 0.2}, "test")}
    assert steps["kernels"].command == "sublight bench kernels glm-5-nvfp4 --tp 8 --ep 4 --tokens 4"
    assert steps["ops"].command == "sublight bench ops glm-5-nvfp4 --tp 8 --ep 4 --dp 2 --batch 4 --context 1024"
    assert (steps["kernels"].explains_high_s, steps["ops"].explains_high_s) == (0.1, 0.05)


def test_no_step_explains_more_than_the_gap_and_trifles_are_left_out(floor: DecodeLimit) -> None:
    small = compare(floor, given(7e-3), "7ms")
    assert max(s.explains_high_s for s in small.steps) == pytest.approx(7e-3 - small.floor_s)
    assert {s.id: s for s in small.steps}["kernels"].explains_low_s == pytest.approx(7e-3 - small.floor_s)
    # Of 3 s, what explains 6 ms or less is not worth a look.
    assert [s.id for s in compare(floor, given(3.0), "3s").steps] == ["trace", "p2p", "cuda-graph"]


@pytest.mark.parametrize("text", ["1ns", "0.9us", "3601s", "1e9s", "1e30s", "10000000 tok/s", "0.0001 tok/s"])
def test_times_that_no_step_takes(floor: DecodeLimit, text: str) -> None:
    for claim in (lambda: measured_from_text(text, floor), lambda: compare(floor, given(0.02), "", floor_claim=text)):
        with pytest.raises(UsageError) as raised:
            claim()
        assert "less than 1 us or more than 1 hour" in raised.value.found or "not a rate" in raised.value.found


def test_a_step_of_any_time_between_is_taken(floor: DecodeLimit) -> None:
    assert measured_from_text("1us", floor)[0].known == pytest.approx(1e-6)
    assert measured_from_text("3600s", floor)[0].known == 3600


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        (["int4=3ms"], "glm-5-nvfp4 is stored in BF16, NVFP4"),
        (["linear.state=3ms"], "no row of this step is 'linear.state'"),
        (["bf16=3ms", "bf16=3ms"], "it names the rows of 'bf16=3ms' again"),
        (["fp4=3ms", "nvfp4=4ms"], "it names the rows of 'fp4=3ms' again"),
    ],
)
def test_parts_that_name_nothing_or_the_same_again(floor: DecodeLimit, claims: list[str], found: str) -> None:
    with pytest.raises(UsageError) as raised:
        compare(floor, given(0.097), "97ms", part_claims=claims)
    assert found in raised.value.found


@pytest.mark.parametrize(
    "name", ["attention", "experts", "moe", "routed-experts", "lm-head", "dense-mlp", "attn.q_b", "nvfp4"]
)
def test_names_of_parts(floor: DecodeLimit, name: str) -> None:
    (part,) = compare(floor, given(0.097), "97ms", part_claims=[f"{name}=1ms"]).claimed_parts
    assert part.rows and part.floor_s > 0

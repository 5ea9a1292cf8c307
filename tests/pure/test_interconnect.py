"""Collective times: published figures typed in here, the arithmetic beyond them by hand, and what must never happen."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.errors import UnknownNameError, UsageError
from sublight.facts.catalogue.interconnects import Algorithm, Launch, Operation
from sublight.facts.gpu import get_gpu, gpu_names
from sublight.facts.interconnect import (
    OPERATIONS,
    Choice,
    Interconnect,
    Timing,
    collective_time,
    interconnect_for,
    interconnect_names,
    moved_bytes,
)
from sublight.records import Evidence, Figure

HIDDEN = 12288  # BF16 hidden state of 6,144: the all-reduce of GLM-5 at batch 1

LINKS_GBPS = {
    "infinity-fabric": 448,
    "none": None,
    "nvlink3": 300,
    "nvlink4": 450,
    "nvlink5": 900,
    "pcie4": 31.5,
    "pcie4-switch": 31.5,
    "pcie5": 63.0,
    "pcie5-switch": 63.0,
}


def us(card: str, gpus: int, payload: int, choice: Choice = "best", operation: str = "all-reduce") -> float:
    """Microseconds over the usual link of a card."""
    return collective_time(interconnect_for(get_gpu(card)), operation, choice, gpus, payload).seconds.known * 1e6


def link(
    *timings: tuple[str, str, int, int, float], rate: float = 1e9, holds_to: int = 0, launch: Launch = "graph"
) -> Interconnect:
    """A link of 1 GB/s, so that a byte takes a nanosecond, with (operation, algorithm, GPUs, bytes, us) published."""
    return Interconnect(
        name="test",
        title="test",
        note="",
        link_bytes_per_s=Figure(rate, Evidence.COMPUTED),
        timings=tuple(
            Timing(
                operation=operation,  # type: ignore[arg-type]
                algorithm=algorithm,  # type: ignore[arg-type]
                gpus=gpus,
                payload_bytes=payload,
                seconds=Figure(microseconds / 1e6, Evidence.PUBLISHED, "a page"),
                launch=launch,
                holds_to_bytes=max(payload, holds_to),
            )
            for operation, algorithm, gpus, payload, microseconds in timings
        ),
    )


# The catalogue


@pytest.mark.parametrize("name", LINKS_GBPS)
def test_the_rate_of_every_link(name: str) -> None:
    found = interconnect_for(get_gpu("h200"), name)
    rate = LINKS_GBPS[name]
    assert (found.name, found.link_bytes_per_s.value) == (name, None if rate is None else rate * 1e9)
    assert found.title
    assert found.link_bytes_per_s.note
    assert len(found.link_bytes_per_s.source) > 10


def test_the_catalogue_has_these_links_and_no_others() -> None:
    assert interconnect_names() == sorted(LINKS_GBPS)


@pytest.mark.parametrize("name", LINKS_GBPS)
def test_every_timing_has_evidence_and_a_source_and_is_possible(name: str) -> None:
    found = interconnect_for(get_gpu("h200"), name)
    for timing in found.timings:
        assert (timing.operation in get_args(Operation), timing.algorithm in get_args(Algorithm)) == (True, True)
        assert timing.gpus in (2, 4, 8)
        assert timing.seconds.evidence is Evidence.PUBLISHED
        assert any(origin in timing.seconds.source for origin in ("aiconfigurator", "rtx6kpro", "Sublight measurement"))
        moved = moved_bytes(timing.operation, timing.algorithm, timing.gpus, timing.payload_bytes)
        assert timing.seconds.known >= moved / found.link_bytes_per_s.known, f"{timing} beats the link"
        assert timing.holds_to_bytes >= timing.payload_bytes


@pytest.mark.parametrize("name", LINKS_GBPS)
def test_each_series_is_published_once_a_payload(name: str) -> None:
    timings = interconnect_for(get_gpu("h200"), name).timings
    keys = [(t.operation, t.algorithm, t.gpus, t.payload_bytes, t.launch == "eager") for t in timings]
    assert len(keys) == len(set(keys))


def test_each_card_has_a_link_and_takes_another_by_name() -> None:
    for name in gpu_names():
        card = get_gpu(name)
        assert interconnect_for(card).name == card.interconnect
    assert interconnect_for(get_gpu("rtx-pro-6000-server")).name == "pcie5-switch"
    assert interconnect_for(get_gpu("rtx-pro-6000-server"), " PCIe5 ").name == "pcie5"


@pytest.mark.parametrize(
    ("wrong", "near"), [("nvlink-4", "nvlink4"), ("pcie5switch", "pcie5-switch"), ("pcie", "pcie5")]
)
def test_an_unknown_link_is_answered_with_the_near_ones(wrong: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        interconnect_for(get_gpu("h200"), wrong)
    assert near in caught.value.near


# Published figures


@pytest.mark.parametrize(
    ("card", "gpus", "best_us", "nccl_us"),
    [
        ("rtx-pro-6000-workstation", 8, 9.2, 26.9),
        ("rtx-pro-6000-server", 8, 9.2, 26.9),
        ("rtx-pro-6000-server", 4, 7.05, 14.165),
        ("rtx-pro-6000-server", 2, 4.83, 7.07),
        ("b200", 8, 5.2, 26.3),
        ("h200", 8, 3.7, 17.5),
        ("h200", 2, 6.9, 10.9),
        ("a100-80gb-sxm", 8, 6.53, 22.0),
        ("l40s", 8, 37.1, 37.1),
        ("rtx-5090", 8, 10.45, 22.15),
    ],
)
def test_the_all_reduce_of_a_hidden_state_of_6144(card: str, gpus: int, best_us: float, nccl_us: float) -> None:
    assert us(card, gpus, HIDDEN) == pytest.approx(best_us, abs=0.05)
    assert us(card, gpus, HIDDEN, "nccl") == pytest.approx(nccl_us, abs=0.05)


def test_a_published_point_is_told_as_published() -> None:
    found = collective_time(interconnect_for(get_gpu("rtx-pro-6000-workstation")), "all-reduce", "best", 8, HIDDEN)
    assert (found.seconds.value, found.seconds.evidence) == (9.2e-6, Evidence.PUBLISHED)
    assert (found.algorithm, found.moved_bytes) == ("one-shot", 7 * HIDDEN)
    assert found.rule == "one-shot all-reduce on 8 GPUs: 9.20 us published for 8,192 B, kept up to 12,288 B"
    assert "voipmonitor/rtx6kpro @29f3863" in found.seconds.source


def test_between_published_points_the_time_is_computed_and_names_both() -> None:
    found = collective_time(interconnect_for(get_gpu("h200")), "all-reduce", "nccl", 8, HIDDEN)
    # Half way from 16.67 us at 8 KiB to 18.30 us at 16 KiB.
    assert found.seconds.known * 1e6 == pytest.approx(17.485)
    assert found.seconds.evidence is Evidence.COMPUTED
    assert "16.7 us published for 8,192 B and 18.3 us published for 16,384 B" in found.rule
    assert "aiconfigurator-core 0.12.0" in found.seconds.source


@pytest.mark.parametrize(
    ("payload", "nccl", "one_shot", "two_shot", "gather"),
    [
        (4096, 9.2, 6.6, 6.5, 9.0),
        (12288, 10.9, 6.9, 6.9, 9.2),
        (24576, 10.1, 6.8, 7.1, 9.2),
        (98304, 10.5, 7.6, 7.5, 9.6),
        (196608, 10.7, 8.2, 7.7, 10.4),
        (1048576, 17.4, 13.8, 10.6, 19.8),
        (8388608, 48.6, 53.3, 33.3, 56.7),
    ],
)
def test_the_whole_table_measured_on_two_h200(
    payload: int, nccl: float, one_shot: float, two_shot: float, gather: float
) -> None:
    timings = interconnect_for(get_gpu("h200")).timings
    found = {
        (t.operation, t.algorithm): round(t.seconds.known * 1e6, 9)
        for t in timings
        if (t.gpus, t.payload_bytes, t.launch) == (2, payload, "graph")
    }
    assert found == {
        ("all-reduce", "nccl"): nccl,
        ("all-reduce", "one-shot"): one_shot,
        ("all-reduce", "two-shot"): two_shot,
        ("all-gather", "nccl"): gather,
    }
    assert {t.seconds.source for t in timings if t.gpus == 2} == {
        "Sublight measurement, 2x H200, torch 2.11.0, NCCL 2.28.9, 2026-11-30"
    }


def test_eager_timings_are_kept_but_are_no_floor() -> None:
    timings = interconnect_for(get_gpu("b200")).timings
    eager = [round(t.seconds.known * 1e6, 2) for t in timings if t.launch == "eager" and t.gpus == 8]
    assert eager == [28.57, 28.84]
    assert us("b200", 8, 8192) == pytest.approx(5.05)
    only_eager = link(("all-reduce", "one-shot", 8, 8192, 30.0), launch="eager")
    found = collective_time(only_eager, "all-reduce", "best", 8, 8192)
    assert (found.seconds.value, found.algorithm) == (None, "")


# The arithmetic, on a link where one byte takes one nanosecond


def test_before_between_and_past_the_published_points() -> None:
    """8 GPUs, one-shot: 7 bytes reach a card for each byte of payload."""
    one = link(("all-reduce", "one-shot", 8, 1000, 10.0), ("all-reduce", "one-shot", 8, 2000, 20.0))

    def at(payload: int) -> float:
        return collective_time(one, "all-reduce", "best", 8, payload).seconds.known * 1e6

    assert at(0) == pytest.approx(10.0)
    assert at(999) == pytest.approx(10.0)
    assert at(1500) == pytest.approx(15.0)
    # 1000 bytes past the last point: 7000 bytes more, 7 us.
    assert at(3000) == pytest.approx(27.0)
    assert "plus 7.00 kB more at 1.000 GB/s (7.00 us)" in collective_time(one, "all-reduce", "best", 8, 3000).rule


@pytest.mark.parametrize(
    ("operation", "algorithm", "moved"),
    [
        ("all-reduce", "one-shot", 7000),
        ("all-reduce", "two-shot", 1750),
        ("all-reduce", "nccl", 1750),
        ("all-gather", "nccl", 7000),
        ("reduce-scatter", "one-shot", 7000),
        ("send", "nccl", 1000),
    ],
)
def test_bytes_that_reach_one_of_eight_cards(operation: str, algorithm: str, moved: float) -> None:
    assert moved_bytes(operation, algorithm, 8, 1000) == moved


def test_no_time_is_below_its_bytes_at_the_rate_of_the_link() -> None:
    impossible = link(("all-reduce", "one-shot", 8, 100_000, 1.0))
    found = collective_time(impossible, "all-reduce", "best", 8, 100_000)
    assert found.seconds.known * 1e6 == pytest.approx(700.0)
    assert "raised to what 700 kB take at 1.000 GB/s" in found.rule


def test_a_larger_payload_is_never_below_a_smaller_one() -> None:
    bumpy = link(*(("all-reduce", "nccl", 2, size, time) for size, time in ((10, 9.2), (20, 10.9), (40, 10.1))))
    found = collective_time(bumpy, "all-reduce", "nccl", 2, 40)
    assert found.seconds.known * 1e6 == pytest.approx(10.9)
    assert found.rule == "NCCL all-reduce on 2 GPUs: 10.9 us published for 20 B"


def test_best_is_the_fastest_of_all_at_that_payload() -> None:
    both = link(
        *(("all-reduce", "one-shot", 8, 1000, 5.0), ("all-reduce", "one-shot", 8, 9000, 90.0)),
        *(("all-reduce", "nccl", 8, 1000, 20.0), ("all-reduce", "nccl", 8, 9000, 30.0)),
    )
    assert collective_time(both, "all-reduce", "best", 8, 1000).algorithm == "one-shot"
    assert collective_time(both, "all-reduce", "best", 8, 9000).algorithm == "nccl"
    assert collective_time(both, "all-reduce", "best", 8, 9000).seconds.known == pytest.approx(30e-6)


def test_an_all_gather_takes_the_latency_of_the_all_reduce_and_says_so() -> None:
    """One-shot on 4 GPUs: 10 us hold 3 x 1000 B; a gather of 5000 B brings 15,000 B, so 12,000 B or 12 us more."""
    one = link(("all-reduce", "one-shot", 4, 1000, 10.0), ("all-reduce", "one-shot", 4, 5000, 99.0))
    for operation in ("all-gather", "reduce-scatter"):
        found = collective_time(one, operation, "best", 4, 5000)
        assert found.seconds.known * 1e6 == pytest.approx(22.0)
        assert found.rule.startswith(
            f"no one-shot {operation} on 4 GPUs is published; latency of its all-reduce: 10.0 us"
        )
        assert found.seconds.evidence is Evidence.COMPUTED


def test_an_all_gather_with_figures_of_its_own_uses_them() -> None:
    assert us("h200", 2, HIDDEN, "nccl", "all-gather") == pytest.approx(9.2)


def test_the_logits_of_glm_5_over_pcie() -> None:
    """77,440 B a rank: 9.2 us hold 7 x 12,288 B, the other 456,064 B take 7.24 us at 63 GB/s."""
    assert us("rtx-pro-6000-server", 8, 77440, "best", "all-gather") == pytest.approx(9.2 + 456_064 / 63e3)


def test_a_two_shot_all_reduce_lends_nothing_to_an_operation_of_one_phase() -> None:
    two = link(("all-reduce", "two-shot", 8, 1000, 5.0))
    assert collective_time(two, "all-gather", "best", 8, 1000).seconds.value is None


def test_a_send_is_timed_as_two_cards_that_exchange() -> None:
    two = link(("all-reduce", "nccl", 2, 1000, 5.0), ("all-reduce", "nccl", 4, 1000, 9.0))
    found = collective_time(two, "send", "nccl", 4, 3000)
    assert found.seconds.known * 1e6 == pytest.approx(7.0)
    assert (found.moved_bytes, found.seconds.evidence) == (3000, Evidence.COMPUTED)
    assert found.rule.startswith("no send is published, so two cards exchange; NCCL all-reduce on 2 GPUs")


def test_a_time_holds_as_far_as_the_file_says() -> None:
    held = link(("all-reduce", "one-shot", 8, 8192, 9.2), holds_to=12288)

    def at(payload: int) -> float:
        return collective_time(held, "all-reduce", "best", 8, payload).seconds.known * 1e6

    assert at(12288) == pytest.approx(86.016)  # 7 x 12,288 B at 1 GB/s: the link rules
    fast = link(("all-reduce", "one-shot", 8, 8192, 9.2), holds_to=12288, rate=63e9)
    assert collective_time(fast, "all-reduce", "best", 8, 12288).seconds.value == 9.2e-6
    # 1,000 B past it: 7,000 B more at 63 GB/s.
    more = collective_time(fast, "all-reduce", "best", 8, 13288).seconds.known
    assert more * 1e6 == pytest.approx(9.2 + 7 / 63)


def test_doubt_about_a_figure_stays_with_what_is_made_of_it() -> None:
    doubted = link(("all-reduce", "nccl", 2, 1000, 5.0))
    timing = doubted.timings[0]
    weak = Timing(
        operation=timing.operation,
        algorithm=timing.algorithm,
        gpus=2,
        payload_bytes=1000,
        seconds=Figure(5e-6, Evidence.UNCERTAIN, "a forum"),
        launch="graph",
        holds_to_bytes=1000,
    )
    other = Interconnect(name="x", title="x", note="", link_bytes_per_s=doubted.link_bytes_per_s, timings=(weak,))
    for operation, payload in (("all-reduce", 1000), ("all-reduce", 5000), ("all-gather", 5000), ("send", 1000)):
        assert collective_time(other, operation, "nccl", 2, payload).seconds.evidence is Evidence.UNCERTAIN


# What is not known


def test_one_gpu_sends_nothing() -> None:
    found = collective_time(interconnect_for(get_gpu("mi300x")), "all-reduce", "best", 1, HIDDEN)
    assert (found.seconds.value, found.seconds.evidence, found.moved_bytes) == (0.0, Evidence.COMPUTED, 0.0)


@pytest.mark.parametrize(
    ("card", "name", "gpus", "choice", "reason"),
    [
        ("b200", None, 3, "best", "no timing on 3 GPUs over nvlink5 is published, there are some on 2, 4, 8"),
        ("b200", None, 16, "nccl", "no NCCL timing on 16 GPUs over nvlink5 is published, there are some on 2, 4, 8"),
        ("rtx-5090", None, 4, "best", "no timing on 4 GPUs over pcie5 is published, there are some on 8"),
        ("mi355x", None, 8, "best", "over infinity-fabric is published, there is none on any number of them"),
        ("l40s", "pcie4-switch", 2, "best", "over pcie4-switch is published, there is none on any number of them"),
        ("gb10", None, 2, "best", "no link between cards: the card stands alone"),
    ],
)
def test_a_time_nobody_published_is_not_known(
    card: str, name: str | None, gpus: int, choice: Choice, reason: str
) -> None:
    found = collective_time(interconnect_for(get_gpu(card), name), "all-reduce", choice, gpus, HIDDEN)
    assert (found.seconds.value, found.seconds.evidence) == (None, Evidence.NOT_KNOWN)
    assert reason in found.seconds.note
    assert found.rule == found.seconds.note
    assert "--allreduce-us" in found.rule


def test_what_makes_no_sense_is_refused() -> None:
    over = interconnect_for(get_gpu("h200"))
    with pytest.raises(UnknownNameError) as caught:
        collective_time(over, "allreduce", "best", 8, HIDDEN)
    assert caught.value.near[0] == "all-reduce"
    with pytest.raises(UnknownNameError):
        collective_time(over, "all-reduce", "fastest", 8, HIDDEN)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="0 GPUs"):
        collective_time(over, "all-reduce", "best", 0, HIDDEN)
    with pytest.raises(UsageError, match="-1 B"):
        collective_time(over, "all-reduce", "best", 8, -1)


# For every payload

payloads = st.one_of(st.integers(0, 1 << 18), st.integers(0, 1 << 34))
operations = st.sampled_from(OPERATIONS)
choices: st.SearchStrategy[Choice] = st.sampled_from(("best", "nccl"))
known = st.sampled_from(
    [(name, gpus) for name in ("nvlink3", "nvlink4", "nvlink5", "pcie4", "pcie5-switch") for gpus in (2, 4, 8)]
    + [("pcie5", 8)]
)


@given(known, operations, choices, payloads, payloads)
def test_more_bytes_never_take_less_time(
    where: tuple[str, int], operation: str, choice: Choice, one: int, other: int
) -> None:
    name, gpus = where
    over = interconnect_for(get_gpu("h200"), name)
    small, large = (collective_time(over, operation, choice, gpus, p).seconds.value for p in sorted((one, other)))
    if small is None or large is None:
        assert (operation, name, small, large) == ("send", "pcie5", None, None)
    else:
        # A straight line is evaluated in floating point, so its end may differ from its point by the last bit.
        assert small <= large * (1 + 1e-12)


@given(known, operations, payloads)
def test_best_is_no_slower_than_nccl_and_none_beats_the_link(
    where: tuple[str, int], operation: str, payload: int
) -> None:
    name, gpus = where
    over = interconnect_for(get_gpu("h200"), name)
    best, nccl = (collective_time(over, operation, choice, gpus, payload) for choice in ("best", "nccl"))
    if best.seconds.value is None:
        return
    assert nccl.seconds.value is None or best.seconds.value <= nccl.seconds.value
    for found in (best, nccl):
        if found.seconds.value is not None:
            assert found.seconds.value >= found.moved_bytes / over.link_bytes_per_s.known * (1 - 1e-12)
            assert (found.rule != "", found.seconds.source != "") == (True, True)

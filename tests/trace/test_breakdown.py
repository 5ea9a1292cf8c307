"""Where the nanoseconds of a step go: small steps whose parts are added up by hand."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from sublight.trace.breakdown import Breakdown, Overlap, Spread, break_down, median_breakdown
from sublight.trace.idle import IdleKind
from sublight.trace.labels import label
from sublight.trace.phases import Phase
from sublight.trace.steps import Step, find_steps

from .small import TO_DEVICE, TO_HOST, Small


class Said(NamedTuple):
    kind: str
    category: str
    row: str = ""
    backend: str = ""


ROWS = {
    "gemm": Said("gemm", "compute", "attn.o", "cuBLAS"),
    "gemm2": Said("gemm", "compute", "attn.o", "Marlin"),
    "experts": Said("moe-gemm", "compute", "moe.experts", "Marlin"),
    "shared": Said("gemm", "compute", "moe.shared", "Marlin"),
    "reduce": Said("all-reduce", "communication", "comm.mlp", "NCCL"),
    "add": Said("elementwise", "compute", "", "PyTorch"),
    TO_DEVICE: Said("copy", "memory", "", "CUDA driver"),
    TO_HOST: Said("copy", "memory", "", "CUDA driver"),
}


def classify(name: str) -> Said:
    return ROWS.get(name, Said("unknown", "unknown"))


def taken(small: Small, start: int, end: int, *, device: int = 0) -> Breakdown:
    trace = small.trace()
    step = Step(0, start, end, 0, len(trace.gpu), 0, Phase.DECODE, replayed=False, device=device)
    return break_down(trace, step, label(trace, classify))


def exposed(found: Breakdown) -> dict[str, int]:
    return {row.name: row.exposed_ns for row in found.rows}


def test_two_rows_one_after_the_other() -> None:
    small = Small()
    small.run(0, 100, "gemm")
    small.run(100, 60, "experts")
    found = taken(small, 0, 200)
    assert exposed(found) == {"attn.o": 100, "moe.experts": 60}
    assert (found.overlaps, found.busy_ns, found.idle_ns) == ((), 160, 40)
    assert found.wall_ns == 200


def test_two_streams_that_overlap() -> None:
    """experts 0..100, shared 60..180: 60 alone, 40 both, 80 alone."""
    small = Small()
    small.run(0, 100, "experts")
    small.run(60, 120, "shared", stream=9)
    found = taken(small, 0, 200)
    assert exposed(found) == {"moe.shared": 80, "moe.experts": 60}
    assert found.overlaps == (Overlap(("moe.experts", "moe.shared"), ("compute", "compute"), 40),)
    assert found.overlaps[0].name == "moe.experts + moe.shared"
    assert [(row.name, row.overlapped_ns, row.summed_ns) for row in found.rows] == [
        ("moe.shared", 40, 120),
        ("moe.experts", 40, 100),
    ]


def test_three_at_once_are_an_overlap_of_three() -> None:
    small = Small()
    small.run(0, 100, "experts")
    small.run(20, 60, "shared", stream=9)
    small.run(40, 20, "reduce", stream=11)
    found = taken(small, 0, 100)
    assert exposed(found)["moe.experts"] == 40
    assert [(overlap.name, overlap.ns) for overlap in found.overlaps] == [
        ("moe.experts + moe.shared", 40),
        ("moe.experts + moe.shared + comm.mlp", 20),
    ]
    assert found.overlaps[1].categories == ("compute", "compute", "communication")
    assert {row.name: row.overlapped_ns for row in found.rows} == {
        "moe.experts": 60,
        "moe.shared": 60,
        "comm.mlp": 20,
    }


def test_a_dependent_launch_that_starts_early_counts_once() -> None:
    """Both kernels are of one row: 0..100 and 90..150 are 150 exposed, though the durations sum to 160."""
    small = Small()
    small.run(0, 100, "gemm")
    small.run(90, 60, "gemm2")
    found = taken(small, 0, 150)
    assert exposed(found) == {"attn.o": 150}
    assert (found.overlaps, found.rows[0].summed_ns, found.rows[0].calls) == ((), 160, 2)
    assert [(one.backend, one.summed_ns, one.calls) for one in found.rows[0].backends] == [
        ("cuBLAS", 100, 1),
        ("Marlin", 60, 1),
    ]


def test_a_dependent_launch_of_another_row_is_an_overlap() -> None:
    small = Small()
    small.run(0, 100, "gemm")
    small.run(90, 60, "experts")
    found = taken(small, 0, 150)
    assert exposed(found) == {"attn.o": 90, "moe.experts": 50}
    assert [(overlap.name, overlap.ns) for overlap in found.overlaps] == [("attn.o + moe.experts", 10)]


def test_a_kernel_within_another_of_its_row_adds_nothing() -> None:
    small = Small()
    small.run(0, 100, "gemm")
    small.run(20, 10, "gemm", stream=9)
    assert exposed(taken(small, 0, 100)) == {"attn.o": 100}


def test_events_across_the_boundary_count_with_the_part_inside() -> None:
    """A copy of the step before ends at 30; a kernel of this step runs 40 into the next."""
    small = Small()
    small.run(0, 30, TO_HOST, stream=9)
    small.run(20, 50, "gemm")
    small.run(100, 60, "experts")
    found = taken(small, 20, 120)
    assert exposed(found) == {"attn.o": 40, "moe.experts": 20, "copy": 0}
    assert [(overlap.name, overlap.ns) for overlap in found.overlaps] == [("attn.o + copy", 10)]
    assert {row.name: (row.summed_ns, row.calls) for row in found.rows} == {
        "attn.o": (50, 1),
        "moe.experts": (20, 1),
        "copy": (10, 0),
    }
    assert found.idle_ns == 30


def test_what_belongs_to_no_row_is_shown_by_its_kind_and_what_nobody_knows_as_unknown() -> None:
    small = Small()
    small.run(0, 10, "add")
    small.run(10, 20, TO_DEVICE)
    small.run(30, 40, "kernel of tomorrow")
    found = taken(small, 0, 70)
    assert [(row.name, row.category, row.exposed_ns) for row in found.rows] == [
        ("unknown", "unknown", 40),
        ("copy", "memory", 20),
        ("elementwise", "compute", 10),
    ]


def test_totals_by_category_sum_to_the_wall_time() -> None:
    small = Small()
    small.run(0, 100, "gemm")
    small.run(80, 50, "reduce", stream=9)
    small.run(150, 10, TO_HOST)
    small.run(200, 1, "gemm")
    found = taken(small, 0, 200)
    assert found.totals == {
        "compute": 80,
        "communication": 30,
        "memory": 10,
        "overlap": 20,
        "between steps": 40,
        "unknown idle": 20,
    }
    assert sum(found.totals.values()) == found.wall_ns


def test_only_the_device_of_the_step_counts() -> None:
    small = Small()
    small.run(0, 100, "gemm")
    small.run(10, 100, "reduce", device=1)
    assert exposed(taken(small, 0, 120)) == {"attn.o": 100}
    assert exposed(taken(small, 0, 120, device=1)) == {"comm.mlp": 100}


def test_kernels_without_duration_are_called_and_take_nothing() -> None:
    small = Small()
    small.run(0, 10, "gemm")
    small.run(5, 0, "experts")
    found = taken(small, 0, 10)
    assert {row.name: (row.exposed_ns, row.summed_ns, row.calls) for row in found.rows} == {
        "attn.o": (10, 10, 1),
        "moe.experts": (0, 0, 1),
    }
    assert found.overlaps == ()


def test_more_rows_than_bits() -> None:
    """130 rows, each alone for 10 and beside the next for 10."""
    small = Small()
    for number in range(130):
        small.run(20 * number, 30, f"row {number}", stream=number % 2)
    trace = small.trace()
    step = Step(0, 0, 2620, 0, 130, 130, Phase.DECODE, replayed=False)
    found = break_down(trace, step, label(trace, lambda name: Said("gemm", "compute", name)))
    times = exposed(found)
    assert (times["row 0"], times["row 1"], times["row 128"], times["row 129"]) == (20, 10, 10, 20)
    assert len(found.overlaps) == 129
    assert {overlap.ns for overlap in found.overlaps} == {10}
    assert Overlap(("row 62", "row 63"), ("compute", "compute"), 10) in found.overlaps
    assert Overlap(("row 125", "row 126"), ("compute", "compute"), 10) in found.overlaps


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: {"end_ns": found.end_ns + 1}, "rows, overlaps and idle sum to 200 ns, the step takes 201"),
        (lambda found: {"overlaps": ()}, "rows, overlaps and idle sum to 160 ns, the step takes 200"),
        (
            lambda found: {"overlaps": (msgspec.structs.replace(found.overlaps[0], rows=("attn.o", "moe.shared")),)},
            "moe.experts: 40 ns beside others, the overlaps hold 0",
        ),
    ],
)
def test_a_breakdown_that_does_not_close_can_not_be_made(
    change: Callable[[Breakdown], dict[str, object]], said: str
) -> None:
    small = Small()
    small.run(0, 100, "experts")
    small.run(60, 120, "shared", stream=9)
    found = taken(small, 0, 200)
    with pytest.raises(ValueError, match=said):
        msgspec.structs.replace(found, **change(found))


def engine(*works: int) -> Small:
    """Steps of 1000: experts for as long as given in a graph, a copy out."""
    small = Small()
    for number, took in enumerate(works):
        start = 1000 + 1000 * number
        small.graph(start, [(0, 100, "gemm"), (110, took, "experts"), (120 + took, 30, "gemm2")])
        small.launched(start + 800, 50, TO_HOST, stream=9)
    return small


def test_the_median_step_sums_exactly_and_the_spread_is_of_each_part() -> None:
    trace = engine(300, 310, 320, 330, 340, 350).trace()
    steps = find_steps(trace)
    labels = label(trace, classify)
    found = median_breakdown(trace, steps, labels)
    assert found is not None
    assert found.steps == 5
    assert steps.median == 2
    assert found.step == break_down(trace, steps.steps[2], labels)
    assert sum(found.step.totals.values()) == 1000
    assert found.rows == (
        Spread("moe.experts", 320, 300, 340),
        Spread("attn.o", 130, 130, 130),
        Spread("copy", 50, 50, 50),
    )
    assert found.overlap == Spread("overlap", 0, 0, 0)
    # 10 before and 10 behind the experts; the copy waits 800 - 150 - the experts.
    assert {one.name: one.median_ns for one in found.idle} == {
        "launch gap": 20,
        "CPU-bound idle": 330,
        "between steps": 150,
        "unknown idle": 0,
    }


def test_all_steps_at_once_give_what_each_gives_alone() -> None:
    trace = engine(300, 310, 320, 330, 340, 350).trace()
    steps, labels = find_steps(trace), label(trace, classify)
    alone = [break_down(trace, step, labels) for step in steps.alike()]
    found = median_breakdown(trace, steps, labels)
    assert found is not None
    for part in found.rows:
        times = sorted(next(row.exposed_ns for row in one.rows if row.name == part.name) for one in alone)
        assert (part.p10_ns, part.median_ns, part.p90_ns) == (times[0], times[2], times[-1])


def test_no_steps_no_breakdown() -> None:
    trace = Small().trace()
    assert median_breakdown(trace, find_steps(trace), label(trace, classify)) is None


def test_a_breakdown_goes_through_json_and_back() -> None:
    trace = engine(300, 310, 320).trace()
    found = median_breakdown(trace, find_steps(trace), label(trace, classify))
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
    assert found is not None
    assert found.step.idle[0].kind is IdleKind.HOST

"""Two traces row by row, on steps whose parts are added up by hand."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sublight.errors import UsageError
from sublight.records import load, save
from sublight.trace.compare import TraceComparison, compare
from sublight.trace.difference import Amount, Part, Verdict
from sublight.trace.labels import label
from sublight.trace.phases import Phase
from sublight.trace.replaced import BackendUse, KernelUse, Replacement
from sublight.trace.sample import Sample, sample
from sublight.trace.steps import Step, find_steps

from .small import Small
from .test_breakdown import Said

SAYS = {
    "gemm": Said("gemm", "compute", "attn.o", "cuBLAS"),
    "nvjet": Said("gemm", "compute", "attn.o", "cuBLAS nvjet"),
    "attention": Said("attention", "compute", "attn.core", "FlashAttention 3"),
    "marlin": Said("moe-gemm", "compute", "moe.experts", "Marlin"),
    "triton": Said("moe-gemm", "compute", "moe.experts", "Triton"),
    "quant": Said("quantise", "compute", "moe.experts", "Triton"),
    "dense": Said("gemm", "compute", "mlp.dense", "cuBLAS"),
    "head": Said("gemm", "compute", "head", "cuBLAS"),
    "reduce": Said("all-reduce", "communication", "comm.mlp", "NCCL"),
}


def says(name: str) -> Said:
    return SAYS.get(name, Said("unknown", "unknown"))


def side(*steps: list[tuple[str, int]], title: str = "", every: int = 1000, beside: bool = False) -> Sample:
    """Steps of kernels one after the other, with 10 ns between them; or each beside the one before, half of it."""
    small, cuts = Small(), []
    for number, kernels in enumerate(steps):
        at = number * every
        cuts.append(at)
        for place, (name, took) in enumerate(kernels):
            end = small.run(at, took, name, stream=7 + (place if beside else 0))
            at = end - took // 2 if beside else end + 10
    small.run(len(steps) * every, 1, "gemm")
    trace = small.trace()
    begins = [*cuts, len(steps) * every]
    rows = np.searchsorted(trace.gpu.start, begins)
    found = [
        Step(n, begins[n], begins[n + 1], int(rows[n]), int(rows[n + 1]), 0, Phase.DECODE, replayed=False)
        for n in range(len(steps))
    ]
    return sample(trace, found, label(trace, says), title)


def parts(found: TraceComparison) -> dict[str, Part]:
    return {part.name: part for part in found.parts}


A = side(*([("gemm", 100 + n), ("marlin", 200 + n)] for n in range(4)), title="before")
B = side(*([("gemm", 100 + n), ("triton", 150 + n), ("quant", 20)] for n in range(4)), title="after")


def test_a_row_that_became_shorter() -> None:
    """Experts: 200..203 in A; 150..153 and 20 in B: medians 201.5, rounded to even 202, and 171.5, 172."""
    found = compare(A, B)
    part = parts(found)["moe.experts"]
    assert part.a == Amount(median_ns=202, low_ns=200, high_ns=203, mean_ns=201.5, summed_ns=202, calls=1)
    assert part.b == Amount(median_ns=172, low_ns=170, high_ns=173, mean_ns=171.5, summed_ns=172, calls=2)
    assert (part.difference_ns, part.mean_difference_ns) == (-30, -30)
    # Four against four: of seventy ways, this one and its mirror.
    assert (part.p, part.p_joint, found.smallest_p, found.ways, found.exact) == (2 / 70, 2 / 70, 2 / 70, 70, True)
    assert (part.verdict, part.category) == (Verdict.BEYOND, "compute")


def test_a_row_that_did_not_change() -> None:
    part = parts(compare(A, B))["attn.o"]
    assert (part.difference_ns, part.p, part.verdict) == (0, 1, Verdict.WITHIN)


def test_what_is_missing_on_one_side() -> None:
    added = compare(A, side(*([("gemm", 100 + n), ("marlin", 200 + n), ("reduce", 30)] for n in range(4))))
    part = parts(added)["comm.mlp"]
    assert part.a == Amount(median_ns=0, low_ns=0, high_ns=0, mean_ns=0, summed_ns=0, calls=0)
    assert (part.b.median_ns, part.category, part.verdict) == (30, "communication", Verdict.BEYOND)


def test_differences_of_the_parts_add_up_to_that_of_the_step() -> None:
    """The step stays at 1000 ns: what the experts lose, the gaps win. One gap more is 10 ns of launch gaps."""
    found = compare(A, B)
    assert found.step.mean_difference_ns == 0
    assert found.step.verdict is Verdict.WITHIN
    assert sum(part.mean_difference_ns for part in found.parts) == 0
    assert {name: part.mean_difference_ns for name, part in parts(found).items()} == {
        "moe.experts": -30, "between steps": 20, "unknown idle": 10, "attn.o": 0,
    }  # fmt: skip
    assert found.parts[0].name == "moe.experts"
    with pytest.raises(ValueError, match=r"miss the step's by 30.0 ns"):
        msgspec.structs.replace(found, parts=found.parts[1:])


def test_a_shorter_step() -> None:
    found = compare(A, side(*([("gemm", 100 + n), ("marlin", 200 + n)] for n in range(4)), every=900))
    assert (found.step.difference_ns, found.step.verdict, found.step.sort) == (-100, Verdict.BEYOND, "step")
    assert parts(found)["between steps"].difference_ns == -100


def test_overlap_is_a_part() -> None:
    """In A rows follow each other; in B the experts begin when half of the GEMM has run."""
    one = side(*([("gemm", 100), ("marlin", 200 + n)] for n in range(4)))
    other = side(*([("gemm", 100), ("marlin", 200 + n)] for n in range(4)), beside=True)
    found = parts(compare(one, other))
    assert (found["overlap"].difference_ns, found["overlap"].sort) == (50, "overlap")
    assert found["attn.o"].difference_ns == found["moe.experts"].difference_ns == -50
    # What a row takes is the same, however much of it lies beside another.
    assert found["attn.o"].a.summed_ns == found["attn.o"].b.summed_ns == 100


def test_three_against_three_are_too_few() -> None:
    """Two of twenty ways: no difference can have a smaller chance than one in ten."""
    found = compare(side(*[[("gemm", 100)]] * 3), side(*[[("gemm", 500)]] * 3))
    assert found.smallest_p == 0.1
    assert {part.verdict for part in (*found.parts, found.step)} == {Verdict.TOO_FEW}
    assert "with 3 steps against 3 no p-value can be below 0.1" in found.notes[1]
    assert (
        compare(side(*[[("gemm", 100)]] * 3), side(*[[("gemm", 500)]] * 3), level=0.1).parts[0].verdict
        is Verdict.BEYOND
    )


def test_what_replaced_what() -> None:
    found = compare(A, B)
    assert found.replaced == (
        Replacement(
            "moe.experts",
            (BackendUse("Marlin", (KernelUse("marlin", "moe.experts", "Marlin", 1, 201.5),)),),
            (
                BackendUse(
                    "Triton",
                    (
                        KernelUse("triton", "moe.experts", "Triton", 1, 151.5),
                        KernelUse("quant", "moe.experts", "Triton", 1, 20),
                    ),
                ),
            ),
        ),
    )
    one = found.replaced[0]
    assert (one.summed_ns, one.b[0].summed_ns, one.b[0].calls) == (201.5, 171.5, 2)
    assert compare(A, A).replaced == ()


def test_more_layers_are_compared_per_layer() -> None:
    """Six layers, two of them dense, against three, one of them dense: a layer takes the same, the head is one."""

    def model(layers: int, dense: int, more: int = 0) -> list[tuple[str, int]]:
        halves = [[("dense", 70)]] * dense + [[("marlin", 90 + more)]] * (layers - dense)
        return [*(kernel for half in halves for kernel in (("gemm", 30), ("attention", 40), *half)), ("head", 80)]

    deep = side(*([*model(6, 2)[:-1], ("head", 80 + n)] for n in range(4)), every=5000)
    flat = side(*([*model(3, 1, more=9)[:-1], ("head", 80 + n)] for n in range(4)), every=5000)
    found = compare(deep, flat)
    assert (found.unit, found.a.layers, found.b.layers) == ("layer", 6, 3)
    times = {name: (part.a.median_ns, part.b.median_ns) for name, part in parts(found).items()}
    assert times["attn.core"] == (40, 40)
    assert times["attn.o"] == (30, 30)
    assert times["mlp.dense"] == (70, 70)
    assert times["moe.experts"] == (90, 99)
    assert times["head"] == (82, 82)
    assert (parts(found)["moe.experts"].a.calls, parts(found)["moe.experts"].verdict) == (4, Verdict.BEYOND)
    assert "6 layers against 3" in found.notes[1]
    assert compare(deep, deep).unit == "step"


def test_the_whole_step_is_per_step_always() -> None:
    deep = side(*[[("gemm", 30), ("attention", 40)] * 6] * 4, every=5000)
    flat = side(*[[("gemm", 30), ("attention", 40)] * 3] * 4, every=3000)
    found = compare(deep, flat)
    assert (found.unit, found.step.a.median_ns, found.step.b.median_ns) == ("layer", 5000, 3000)


def test_steps_that_differ_from_the_others_are_left_out() -> None:
    """Eight replays, of which one has a kernel more: `find_steps` flags it, and the last has no end."""
    small = Small()
    for number in range(8):
        at = number * 10_000
        more = [(4000, 9, "quant")] if number == 3 else []
        small.graph(at, [(0, 1000, "gemm"), (1000, 2000, "marlin"), *more, (9000, 5, "head")])
    trace = small.trace()
    steps = find_steps(trace)
    assert [step.index for step in steps.steps if step.flags] == [3]
    taken = sample(trace, steps, label(trace, says)).breakdowns
    assert [step.step for step in taken] == [0, 1, 2, 4, 5, 6]


def test_of_many_steps_some_are_taken_evenly() -> None:
    many = side(*([("gemm", 100 + n)] for n in range(200)), title="long")
    assert (len(many.breakdowns), many.every) == (64, 200)
    taken = [step.step for step in many.breakdowns]
    assert (taken[0], taken[-1], set(np.diff(taken).tolist())) == (0, 199, {3, 4})
    found = compare(many, many)
    assert (found.a.steps, found.exact, found.parts[0].verdict) == (64, False, Verdict.WITHIN)
    assert found.notes[1:] == ("64 of the 200 steps of long were taken, evenly",) * 2


def test_phases_that_differ_are_said() -> None:
    prefill = replace(A, breakdowns=tuple(msgspec.structs.replace(one, phase=Phase.PREFILL) for one in A.breakdowns))
    assert "A is prefill, B is decode" in compare(prefill, B).notes


def test_no_steps() -> None:
    trace = Small().trace()
    with pytest.raises(UsageError, match="nothing ran on the GPU"):
        sample(trace, find_steps(trace), label(trace, says))
    with pytest.raises(UsageError, match="none was given"):
        sample(trace, [], label(trace, says))


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    found = compare(A, B)
    save(found, tmp_path / "a.json")
    assert load(tmp_path / "a.json", {"trace-comparison": TraceComparison}) == found
    assert '"sublight/trace-comparison"' in (tmp_path / "a.json").read_text()
    assert (found.a.title, found.b.title, found.a.steps, found.a.phase) == ("before", "after", 4, "decode")

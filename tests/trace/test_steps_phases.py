"""Prefill and decode, told by the kernels; and what annotations say of both."""

from dataclasses import replace

import pytest

from sublight.trace.events import Launch
from sublight.trace.phases import Phase
from sublight.trace.steps import find_steps

from .small import TO_DEVICE, TO_HOST, Grid, Small


def eager(
    *passes: str,
    grid: Grid | None = (4, 1, 1),
    prompt: Grid | None = (1024, 1, 1),
    names: tuple[str, ...] = ("gemm", "attention"),
) -> Small:
    """Passes of ten kernels 50 ns apart: "d" decodes, "p" takes a prompt, "t" is tiny."""
    small, start = Small(), 1000
    for what in passes:
        count = {"t": 1}.get(what, 10)
        small.launched(start, 10, TO_DEVICE)
        for number in range(count):
            small.launched(
                start + 50 * (number + 1), 30, names[number % len(names)], grid=prompt if what == "p" else grid
            )
        start += 50 * (count + 1)
        small.launched(start, 10, TO_HOST)
        start += 300
    return small


def phases(small: Small) -> str:
    return "".join(
        {Phase.DECODE: "d", Phase.PREFILL: "p", Phase.OTHER: "o"}[one.phase] for one in find_steps(small.trace()).steps
    )


def test_narrow_grids_decode() -> None:
    assert phases(eager(*"dddddd")) == "ddddd"


def test_a_trace_of_prompts_says_prefill() -> None:
    found = find_steps(eager(*"pppp").trace())
    assert [one.phase for one in found.steps] == [Phase.PREFILL] * 3
    assert found.phase is Phase.PREFILL
    assert found.wall_ns is not None
    assert found.wall_ns.count == 3


def test_decode_steps_make_the_median_however_few_they_are() -> None:
    found = find_steps(eager(*"ppppddpp").trace())
    assert "".join(one.phase.value[0] for one in found.steps) == "ppppddp"
    assert found.phase is Phase.DECODE
    assert [one.index for one in found.alike()] == [4, 5]


def test_one_wide_kernel_does_not_make_a_prompt() -> None:
    small = eager(*"dddd", names=("gemm",) * 9 + ("vocabulary",))
    wide = Launch(grid=(1187, 1, 1))
    small.gpu = [(*row[:5], wide if row[2] == "vocabulary" else row[5]) for row in small.gpu]  # one of ten kernels
    assert phases(small) == "ddd"


def test_a_short_prompt_among_decode_steps() -> None:
    """100 blocks are not wide, but 25 times as many as decode has."""
    assert phases(eager(*"ddddpddd", prompt=(100, 1, 1))) == "ddddpdd"


def test_a_larger_batch_is_no_prompt() -> None:
    small = eager(*"ddddpddd", prompt=(16, 1, 1))
    found = find_steps(small.trace())
    assert phases(small) == "ddddddd"
    assert [one.flags for one in found.steps if one.flags] == [
        ("other grids for 100% of the kernels: another batch size",)
    ]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("fmha_context_attention", "p"),
        ("BatchPrefillWithPagedKVCache", "p"),
        ("extend_attention_fwd", "p"),
        ("BatchDecodeWithPagedKVCache", "d"),
        ("attention", "o"),
    ],
)
def test_names_are_hints_where_grids_are_not_known(name: str, phase: str) -> None:
    assert phases(eager(*"dddd", grid=None, names=("gemm", name))) == phase * 3


def replays(*blocks: int) -> str:
    small = Small()
    for number, count in enumerate(blocks):
        start = 1000 + 500 * number
        small.graph(start, [(30 * place, 20, "gemm") for place in range(6)], grid=(count, 1, 1))
        small.launched(start + 300, 10, TO_HOST)
    return phases(small)


def test_wide_replays_are_large_batches_unless_others_are_narrow() -> None:
    assert replays(600, 600, 600, 600) == "ddd"
    assert replays(16, 16, 600, 16, 16) == "ddpd"


def test_names_do_not_count_where_grids_are_known() -> None:
    assert phases(eager(*"dddd", names=("gemm", "sparse_prefill_fwd_kernel"))) == "ddd"


def test_a_pass_of_next_to_nothing_is_neither() -> None:
    assert phases(eager(*"ddddtddd")) == "ddddodd"


def test_the_same_kernels_launched_one_by_one_are_a_decode_step_and_flagged() -> None:
    small, start = Small(), 1000
    nodes = [(30 * place, 20, name) for place, name in enumerate(("norm", "gemm", "attention", "gemm", "act", "head"))]
    for number in range(8):
        if number == 4:
            for at, took, name in nodes:
                small.launched(start + at, took, name)
        else:
            small.graph(start, nodes)
        small.launched(start + 200, 10, "sample")
        small.launched(start + 230, 10, TO_HOST)
        start += 500
    found = find_steps(small.trace())
    assert [(one.phase, one.replayed) for one in found.steps] == [(Phase.DECODE, number != 4) for number in range(7)]
    assert [one.flags for one in found.steps if one.flags] == [("kernels launched one by one",)]


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("step[DECODE bs=16]", "annotations name the same phase for 5 of 5 steps"),
        ("step[EXTEND bs=1 toks=1024]", "annotations name the same phase for 0 of 5 steps"),
        ("execute_context_0(0)_generation_16(16)", "annotations name the same phase for 5 of 5 steps"),
        ("execute_context_2(900)_generation_3(3)", "annotations name the same phase for 0 of 5 steps"),
        ("[Executor] _forward_step 7: 0 ctx reqs, 4 gen reqs", "annotations name the same phase for 5 of 5 steps"),
        ("[Executor] _forward_step 7: 1 ctx reqs, 4 gen reqs", "annotations name the same phase for 0 of 5 steps"),
        ("engine_step", "6 engine_step annotations agree"),
    ],
)
def test_annotations_confirm_a_phase_and_never_decide_it(name: str, evidence: str) -> None:
    small = eager(*"dddddd")
    for number in range(6):
        small.mark(880 + 850 * number, 700, name)
    found = find_steps(small.trace())
    assert [one.phase for one in found.steps] == [Phase.DECODE] * 5
    assert found.evidence[-1] == evidence


def test_an_annotation_that_has_ended_says_nothing_of_the_next_step() -> None:
    """Each step is named a little after it begins; just before, one of a prompt has ended that ran no kernels."""
    small = eager(*"dddddd")
    for number in range(6):
        small.mark(880 + 850 * number - 60, 70, "step[EXTEND bs=1]")
        small.mark(880 + 850 * number + 40, 700, "step[DECODE bs=1]")
    assert find_steps(small.trace()).evidence[-1] == "annotations name the same phase for 5 of 5 steps"


def test_marks_of_the_gpu_are_compared_with_the_starts() -> None:
    small = eager(*"dddddd")
    small.calls.clear()
    for number in range(6):
        for stream in (7, 9):  # once on each stream, as profilers write them
            small.gpu_mark(999 + 850 * number, 600, f"ProfilerStep#{number}", stream)
    found = find_steps(small.trace())
    assert found.evidence[-1] == "6 ProfilerStep#N annotations agree"


def test_annotations_without_gpu_events_are_said() -> None:
    """The first kernels of a profile may be missing."""
    small = eager(*"dddddd")
    small.marks = [(10 * number, 5, "ProfilerStep#0") for number in range(4)]
    small.marks += [(880 + 850 * number, 700, f"ProfilerStep#{number}") for number in range(6)]
    said = find_steps(small.trace()).evidence[-1]
    assert said == "10 ProfilerStep#N annotations agree; 4 more of them without GPU events here"


def test_annotations_in_half_of_the_steps_do_not_agree() -> None:
    small = eager(*"dddddd")
    for number in (0, 3):
        small.mark(880 + 850 * number, 2500, "iteration")
    said = find_steps(small.trace()).evidence[-1]
    assert said == "2 iteration annotations do not agree: 3.0 of the steps found to each"


def test_annotations_of_something_else_are_not_mentioned() -> None:
    small = eager(*"dddddd")
    for number in range(60):
        small.mark(900 + 80 * number, 50, "nccl:all_reduce")
    assert find_steps(small.trace()).evidence[-1] == "no annotations to compare with"


def test_without_calls_the_same_steps_are_found() -> None:
    trace = eager(*"dddd").trace()
    assert find_steps(replace(trace, calls=Small().trace().calls)).steps == find_steps(trace).steps

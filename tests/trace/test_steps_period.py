"""Steps of engines that launch kernel by kernel: what repeats, and what of it is a layer, a step, or a request."""

import pytest

from sublight.trace.phases import Phase
from sublight.trace.steps import find_steps

from .small import TO_DEVICE, TO_HOST, Small, stripped

LAYER = ("norm", "qkv", "attention", "out", "router", "experts")


def forward(small: Small, start: int, layers: int = 8, *, sync: bool = False, more: str = "", grid: int = 4) -> int:
    """One pass: a copy in, an embedding, layers of six kernels, head, sampling, a copy out. 50 ns a unit, 20 idle."""
    names = [TO_DEVICE, "embed"]
    for _ in range(layers):
        names += [*LAYER, *((TO_HOST,) if sync else ())]
    names += ["head", *((more,) if more else ()), "sample", TO_HOST]
    for name in names:
        small.launched(start, 30, name, grid=(grid, 1, 1))
        start += 50
    return start


def walls(small: Small) -> list[int]:
    return [one.wall_ns for one in find_steps(small.trace()).steps]


def test_the_steps_are_found_not_the_layers() -> None:
    """53 events a step: a whole number of steps in the trace, so the first event begins the first step."""
    small, start = Small(), 0
    for _ in range(5):
        start = forward(small, start) + 200
    found = find_steps(small.trace())
    assert (found.how, found.evidence[:2]) == (
        "repeating kernels",
        ("53 GPU events repeat 5 times", "no CUDA graph replay"),
    )
    assert [(one.start_ns, one.wall_ns) for one in found.steps] == [(n * 2850, 2850) for n in range(4)]
    assert all(not one.replayed and one.kernels == 51 and not one.flags for one in found.steps)


def test_a_trace_that_begins_and_ends_within_steps() -> None:
    small, start = Small(), 0
    for _ in range(5):
        start = forward(small, start) + 200
    del small.gpu[-20:], small.gpu[:30]
    found = find_steps(small.trace())
    assert [(one.start_ns, one.wall_ns) for one in found.steps] == [(n * 2850, 2850) for n in range(1, 4)]
    assert [(one.first, one.last) for one in found.dropped] == [(0, 23), (182, 215)]


def test_a_first_step_that_lacks_some_of_its_events_is_no_whole_one() -> None:
    """53 events a step, 49 before the first boundary: what begins like a step is a part of one."""
    small, start = Small(), 0
    for _ in range(5):
        start = forward(small, start) + 200
    del small.gpu[20:24]
    found = find_steps(small.trace())
    assert [(one.start_ns, one.wall_ns) for one in found.steps] == [(n * 2850, 2850) for n in range(1, 4)]
    assert found.dropped[0].why == "49 GPU events before the first whole step"


def test_without_calls_the_idle_time_of_the_device_tells_where_a_step_begins() -> None:
    small, start = Small(), 0
    for _ in range(5):
        start = forward(small, start) + 200
    small.calls.clear()
    assert walls(small) == [2850] * 4


def test_two_prompts_are_two_steps_of_which_one_is_whole() -> None:
    small, start = Small(), 0
    for _ in range(2):
        start = forward(small, start, grid=1024) + 300
    found = find_steps(small.trace())
    assert [(one.start_ns, one.end_ns, one.phase) for one in found.steps] == [(0, 2950, Phase.PREFILL)]


def test_one_prompt_is_one_pass_and_no_sequence_of_layers() -> None:
    small = Small()
    forward(small, 0, layers=40, grid=1024)
    found = find_steps(small.trace())
    assert found.how == "one pass"
    assert found.evidence[0] == "one pass only, inside which 6 GPU events repeat 40 times"
    assert [(one.start_ns, one.end_ns, one.phase, one.kernels) for one in found.steps] == [
        (0, 245 * 50 - 20, Phase.PREFILL, 243)
    ]
    assert found.dropped == ()


def test_a_kernel_more_is_flagged_and_does_not_hide_the_steps() -> None:
    small, start = Small(), 0
    for number in range(7):
        start = forward(small, start, more="penalty" if number == 2 else "") + 200
    found = find_steps(small.trace())
    assert [one.wall_ns for one in found.steps] == [2850, 2850, 2900, 2850, 2850, 2850]
    assert [one.flags for one in found.steps] == [
        (),
        (),
        ("1 kernel more than the others (52 instead of 51)",),
        (),
        (),
        (),
    ]
    assert found.wall_ns is not None
    assert (found.wall_ns.count, found.wall_ns.p90) == (5, 2850)


def test_other_kernels_in_equal_number_are_flagged() -> None:
    small, start = Small(), 0
    for number in range(6):
        kernels = ("a", "b", "c", "d") if number == 3 else LAYER[:4]
        for name in (TO_DEVICE, *kernels, TO_HOST):
            small.launched(start, 30, name)
            start += 50
        start += 200
    assert [one.flags for one in find_steps(small.trace()).steps] == [(), (), (), ("100% other kernels",), ()]


def test_prompts_among_steps_are_told_by_their_grids() -> None:
    small, start = Small(), 0
    for number in range(8):
        start = forward(small, start, grid=600 if number in (0, 4) else 4) + 200
    found = find_steps(small.trace())
    assert [one.phase for one in found.steps] == [
        Phase.PREFILL if number in (0, 4) else Phase.DECODE for number in range(7)
    ]
    assert found.phase is Phase.DECODE
    assert len(found.alike()) == 5


def test_layers_that_copy_to_the_host_are_no_steps() -> None:
    """An engine that asks the GPU for something in each layer: the last layer with the head differs from the others."""
    small, start = Small(), 0
    for _ in range(6):
        start = forward(small, start, layers=9, sync=True) + 200
    assert walls(small) == [68 * 50 + 200] * 5


def test_prompts_at_equal_distances_do_not_make_one_step_of_a_request() -> None:
    small, start = Small(), 0
    for number in range(24):
        prompt = number % 6 == 0
        start = forward(small, start, layers=3, grid=600 if prompt else 4, more="index" if prompt else "") + 200
    assert walls(small) == [1400 if number % 6 == 0 else 1350 for number in range(23)]


def test_without_copies_the_longest_repetition_is_the_step() -> None:
    small, start = Small(), 0
    for _ in range(6):
        for name in (*LAYER * 5, "head", "sample"):
            small.launched(start, 30, name)
            start += 50
        start += 100
    assert walls(small) == [1700] * 5


def test_if_only_layers_repeat_the_pauses_of_the_host_tell_the_steps() -> None:
    small, start = Small(), 0
    for _ in range(6):
        for _ in range(7):
            for name in LAYER:
                small.launched(start, 30, name)
                start += 50
        start += 150
    found = find_steps(small.trace())
    assert found.how == "repeating kernels and the host's pauses"
    assert found.evidence[0] == "6 GPU events repeat 42 times, in 6 groups between pauses"
    assert [(one.start_ns, one.wall_ns, one.kernels) for one in found.steps] == [(n * 2250, 2250, 42) for n in range(5)]


def test_if_layers_are_all_that_can_be_told_each_is_a_period_and_annotations_do_not_agree() -> None:
    small, start = Small(), 0
    for number in range(6):
        small.mark(start - 105, 7 * 300, f"decode_step {number}")
        for name in LAYER * 7:
            small.launched(start, 30, name)
            start += 50
    found = find_steps(small.trace())
    assert [one.wall_ns for one in found.steps] == [300] * 41
    assert found.evidence[2] == "6 decode_step N annotations do not agree: 7.0 of the steps found to each"
    assert find_steps(stripped(small.trace())).steps == found.steps


@pytest.mark.parametrize("late", [0, 1])
def test_several_streams_that_run_into_each_other(late: int) -> None:
    """The shared expert on a second stream starts now before, now after the routed one."""
    small, start = Small(), 0
    for number in range(6):
        small.launched(start, 10, TO_DEVICE)
        for layer in range(6):
            begin = start + 50 + 100 * layer
            for place, name in enumerate(LAYER):
                small.launched(begin + 15 * place, 10, name)
            small.launched(begin + 65 + 20 * ((number * layer + late) % 3), 12, "shared", stream=9)
        small.launched(start + 700, 20, "sample")
        small.launched(start + 730, 10, TO_HOST)
        start += 1000
    found = find_steps(small.trace())
    assert [one.wall_ns for one in found.steps] == [1000] * 5
    assert all(one.kernels == 43 and not one.flags for one in found.steps)


def test_a_straggler_kernel_changes_the_time_and_nothing_else() -> None:
    small, start = Small(), 0
    for number in range(8):
        before = len(small.gpu)
        start = forward(small, start) + 200
        if number == 3:
            begin, _, *rest = small.gpu[before + 25]
            small.gpu[before + 25] = (begin, 5000, *rest)  # runs far into the next step
    found = find_steps(small.trace())
    assert [one.wall_ns for one in found.steps] == [2850] * 7

"""Steps of engines that replay CUDA graphs: one begins where its graph does, whatever else is in the trace."""

from dataclasses import replace

import pytest

from sublight.trace.events import Lane
from sublight.trace.phases import Phase
from sublight.trace.steps import Dropped, devices, find_steps

from .small import TO_DEVICE, TO_HOST, Small, stripped

NODES = [(0, 40, "norm"), (50, 100, "gemm"), (150, 100, "gemm"), (250, 50, "act")]


def step(small: Small, start: int, nodes: list[tuple[int, int, str]] = NODES, **on: object) -> int:
    """One step of 400 ns and a pause of 100: a graph of 300, sampling, a copy to the host, one back."""
    end = small.graph(start, nodes, **on)
    small.launched(end + 10, 20, "sample")
    small.launched(end + 40, 10, TO_HOST, stream=9)
    small.launched(end + 60, 10, TO_DEVICE)
    return start + 500


def steps_of(count: int, **on: object) -> Small:
    small = Small()
    small.launched(0, 10, TO_DEVICE)
    start = 100
    for _ in range(count):
        start = step(small, start, **on)
    return small


def test_a_step_runs_from_the_first_node_of_a_graph_to_that_of_the_next() -> None:
    found = find_steps(steps_of(4).trace())
    assert found.how == "CUDA graph replays"
    assert found.evidence[0] == "4 graph replays of 4 events"
    assert [(one.start_ns, one.end_ns) for one in found.steps] == [(100, 600), (600, 1100), (1100, 1600)]
    assert [(one.first, one.last) for one in found.steps] == [(1, 8), (8, 15), (15, 22)]
    assert [one.kernels for one in found.steps] == [5, 5, 5]
    assert all(one.replayed and one.phase is Phase.DECODE and not one.flags for one in found.steps)


def test_what_is_no_whole_step_is_dropped_and_said() -> None:
    assert find_steps(steps_of(4).trace()).dropped == (
        Dropped(0, 1, "1 GPU event before the first whole step"),
        Dropped(22, 29, "the last 7 GPU events: no next step begins afterwards"),
    )


def test_the_median_is_a_real_step() -> None:
    small = Small()
    for start in (0, 500, 1003, 1504, 2006, 2507):  # steps of 500, 503, 501, 502, 501
        step(small, start)
    found = find_steps(small.trace())
    assert found.median == 4  # 500, 501, 501, 502, 503: of two equal ones the later stands in the middle
    assert found.wall_ns is not None
    assert (found.wall_ns.count, found.wall_ns.median, found.wall_ns.p10, found.wall_ns.p90) == (5, 501, 500, 503)
    assert found.wall_ns.spread == pytest.approx(3 / 501)


def test_graphs_are_known_by_their_shared_correlation_where_no_call_is_recorded() -> None:
    found = find_steps(steps_of(4, call=False).trace())
    assert found.how == "CUDA graph replays"
    assert [one.start_ns for one in found.steps] == [100, 600, 1100]


def test_graphs_recorded_as_single_rows() -> None:
    small = Small()
    for start in (0, 500, 1000, 1500):
        small.launched(start, 300, "CUDA graph 4", grid=None)
        small.launched(start + 310, 20, "sample")
        small.launched(start + 340, 10, TO_HOST)
    found = find_steps(small.trace())
    assert (found.how, found.evidence[0]) == ("whole CUDA graphs", "4 graph replays")
    assert [one.wall_ns for one in found.steps] == [500, 500, 500]
    assert all(one.replayed and one.phase is Phase.DECODE and one.kernels == 2 for one in found.steps)


def test_a_draft_model_replayed_three_times_makes_no_steps_of_its_own() -> None:
    small = Small()
    for start in range(0, 4000, 1000):
        small.graph(start, [(at, 9, "verify") for at in range(0, 400, 10)])
        for draft in (500, 600, 700):
            small.graph(start + draft, [(0, 20, "draft"), (30, 20, "draft head")])
        small.launched(start + 800, 10, TO_HOST)
    found = find_steps(small.trace())
    assert [one.start_ns for one in found.steps] == [0, 1000, 2000]
    assert [one.kernels for one in found.steps] == [46, 46, 46]


def test_drafts_recorded_as_single_rows_make_no_steps_either() -> None:
    small = Small()
    for start in range(0, 4000, 1000):
        small.launched(start, 400, "CUDA graph 1", grid=None)
        for draft in (500, 600, 700):
            small.launched(start + draft, 40, "CUDA graph 2", grid=None)
        small.launched(start + 800, 10, TO_HOST)
    assert [one.start_ns for one in find_steps(small.trace()).steps] == [0, 1000, 2000]


def test_pieces_of_a_step_in_graphs_of_their_own_are_no_steps() -> None:
    """A graph per piece and attention between them: the copies tell that a step has six replays."""
    small = Small()
    for start in range(0, 5000, 1000):
        small.launched(start, 10, TO_DEVICE)
        for piece in range(6):
            small.graph(start + 50 + 100 * piece, [(0, 20, "norm"), (20, 30, "gemm"), (50, 20, "rope")])
            small.launched(start + 125 + 100 * piece, 20, "attention")
        small.launched(start + 700, 20, "sample")
        small.launched(start + 730, 10, TO_HOST)
    found = find_steps(small.trace())
    assert found.how == "repeating kernels"
    assert [one.wall_ns for one in found.steps] == [1000] * 4
    assert all(one.kernels == 25 for one in found.steps)


def test_work_of_the_next_step_on_another_stream_does_not_move_the_boundary() -> None:
    small = Small()
    start = 0
    for number in range(6):
        small.launched(start + 40 * number, 10, "prepare", stream=9)  # somewhere during the graph, never at one place
        start = step(small, start)
    found = find_steps(small.trace())
    assert [one.start_ns for one in found.steps] == [0, 500, 1000, 1500, 2000]
    assert all(one.kernels == 6 and not one.flags for one in found.steps)


def test_a_prompt_between_replays_is_a_step_of_its_own() -> None:
    small = Small()
    start = step(small, step(small, step(small, 0)))
    begin = start
    small.launched(start, 10, TO_DEVICE)
    for layer in range(12):
        small.launched(start + 20 + layer * 40, 30, "gemm", grid=(2048, 1, 1))
    small.launched(start + 510, 20, "sample", grid=(1024, 1, 1))
    small.launched(start + 540, 10, TO_HOST, stream=9)
    small.launched(start + 560, 10, TO_DEVICE)
    start = step(small, start + 700)
    step(small, step(small, start))
    found = find_steps(small.trace())
    assert found.evidence[0] == "6 graph replays of 4 events, and 1 pass without a graph"
    assert [one.phase for one in found.steps] == [Phase.DECODE] * 3 + [Phase.PREFILL] + [Phase.DECODE] * 2
    prompt = found.steps[3]
    assert (prompt.start_ns, prompt.end_ns, prompt.replayed) == (begin, begin + 700, False)
    assert found.steps[found.median or 0].phase is Phase.DECODE


def served(
    order: str, pauses: list[int], *, prepared: tuple[str, ...] = (TO_DEVICE, "Memset"), nodes: int = 4
) -> Small:
    """Each step copies in and clears, 100 ns after the last; then a graph (g) or its kernels (e), sampling, a copy out.

    Args:
        order: of the steps.
        pauses: of the host before the kernels that it launches one by one.
        prepared: what comes before these; before a replay it is a copy and a memset.
        nodes: of the graph.
    """
    small, now = Small(), 1000
    for sort in order:
        for name in (TO_DEVICE, "Memset") if sort == "g" else prepared:
            now = small.launched(now, 10, name) + 10
        if sort == "g":
            now = small.graph(now, [(20 * at, 20, f"kernel {at}") for at in range(nodes)])
        else:
            for at, pause in enumerate(pauses):
                now = small.launched(now + pause, 20, f"kernel {at}")
        now = small.launched(small.launched(now + 10, 20, "sample") + 10, 10, TO_HOST) + 100
    return small


@pytest.mark.parametrize("longest", range(6))
def test_a_pass_begins_after_the_preparations_that_a_replay_has(longest: int) -> None:
    """Wherever in it the host pauses longest; and the one at the end of the trace ends the step before."""
    pauses = [70 if at == longest else 60 for at in range(8)]
    found = find_steps(served("ggegge", pauses, nodes=8).trace())
    assert found.evidence[0] == "4 graph replays of 8 events, and 2 passes without a graph"
    assert [one.replayed for one in found.steps] == [True, True, False, True, True]
    assert {one.kernels for one in found.steps} == {9}
    assert [one.last - one.first for one in found.steps] == [12] * 5
    # Begun at 1040: 160 of graph, 50 of sampling and copying out, 100 of pause, 40 of preparations.
    starts = [1040, 1390, 1740 + 60 + 10 * (longest == 0)]
    assert [one.start_ns for one in found.steps[:3]] == starts


def test_a_pass_with_other_preparations_begins_after_the_longest_pause_near_them() -> None:
    """Not after the long one in its middle, which is far behind where preparations end."""
    pauses = [50, 5, 5, 5, 5, 5, 5, 5, 900, 5, 5, 5]
    found = find_steps(served("gggegg", pauses, prepared=("Memset", TO_DEVICE, "mask"), nodes=12).trace())
    assert [one.kernels for one in found.steps] == [13, 13, 14, 13, 13]
    assert [one.replayed for one in found.steps] == [True, True, True, False, True]


def test_a_short_pass_among_long_graphs_is_a_step() -> None:
    """Ten kernels beside graphs of sixty: no pass by its length, but it has the copies of one."""
    found = find_steps(served("gggegge", [5] * 10, nodes=60).trace())
    assert [one.kernels for one in found.steps] == [61, 61, 61, 11, 61, 61]


def test_of_an_even_number_of_steps_the_shorter_middle_one_is_the_median() -> None:
    small = Small()
    for start in (0, 500, 1003, 1504, 2006):  # steps of 500, 503, 501, 502
        step(small, start)
    found = find_steps(small.trace())
    assert found.wall_ns is not None
    assert (found.median, found.wall_ns.count, found.wall_ns.median) == (2, 4, 501)


def test_another_graph_is_flagged_and_left_out_of_the_median() -> None:
    small = Small()
    start = 0
    for number in range(7):
        start = step(small, start, [*NODES, (310, 60, "more")] if number in (2, 3) else NODES)
    found = find_steps(small.trace())
    assert [one.flags for one in found.steps] == [
        ("another CUDA graph: 5 events instead of 4",) if number in (2, 3) else () for number in range(6)
    ]
    assert found.wall_ns is not None
    assert found.wall_ns.count == 4
    assert found.median in (0, 1, 4, 5)


def test_another_batch_size_in_a_graph_of_as_many_nodes_is_flagged() -> None:
    small = Small()
    start = 0
    for number in range(7):
        start = step(small, start, grid=(32, 1, 1) if number == 4 else (4, 1, 1))
    flagged = [one for one in find_steps(small.trace()).steps if one.flags]
    assert [one.index for one in flagged] == [4]
    assert flagged[0].flags == ("other grids for 80% of the kernels: another batch size",)  # 4 of 5 kernels


def test_a_graph_recorded_during_a_step_is_flagged() -> None:
    small = steps_of(5)
    small.call(1150, 30, "cudaStreamBeginCapture")
    flags = [one.flags for one in find_steps(small.trace()).steps]
    assert flags == [(), (), ("the engine recorded a CUDA graph meanwhile",), ()]


def test_a_step_that_takes_much_longer_is_flagged() -> None:
    small = Small()
    start = 0
    for number in range(9):
        start = step(small, start) + (200 if number == 3 else 0)
    found = find_steps(small.trace())
    assert [one.index for one in found.steps if one.flags] == [3]
    assert found.steps[3].wall_ns == 700
    # The median is 500, and a deviation counts for at least 1 % of it: 200 are 40 of 5.
    assert found.steps[3].flags[0].endswith("ms longer than the median of such steps (40 robust deviations)")


def test_each_device_has_its_own_steps() -> None:
    small = Small()
    for start in range(0, 3000, 500):
        step(small, start)
    for start in range(250, 2500, 1000):
        small.graph(start, NODES, device=1)
        small.launched(start + 400, 10, TO_HOST, device=1)
    trace = small.trace()
    assert devices(trace) == ((0, ""), (1, ""))
    first, second = find_steps(trace, 0), find_steps(trace, 1)
    assert [one.wall_ns for one in first.steps] == [500] * 5
    assert [one.wall_ns for one in second.steps] == [1000, 1000]
    assert {one.device for one in second.steps} == {1}
    assert [one.kernels for one in second.steps] == [4, 4]
    assert find_steps(trace) == first


def test_processes_that_call_their_devices_by_one_number() -> None:
    small = Small()
    for start in range(0, 3000, 500):
        small.graph(start, NODES, process="41")
    for start in range(0, 2400, 800):
        small.graph(start, NODES, process="42")
    trace = small.trace()
    assert devices(trace) == ((0, "41"), (0, "42"))
    assert [one.wall_ns for one in find_steps(trace, 0).steps] == [500] * 5
    found = find_steps(trace, 0, "42")
    assert [(one.wall_ns, one.kernels, one.process) for one in found.steps] == [(800, 4, "42")] * 2
    assert found.evidence[-1] == "2 devices or processes in the trace; this is device 0"


def test_annotations_of_another_device_are_not_compared_with() -> None:
    small = Small()
    for start in range(0, 3000, 500):
        small.graph(start, NODES, call=False)
        small.graph(start, NODES, call=False, device=1)
        small.gpu_mark(start, 400, "ProfilerStep#1", device=1)
    trace = small.trace()
    assert find_steps(trace, 1).evidence[1] == "6 ProfilerStep#N annotations agree"
    assert find_steps(trace, 0).evidence[1] == "no annotations to compare with"


def test_a_lane_on_which_nothing_ran_is_no_device() -> None:
    trace = steps_of(3).trace()
    lanes = (*trace.gpu.lanes, Lane(3, 7))
    trace = replace(trace, gpu=replace(trace.gpu, lanes=lanes))
    assert devices(trace) == ((0, ""),)


def test_a_device_that_is_not_there() -> None:
    found = find_steps(steps_of(3).trace(), 5)
    assert (found.steps, found.median, found.wall_ns) == ((), None, None)
    assert found.evidence == ("no steps: nothing ran on device 5; devices in the trace: 0",)


def test_an_empty_trace() -> None:
    found = find_steps(Small().trace())
    assert (found.how, found.evidence) == ("none", ("no steps: nothing ran on the GPU; devices in the trace: none",))


def test_nothing_repeats() -> None:
    small = Small()
    for number in range(30):
        small.launched(number * 50, 40, f"kernel_{number}")
    found = find_steps(small.trace())
    assert (found.steps, found.evidence) == ((), ("no steps: nothing repeats in 30 GPU events",))


def test_one_replay_is_one_step() -> None:
    small = Small()
    small.launched(0, 10, TO_DEVICE)
    small.graph(100, [(at, 9, f"node_{at}") for at in range(0, 100, 10)])
    small.launched(300, 20, TO_HOST)
    found = find_steps(small.trace())
    assert (found.how, found.median) == ("one pass", 0)
    assert [(one.start_ns, one.end_ns, one.replayed) for one in found.steps] == [(0, 320, True)]


def test_annotations_are_not_needed() -> None:
    small = steps_of(6)
    for number in range(6):
        small.mark(number * 500 - 20, 480, f"ProfilerStep#{number}")
    trace = small.trace()
    with_marks, without = find_steps(trace), find_steps(stripped(trace))
    assert with_marks.steps == without.steps
    assert (with_marks.median, with_marks.wall_ns, with_marks.how) == (without.median, without.wall_ns, without.how)
    assert with_marks.evidence[1] == "6 ProfilerStep#N annotations agree"
    assert without.evidence[1] == "no annotations to compare with"

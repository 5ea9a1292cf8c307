"""What the GPU waited for in each gap."""

import pytest

from sublight.trace.breakdown import Breakdown, break_down
from sublight.trace.idle import Idle, IdleKind
from sublight.trace.labels import label
from sublight.trace.phases import Phase
from sublight.trace.steps import Step

from .small import Small
from .test_breakdown import classify


def taken(small: Small, start: int, end: int) -> Breakdown:
    trace = small.trace()
    step = Step(0, start, end, 0, len(trace.gpu), 0, Phase.DECODE, replayed=False)
    return break_down(trace, step, label(trace, classify))


def between(call_start: int, call_takes: int) -> tuple[Idle, ...]:
    """A kernel until 1100, one from 1150 whose call is as given: the gap of 50."""
    small = Small()
    small.launched(1000, 100, "gemm")
    small.call(call_start, call_takes, "cudaLaunchKernel", 77)
    small.run(1150, 50, "gemm", correlation=77)
    return taken(small, 1000, 1200).idle


def test_a_kernel_that_was_enqueued_leaves_a_launch_gap() -> None:
    assert between(900, 20) == (Idle(IdleKind.LAUNCH, 50, 1, 0),)


def test_a_call_that_returns_as_the_kernel_before_ends_was_in_time() -> None:
    assert between(1090, 10) == (Idle(IdleKind.LAUNCH, 50, 1, 0),)


def test_a_call_that_begins_later_leaves_the_gpu_waiting_for_the_cpu() -> None:
    """It returned at 1145, so 45 of the 50 went by before."""
    assert between(1130, 15) == (Idle(IdleKind.HOST, 50, 1, 45),)


def test_a_call_in_progress_is_waited_for() -> None:
    """Begun long before the gap; the graph could not start before it was through."""
    assert between(1020, 110) == (Idle(IdleKind.HOST, 50, 1, 30),)


def test_a_call_that_returns_after_its_kernel_began_is_waited_for_no_longer_than_that() -> None:
    assert between(1130, 300) == (Idle(IdleKind.HOST, 50, 1, 50),)


def test_without_a_call_nothing_is_claimed() -> None:
    small = Small()
    small.run(1000, 100, "gemm")
    small.run(1150, 50, "gemm")
    assert taken(small, 1000, 1200).idle == (Idle(IdleKind.UNKNOWN, 50, 1, 0),)


def test_nodes_of_one_replay() -> None:
    """Two gaps of 20 and 40 within the replay, although the call took longer than the first node."""
    small = Small()
    small.graph(1000, [(0, 100, "gemm"), (120, 80, "experts"), (240, 10, "gemm")], ahead=10, takes=500)
    assert taken(small, 1000, 1250).idle == (Idle(IdleKind.LAUNCH, 60, 2, 0),)


@pytest.mark.parametrize("call", [True, False])
def test_nodes_of_one_replay_need_no_call(call: bool) -> None:
    small = Small()
    small.graph(1000, [(0, 100, "gemm"), (120, 80, "experts")], call=call)
    assert taken(small, 1000, 1200).idle == (Idle(IdleKind.LAUNCH, 20, 1, 0),)


def test_a_graph_that_is_still_being_launched() -> None:
    """The replay before ends at 1100; the call of the next runs from 1050 to 1390, its first node from 1400."""
    small = Small()
    small.graph(1000, [(0, 40, "gemm"), (50, 50, "gemm")])
    small.graph(1400, [(0, 40, "gemm"), (50, 50, "gemm")], ahead=350, takes=340)
    assert taken(small, 1000, 1500).idle == (Idle(IdleKind.HOST, 300, 1, 290), Idle(IdleKind.LAUNCH, 20, 2, 0))


def test_what_lies_before_the_next_step_is_between_steps_whatever_it_waits_for() -> None:
    small = Small()
    small.launched(1000, 100, "gemm")
    small.launched(1300, 100, "gemm", ahead=40, takes=30)
    assert taken(small, 1000, 1300).idle == (Idle(IdleKind.STEP, 200, 1, 190),)


def test_a_gap_ends_with_the_last_event_on_any_stream() -> None:
    """A long kernel on another stream covers the gap of the first; the next waits for nothing but its launch."""
    small = Small()
    small.launched(1000, 50, "gemm")
    small.launched(1010, 190, "shared", stream=9)
    small.launched(1100, 20, "gemm")
    small.launched(1230, 70, "gemm", ahead=200)
    found = taken(small, 1000, 1300)
    assert found.idle == (Idle(IdleKind.LAUNCH, 30, 1, 0),)


def test_each_kind_once() -> None:
    """Gaps of 10 (enqueued), 20 (CPU), 30 (no call), 40 (before the next step)."""
    small = Small()
    small.launched(1000, 100, "gemm")
    small.launched(1110, 90, "gemm", ahead=100)
    small.launched(1220, 80, "gemm", ahead=15, takes=10)
    small.run(1330, 30, "gemm")
    small.launched(1400, 50, "gemm", ahead=300)
    found = taken(small, 1000, 1400)
    assert {one.kind.value: (one.ns, one.gaps, one.host_ns) for one in found.idle} == {
        "launch gap": (10, 1, 0),
        "CPU-bound idle": (20, 1, 15),
        "unknown idle": (30, 1, 0),
        "between steps": (40, 1, 0),
    }
    assert found.idle_ns == 100

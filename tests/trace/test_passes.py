"""Steps that fell out of the graph, where the graph holds all of a step and nothing marks the others."""

import pytest

from sublight.trace.phases import Phase
from sublight.trace.steps import Steps, find_steps

from .small import Small

LAYER = ("norm", "qkv", "attention", "mlp")
KERNELS = LAYER * 10


def decode(order: str, tail: int = 0, *, extra: int = 0) -> Steps:
    """Steps in a graph (g), launched one by one (e), or one by one with other kernels (x, and y but for the first).

    There are no copies. Without a tail nothing stands between two steps, not even a pause.
    """
    small, now = Small(), 1000
    for number, sort in enumerate(order):
        if sort == "g":
            now = small.graph(now, [(12 * at, 10, name) for at, name in enumerate(KERNELS)]) + 2
        else:
            names = KERNELS if sort == "e" else tuple(f"other {number} {at}" for at in range(len(KERNELS)))
            names = (KERNELS[0], *names[1:]) if sort == "y" else names
            for name in (*names, *("fill",) * extra):
                now = small.launched(now, 10, name) + 2
        for at in range(tail):
            now = small.launched(now, 10, f"sample {at}") + (2 if at + 1 < tail else 50)
    return find_steps(small.trace())


@pytest.mark.parametrize("tail", [0, 2])
@pytest.mark.parametrize("order", ["ggggeggggg", "ggggeegggg", "ggggeeegggg", "gegggeegggg"])
def test_passes_between_replays_are_steps(order: str, tail: int) -> None:
    found = decode(order, tail)
    assert [step.replayed for step in found.steps] == [sort == "g" for sort in order[:-1]]
    assert {step.kernels for step in found.steps} == {len(KERNELS) + tail}
    assert {step.phase for step in found.steps} == {Phase.DECODE}
    assert [bool(step.flags) for step in found.steps if not step.replayed] == [True] * order.count("e")
    assert f"{order.count('e')} pass" in found.evidence[0]


def test_a_pass_may_hold_a_kernel_more_than_the_graph() -> None:
    found = decode("ggggeegggg", extra=1)
    assert [step.kernels for step in found.steps] == [40] * 4 + [41, 41] + [40] * 3


def test_what_does_not_repeat_stays_one_and_says_so() -> None:
    found = decode("ggggxxgggg")
    assert [step.kernels for step in found.steps] == [40] * 4 + [80] + [40] * 3
    (odd,) = [step for step in found.steps if not step.replayed]
    assert odd.flags == (
        "kernels launched one by one",
        "as many kernels as 2.0 steps: perhaps several that nothing tells apart",
    )


@pytest.mark.parametrize("order", ["gegegegeg", "egegegege", "geegeegeeg", "eeegeee", "eegegegg"])
def test_passes_as_frequent_as_replays_are_steps_of_their_own(order: str) -> None:
    """Without copies nothing but the order of the graph's kernels tells such a pass from a tail of the replay."""
    found = decode(order, tail=2)
    assert found.how == "CUDA graph replays"
    graphs, passes = (
        f"{n} {word}{plural if n > 1 else ''}"
        for n, word, plural in ((order.count("g"), "graph replay", "s"), (order.count("e"), "pass", "es"))
    )
    assert found.evidence[0] == f"{graphs} of 40 events, and {passes} without a graph"
    assert [step.replayed for step in found.steps] == [sort == "g" for sort in order[:-1]]
    assert {step.kernels for step in found.steps} == {42}
    assert {step.phase for step in found.steps} == {Phase.DECODE}
    # 40 kernels of 10 ns, 2 apart; 40 + 2 apart, two of sampling, and a pause of 50 once: 12 * 42 + 48.
    assert {step.wall_ns for step in found.steps} == {552}


@pytest.mark.parametrize("other", "xy")
def test_other_kernels_between_replays_are_no_passes(other: str) -> None:
    """A step whose second half runs no graph, and not the graph's kernels, is one step."""
    found = decode(f"g{other}g{other}g{other}g{other}g", tail=2)
    assert found.how == "repeating kernels"
    assert [step.kernels for step in found.steps] == [84] * 3


def test_a_draft_of_one_layer_in_a_graph_does_not_cut_the_target_into_layers() -> None:
    """Each step launches ten layers and a head one by one, then replays a draft of one such layer."""
    small, now = Small(), 1000
    for _ in range(6):
        for name in (*KERNELS, "head"):
            now = small.launched(now, 10, name) + 2
        now = small.graph(now, [(12 * at, 10, name) for at, name in enumerate(LAYER)]) + 2
        now = small.launched(now, 10, "sample") + 50
    assert {step.kernels for step in find_steps(small.trace()).steps} == {len(KERNELS) + 1 + len(LAYER) + 1}


def test_a_last_pass_ends_the_step_before() -> None:
    found = decode("gggge")
    assert [step.kernels for step in found.steps] == [40] * 4
    assert found.dropped[-1].why == "the last 40 GPU events: no next step begins afterwards"

"""Steps that fell out of the graph, where the graph holds all of a step and nothing marks the others."""

import pytest

from sublight.trace.phases import Phase
from sublight.trace.steps import Steps, find_steps

from .small import Small

LAYER = ("norm", "qkv", "attention", "mlp")
KERNELS = LAYER * 10


def decode(order: str, tail: int = 0, *, extra: int = 0) -> Steps:
    """Steps in a graph (g), launched one by one (e), or one by one with other kernels (x); no copies.

    Without a tail nothing stands between two steps, not even a pause.
    """
    small, now = Small(), 1000
    for number, sort in enumerate(order):
        if sort == "g":
            now = small.graph(now, [(12 * at, 10, name) for at, name in enumerate(KERNELS)]) + 2
        else:
            names = KERNELS if sort == "e" else tuple(f"other {number} {at}" for at in range(len(KERNELS)))
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

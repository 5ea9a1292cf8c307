"""Clocks under their names: one that this machine does not have is an error, and no other stands in for it."""

import time

import pytest
import torch

from sublight.bench.clocks import ready
from sublight.errors import BenchError


def test_the_wall_clock_counts_every_call() -> None:
    calls: list[int] = []
    timed = ready("wall clock", [lambda: calls.append(0), lambda: calls.append(1)])
    assert (timed.clock, timed.calls) == ("wall clock", 2)
    before = len(calls)
    assert timed.round() > 0
    assert len(calls) - before == 2 * timed.repeats
    assert calls.count(0) == calls.count(1)


def test_a_long_call_is_not_repeated_in_a_round() -> None:
    timed = ready("wall clock", [lambda: time.sleep(0.006)])
    assert timed.repeats == 1
    assert timed.round() >= 0.006


@pytest.mark.parametrize("clock", ["CUDA graph replay", "CUDA events"])
def test_no_gpu_no_clock_of_one(clock: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(BenchError, match=f"timing by {clock}"):
        ready(clock, [lambda: None])  # type: ignore[arg-type]

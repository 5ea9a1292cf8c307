"""Room for deep calls: the same answers, and no memory fetched and given back at every step across an edge."""

import resource
import sys
from collections.abc import Callable

import pytest

from sublight.audit.roomy import roomy


def _deep(depth: int, work: Callable[[], None]) -> int:
    if depth:
        return _deep(depth - 1, work) + 1
    work()
    return 0


def _faults(depth: int) -> int:
    """Pages fetched while a small function is called again and again from a depth."""

    def work() -> None:
        for _ in range(300):
            _deep(3, int)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    _deep(depth, work)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_it_gives_what_the_work_gives_and_lets_its_errors_through() -> None:
    assert roomy(lambda: _deep(500, int)) == 500
    with pytest.raises(ZeroDivisionError):
        roomy(lambda: 1 // 0)


@pytest.mark.skipif(sys.platform != "linux" or sys.implementation.name != "cpython", reason="CPython on Linux")
def test_no_depth_stands_at_an_edge() -> None:
    def worst() -> int:
        return max(_faults(depth) for depth in range(40, 140))

    roomy(worst)
    assert roomy(worst) * 10 < worst()

"""Three clocks, each under its own name. A clock that cannot run here is an error, never another clock.

| clock | what it times |
|---|---|
| CUDA graph replay | calls captured into one graph, back to back: what a captured decode step pays |
| CUDA events | the same calls launched one by one between two events: launches that the CPU cannot keep up with count |
| wall clock | on a CPU, from before the first call to after the last |
"""

import time
import warnings
from collections.abc import Callable, Sequence

import torch

from sublight.bench.record.measurement import ClockName
from sublight.errors import BenchError

Call = Callable[[], object]
_WARM_UPS = 3
# A round shorter than this is as long as the events' own resolution and the gap before its first launch.
_ROUND_S = 5e-3
_MOST_REPEATS = 2000


class Timed:
    """Calls made ready for one clock."""

    def __init__(self, clock: ClockName, once: Call, calls: int, measure: "Callable[[Call, int], float]") -> None:
        self.clock = clock
        self.calls = calls
        self.once = once
        self._measure = measure
        measure(once, 1)
        single = measure(once, 1)
        self.repeats = max(1, min(_MOST_REPEATS, int(_ROUND_S / max(single, 1e-9))))

    def round(self) -> float:
        """Seconds of one call."""
        return self._measure(self.once, self.repeats) / (self.repeats * self.calls)


def ready(clock: ClockName, calls: Sequence[Call]) -> Timed:
    """Warm the calls up and make them ready.

    Raises:
        BenchError: a clock that this device does not have, or calls that cannot be captured.
    """
    if clock != "wall clock" and not torch.cuda.is_available():
        raise BenchError(f"timing by {clock}", "torch sees no CUDA GPU", "a machine with one, or --device cpu")
    if clock == "CUDA graph replay":
        return Timed(clock, capture(calls), len(calls), _between_events)
    for _ in range(_WARM_UPS):
        for call in calls:
            call()
    measure = _between_events if clock == "CUDA events" else _by_wall_clock
    return Timed(clock, _all(calls), len(calls), measure)


def capture(calls: Sequence[Call]) -> Call:
    """One graph of all calls, back to back; returns its replay.

    Raises:
        BenchError: what the capture had to say.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            for call in calls[: max(1, min(len(calls), 64))]:
                call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with warnings.catch_warnings(record=True) as said, torch.cuda.graph(graph):
            warnings.simplefilter("always")
            for call in calls:
                call()
    except RuntimeError as error:
        torch.cuda.synchronize()
        raise BenchError("capturing into a CUDA graph", str(error).splitlines()[0], "eager mode") from None
    if any("graph is empty" in str(warning.message).lower() for warning in said):
        raise BenchError("capturing into a CUDA graph", "nothing was launched on the stream", "eager mode")
    return _Replay(graph, calls)


class _Replay:
    """A graph with the calls that it was captured from: what they read and write has to live as long as the graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, calls: Sequence[Call]) -> None:
        self._graph = graph
        self._calls = tuple(calls)

    def __call__(self) -> None:
        self._graph.replay()


def _all(calls: Sequence[Call]) -> Call:
    def run() -> None:
        for call in calls:
            call()

    return run


def _between_events(once: Call, repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(repeats):
        once()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def _by_wall_clock(once: Call, repeats: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(repeats):
        once()
    return max(time.perf_counter_ns() - start, 1) * 1e-9

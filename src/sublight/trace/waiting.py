"""Collectives that take far longer than the fastest of their kind in the same step: ranks waiting for each other."""

from collections.abc import Iterable

from sublight.trace.classify import Category, Kind
from sublight.trace.kernels import short_name
from sublight.trace.oddity import WORTH, Oddity, Seen
from sublight.trace.power import excess
from sublight.units import counted, show_percent, show_time

_MESSAGES = {kind.value for kind in Kind if kind.category is Category.COMMUNICATION}
_MUCH = 0.2  # of the step, in messages
_SMALL_NS = 30_000  # a decode step's message is a few kilobytes: NCCL sends those in 10 to 25 us on PCIe and NVLink


def slow_collectives(seen: Seen) -> Iterable[Oddity]:
    """One rank's trace tells the time in a message, not whom it waited for: the finding says what does."""
    for kernel in seen.kernels:
        if kernel.kind not in _MESSAGES or kernel.calls < 2:
            continue
        mean, exposed = kernel.summed_ns / kernel.calls, seen.exposed_ns(kernel.row)
        beyond = kernel.summed_ns - kernel.calls * kernel.shortest_ns
        words, more = excess(kernel.kind, kernel.calls, kernel.summed_ns, seen.published)
        slow = mean > _SMALL_NS and exposed > _MUCH * seen.breakdown.wall_ns
        if not slow and not (beyond > kernel.summed_ns / 2 and beyond > WORTH * seen.breakdown.wall_ns):
            continue
        name = short_name(kernel.name)
        yield Oddity(
            "slow-collectives",
            f"{kernel.kind} calls wait: {show_time(mean * 1e-9)} each",
            f"{counted(kernel.calls, f'call of {name} takes', f'calls of {name} take')} "
            f"{show_time(kernel.summed_ns * 1e-9)}, "
            f"{show_percent(kernel.summed_ns / seen.breakdown.wall_ns)} of the step; the fastest takes "
            f"{show_time(kernel.shortest_ns * 1e-9)}{'; ' * bool(words)}{words}",
            min(exposed, more or kernel.summed_ns) if slow else min(beyond, exposed or beyond),
            "the traces of all ranks (sublight trace --ranks) tell waiting for a straggler from transfer; if none is "
            "late: the protocol and channels of NCCL, a one-shot all-reduce. Such kernels spin: a GPU at 100 % that "
            "draws little power waits",
            kernel.row,
        )

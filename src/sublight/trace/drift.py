"""The same kernels growing slower from step to step: what falling clocks or a power limit look like in a trace."""

from collections.abc import Iterable

import numpy as np

from sublight.trace.classify import Kind
from sublight.trace.oddity import Oddity, Seen
from sublight.trace.refine import events_of
from sublight.units import counted, show_percent, show_time

_STEPS = 6
_SLOWER = 0.03
_PRODUCTS = (Kind.GEMM.value, Kind.MOE_GEMM.value)  # their work does not grow with the context


def slower_kernels(seen: Seen) -> Iterable[Oddity]:
    """Matrix products of the last third of the steps against the first, where both launch the same kernels."""
    steps = [s for s in seen.steps.alike() if s.kernels == seen.step.kernels]
    if len(steps) < _STEPS:
        return
    product = np.array([kind in _PRODUCTS for kind in seen.labels.kinds], bool)
    sums = []
    for step in steps:
        numbers = events_of(seen.trace, step)
        sums.append(int(seen.trace.gpu.duration[numbers[product[seen.labels.kind[numbers]]]].sum()))
    third = len(sums) // 3
    first, last = sums[:third], sums[-third:]
    before, after = float(np.median(first)), float(np.median(last))
    # Every late step above every early one, so that noise between steps is not taken for a trend.
    if not before or after < (1 + _SLOWER) * before or min(last) <= max(first):
        return
    yield Oddity(
        "slower-kernels",
        f"the same GEMMs run {show_percent(after / before - 1)} slower at the end of the trace than at its start",
        f"{show_time(before * 1e-9)} a step in the first {counted(third, 'step')}, {show_time(after * 1e-9)} in the "
        f"last {third}",
        round(after - before),
        "clocks that fall under a power or temperature limit: nvidia-smi -q -d PERFORMANCE,CLOCK,POWER while it runs",
    )

"""One side of a comparison: some steps of one trace, taken apart, and how much of each of their parts there is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from sublight.errors import UsageError
from sublight.trace.breakdown import Breakdown, break_down_each
from sublight.trace.events import Trace
from sublight.trace.idle import IdleKind
from sublight.trace.labels import Labels
from sublight.trace.layers import Layers, find_layers
from sublight.trace.repairs import WHOLE_FILE, cut_words
from sublight.trace.replaced import KernelUse, kernels_of
from sublight.trace.steps import Step, Steps

Sort = Literal["step", "row", "overlap", "idle"]
_MOST_STEPS = 64  # more would hardly tell more of the spread


class Key(NamedTuple):
    """A part of a step: a row by its name, "overlap", a kind of idle time, or "step" for the whole."""

    sort: Sort
    name: str


@dataclass(frozen=True, slots=True)
class Sample:
    """Steps of one trace, taken apart: one side of a comparison."""

    title: str
    breakdowns: tuple[Breakdown, ...]
    kernels: tuple[KernelUse, ...]
    layers: Layers | None
    every: int  # how many steps there were to take from


def sample(trace: Trace, steps: Steps | Sequence[Step], labels: Labels, title: str = "") -> Sample:
    """Take apart the steps that the median is taken of, or the steps given; many are thinned out evenly.

    Raises:
        UsageError: there are none.
    """
    every = steps.alike() if isinstance(steps, Steps) else tuple(steps)
    title = title or trace.origin.path
    if not every:
        why = "; ".join(steps.evidence) if isinstance(steps, Steps) else "none was given"
        if cut := cut_words(trace.repairs):
            raise UsageError(f"comparing the steps of {title}", cut, WHOLE_FILE)
        raise UsageError(f"comparing the steps of {title}", why, "a trace of at least four decode steps")
    chosen = [every[place] for place in np.unique(np.linspace(0, len(every) - 1, _MOST_STEPS).astype(int)).tolist()]
    return Sample(
        title,
        break_down_each(trace, chosen, labels),
        kernels_of(trace, chosen, labels),
        find_layers(trace, chosen[len(chosen) // 2], labels),
        len(every),
    )


def parts_of(samples: Sequence[Sample]) -> list[Key]:
    """All parts of a step that any of the samples has, in an order that does not depend on theirs."""
    steps = [step for one in samples for step in one.breakdowns]
    idle = [kind for kind in IdleKind if any(part.kind is kind for step in steps for part in step.idle)]
    return [
        *(Key("row", name) for name in sorted({row.name for step in steps for row in step.rows})),
        *([Key("overlap", "overlap")] if any(step.overlaps for step in steps) else ()),
        *(Key("idle", kind.value) for kind in idle),
    ]


def amounts(step: Breakdown, key: Key) -> tuple[int, int, int]:
    """Wall time, summed time and calls of a part of a step; gaps are the calls of idle time."""
    nothing = (0, 0, 0)
    if key.sort == "step":
        return step.wall_ns, sum(row.summed_ns for row in step.rows), sum(row.calls for row in step.rows)
    if key.sort == "overlap":
        return step.overlap_ns, step.overlap_ns, len(step.overlaps)
    if key.sort == "idle":
        return next(((idle.ns, idle.ns, idle.gaps) for idle in step.idle if idle.kind.value == key.name), nothing)
    return next(((row.exposed_ns, row.summed_ns, row.calls) for row in step.rows if row.name == key.name), nothing)


def layers_with(layers: Layers, key: Key) -> int:
    """How many layers share the time of a part: 1 for what comes once a step."""
    if key.sort == "row":
        return layers.of(key.name)
    return 1 if key.sort == "step" or key.name == IdleKind.STEP.value else layers.count

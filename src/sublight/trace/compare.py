"""Two traces row by row: what is longer in B than in A, whether that is more than steps vary, and what replaced what.

Every part of a step is compared over all steps of either side: the time that each row runs alone, all overlaps, each
kind of idle time. Means of these add up to the mean step, so their differences add up to the difference of the steps;
medians, which are what a step usually takes, do not, and both are kept. Differences are B less A throughout.

Models of unequal depth are compared per layer: the time of a row over the number of layers that have it.

A difference beyond the spread is one that the steps of these two traces do not explain, provided the steps of a trace
could as well have come in any other order: a context that grows makes its first half differ from its second. Two starts
of one server differ as well, in clocks, memory and routing, and two traces tell nothing of that: to know whether a
change helps, trace each side several times, in turn.
"""

import msgspec
import numpy as np

from sublight.records import Record
from sublight.trace.difference import Amount, Column, Part, Unit, Verdict
from sublight.trace.relabelling import Tested, compare_means
from sublight.trace.replaced import Replacement, replacements
from sublight.trace.sample import Key, Sample, parts_of
from sublight.units import counted

__all__ = ["LEVEL", "Amount", "Part", "Side", "TraceComparison", "Unit", "Verdict", "compare"]
LEVEL = 0.05
_ONE_START = (
    "the spread is that of steps within one trace a side; it does not say how much two starts of a server differ"
)


class Side(msgspec.Struct, frozen=True):
    """Where one side is from."""

    title: str
    steps: int
    phase: str
    replayed: bool
    layers: int | None


class TraceComparison(Record, frozen=True, kw_only=True):
    """A against B. `parts` have the largest difference first and leave out `step`, the whole, which is tested alone.

    Attributes:
        unit: what times are per; the whole step is always per step.
        level: a difference is beyond the spread if its chance is no larger.
        smallest_p: that so many steps allow.
        ways, exact: how many ways to deal out the steps were looked at, and whether those were all.
        replaced: kernels that only one side has.
    """

    schema = "trace-comparison"
    version = 1

    a: Side
    b: Side
    unit: Unit
    level: float
    smallest_p: float
    ways: int
    exact: bool
    step: Part
    parts: tuple[Part, ...]
    replaced: tuple[Replacement, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        difference = sum(part.mean_difference_ns for part in self.parts) - self.step.mean_difference_ns
        if self.unit == "step" and abs(difference) > 1:
            raise ValueError(f"the parts' differences miss the step's by {difference:.1f} ns")


def compare(a: Sample, b: Sample, level: float = LEVEL) -> TraceComparison:
    """Row by row, B less A."""
    unit = _unit(a, b)
    found = [Column(key, (a, b), unit) for key in parts_of((a, b))]
    tested = compare_means(*(np.array([column.values[side] for column in found]).T for side in (0, 1)))
    whole = Column(Key("step", "step"), (a, b), "step")
    alone = compare_means(*(np.array([whole.values[side]]).T for side in (0, 1)))
    parts = [column.part(tested, place, level) for place, column in enumerate(found)]
    return TraceComparison(
        a=_side(a),
        b=_side(b),
        unit=unit,
        level=level,
        smallest_p=tested.smallest,
        ways=tested.ways,
        exact=tested.exact,
        step=whole.part(alone, 0, level),
        parts=tuple(sorted(parts, key=lambda part: (-abs(part.mean_difference_ns), part.name))),
        replaced=replacements(a.kernels, b.kernels),
        notes=tuple(_notes(a, b, unit, tested, level)),
    )


def _unit(a: Sample, b: Sample) -> Unit:
    """Per layer where both have layers, found in the same way, and unequally many."""
    if a.layers is None or b.layers is None or a.layers.how != b.layers.how:
        return "step"
    return "step" if a.layers.count == b.layers.count else "layer"


def _side(one: Sample) -> Side:
    middle = one.breakdowns[len(one.breakdowns) // 2]
    layers = None if one.layers is None else one.layers.count
    return Side(one.title, len(one.breakdowns), middle.phase.value, middle.replayed, layers)


def _notes(a: Sample, b: Sample, unit: Unit, tested: Tested, level: float) -> list[str]:
    one, other = _side(a), _side(b)
    notes = [_ONE_START]
    if one.phase != other.phase:
        notes.append(f"A is {one.phase}, B is {other.phase}")
    if unit == "layer":
        notes.append(
            f"{counted(one.layers or 0, 'layer')} against {other.layers}: parts are compared per layer that has them"
        )
    if tested.smallest > level:
        notes.append(
            f"with {counted(one.steps, 'step')} against {other.steps} no p-value can be below {tested.smallest:.3g}, "
            f"so that no difference can be told from chance at the level {level:g}"
        )
    notes += [
        f"{len(side.breakdowns)} of the {side.every:,} steps of {side.title} were taken, evenly"
        for side in (a, b)
        if side.every > len(side.breakdowns)
    ]
    return notes

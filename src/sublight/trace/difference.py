"""One part of a step on both sides of a comparison: how much of it there is, and what their difference means."""

from collections import Counter
from enum import StrEnum
from typing import Literal

import msgspec
import numpy as np

from sublight.trace.relabelling import Tested
from sublight.trace.sample import Key, Sample, Sort, amounts, layers_with

Unit = Literal["step", "layer"]


class Verdict(StrEnum):
    BEYOND = "beyond the spread"
    WITHIN = "within the spread"
    TOO_FEW = "too few steps"  # no difference, however large, could be told from chance


class Amount(msgspec.Struct, frozen=True):
    """A part of the steps of one side, per step or per layer.

    `low_ns` and `high_ns` are the shortest and longest. `summed_ns` adds up durations, `calls` counts events or gaps;
    both are medians, and per step always.
    """

    median_ns: int
    low_ns: int
    high_ns: int
    mean_ns: float
    summed_ns: int
    calls: int


class Part(msgspec.Struct, frozen=True):
    """One part of the step on both sides.

    Attributes:
        name: the row, "overlap", the kind of idle time, or "step" for the whole.
        a, b: how much; zero where a side does not have it.
        p: the chance of so large a difference of the means if it made no difference which trace a step is from.
        p_holm: the same after Holm's correction for all parts.
        p_joint: the same after the sharper correction by Westfall and Young, which the verdict rests on.
    """

    name: str
    sort: Sort
    category: str
    a: Amount
    b: Amount
    p: float
    p_holm: float
    p_joint: float
    verdict: Verdict

    @property
    def difference_ns(self) -> int:
        """Of the medians."""
        return self.b.median_ns - self.a.median_ns

    @property
    def mean_difference_ns(self) -> float:
        """Of the means: the parts' add up to the step's."""
        return self.b.mean_ns - self.a.mean_ns


class Column:
    """One part over the steps of both sides. `values` are per step or per layer, the other amounts per step."""

    def __init__(self, key: Key, sides: tuple[Sample, Sample], unit: Unit) -> None:
        self._key, self._sides = key, sides
        self._amounts = [[amounts(step, key) for step in side.breakdowns] for side in sides]
        shared = [1 if unit == "step" or side.layers is None else layers_with(side.layers, key) for side in sides]
        self.values = [[ns / by for ns, _, _ in found] for found, by in zip(self._amounts, shared, strict=True)]

    def part(self, tested: Tested, place: int, level: float) -> Part:
        """The part, of which the outcome of the test is at this place."""
        if tested.smallest > level:
            verdict = Verdict.TOO_FEW
        else:
            verdict = Verdict.BEYOND if tested.joint[place] <= level else Verdict.WITHIN
        return Part(
            name=self._key.name,
            sort=self._key.sort,
            category=self._category(),
            a=self._amount(0),
            b=self._amount(1),
            p=tested.p[place],
            p_holm=tested.holm[place],
            p_joint=tested.joint[place],
            verdict=verdict,
        )

    def _category(self) -> str:
        if self._key.sort != "row":
            return self._key.sort
        taken: Counter[str] = Counter()
        for row in (row for side in self._sides for step in side.breakdowns for row in step.rows):
            if row.name == self._key.name:
                taken[row.category] += row.summed_ns
        return max(taken, key=lambda category: (taken[category], category))

    def _amount(self, side: int) -> Amount:
        values = np.array(self.values[side])
        _, summed, calls = np.median(np.array(self._amounts[side]), axis=0).tolist()
        return Amount(
            median_ns=round(float(np.median(values))),
            low_ns=round(float(values.min())),
            high_ns=round(float(values.max())),
            mean_ns=float(values.mean()),
            summed_ns=round(summed),
            calls=round(calls),
        )

"""Oddity: one finding about a step, and what the checks look at."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sublight.trace.breakdown import Breakdown
from sublight.trace.events import Trace
from sublight.trace.kernels import KernelTime
from sublight.trace.labels import Labels
from sublight.trace.plan import Plan
from sublight.trace.powerlog import GpuPower
from sublight.trace.steps import Step, Steps

WORTH = 0.01  # of the step: below that a finding is noise


class Oddity(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        id: stable name of the kind.
        title: what was seen.
        evidence: the numbers it stands on.
        ns: of the step's wall time that it concerns, at the most.
        advice: what to try or look at.
        row: the row it is about, "" for none.
    """

    id: str
    title: str
    evidence: str
    ns: int
    advice: str
    row: str = ""


class Published(msgspec.Struct, frozen=True):
    """The time that somebody published for such an all-reduce on such cards; `said` tells what, and for which size."""

    ns: int
    said: str


class Seen(NamedTuple):
    """What the checks look at. `power` is of the card, `published` of a collective like those of the trace."""

    trace: Trace
    steps: Steps
    step: Step
    breakdown: Breakdown
    kernels: Sequence[KernelTime]
    labels: Labels
    plan: Plan | None = None
    power: GpuPower | None = None
    published: Published | None = None

    def exposed_ns(self, row: str) -> int:
        """Wall time in which the row alone ran."""
        return next((r.exposed_ns for r in self.breakdown.rows if r.name == row), 0)

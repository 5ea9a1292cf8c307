"""What the measuring process of a step's rows is told, and what it says back, a line each. No torch."""

import msgspec

from sublight.bench.answering import Done, Failed, Machine
from sublight.bench.ops.plan import Launch
from sublight.bench.record.measurement import ClockName, Measurement


class OpsJob(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one process.

    Attributes:
        launches: place in the record -> what to time. A process that is started again gets those that are left.
        budget_s: for the rounds of one launch.
    """

    launches: dict[int, Launch]
    device: str
    seed: int
    clock: ClockName
    budget_s: float


class Began(msgspec.Struct, frozen=True, tag="began"):
    """What is being done now; -1 is the machine itself. If nothing follows in time, this is what hangs."""

    launch: int


class Timed(msgspec.Struct, frozen=True, tag="timed"):
    """A launch with its time, or why it has none."""

    launch: int
    library: str
    measurement: Measurement | None
    reason: str


Said = Machine | Began | Timed | Failed | Done

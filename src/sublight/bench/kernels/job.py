"""What the measuring process is told, and what it says back. Both are lines of JSON; no torch."""

import msgspec

from sublight.bench.answering import Done, Failed, Machine
from sublight.bench.record.kernels import Checked, Shape
from sublight.bench.record.measurement import ClockName
from sublight.kernels.problem import MoeProblem


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one process.

    Attributes:
        problem: the layer; its `tokens` are the most of all that follow.
        tokens: numbers of tokens to compare and time.
        sweep: further ones to compare only.
        candidates: by name; "module:attribute" is taken as well, for one that nobody registered.
        counts: how often each expert is chosen; empty is uniform.
        clock: of the times; its mode has to agree, and both modes are compared whichever it is.
        budget_s: for the rounds of one candidate at one number of tokens.
    """

    problem: MoeProblem
    tokens: tuple[int, ...]
    sweep: tuple[int, ...]
    candidates: tuple[str, ...]
    device: str
    seed: int
    clock: ClockName
    counts: tuple[float, ...] = ()
    budget_s: float = 2.0


class Began(msgspec.Struct, frozen=True, tag="began"):
    """What is being done now: if nothing follows in time, this is what hangs. `tokens` 0 is preparation."""

    candidate: str
    tokens: int
    what: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A candidate that takes no part."""

    candidate: str
    reason: str


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """A candidate that takes part, and what it is, with versions."""

    candidate: str
    words: str


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    shape: Shape


class Compared(msgspec.Struct, frozen=True, tag="compared"):
    checked: Checked


Said = Began | Machine | Refused | Prepared | Measured | Compared | Failed | Done

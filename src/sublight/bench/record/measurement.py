"""A measured time, and what it cannot be without: an agreement, a clock by name, and where it was taken.

Times are of one call, in seconds. A rehearsal on a CPU makes the same records; it says so, and nothing takes its times
for those of a GPU.
"""

import hashlib
from typing import Annotated, Literal, get_args

import msgspec

from sublight.records import Record

# What a record's numbers have to be; a record is refused on load where one is not. No benchmark counts to the bound.
MOST = 10**12
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Counted = Annotated[int, msgspec.Meta(ge=1, le=MOST)]

# Three clocks that answer three questions; a time of one never stands where another was asked for.
ClockName = Literal["CUDA graph replay", "CUDA events", "wall clock"]
Mode = Literal["eager", "graph"]
MODE_OF: dict[str, Mode] = {"CUDA graph replay": "graph", "CUDA events": "eager", "wall clock": "eager"}


def clock_for(device: str, eager: bool = False) -> ClockName:
    """The clock of a device: graphs on a GPU unless eager calls are asked for."""
    if device != "cuda":
        return "wall clock"
    return "CUDA events" if eager else "CUDA graph replay"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where and with what times were taken.

    Attributes:
        device: "cuda" or "cpu".
        title: what the driver or system calls the processor.
        card: its name in the catalogue, "" where it has none.
        target: exact architecture, "" on a CPU.
        driver, torch, cuda, nccl, python: versions; "" where there is none.
        l2_bytes: as the driver says; None where nobody says.
        sm_count: None on a CPU.
        clocks_mhz: clocks by name ("sm", "memory"), as seen after the work; empty where nobody could be asked.
        notes: what else a reader of a time has to know: other work on the GPU, a power limit below the card's.
    """

    device: str
    title: str
    card: str = ""
    target: str = ""
    driver: str = ""
    torch: str = ""
    cuda: str = ""
    nccl: str = ""
    python: str = ""
    l2_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None = None
    sm_count: Counted | None = None
    clocks_mhz: dict[str, NotNegative] = {}
    notes: tuple[str, ...] = ()

    @property
    def is_rehearsal(self) -> bool:
        return self.device != "cuda"

    @property
    def key(self) -> str:
        """Of the parts that do not change while a benchmark runs."""
        fixed = msgspec.structs.replace(self, clocks_mhz={}, notes=())
        return hashlib.sha256(msgspec.json.encode(fixed)).hexdigest()[:16]


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """A result that was held against the oracle and agrees.

    Attributes:
        relative_error: the worst of all runs, as a Frobenius norm.
        tolerance: what was allowed.
        against: what it was compared with.
        modes: in which it was run: eager, in a captured graph.
        runs: results that were compared.
        where: the shape and format, so that an agreement of another shape is not taken for this one's.
    """

    relative_error: float
    tolerance: float
    against: str
    modes: tuple[Mode, ...]
    runs: Counted
    where: str

    def __post_init__(self) -> None:
        if not 0 <= self.relative_error <= self.tolerance:
            raise ValueError(f"a relative error of {self.relative_error} does not agree within {self.tolerance}")
        if not self.modes or self.runs < 1 or not self.where:
            raise ValueError("an agreement says in which mode, how often, and at which shape")


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long one call takes, over rounds of many.

    Attributes:
        median_s, low_s, high_s: median and quartiles of the rounds.
        rounds, calls: how many rounds, and calls in each.
        settled: whether the spread came under the rule's bound; False where time ran out first.
    """

    median_s: float
    low_s: float
    high_s: float
    rounds: Counted
    calls: Counted
    settled: bool

    def __post_init__(self) -> None:
        if not 0 < self.low_s <= self.median_s <= self.high_s:
            raise ValueError("quartiles are above zero and in order")

    @property
    def spread(self) -> float:
        """Between the quartiles, as a share of the median."""
        return (self.high_s - self.low_s) / self.median_s


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A time with everything it stands on.

    Attributes:
        agreed: of the same shape, format and graph mode.
        clock: which one.
        environment: key of the `Environment` it was taken in.
        timing: of one call.
        sets: different weights, routings or inputs that calls went through in turn.
        cold: whether the cache could not keep what a call reads until its turn came again; None where the size of the
            cache is not known.
        warning: "" or why the time is not one of memory ("faster than memory allows, cache-hot").
    """

    agreed: Agreed
    clock: ClockName
    environment: str
    timing: Timing
    sets: Counted
    cold: bool | None
    warning: str = ""

    def __post_init__(self) -> None:
        if self.clock not in get_args(ClockName):
            raise ValueError(f"{self.clock!r} is no clock")
        if not self.environment:
            raise ValueError("a time needs the environment it was taken in")
        if MODE_OF[self.clock] not in self.agreed.modes:
            raise ValueError(f"{self.clock} times a mode in which nothing was compared: {', '.join(self.agreed.modes)}")

    @property
    def seconds(self) -> float:
        return self.timing.median_s


class BenchRecord(Record, frozen=True, kw_only=True):
    """What every benchmark's record has.

    Attributes:
        environment: where it ran.
        seed: of everything random in it.
        model: its name and the layout, in words.
    """

    environment: Environment
    seed: int
    model: str
    layout: str

    @property
    def is_rehearsal(self) -> bool:
        return self.environment.is_rehearsal


def strangers(environment: Environment, measurements: "list[Measurement]") -> list[str]:
    """Times that were taken elsewhere than the record says."""
    return [
        f"a time of environment {m.environment}, the record's is {environment.key}"
        for m in measurements
        if m.environment != environment.key
    ]

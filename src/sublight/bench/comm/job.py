"""What the processes are told, and what the first of them says back, a line each. No torch."""

import msgspec

from sublight.bench.answering import Failed
from sublight.bench.record.comm import Way
from sublight.bench.record.measurement import Environment


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """One operation and payload, for the rows that send it: row -> calls a step."""

    operation: str
    payload_bytes: int
    rows: dict[str, int]


class CommJob(msgspec.Struct, frozen=True, kw_only=True):
    """Work of all processes.

    Attributes:
        sends: what to time, in every way there is.
        skip: (place in `sends`, way) that is not to be tried: it was timed before, or it is what hangs.
    """

    sends: tuple[Send, ...]
    device: str
    seed: int
    rounds: int
    skip: tuple[tuple[int, str], ...] = ()


class Machine(msgspec.Struct, frozen=True, tag="machine"):
    environment: Environment
    topology: str


class Began(msgspec.Struct, frozen=True, tag="began"):
    """What is tried now: if nothing follows in time, this is what hangs. `name` is the way's in the record."""

    send: int
    way: str
    name: str


class Tried(msgspec.Struct, frozen=True, tag="tried"):
    """One way of one send; `way` is what `skip` calls it."""

    send: int
    way: str
    found: Way


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


Said = Machine | Began | Tried | Failed | Done

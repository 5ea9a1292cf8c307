"""Collectives at the payloads of a step."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from sublight.bench.record.measurement import BenchRecord, Counted, Measurement, strangers


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to send a message: "NCCL", "gloo", "symmetric memory, one-shot"; a time, or why there is none."""

    name: str
    measurement: Measurement | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.measurement is None) == (not self.reason):
            raise ValueError(f"{self.name}: a time, or the reason why there is none")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One operation and payload.

    Attributes:
        rows: row of the step -> calls a step, for every row that sends this.
        payload_bytes: of one rank and call.
    """

    operation: str
    payload_bytes: Counted
    rows: Annotated[dict[str, Counted], msgspec.Meta(min_length=1)]
    ways: Annotated[tuple[Way, ...], msgspec.Meta(min_length=1)]

    @property
    def best(self) -> Way | None:
        timed = [w for w in self.ways if w.measurement is not None]
        return min(timed, key=lambda w: w.measurement.seconds if w.measurement else 0.0, default=None)


class CommBench(BenchRecord, frozen=True, kw_only=True):
    """The messages of one decode step between `processes` ranks, one a GPU.

    Attributes:
        topology: what joins them, as the driver says.
    """

    schema = "bench-comm"
    version = 1

    processes: Annotated[int, msgspec.Meta(ge=2, le=4096)]
    tokens: Counted
    topology: str
    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=1)]

    def flaws(self) -> Iterator[str]:
        measured = [w.measurement for m in self.messages for w in m.ways if w.measurement is not None]
        yield from strangers(self.environment, measured)

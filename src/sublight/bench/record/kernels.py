"""Kernels of a layer of experts, and their peers, over numbers of tokens."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

import msgspec

from sublight.bench.record.measurement import BenchRecord, Counted, Measurement, NotNegative, Positive, strangers
from sublight.records import repeated
from sublight.units import counted


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """What memory gave in the same run.

    Attributes:
        copy_bytes_per_s: of a large copy, bytes read and bytes written added.
        read_s: (bytes, seconds) of one launch that only reads them; rises in both.
        read_by: what read them.
    """

    copy_bytes_per_s: Positive
    read_s: Annotated[tuple[tuple[Positive, Positive], ...], msgspec.Meta(min_length=1)]
    read_by: str

    def __post_init__(self) -> None:
        if any(b[0] <= a[0] or b[1] <= a[1] for a, b in pairwise(self.read_s)):
            raise ValueError("times of reads rise with their sizes")

    def floor_s(self, byte_count: float) -> float:
        """Of one read-only launch: on a line between sizes, past the last at its rate, before the first flat."""
        points = self.read_s
        if byte_count <= points[0][0]:
            return points[0][1]
        for (size_a, time_a), (size_b, time_b) in pairwise(points):
            if byte_count <= size_b:
                return time_a + (byte_count - size_a) * (time_b - time_a) / (size_b - size_a)
        return byte_count * points[-1][1] / points[-1][0]

    @property
    def best_bytes_per_s(self) -> float:
        return max(self.copy_bytes_per_s, *(size / seconds for size, seconds in self.read_s if size))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate at one shape: a time, or why there is none.

    Attributes:
        kind: "kernel" is one of ours, "peer" of another project, "reference" the oracle itself.
        bytes: that one call has to move, in this candidate's own format of weights.
    """

    name: str
    kind: str
    bytes: NotNegative
    measurement: Measurement | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.measurement is None) == (not self.reason):
            raise ValueError(f"{self.name}: a time, or the reason why there is none")

    @property
    def bytes_per_s(self) -> float | None:
        return None if self.measurement is None else self.bytes / self.measurement.seconds


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One number of tokens.

    Attributes:
        experts_hit: different experts of a call, on average over the routings.
        bytes: that a call has to move in the model's own format: codes and scales of the experts hit, and the layer's
            input and output once.
        copy_s, floor_s: those bytes at the copy ceiling, and as one read-only launch, of the same run.
        routing: how tokens were sent.
    """

    tokens: Counted
    experts_hit: NotNegative
    bytes: Positive
    copy_s: Positive
    floor_s: Positive
    routing: str
    results: tuple[Result, ...]

    @property
    def best_peer(self) -> Result | None:
        """The fastest candidate of another project."""
        timed = [(r.measurement.seconds, r) for r in self.results if r.kind == "peer" and r.measurement is not None]
        return min(timed, key=lambda pair: pair[0])[1] if timed else None

    @property
    def best_peer_s(self) -> float | None:
        best = self.best_peer
        return best.measurement.seconds if best is not None and best.measurement is not None else None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A number of tokens at which a candidate was compared and not timed; `reason` is "" where it agreed."""

    name: str
    tokens: Counted
    reason: str = ""


class KernelBench(BenchRecord, frozen=True, kw_only=True):
    """Every kernel and peer at the shapes of one model's expert layer on one rank.

    Attributes:
        problem: the layer, in words.
        absent: candidates that could not take part, and why.
        ran: candidates that took part, and what each is, with versions.
        swept: further numbers of tokens, compared without a clock.
    """

    schema = "bench-kernels"
    version = 1

    problem: str
    weight_format: str
    ceilings: Ceilings
    shapes: Annotated[tuple[Shape, ...], msgspec.Meta(min_length=1)]
    absent: dict[str, str]
    ran: dict[str, str] = msgspec.field(default_factory=dict)
    swept: tuple[Checked, ...] = ()

    def flaws(self) -> Iterator[str]:
        for tokens in repeated(s.tokens for s in self.shapes):
            yield f"a call of {counted(tokens, 'token')} is there twice"
        # A shape on its way from the measuring process may have none: those that a lost process timed are added here.
        for tokens in (s.tokens for s in self.shapes if not s.results):
            yield f"there is no result at {counted(tokens, 'token')}"
        measured = [r.measurement for s in self.shapes for r in s.results if r.measurement is not None]
        yield from strangers(self.environment, measured)

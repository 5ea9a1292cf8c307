"""The other rows of a step, each as the products it is made of."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.measurement import BenchRecord, Counted, Measurement, NotNegative, strangers
from sublight.records import repeated


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of a row that are alike: so many a step, each timed as `what`.

    Attributes:
        what: shapes and format on one rank.
        library: what was called.
        count: how often a step does it.
        bytes: that one of them has to read and write.
    """

    what: str
    library: str
    count: Counted
    bytes: NotNegative
    measurement: Measurement | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.measurement is None) == (not self.reason):
            raise ValueError(f"{self.what}: a time, or the reason why there is none")


class OpRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the step."""

    id: str
    parts: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1)]

    @property
    def step_s(self) -> float | None:
        """Of the whole step; None where one of its parts has no time."""
        times = [p.count * p.measurement.seconds for p in self.parts if p.measurement is not None]
        return sum(times) if len(times) == len(self.parts) and times else None

    @property
    def reason(self) -> str:
        """Why there is no time of the row."""
        return "; ".join(dict.fromkeys(p.reason for p in self.parts if p.reason))

    @property
    def warning(self) -> str:
        return "; ".join(dict.fromkeys(p.measurement.warning for p in self.parts if p.measurement is not None)).strip(
            "; "
        )


class OpsBench(BenchRecord, frozen=True, kw_only=True):
    """Rows of one decode step, at the shapes of one rank, by the libraries that an engine would call.

    Attributes:
        tokens, context, kv_dtype: of the step.
    """

    schema = "bench-ops"
    version = 1

    tokens: Counted
    context: Counted
    kv_dtype: str
    ceilings: Ceilings
    rows: Annotated[tuple[OpRow, ...], msgspec.Meta(min_length=1)]

    def flaws(self) -> Iterator[str]:
        for id_ in repeated(r.id for r in self.rows):
            yield f"row {id_} is there twice"
        measured = [p.measurement for r in self.rows for p in r.parts if p.measurement is not None]
        yield from strangers(self.environment, measured)

"""The links between cards, and what is published about collectives over them.

One TOML file a link: its rate, and one table for each series of timings of an operation with one algorithm on one
number of cards. A series lists [payload bytes, microseconds]; `holds_to_bytes` carries its last time on to a larger
payload unchanged, with the reason in a comment of the file.
"""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from sublight.facts.catalogue.gpus.entry import STATUS, FigureEntry, Status, convert, read_toml, source_text
from sublight.records import Figure

Operation = Literal["all-reduce", "all-gather", "reduce-scatter"]
Algorithm = Literal["nccl", "one-shot", "two-shot"]
Launch = Literal["graph", "eager", "not told"]
_FOLDER = Path(__file__).parent


class _Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Operation
    algorithm: Algorithm
    gpus: int
    launch: Launch
    source: str
    bytes_us: tuple[tuple[int, float], ...]
    status: Status = "measured"
    note: str = ""
    holds_to_bytes: int = 0


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    title: str
    note: str
    sources: dict[str, str]
    link_bytes_per_s: FigureEntry
    timings: tuple[_Series, ...] = ()


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """One published timing of a collective.

    Attributes:
        payload_bytes: of each card: what it contributes to an all-reduce or all-gather, and keeps of a reduce-scatter.
        launch: in a CUDA graph, eager (launch from the host included), or not told by the source.
        holds_to_bytes: the largest payload the same time is used for.
    """

    operation: Operation
    algorithm: Algorithm
    gpus: int
    payload_bytes: int
    seconds: Figure
    launch: Launch
    holds_to_bytes: int


class Interconnect(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of link. `link_bytes_per_s` is of one card in one direction."""

    name: str
    title: str
    note: str
    link_bytes_per_s: Figure
    timings: tuple[Timing, ...]


@cache
def link_names() -> tuple[str, ...]:
    """Every name of the catalogue, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def catalogue_link(name: str) -> Interconnect:
    """An entry by its exact name, which must be one of `link_names`, with its sources spelled out."""
    path = _FOLDER / f"{name}.toml"
    file = convert(read_toml(path, f"reading {path}", "the file as it was installed"), _File)
    return Interconnect(
        name=file.name,
        title=file.title,
        note=file.note,
        link_bytes_per_s=file.link_bytes_per_s.figure(file.sources),
        timings=tuple(timing for series in file.timings for timing in _timings(series, file.sources)),
    )


def _timings(series: _Series, sources: dict[str, str]) -> list[Timing]:
    evidence, source = STATUS[series.status][0], source_text(series.source, sources)
    last = series.bytes_us[-1][0]
    return [
        Timing(
            operation=series.operation,
            algorithm=series.algorithm,
            gpus=series.gpus,
            payload_bytes=payload,
            seconds=Figure(us / 1e6, evidence, source, series.note),
            launch=series.launch,
            holds_to_bytes=max(payload, series.holds_to_bytes) if payload == last else payload,
        )
        for payload, us in series.bytes_us
    ]

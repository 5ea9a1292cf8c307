"""The cards that Sublight knows by name.

One TOML file a card: what it is and what it is called, then a table for each figure (`entry.FigureEntry`), and for few
cards a read curve. `sources.toml` spells the sources out. A file of the user's has the same form.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sublight.errors import InputFileError, near_misses
from sublight.facts.catalogue.gpus.entry import STATUS, FigureEntry, Status, convert, read_toml, source_text
from sublight.records import Evidence, Figure

FORM = "the form of the cards in sublight/facts/catalogue/gpus"
FIGURES = (
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "measured_bandwidth_bytes_per_s",
    "l2_bytes",
    "sm_count",
    "shared_memory_per_block_bytes",
    "max_sm_clock_hz",
    "bf16_flops_per_s",
    "fp8_flops_per_s",
    "fp4_flops_per_s",
    "nvlink_bytes_per_s_bidirectional",
    "pcie_bytes_per_s",
    "pcie_generation",
    "bar1_bytes",
    "tdp_w",
)
_FOLDER = Path(__file__).parent
_SOURCES = "sources"


class _Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: Status
    source: str
    bytes_us: tuple[tuple[float, float], ...]
    note: str = ""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    vendor: str
    target: str
    interconnect: str
    target_source: str = ""
    aliases: tuple[str, ...] = ()
    also_called: tuple[str, ...] = ()
    sources: dict[str, str] = {}
    read_curve: _Curve | None = None


_HEAD = tuple(field.name for field in msgspec.structs.fields(_Head))


class CatalogueCurve(msgspec.Struct, frozen=True):
    """Measured (bytes, seconds) of a read-only kernel."""

    points: tuple[tuple[float, float], ...]
    evidence: Evidence
    source: str
    note: str


class CatalogueCard(msgspec.Struct, frozen=True, kw_only=True):
    """One entry with its sources spelled out. `figures` has only those that the file states.

    `aliases` name this card alone; `also_called` are everyday names that it shares with others.
    """

    name: str
    title: str
    vendor: str
    target: str
    target_source: str
    interconnect: str
    aliases: tuple[str, ...]
    also_called: tuple[str, ...]
    figures: dict[str, Figure]
    curve: CatalogueCurve | None


@cache
def card_names() -> tuple[str, ...]:
    """Every name of the catalogue, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml") if path.stem != _SOURCES))


@cache
def catalogue_card(name: str) -> CatalogueCard:
    """An entry by its exact name, which must be one of `card_names`."""
    return read_card(_FOLDER / f"{name}.toml")


def cards_called(text: str) -> Iterator[CatalogueCard]:
    """The entries that have `text` among their other names, whatever the case: one for an alias, several otherwise."""
    wanted = text.lower()
    for name in card_names():
        # Parsing every card takes longer than the rest of a lookup; a file without the text can not match.
        if f'"{wanted}"' in (_FOLDER / f"{name}.toml").read_text(encoding="utf-8").lower():
            card = catalogue_card(name)
            if wanted in {other.lower() for other in (*card.aliases, *card.also_called)}:
                yield card


def read_card(path: Path) -> CatalogueCard:
    """The entry in a file. Raises InputFileError, which names the file and the field."""
    asked = f"reading {path} as a GPU"
    raw = read_toml(path, asked, FORM)
    for key in raw:
        if key not in _HEAD and key not in FIGURES:
            near = near_misses(key, [*FIGURES, *_HEAD])
            raise InputFileError(asked, f"{key}: a GPU has no such field", " or ".join(near) or FORM)
    at = ""
    try:
        head = convert(raw, _Head)
        sources = _shared_sources() | head.sources
        figures = {}
        for at in FIGURES:
            if at in raw:
                figures[at] = convert(raw[at], FigureEntry).figure(sources, path.name)
        at = "read_curve"
        curve = _curve(head.read_curve, sources) if head.read_curve else None
        at = "target_source"
        target_source = source_text(head.target_source, sources) or path.name
    except ValueError as error:
        raise InputFileError(asked, f"{at}: {error}" if at else str(error), FORM) from None
    same: dict[str, Any] = {field: getattr(head, field) for field in _HEAD if field not in _RESOLVED}
    return CatalogueCard(**same, figures=figures, curve=curve, target_source=target_source)


_RESOLVED = ("target_source", "sources", "read_curve")


def _curve(entry: _Curve, sources: dict[str, str]) -> CatalogueCurve:
    points = tuple((size, us / 1e6) for size, us in entry.bytes_us)
    return CatalogueCurve(points, STATUS[entry.status][0], source_text(entry.source, sources), entry.note)


@cache
def _shared_sources() -> dict[str, str]:
    path = _FOLDER / f"{_SOURCES}.toml"
    return msgspec.convert(read_toml(path, f"reading {path}", FORM), dict[str, str])

"""Gpu: one card, every figure with its evidence and source; found by exact name, never by likeness.

One TOML file a card lies in `catalogue/gpus/`, and only the file of the card asked for is read. A card that is not
there is unknown; a name that several cards share is refused with what sets them apart, because the three RTX PRO 6000
differ by 11 % in bandwidth and a floor for the wrong one is wrong by as much.

Three states of a figure are told apart: a value; no value, with the reason (`not_known`); and the value 0, which says
that the hardware is not there (no FP4 tensor cores, no NVLink). A rate nobody published is not an absent unit.
"""

import math
import re
from bisect import bisect_right
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sublight.errors import InputFileError, UnknownNameError, UsageError, near_misses
from sublight.facts.catalogue.gpus import (
    FIGURES,
    FORM,
    CatalogueCard,
    card_names,
    cards_called,
    catalogue_card,
    read_card,
)
from sublight.files import read_small_file
from sublight.records import Evidence, Figure, not_known
from sublight.registry import Registry
from sublight.units import show_rate, significant

MOST_GPUS = 4096
_PLUGINS = Registry("GPU", "sublight.gpus", {})
_TARGET = re.compile(r"sm_[0-9]{2,3}|gfx[0-9a-f]{3,4}")
_COUNTED = re.compile(r"\s*(?:([+-]?[0-9][0-9.,_]*)\s*[xX*×]\s*)?(\S.*?)\s*")


_RATE, _BYTES, _FLOPS = (1e9, 1e15), (1e8, 1e15), (1e9, 1e18)
# What a card can have; beyond lie slips of the unit.
_PLAUSIBLE = {
    "memory_bytes": _BYTES,
    "memory_bandwidth_bytes_per_s": _RATE,
    "measured_bandwidth_bytes_per_s": _RATE,
    "l2_bytes": (1e3, 1e12),
    "sm_count": (1, 1e6),
    "shared_memory_per_block_bytes": (1e3, 1e9),
    "max_sm_clock_hz": (1e6, 1e11),
    "bf16_flops_per_s": _FLOPS,
    "fp8_flops_per_s": _FLOPS,
    "fp4_flops_per_s": _FLOPS,
    "nvlink_bytes_per_s_bidirectional": (1e8, 1e15),
    "pcie_bytes_per_s": (1e6, 1e15),
    "bar1_bytes": (1e6, 1e15),
    "tdp_w": (1, 1e5),
}


class ReadCurve(msgspec.Struct, frozen=True):
    """Time of one read-only kernel by the bytes it reads, launched in a CUDA graph.

    A data sheet has one bandwidth, but a kernel that reads 20 MB gets two thirds of it: a launch that short can not
    fill the memory pipe. `points` are (bytes, seconds); both rise.
    """

    points: tuple[tuple[float, float], ...]
    evidence: Evidence
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise ValueError("a curve needs two points or more")
        if not all(math.isfinite(size) and size >= 0 and math.isfinite(s) and s > 0 for size, s in self.points):
            raise ValueError("sizes are finite and 0 or more, times finite and above 0")
        if any(b[0] <= a[0] or b[1] <= a[1] for a, b in zip(self.points, self.points[1:], strict=False)):
            raise ValueError("bytes and seconds both rise from point to point")

    def seconds(self, byte_count: float) -> float:
        """On a straight line between points; past the last at the rate of the last stretch; before the first, flat."""
        sizes = [size for size, _ in self.points]
        place = min(max(bisect_right(sizes, byte_count), 1), len(sizes) - 1)
        (size_a, time_a), (size_b, time_b) = self.points[place - 1 : place + 1]
        return time_a + max(byte_count - size_a, 0.0) * (time_b - time_a) / (size_b - size_a)


class Replaced(msgspec.Struct, frozen=True):
    """A figure of the catalogue that a measurement or the user has put another in place of."""

    field: str
    figure: Figure


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One card. Peaks are dense; memory as marketed (1 GB = 1e9 B) unless the note says otherwise; caches in MiB.

    Attributes:
        target: the exact architecture a kernel must be built for: "sm_120", "gfx942". Code for sm_100 does not run
            on it because a number is higher.
        memory_bandwidth_bytes_per_s: what a floor divides by.
        measured_bandwidth_bytes_per_s: the best sustained rate somebody published.
        shared_memory_per_block_bytes: the most one block can opt in to.
        nvlink_bytes_per_s_bidirectional: both directions added, as it is sold; Infinity Fabric on AMD cards.
        pcie_bytes_per_s: one direction.
        interconnect: what usually joins several of this card, by the name of an `Interconnect`.
        replaced: the catalogue's figures that others now stand in for.
    """

    name: str
    title: str
    vendor: str
    target: str
    target_source: str
    interconnect: str
    memory_bytes: Figure
    memory_bandwidth_bytes_per_s: Figure
    measured_bandwidth_bytes_per_s: Figure
    l2_bytes: Figure
    sm_count: Figure
    shared_memory_per_block_bytes: Figure
    max_sm_clock_hz: Figure
    bf16_flops_per_s: Figure
    fp8_flops_per_s: Figure
    fp4_flops_per_s: Figure
    nvlink_bytes_per_s_bidirectional: Figure
    pcie_bytes_per_s: Figure
    pcie_generation: Figure
    bar1_bytes: Figure
    tdp_w: Figure
    read_curve: ReadCurve | None = None
    replaced: tuple[Replaced, ...] = ()

    def __post_init__(self) -> None:
        if not _TARGET.fullmatch(self.target):
            raise ValueError(f"target: {self.target!r} is no exact architecture such as sm_120 or gfx942")
        for field in ("memory_bytes", "memory_bandwidth_bytes_per_s"):
            if not getattr(self, field).value:
                raise ValueError(f"{field}: a card needs a value above 0")
        for field, (least, most) in _PLAUSIBLE.items():
            value = getattr(self, field).value
            if value and not least <= value <= most:  # 0 says that there is no such unit
                raise ValueError(f"{field}: {value:g} is outside {least:g} to {most:g}: in another unit?")

    def peak(self, compute: str) -> Figure:
        """Dense FLOP/s of "bf16", "fp8" or "fp4" products; of other kinds it is not known."""
        field = f"{compute}_flops_per_s"
        if field not in FIGURES:
            return not_known(f"the catalogue has no {compute} rate of any card")
        figure: Figure = getattr(self, field)
        return figure

    def has_unit(self, compute: str) -> bool | None:
        """Whether the card multiplies this format in hardware; None where that is not known."""
        value = self.peak(compute).value
        return None if value is None else value > 0

    def catalogued(self, field: str) -> Figure:
        """The catalogue's own figure, whatever has been put in its place."""
        figure: Figure = next((r.figure for r in self.replaced if r.field == field), getattr(self, field))
        return figure

    @property
    def as_catalogued(self) -> "Gpu":
        """The card with its replaced figures put back: a floor at the data sheet goes beside one at the measured rate.

        The read curve stays, since no data sheet has one.
        """
        originals: dict[str, Any] = {r.field: r.figure for r in self.replaced}
        return msgspec.structs.replace(self, **originals, replaced=())


def gpu_names() -> list[str]:
    """Every card of the catalogue and of installed packages (entry points `sublight.gpus`), sorted."""
    return sorted({*card_names(), *_PLUGINS.names()})


def get_gpu(name: str) -> Gpu:
    """The card of this name, alias (what nvidia-smi prints) or TOML file; exact but for upper and lower case.

    Raises:
        UsageError: an everyday name that several cards share.
        UnknownNameError: no such card.
        InputFileError: a path to a TOML file that does not describe one.
    """
    wanted = name.strip()
    if wanted.lower() in card_names():
        return _bundled(wanted.lower())
    if wanted.lower().endswith(".toml"):
        return read_gpu(Path(wanted))
    called = [_bundled(card.name) for card in cards_called(wanted)]
    if len(called) == 1:
        return called[0]
    if called:
        raise _shared_name(wanted, called)
    if wanted in _PLUGINS:
        return _plugin(wanted)
    cards = [catalogue_card(name) for name in card_names()]
    spoken = {text for card in cards for text in (*card.aliases, *card.also_called)}
    raise UnknownNameError(
        "GPU", wanted, {*gpu_names(), *spoken}, f"a name that `sublight limit --list` prints, or a TOML file in {FORM}"
    )


def read_gpu(path: Path) -> Gpu:
    """The card that a TOML file describes. Raises InputFileError, which names the file and the field."""
    card = read_card(path)
    try:
        return _from_card(card)
    except ValueError as error:
        raise InputFileError(f"reading {path} as a GPU", str(error), FORM) from None


@cache
def _bundled(name: str) -> Gpu:
    return _from_card(catalogue_card(name))


def _from_card(card: CatalogueCard) -> Gpu:
    fields: dict[str, Any] = {field: not_known(_ABSENT.get(field, "no figure for it was found")) for field in FIGURES}
    fields |= card.figures
    fields |= {field: getattr(card, field) for field in _TEXTS}
    if card.curve is not None:
        curve = card.curve
        fields["read_curve"] = ReadCurve(curve.points, curve.evidence, curve.source, curve.note)
    return Gpu(**fields)


_TEXTS = ("name", "title", "vendor", "target", "target_source", "interconnect")
_ABSENT = {"measured_bandwidth_bytes_per_s": "no sustained rate of this card was found published"}


def _shared_name(name: str, cards: list[Gpu]) -> UsageError:
    listed = [
        f"{card.name} ({show_rate(card.memory_bandwidth_bytes_per_s.known)}, {significant(card.tdp_w.known)} W)"
        for card in cards
    ]
    found = f"{len(cards)} cards go by that name, and they differ: {', '.join(listed)}"
    return UsageError(f"GPU {name!r}", found, " or ".join(card.name for card in cards))


def _plugin(name: str) -> Gpu:
    found = _PLUGINS.load(name)
    if isinstance(found, str | Path):
        return read_gpu(Path(found))
    if isinstance(found, Gpu):
        return found
    kind = type(found).__name__
    raise UsageError(f"GPU {name!r}", f"a package adds it as {kind}", "a Gpu there, or the path of a TOML file")


def parse_gpus(text: str) -> tuple[int, Gpu]:
    """How many and which: "8xrtx-pro-6000-server", "8 x h200", "8*h200", "h200" (one), "8x./mycard.toml"."""
    match = _COUNTED.fullmatch(text)
    if match is None:
        raise UsageError("the GPUs", "nothing is named", "8xrtx-pro-6000-server")
    digits = match[1] or "1"
    if not digits.isdecimal() or not 1 <= int(digits[:8]) <= MOST_GPUS:
        raise UsageError(f"GPUs {text!r}", f"{digits} is no whole number from 1 to {MOST_GPUS:,}", f"8x{match[2]}")
    return int(digits), get_gpu(match[2])


def replace_figure(gpu: Gpu, field: str, figure: Figure) -> Gpu:
    """The card with another figure in this field, the catalogue's kept. Raises ValueError.

    Refused: a rate for a unit the card does not have, and a rate above twice or below a hundredth of the catalogue's,
    which is a wrong unit or clock and not a measurement.
    """
    value, original = figure.known, gpu.catalogued(field)
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value:g} is not finite and above 0")
    if original.value == 0:
        raise ValueError(f"{gpu.name} has no such unit: {original.note}")
    if original.value is not None and not original.value / 100 <= value <= 2 * original.value:
        times = f"{value / original.value:.2g}"
        raise ValueError(f"{value:.4g} a second is {times} times the catalogue's {original.value:.4g}: a wrong unit?")
    kept = {r.field: r.figure for r in gpu.replaced} | {field: original}
    changes: dict[str, Any] = {field: figure, "replaced": tuple(Replaced(f, kept[f]) for f in sorted(kept))}
    return msgspec.structs.replace(gpu, **changes)


def with_bandwidth(gpu: Gpu, bytes_per_s: float, evidence: Evidence = Evidence.GIVEN, source: str = "") -> Gpu:
    """The card at another memory bandwidth; `catalogued` still has the old one. Raises UsageError."""
    try:
        return replace_figure(gpu, "memory_bandwidth_bytes_per_s", Figure(bytes_per_s, evidence, source))
    except ValueError as error:
        raise UsageError(
            f"another bandwidth for {gpu.name}",
            str(error),
            f"what {gpu.name} was measured at; its data sheet says {show_rate(gpu.catalogued(_BANDWIDTH).known)}",
        ) from None


_BANDWIDTH = "memory_bandwidth_bytes_per_s"
_MEASURABLE = (_BANDWIDTH, "bf16_flops_per_s", "fp8_flops_per_s", "fp4_flops_per_s")
_MEASUREMENT = 'a file such as {"gpu": "gb10", "memory_bandwidth_bytes_per_s": 232e9}, or {"read_gbs": 232}'


class _Measured(msgspec.Struct, frozen=True, kw_only=True):
    gpu: str | None = None
    source: str = ""
    memory_bandwidth_bytes_per_s: float | None = None
    bf16_flops_per_s: float | None = None
    fp8_flops_per_s: float | None = None
    fp4_flops_per_s: float | None = None
    read_curve: tuple[tuple[float, float], ...] | None = None
    read_gbs: float | None = None


def with_measurements(gpu: Gpu, path: Path) -> Gpu:
    """The card with what a JSON file measured on this machine, the catalogue's figures kept.

    The file has any of `memory_bandwidth_bytes_per_s`, `bf16_`, `fp8_`, `fp4_flops_per_s` and `read_curve` ([[bytes,
    seconds], ...]), beside `gpu` and `source`; or it is a bare bandwidth probe, {"read_gbs": 232}.

    Raises:
        InputFileError: not such a file, made on another card, or with a value this card can not reach.
    """
    asked = f"reading {path} as measurements of {gpu.name}"
    measured = _read_measured(path, asked)
    # A file made on another card is refused; one that names no card is taken at its word.
    if measured.gpu not in (None, gpu.name) and get_gpu(measured.gpu or "").name != gpu.name:
        raise InputFileError(asked, f"gpu: it was made on {measured.gpu}", f"the measurements of a {gpu.name}")
    rates = {field: (field, getattr(measured, field)) for field in _MEASURABLE}
    if measured.read_gbs is not None:
        rates["read_gbs"] = (_BANDWIDTH, measured.read_gbs * 1e9)
    at = ""
    try:
        for said, (field, value) in rates.items():
            at = said
            if value is not None:
                gpu = replace_figure(gpu, field, Figure(value, Evidence.MEASURED, path.name, measured.source))
        at = "read_curve"
        if measured.read_curve is not None:
            curve = ReadCurve(measured.read_curve, Evidence.MEASURED, path.name, measured.source)
            _check_curve(curve, gpu.catalogued(_BANDWIDTH).known)
            gpu = msgspec.structs.replace(gpu, read_curve=curve)
    except ValueError as error:
        raise InputFileError(asked, f"{at}: {error}", _MEASUREMENT) from None
    return gpu


def _check_curve(curve: ReadCurve, bytes_per_s: float) -> None:
    """Raises ValueError for a point no memory of that bandwidth gives: read from a cache, or in other units."""
    for size, seconds in curve.points:
        at_sheet = size / bytes_per_s
        # A small read is all latency; a millisecond is more than any has.
        if not at_sheet / 2 <= seconds <= 100 * at_sheet + 1e-3:
            raise ValueError(f"{seconds:g} s for {size:g} B; at the catalogue's bandwidth it is {at_sheet:.3g} s")


def _read_measured(path: Path, asked: str) -> _Measured:
    data = read_small_file(path, asked, _MEASUREMENT)
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
        known = {field.name for field in msgspec.structs.fields(_Measured)}
        for key in raw:
            if key not in known:
                near = near_misses(key, known)
                raise InputFileError(asked, f"{key}: no such measurement", " or ".join(near) or _MEASUREMENT)
        measured = msgspec.convert(raw, _Measured)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, not an object, or a field of the wrong type
        raise InputFileError(asked, str(error), _MEASUREMENT) from None
    if all(raw[key] is None for key in raw.keys() - {"gpu", "source"}):
        raise InputFileError(asked, "it measures nothing", _MEASUREMENT)
    if {_BANDWIDTH, "read_gbs"} <= raw.keys():
        raise InputFileError(asked, f"read_gbs and {_BANDWIDTH} both say the bandwidth", "one of them")
    return measured

"""What a row can reach on this very card: as a benchmark measured it, or at the card's measured read rates."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sublight.errors import InputFileError, UnknownNameError, UsageError
from sublight.facts.gpu import get_gpu
from sublight.files import read_small_file
from sublight.limits.decode import DecodeLimit
from sublight.limits.under import under_floor

_FORM = '{"gpu": "h200", "source": "how it was measured", "us_per_call": {"moe.experts": 22.9}}'


class Attainable(msgspec.Struct, frozen=True):
    """What rows can reach.

    Attributes:
        rows: seconds a step.
        source: where they come from.
        missing: rows that nobody timed, and why.
        under: rows whose time lies under their floor, and why that can be.
        predicted: whether the times are a prediction, and nobody timed the rows themselves.
        eager: rows whose launches were timed one by one, and not in a graph.
    """

    rows: dict[str, float]
    source: str
    missing: dict[str, str] = {}
    under: dict[str, str] = {}
    predicted: bool = False
    eager: tuple[str, ...] = ()


class _Bench(msgspec.Struct, forbid_unknown_fields=True):
    us_per_call: dict[str, float]
    gpu: str | None = None
    source: str = ""


class _Schema(msgspec.Struct):
    schema: str | None = None


def at_read_rates(limit: DecodeLimit) -> Attainable | None:
    """One launch a row and layer, each at the measured time of a read of its size; None where nobody measured it."""
    rows = {r.id: r.practical_s for r in limit.rows if r.stage == "main" and r.practical_s is not None}
    if not rows:
        return None
    curve = limit.totals.practical_s.source or "a prediction"
    return Attainable(rows, f"one launch a row, at the read rates measured on this card: {curve}", predicted=True)


def refuse_twice(files: Sequence[Path]) -> None:
    """Raises UsageError for a file that is given twice, under another name too."""
    for place, file in enumerate(files):
        for other in files[:place]:
            if _one_file(file, other):
                named = "" if file == other else f", as {other} too"
                raise UsageError(f"--bench {file}", f"the same file is given twice{named}", "each file once")


def _one_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return one == other


def is_record(path: Path) -> bool:
    """Whether a file is a saved record rather than the small form. Raises InputFileError where it cannot be read."""
    asked = f"--bench {path}"
    try:
        found = msgspec.json.decode(read_small_file(path, asked, _FORM), type=_Schema)
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = f"a whole file: a record of `sublight bench`, or {_FORM}"
        raise InputFileError(asked, f"this is no JSON ({error})", hint) from None
    return found.schema is not None


def merged(several: Mapping[str, Attainable]) -> Attainable:
    """One of several, by file; a row is missing where none of them has it.

    Raises:
        UsageError: a row that two files time: which of them is meant is not told.
    """
    rows: dict[str, str] = {}
    missing: dict[str, str] = {}
    for file, one in several.items():
        shared = [row for row in one.rows if row in rows]
        if shared:
            raise UsageError(
                f"--bench {rows[shared[0]]} and --bench {file}",
                f"both time {', '.join(shared)}, and only one time of a row can be attainable",
                "one file for a row",
            )
        rows |= dict.fromkeys(one.rows, file)
        missing |= one.missing
    missing = {row: why for row, why in missing.items() if row not in rows}
    source = "; ".join(one.source for one in several.values())
    if missing:
        named = ", ".join(f"{row} ({why})" for row, why in missing.items())
        source += f"; without a time: {named}"
    every = several.values()
    return Attainable(
        rows={row: seconds for one in every for row, seconds in one.rows.items()},
        source=source,
        missing=missing,
        under={row: why for one in every for row, why in one.under.items()},
        eager=tuple(row for one in every for row in one.eager),
    )


def read_bench(path: Path, limit: DecodeLimit) -> Attainable:
    """Kernel times of this card from a JSON file: microseconds a call, by row; a call is what `sublight limit` counts.

    Raises:
        InputFileError: not such a file, of another card, or faster than memory and arithmetic allow, which is what a
            benchmark measures whose weights stay in cache from call to call.
        UnknownNameError: a row that this step does not have.
    """
    asked = f"--bench {path}"
    try:
        bench = msgspec.json.decode(read_small_file(path, asked, _FORM), type=_Bench)
    except msgspec.DecodeError as error:
        raise InputFileError(asked, str(error), _FORM) from None
    if bench.gpu is not None and get_gpu(bench.gpu).name != limit.gpu.name:
        found = f"it was measured on {bench.gpu}, the step is one of {limit.gpu.name}"
        raise InputFileError(asked, found, "times of the same card")
    calls = {r.id: r.cost.calls for r in limit.rows if r.stage == "main"}
    for collective in limit.collectives:  # one row may send messages of several sizes
        calls[collective.id] = calls.get(collective.id, 0) + collective.calls
    rows: dict[str, float] = {}
    below: dict[str, str] = {}
    for id_, each_us in bench.us_per_call.items():
        if id_ not in calls:
            raise UnknownNameError("row of this step", id_, calls)
        seconds = each_us * 1e-6 * calls[id_]
        if not 0 < seconds < 3600:
            raise InputFileError(asked, f"{id_}: {each_us:g} us a call", "times above zero, in microseconds")
        under = under_floor(limit, id_, seconds)
        if under is not None and not under.possible:
            least_us = under.least_s / calls[id_] * 1e6
            raise InputFileError(
                asked,
                f"{id_}: {each_us:g} us a call, and {under.needs} alone would take {least_us:.3g} us",
                "a benchmark that does all the work of the row in each call, with other weights each time, so that "
                "none are left in the L2 cache",
            )
        rows[id_] = seconds
        if under is not None:
            below[id_] = under.why
    return Attainable(rows, f"{path.name}: {bench.source}" if bench.source else path.name, under=below)

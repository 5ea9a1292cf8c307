"""The traces of several ranks of one run: which file is which rank, which are missing, and how their clocks stand.

One bad file does not end the reading: it is named and left out. So is a file of a rank that another file has already;
profilers leave several in one folder, and adding them up would count a rank twice.
"""

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sublight.errors import InputFileError
from sublight.trace.alignment import Clock, align
from sublight.trace.events import Trace
from sublight.trace.read import read_trace

_TRACE_NAME = re.compile(r".*\.(json|sqlite|db)(\.(gz|zst|zstd))?", re.IGNORECASE)
_MOST_RANKS = 1 << 16
_RANK = re.compile(r"(?<![a-z])rank[-_ ]?(\d+)", re.IGNORECASE)
_AXIS = re.compile(r"(?<![a-z])(TP|PP|DP|EP)[-_ ]?(\d+)", re.IGNORECASE)
_AXES = (("TP",), ("PP", "TP"), ("DP", "PP", "TP"), ("DP", "PP", "TP", "EP"))


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's trace. `how` says what its number was taken from."""

    number: int
    path: str
    trace: Trace
    how: str
    clock: Clock


class LeftOut(msgspec.Struct, frozen=True):
    """A file that is not used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of one run, in order. `missing` are those that the others say should be there."""

    ranks: tuple[Rank, ...]
    missing: tuple[int, ...]
    left_out: tuple[LeftOut, ...]


def read_ranks(paths: str | Path | Sequence[str | Path]) -> Ranks:
    """Read every rank.

    Args:
        paths: a folder, a pattern such as "run/*.json.gz", one file, or several files.

    Raises:
        InputFileError: not one file could be read as a trace; the first reason is given.
    """
    files = trace_files(paths)
    read: list[tuple[Path, Trace]] = []
    left_out: list[LeftOut] = []
    first_error: InputFileError | None = None
    for file in files:
        try:
            read.append((file, read_trace(file, operators=False)))
        except InputFileError as error:
            first_error = first_error or error
            left_out.append(LeftOut(str(file), error.found))
    if not read:
        raise first_error or InputFileError(
            f"reading the ranks in {paths}", "there is no trace file", "a folder of traces"
        )
    numbers = _numbers(read)
    chosen: dict[int, tuple[Path, Trace, str]] = {}
    for (file, trace), (number, how) in zip(read, numbers, strict=True):
        if number in chosen:
            left_out.append(LeftOut(str(file), f"rank {number} is in {chosen[number][0]} already ({how})"))
        else:
            chosen[number] = (file, trace, how)
    reference = chosen[min(chosen)][1]
    ranks = tuple(
        Rank(number, str(file), trace, how, _clock(reference, trace))
        for number, (file, trace, how) in sorted(chosen.items())
    )
    expected = max(*(trace.world_size or 0 for _, trace, _ in chosen.values()), max(chosen) + 1)
    # A file name may hold a number that is no rank; nobody has a million of them.
    missing = tuple(number for number in range(expected) if number not in chosen) if expected <= _MOST_RANKS else ()
    return Ranks(ranks, missing, tuple(left_out))


def trace_files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files meant by a folder, a pattern or a list, each once, sorted by name within each.

    Raises:
        InputFileError: a pattern or a folder without such files.
    """
    asked = [paths] if isinstance(paths, str | Path) else list(paths)
    found: dict[Path, None] = {}
    for one in asked:
        path = Path(one)
        if path.is_dir():
            here = sorted(file for file in path.iterdir() if _TRACE_NAME.fullmatch(file.name) and file.is_file())
            if not here:
                raise InputFileError(
                    f"reading the ranks in {path}",
                    "no file there is called .json, .json.gz, .json.zst or .sqlite",
                    "the folder that the profiler wrote to",
                )
        elif path.exists() or not glob.has_magic(str(one)):
            here = [path]
        else:
            # Path.glob takes no pattern with a root.
            here = sorted(Path(name) for name in glob.glob(str(one), recursive=True))  # noqa: PTH207
            if not here:
                raise InputFileError(f"reading the ranks {one}", "no file fits the pattern", "a pattern in quotes")
        found.update(dict.fromkeys(here))
    return list(found)


def _clock(reference: Trace, trace: Trace) -> Clock:
    if trace is reference:
        return Clock(0, 0, 0, "the first rank, whose clock the others are compared with")
    return align(reference, trace)


def _numbers(read: list[tuple[Path, Trace]]) -> list[tuple[int, str]]:
    """A rank for each file: as the trace says it, else as its name says it, else in the order of the names.

    Independent engines side by side (data parallel) all call themselves rank 0; their names then tell them apart.
    """
    told = [trace.rank for _, trace in read]
    named = _named([file.name for file, _ in read])
    clash = len({rank for rank in told if rank is not None}) < sum(rank is not None for rank in told)
    by_name = clash and None not in named and len(set(named)) == len(named)
    numbers: list[tuple[int, str]] = []
    for position, (rank, name) in enumerate(zip(told, named, strict=True)):
        if rank is not None and not by_name:
            numbers.append((rank, "distributedInfo"))
        elif name is not None:
            numbers.append((name, "the file name"))
        else:
            numbers.append((position, "the order of the file names"))
    return numbers


def _named(names: list[str]) -> list[int | None]:
    """Ranks from file names: "rank3", or axes such as "TP-1-PP-0", as few of them as tell all files apart."""
    ranks = [_RANK.search(name) for name in names]
    if all(ranks):
        return [int(match[1]) for match in ranks if match]
    axes = [{axis.upper(): int(number) for axis, number in _AXIS.findall(name)} for name in names]
    for used in _AXES:
        if any(not set(used) & axis.keys() for axis in axes):
            continue
        places = [tuple(axis.get(name, 0) for name in used) for axis in axes]
        if len(set(places)) == len(places) or used == _AXES[-1]:
            sizes = [max(place[i] for place in places) + 1 for i in range(len(used))]
            return [_mixed(place, sizes) for place in places]
    return [int(match[1]) if match else None for match in ranks]


def _mixed(place: tuple[int, ...], sizes: list[int]) -> int:
    number = 0
    for digit, size in zip(place, sizes, strict=True):
        number = number * size + digit
    return number

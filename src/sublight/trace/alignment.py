"""One clock for several ranks: how far apart they are, estimated from what they did together.

No rank leaves a collective before all have brought their part, so its end is nearly the same moment on all of them;
starts are not, since who comes first waits. The k-th collective of one kernel name and size on one rank is the k-th on
the other; the offset is the median difference of their ends, and the median distance from it says how good it is.
Profiles that begin or end a little apart hold unequally many collectives. Then every possible shift is tried, and of
those that fit about as well as the best the one with the smallest offset is taken: ranks of one host share a clock.
"""

import re

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.trace.events import Kind, Trace

# Kernels that are collectives by their name, where the profiler does not say it.
_COLLECTIVE = re.compile(
    r"nccl(Dev)?Kernel|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|one_?shot|two_?shot",
    re.IGNORECASE,
)
_MOST_SHIFTS = 256
_ABOUT_AS_GOOD = 1.5

Key = tuple[str, int | None]
Times = npt.NDArray[np.int64]


class Clock(msgspec.Struct, frozen=True):
    """How a rank's clock stands to the first rank's: subtract `offset_ns` from its times since 1970.

    `spread_ns` is the median distance of the single collectives from the offset; below it, the offset means nothing.
    `matched` is how many collectives were compared; with none there is no estimate and the offset is 0.
    """

    offset_ns: int
    spread_ns: int
    matched: int
    how: str


def collective_ends(trace: Trace) -> dict[Key, Times]:
    """When the collectives of a trace ended, by kernel name and size, in order."""
    gpu = trace.gpu
    by_launch = [launch.collective for launch in gpu.launches]
    named = [bool(_COLLECTIVE.search(name)) for name in gpu.names]
    if not any(named) and not any(by_launch):
        return {}
    wanted = np.array(named, bool)[gpu.name] | np.array([spoken is not None for spoken in by_launch], bool)[gpu.launch]
    rows = np.flatnonzero(wanted & gpu.is_kind(Kind.KERNEL))
    found: dict[Key, list[int]] = {}
    for name, launch, end in zip(
        gpu.name[rows].tolist(), gpu.launch[rows].tolist(), gpu.end[rows].tolist(), strict=True
    ):
        spoken = by_launch[launch]
        found.setdefault((gpu.names[name], spoken.elements_in if spoken else None), []).append(end)
    return {key: np.array(ends, np.int64) for key, ends in found.items()}


def align(reference: Trace, other: Trace) -> Clock:
    """The clock of another rank against the first one's."""
    ours, theirs = collective_ends(reference), collective_ends(other)
    differences, shifted = [], 0
    for key in ours.keys() & theirs.keys():
        difference, shift = _differences(ours[key], theirs[key])
        differences.append(difference)
        shifted += shift != 0
    base = other.base_time_ns - reference.base_time_ns
    if not differences:
        return Clock(0, 0, 0, "no collective in common; the clocks were taken as one")
    both = np.concatenate(differences)
    offset = int(np.median(both))
    how = "median difference of the ends of the same collectives, matched by kernel name, size and count"
    if shifted:
        how += f"; {shifted} of {len(differences)} kinds matched with a shift, as the profiles hold unequally many"
    return Clock(offset + base, int(np.median(np.abs(both - offset))), len(both), how)


def _differences(ours: Times, theirs: Times) -> tuple[Times, int]:
    """Their ends minus ours for the matching that fits best, and by how many collectives that one is shifted."""
    if len(ours) == len(theirs):
        return theirs - ours, 0
    tried = []
    most = min(_MOST_SHIFTS, abs(len(ours) - len(theirs)))
    for shift in range(-most, 1) if len(theirs) < len(ours) else range(most + 1):
        mine, other = ours[max(0, -shift) :], theirs[max(0, shift) :]
        length = min(len(mine), len(other))
        difference = other[:length] - mine[:length]
        middle = float(np.median(difference))
        tried.append((float(np.median(np.abs(difference - middle))), abs(middle), shift, difference))
    best = min(spread for spread, *_ in tried)
    good = [trial for trial in tried if trial[0] <= _ABOUT_AS_GOOD * best + 1]
    _, _, shift, difference = min(good, key=lambda trial: trial[1])
    return difference, shift

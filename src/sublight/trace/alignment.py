"""One clock for several ranks: how far apart they are, estimated from what they did together.

No rank leaves a collective before all have brought their part, so its end is nearly the same moment on all of them;
starts are not, since who comes first waits. The k-th collective of one kernel name and size on one rank is the k-th on
the other, unless their profiles begin apart, which equal counts do not rule out: one may lack the first step and the
other the last. So every shift that leaves half of them matched is tried. The offset is the median difference of their
ends, and the median distance from it says how well a shift fits: only the right one pairs ends of the same collectives,
whatever the steps in between took, and it must fit far better than one that the counts ask for. Where layers are alike
the median does not see that a shift pairs the last one of a step with the first of the next; but then a rank leaves
before another arrives, which can not be, so of shifts that fit alike those stay in which that happens least. Where
steps are so alike that several shifts are left, the one with the smallest offset is taken, because ranks of one host
share a clock, or the smallest shift if the clocks have nothing to do with each other; and unless they agree, the doubt
is told. So it is where the matched collectives contradict the offset.
"""

import re
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.trace.events import Kind, Trace
from sublight.units import show_time

# Kernels that are collectives by their name, where the profiler does not say it.
_COLLECTIVE = re.compile(
    r"nccl(Dev)?Kernel|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|one_?shot|two_?shot",
    re.IGNORECASE,
)
_MOST_SHIFTS = 2048
_MOST_COMPARED = 512
_FEWEST = 4  # compared: fewer fit well by chance
_ABOUT_AS_GOOD, _FAR_BETTER, _RESOLUTION_NS = 1.5, 3, 100
_SHARED = 0.05  # of the distance to the next offset that fits
_COMPARABLE_NS = 1_000_000_000  # hosts that ask a time server are far closer
_MOST_TOLD = 1 << 14  # looked at whether a rank left early
_DISTANCES = 3  # of the median: what lies farther off is no noise
_CHANCE = 0.01  # of the collectives: so many may be cut or lost

Key = tuple[str, int | None]
Times = npt.NDArray[np.int64]


class Clock(msgspec.Struct, frozen=True):
    """How a rank's clock stands to the first rank's: subtract `offset_ns` from its times since 1970.

    `spread_ns` is the median distance of the single collectives from the offset; below it, the offset means nothing.
    `matched` is how many collectives were compared; with none there is no estimate and the offset is 0. `doubt` says
    which other offset fits as well, or what contradicts this one.
    """

    offset_ns: int
    spread_ns: int
    matched: int
    how: str
    doubt: str = ""


class Collected(NamedTuple):
    """When the collectives of one kind started and ended, in order."""

    start: Times
    end: Times

    def __len__(self) -> int:
        return len(self.end)


def collective_times(trace: Trace) -> dict[Key, Collected]:
    """When the collectives of a trace started and ended, by kernel name and size, in order."""
    gpu = trace.gpu
    by_launch = [launch.collective for launch in gpu.launches]
    named = [bool(_COLLECTIVE.search(name)) for name in gpu.names]
    if not any(named) and not any(by_launch):
        return {}
    wanted = np.array(named, bool)[gpu.name] | np.array([spoken is not None for spoken in by_launch], bool)[gpu.launch]
    rows = np.flatnonzero(wanted & gpu.is_kind(Kind.KERNEL))
    found: dict[Key, list[int]] = {}
    for row, name, launch in zip(rows.tolist(), gpu.name[rows].tolist(), gpu.launch[rows].tolist(), strict=True):
        spoken = by_launch[launch]
        found.setdefault((gpu.names[name], spoken.elements_in if spoken else None), []).append(row)
    return {key: Collected(gpu.start[those], gpu.end[those]) for key, those in found.items()}


def align(reference: Trace, other: Trace) -> Clock:
    """The clock of another rank against the first one's."""
    ours, theirs = collective_times(reference), collective_times(other)
    common = sorted(ours.keys() & theirs.keys(), key=lambda key: (-len(ours[key]), str(key)))
    if not common:
        return Clock(0, 0, 0, "no collective in common; the clocks were taken as one")
    base = other.base_time_ns - reference.base_time_ns
    # The commonest kind has most to tell; of the others the shift is taken that comes nearest to its offset.
    mine, yours = ours[common[0]], theirs[common[0]]
    good = _fitting(_tried(mine.end, yours.end), len(yours) - len(mine))
    chosen, rivals, early = _possible(mine, yours, good, base)
    shifts = {common[0]: chosen.shift}
    for key in common[1:]:
        nearest = min(_tried(ours[key].end, theirs[key].end), key=lambda trial: abs(trial.middle - chosen.middle))
        shifts[key] = nearest.shift
    both = np.concatenate([_differences(ours[key].end, theirs[key].end, shift) for key, shift in shifts.items()])
    offset = int(np.median(both))
    how = "median difference of the ends of the same collectives, matched by kernel name, size and count"
    shifted = sum(shift != 0 for shift in shifts.values())
    if shifted:
        how += f"; {shifted} of {len(shifts)} kinds matched with a shift, as the profiles begin apart"
    doubt = "; ".join(word for word in (_unsure(chosen, rivals, base), early) if word)
    return Clock(offset + base, int(np.median(np.abs(both - offset))), len(both), how, doubt)


class _Trial(NamedTuple):
    """The k-th of ours is the one of theirs so many places on: the median difference, and how far it varies."""

    shift: int
    middle: float
    spread: float


def _tried(ours: Times, theirs: Times) -> list[_Trial]:
    """Every shift that leaves enough of the collectives matched; the one of equal counts is always there."""
    few = min(len(ours), len(theirs))
    least = max(_FEWEST, (few + 1) // 2)
    low, high = least - len(ours), len(theirs) - least
    if few < _FEWEST:
        low, high = min(0, len(theirs) - len(ours)), max(0, len(theirs) - len(ours))
    found = []
    for shift in range(max(low, -_MOST_SHIFTS), min(high, _MOST_SHIFTS) + 1):
        difference = _differences(ours, theirs, shift)
        difference = difference[:: max(1, len(difference) // _MOST_COMPARED)]
        middle = float(np.median(difference))
        found.append(_Trial(shift, middle, float(np.median(np.abs(difference - middle)))))
    return found


def _fitting(tried: list[_Trial], missing: int) -> list[_Trial]:
    """The shifts that fit about equally well.

    Args:
        tried: all shifts.
        missing: by how many collectives the other rank has more; a shift between none and that needs no explanation.
    """
    plain = min((t for t in tried if min(0, missing) <= t.shift <= max(0, missing)), key=lambda trial: trial.spread)
    best = min(tried, key=lambda trial: trial.spread)
    fit = plain if plain.spread <= _FAR_BETTER * best.spread + _RESOLUTION_NS else best
    return [trial for trial in tried if trial.spread <= _ABOUT_AS_GOOD * fit.spread + _RESOLUTION_NS]


def _possible(ours: Collected, theirs: Collected, good: list[_Trial], base: int) -> tuple[_Trial, list[_Trial], str]:
    """The shift to take, others that are as possible, and what contradicts the one taken.

    One collective more in which a rank leaves early decides nothing, for a row may be lost.

    Args:
        ours: the collectives of one kind.
        theirs: those of the other rank.
        good: the shifts that fit about equally well.
        base: what lies between the zeros of the two clocks.
    """
    left = {trial.shift: _left_early(ours, theirs, trial) for trial in good}
    least = min(left.values())
    kept = [trial for trial in good if left[trial.shift] <= 2 * least + 1]
    nearest = min(kept, key=lambda trial: abs(trial.middle + base))
    if abs(nearest.middle + base) > _COMPARABLE_NS:
        nearest = min(kept, key=lambda trial: (abs(trial.shift), trial.spread))
    early, pairs = left[nearest.shift], len(_differences(ours.end, theirs.end, nearest.shift))
    said = f"in {early} of {pairs} collectives matched so, a rank left before another arrived"
    contradicted = early > least or early > max(1, _CHANCE * min(pairs, _MOST_TOLD))
    return nearest, [trial for trial in kept if trial is not nearest], said if contradicted else ""


def _left_early(ours: Collected, theirs: Collected, trial: _Trial) -> int:
    """In how many collectives a rank leaves before the other arrives, if the clocks are as far apart as a shift says.

    They must not be thinned out, or the ends of steps are missed: of very many, a stretch in the middle is looked at.
    """
    offset = round(trial.middle)
    first = _differences(ours.end, theirs.start, trial.shift) - offset
    second = _differences(ours.start, theirs.end, trial.shift) - offset
    skipped = max(0, len(first) - _MOST_TOLD) // 2
    looked_at, noise = slice(skipped, skipped + _MOST_TOLD), _DISTANCES * trial.spread + _RESOLUTION_NS
    return int(np.count_nonzero((first[looked_at] > noise) | (second[looked_at] < -noise)))


def _unsure(chosen: _Trial, rivals: list[_Trial], base: int) -> str:
    """Which other offset fits as well. Clocks that agree so well by chance would be a wonder; others may be off."""
    nearest_ns = min((abs(rival.middle - chosen.middle) for rival in rivals), default=0)
    if not rivals or abs(chosen.middle + base) <= _SHARED * nearest_ns:
        return ""
    taken = "smallest" if abs(chosen.middle + base) <= _COMPARABLE_NS else "one with the smallest shift"
    return (
        f"the collectives recur so evenly that offsets {show_time(nearest_ns / 1e9)} apart fit as well; taken was "
        f"the {taken}"
    )


def _differences(ours: Times, theirs: Times, shift: int) -> Times:
    """Theirs minus ours."""
    mine, other = ours[max(0, -shift) :], theirs[max(0, shift) :]
    length = min(len(mine), len(other))
    return other[:length] - mine[:length]

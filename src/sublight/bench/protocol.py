"""The protocol of a time: how often, in which order, over how many weights, and when to stop. Arithmetic, no torch.

1. Nothing is timed that was not compared: `judge.py`.
2. Weights rotate, so that at least twice the L2 cache is read between two uses of the same bytes; a step of a model
   does the same to itself.
3. Candidates take turns, round by round, and the order turns as well: a clock that drops under load drops for all.
4. Rounds go on until the quartiles lie within a bound of the median, or the time is up, which is then said.
5. A time that needs more bandwidth than this memory has is one of the cache, and is marked.
"""

import time
from collections.abc import Callable, Mapping
from math import ceil

import msgspec

from sublight.bench.record.measurement import Timing

L2_TIMES = 2
"""How much is read between two uses of the same bytes, in sizes of the L2 cache."""
CACHE_HOT = "faster than memory allows, cache-hot"
# Rates of memory scatter by this much from run to run; less than that above the ceiling proves no cache.
_RATE_SLACK = 1.03


class StoppingRule(msgspec.Struct, frozen=True, kw_only=True):
    """When rounds end: at the earliest after `least`, as soon as the quartiles are within `spread` of the median."""

    least: int = 7
    most: int = 60
    spread: float = 0.01
    budget_s: float = 2.0


def sets_needed(bytes_per_call: float, l2_bytes: float) -> int:
    """Different sets of weights that have to take turns; 1 where a single call reads so much that none survives.

    8 experts of 2.65 MB beside an L2 cache of 134 MB: 13 sets.
    """
    return max(1, ceil(L2_TIMES * l2_bytes / bytes_per_call))


def is_cold(sets: int, bytes_per_call: float, l2_bytes: float | None) -> bool | None:
    """Whether so many sets read twice the cache; None where its size is not known."""
    return None if l2_bytes is None else sets * bytes_per_call >= L2_TIMES * l2_bytes


def rate_warning(byte_count: float, seconds: float, bytes_per_s: float | None) -> str:
    """`CACHE_HOT` for a call that would need more bandwidth than there is, otherwise ""."""
    if bytes_per_s is None or byte_count / seconds <= bytes_per_s * _RATE_SLACK:
        return ""
    return CACHE_HOT


def settled(rounds_s: list[float], rule: StoppingRule) -> bool:
    if len(rounds_s) < rule.least:
        return False
    low, median, high = quartiles(rounds_s)
    return high - low <= rule.spread * median


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile, on straight lines between the values."""
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return at(0.25), at(0.5), at(0.75)


def interleave(
    rounds: Mapping[str, Callable[[], float]],
    calls: Mapping[str, int],
    rule: StoppingRule,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, Timing]:
    """Every candidate's time, rounds taken in turns.

    Args:
        rounds: name -> one round of it, which returns the seconds of one call.
        calls: name -> calls in a round.
        rule: of all of them together: they end together, as they share the machine.
    """
    taken: dict[str, list[float]] = {name: [] for name in rounds}
    names = list(rounds)
    deadline = now() + rule.budget_s * max(1, len(names))
    for number in range(rule.most):
        turn = number % max(1, len(names))
        for name in names[turn:] + names[:turn]:
            taken[name].append(rounds[name]())
        if all(settled(times, rule) for times in taken.values()):
            break
        if number + 1 >= rule.least and now() > deadline:
            break
    found = {}
    for name, times in taken.items():
        low, median, high = quartiles(times)
        found[name] = Timing(
            median_s=median,
            low_s=low,
            high_s=high,
            rounds=len(times),
            calls=calls[name],
            settled=settled(times, rule),
        )
    return found

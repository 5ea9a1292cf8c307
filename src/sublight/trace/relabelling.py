"""Whether two sets of steps differ by more than steps differ anyway: a test that assumes no distribution.

If it made no difference which trace a step is from, the labels A and B could be dealt out to the same steps in any
other way, and the two means would lie as far apart about as often. So the p-value of a part is the share of all ways to
deal them out in which its means are at least as far apart as they are (Fisher 1935; Pitman 1937). Means, and not ranks,
because ranks can not get small enough on few steps: of three against nine they give at best 2 in 220, means 1 in 220.

Many parts are tested at once, so some look different by chance. Holm (1979) multiplies the smallest p-value by the
number of parts, the next by one less, and so on; on fewer than six steps a side none of twenty parts could pass that.
Westfall and Young (1993; as "step-down maxT" in Ge, Dudoit and Speed 2003) step down in the same way but ask of the
dealt labels themselves how often *any* of the parts left would stand out so far. It keeps the same promise, a false
alarm in at most one of twenty comparisons at the level 0.05, and lets a part pass that stands out far on few steps. How
far a part stands out is the share of its variance that the labels explain, which is the same scale for all parts.
"""

from dataclasses import dataclass
from itertools import chain, combinations
from math import comb

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_MOST_EXACT = 200_000  # ten steps against ten are 184,756 ways
_DRAWN = 20_000
_SAME = 1e-9  # sums of the same numbers in another order are no different


@dataclass(frozen=True, slots=True)
class Tested:
    """The outcome for each part.

    Attributes:
        p: of each part for itself.
        holm: the same after Holm's correction.
        joint: the same after Westfall and Young's.
        smallest: the smallest p-value that so few steps allow.
        ways: how many ways to deal out the labels were looked at.
        exact: whether those are all; otherwise they were drawn at random, always the same ones.
    """

    p: tuple[float, ...]
    holm: tuple[float, ...]
    joint: tuple[float, ...]
    smallest: float
    ways: int
    exact: bool


def compare_means(a: Floats, b: Floats) -> Tested:
    """Test all parts at once.

    Args:
        a: (steps of A, parts).
        b: (steps of B, parts).
    """
    # A against B and B against A are the same question and get the same answer, also where labels are drawn.
    if (len(a), a.tolist()) > (len(b), b.tolist()):
        a, b = b, a
    values = np.concatenate((a, b)).astype(np.float64)
    labels, exact = _labels(len(a), len(values))
    explained = _explained(labels, values - values.mean(axis=0))
    p = np.mean(explained >= explained[0] - _SAME, axis=0)
    return Tested(
        p=tuple(p.tolist()),
        holm=tuple(_holm(p).tolist()),
        joint=tuple(_step_down(explained).tolist()),
        smallest=_smallest(len(a), len(b)) if exact else 1 / len(labels),
        ways=len(labels),
        exact=exact,
    )


def _smallest(one: int, other: int) -> float:
    """Where there are equally many of both, the mirrored labels are always as extreme."""
    return (2 if one == other else 1) / comb(one + other, one)


def _labels(few: int, every: int) -> tuple[Floats, bool]:
    """A row of ones (A) and zeros (B) for each way to deal out the labels; in the first, they lie as they are."""
    exact = comb(every, few) <= _MOST_EXACT
    if exact:
        flat = np.fromiter(chain.from_iterable(combinations(range(every), few)), np.int64)
        chosen = flat.reshape(-1, few)
    else:
        random = np.random.default_rng(0).random((_DRAWN, every))
        chosen = np.concatenate((np.arange(few)[None], np.argpartition(random, few, axis=1)[:, :few]))
    labels = np.zeros((len(chosen), every))
    labels[np.arange(len(chosen))[:, None], chosen] = 1
    return labels, exact


def _explained(labels: Floats, deviation: Floats) -> Floats:
    """For each way and part, the share of the variance that lies between the two means; 0 where nothing varies."""
    every = len(deviation)
    few = labels[0].sum()
    between = (labels @ deviation) ** 2 * (every / (few * (every - few)))
    total = (deviation**2).sum(axis=0)
    explained: Floats = between / np.where(total > 0, total, 1)
    return explained


def _holm(p: Floats) -> Floats:
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return adjusted


def _step_down(explained: Floats) -> Floats:
    """Each part beside those that stand out no further than itself."""
    order = np.argsort(-explained[0], kind="stable")
    adjusted = np.empty(len(order))
    most = np.zeros(len(explained))
    for part in order[::-1].tolist():
        most = np.maximum(most, explained[:, part])
        adjusted[part] = np.mean(most >= explained[0, part] - _SAME)
    adjusted[order] = np.maximum.accumulate(adjusted[order])
    return adjusted

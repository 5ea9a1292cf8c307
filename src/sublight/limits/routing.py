"""How many different experts a step reads: in all, and on the busiest rank of an expert-parallel group."""

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING

import msgspec

from sublight.facts.inventory import Moe
from sublight.facts.workload import Routing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float64]
    Choices = NDArray[np.bool_]

_NONE_MISSED = 1e-6  # expected number of experts missed, below which none is
_EXACT_UP_TO = 1024  # experts: the exact law takes seconds above
_SAMPLES = 2_000_000  # random numbers drawn for a simulation: a few hundred milliseconds
_AT_ONCE = 250_000  # of them held in memory together


class Expectation(msgspec.Struct, frozen=True):
    """An expected number. `error` is its standard error, 0 where it is exact; `how` says which."""

    value: float
    how: str
    error: float = 0.0


def distinct_experts(moe: Moe, tokens: int, routing: Routing) -> Expectation:
    """Expected number of different experts that `tokens` tokens choose in one layer.

    Uniform: E (1 - (1 - k/E)^T): each expert is missed by one token with probability 1 - k/E, and tokens choose apart
    from each other. Measured: the same with each expert's own probability. Choosing groups of experts first does not
    change it, as every expert is still chosen with probability k/E.
    """
    if tokens == 1:
        return Expectation(float(moe.top_k), "one token")
    if routing.is_uniform:
        miss = 1 - moe.top_k / moe.experts
        return Expectation(moe.experts * (1 - miss**tokens), "expected, uniform routing")
    chances = routing.inclusion(moe.top_k)
    return Expectation(sum(1 - (1 - p) ** tokens for p in chances), f"expected, routing measured in {routing.source}")


def busiest_rank_experts(moe: Moe, tokens: int, ranks: int, routing: Routing) -> Expectation:
    """Expected number of different experts on the rank that holds the most of those chosen.

    Ranks hold experts/ranks consecutive experts each. Exact for uniform routing without group limits, else simulated.
    """
    if ranks == 1:
        return distinct_experts(moe, tokens, routing)
    chances = routing.inclusion(moe.top_k) if routing.counts else [moe.top_k / moe.experts] * moe.experts
    if sum((1 - p) ** tokens for p in chances if p) < _NONE_MISSED:
        size = moe.experts // ranks
        most = max(sum(p > 0 for p in chances[first : first + size]) for first in range(0, moe.experts, size))
        return Expectation(float(most), "every expert that is ever chosen is hit")
    limited = moe.top_groups < moe.groups
    if routing.is_uniform and not limited and moe.experts <= _EXACT_UP_TO:
        return Expectation(_exact(moe, tokens, ranks), "E[max over ranks], exact, uniform routing")
    return _simulated(moe, tokens, ranks, routing)


def _exact(moe: Moe, tokens: int, ranks: int) -> float:
    """Sum over D of P(D experts hit) x E[max | D].

    Given their number, the experts hit are a uniformly random set, by symmetry; so the counts per rank follow a
    multivariate hypergeometric law, and P(max <= m | D) is the coefficient of x^D in (sum_{j<=m} C(s,j) x^j)^ranks over
    C(E, D), with s experts a rank.
    """
    experts, size = moe.experts, moe.experts // ranks
    hit = _hits(experts, moe.top_k, tokens)
    likely = [d for d, p in enumerate(hit) if p > 1e-12]
    total = {d: comb(experts, d) for d in likely}
    expected = dict.fromkeys(likely, 0.0)
    top = likely[-1]
    for most in range(min(size, top)):
        # E[max] = sum over m >= 0 of P(max > m).
        ways = _power([comb(size, j) for j in range(most + 1)], ranks, top)
        for d in likely:
            at_most = ways[d] / total[d] if d < len(ways) else 0.0
            expected[d] += 1.0 - at_most
    return sum(hit[d] * expected[d] for d in likely) / sum(hit[d] for d in likely)


def _hits(experts: int, top_k: int, tokens: int) -> list[float]:
    """Distribution of the number of different experts hit by `tokens` independent uniform choices of `top_k`."""
    chance = [0.0] * (experts + 1)
    chance[0] = 1.0
    all_ways = comb(experts, top_k)
    new_ways: dict[int, list[float]] = {}
    for _ in range(tokens):
        after = [0.0] * (experts + 1)
        for seen, p in enumerate(chance):
            if p < 1e-15:
                continue
            if seen not in new_ways:
                new_ways[seen] = [
                    comb(experts - seen, fresh) * comb(seen, top_k - fresh) / all_ways for fresh in range(top_k + 1)
                ]
            for fresh, q in enumerate(new_ways[seen]):
                if q and seen + fresh <= experts:
                    after[seen + fresh] += p * q
        chance = after
    return chance


def _power(polynomial: Sequence[int], exponent: int, degree: int) -> list[int]:
    """The polynomial to a power, cut off above `degree`. Whole numbers, packed into one big integer each.

    Multiplying polynomials with whole coefficients is multiplying two numbers written in a base that no coefficient
    reaches (Kronecker substitution), which Python does in its own C code.
    """
    bits = sum(polynomial).bit_length() * exponent + 1
    packed = 0
    for coefficient in reversed(polynomial):
        packed = (packed << bits) | coefficient
    raised = packed**exponent
    mask = (1 << bits) - 1
    out = []
    for _ in range(degree + 1):
        out.append(raised & mask)
        raised >>= bits
        if not raised:
            break
    return out


def _simulated(moe: Moe, tokens: int, ranks: int, routing: Routing) -> Expectation:
    """Seeded: tokens choose their experts, those of each rank are counted, and the standard error is stated.

    Uniform routing gives every expert an independent score (Gumbel; only the order counts, and of groups the sum of the
    two best, as noaux_tc routing scores them). Measured routing keeps each expert's own chance, see `_by_chance`.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    samples = max(16, min(4096, _SAMPLES // (tokens * moe.experts)))
    at_once = max(1, _AT_ONCE // (tokens * moe.experts))
    chances = None if routing.is_uniform else np.asarray(routing.inclusion(moe.top_k))
    maxima = []
    for first in range(0, samples, at_once):
        draws = min(at_once, samples - first)
        if chances is None:
            chosen = _by_score(moe, generator.gumbel(size=(draws * tokens, moe.experts)))
        else:
            chosen = _by_chance(chances, generator, draws * tokens)
        hit = chosen.reshape(draws, tokens, moe.experts).any(axis=1)
        maxima.append(hit.reshape(draws, ranks, -1).sum(axis=2).max(axis=1))
    drawn = np.concatenate(maxima)
    kind = "uniform routing" if routing.is_uniform else f"routing measured in {routing.source}"
    limited = routing.is_uniform and moe.top_groups < moe.groups
    groups = f" within {moe.top_groups} of {moe.groups} groups" if limited else ""
    error = float(drawn.std(ddof=1) / samples**0.5)
    # Never below what one rank expects by itself, which is known exactly.
    alone = 0.0 if chances is None else float((1 - (1 - chances) ** tokens).reshape(ranks, -1).sum(axis=1).max())
    return Expectation(
        max(alone, float(drawn.mean())),
        f"E[max over ranks], {samples} seeded draws, {kind}{groups}, +- {error:.2g}",
        error,
    )


def _by_score(moe: Moe, scores: "Scores") -> "Choices":
    """The `top_k` best of each line of `scores` [tokens, experts], within the best groups where routing is limited."""
    import numpy as np

    if moe.top_groups < moe.groups:
        grouped = scores.reshape(len(scores), moe.groups, moe.experts // moe.groups)
        best = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
        dropped = np.argpartition(-best, moe.top_groups - 1, axis=1)[:, moe.top_groups :]
        np.put_along_axis(grouped, dropped[:, :, None], -np.inf, axis=1)
        scores = grouped.reshape(len(scores), moe.experts)
    chosen = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(chosen, np.argpartition(-scores, moe.top_k - 1, axis=1)[:, : moe.top_k], True, axis=1)
    return chosen


def _by_chance(chances: "Scores", generator: "np.random.Generator", tokens: int) -> "Choices":
    """`tokens` sets of experts, [tokens, experts], in which each expert has exactly its own chance.

    Systematic sampling (Madow 1949): lay the chances end to end in random order, and take the expert under every whole
    step from a random start. The chances sum to top-k and none is above 1, so a set holds top-k different experts.
    """
    import numpy as np

    order = generator.permuted(np.tile(np.arange(len(chances)), (tokens, 1)), axis=1)
    laid = np.cumsum(chances[order], axis=1)
    laid[:, -1] = round(float(chances.sum()))
    start = generator.random((tokens, 1))
    after = np.floor(laid - start)
    taken = np.diff(after, axis=1, prepend=np.floor(-start)) > 0
    chosen = np.zeros(taken.shape, dtype=bool)
    np.put_along_axis(chosen, order, taken, axis=1)
    return chosen

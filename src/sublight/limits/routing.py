"""How many different experts a step reads: in all, and on the busiest rank of an expert-parallel group."""

from collections.abc import Sequence
from math import comb

import msgspec

from sublight.facts.inventory import Moe
from sublight.facts.workload import Routing

_NONE_MISSED = 1e-6  # expected number of experts missed, below which none is
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
    if routing.is_uniform and not limited:
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
    """Seeded: tokens choose their groups and experts, ranks are counted, and the standard error is stated.

    Measured routing is drawn without replacement with the counts as weights (Gumbel keys), which keeps a token's
    experts different from each other.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    samples = max(16, min(4096, _SAMPLES // (tokens * moe.experts)))
    weights = np.zeros(moe.experts)
    if not routing.is_uniform:
        weights = np.log(np.maximum(np.asarray(routing.counts, dtype=float), 1e-30))
    group_size = moe.experts // moe.groups
    at_once = max(1, _AT_ONCE // (tokens * moe.experts))
    maxima = []
    for first in range(0, samples, at_once):
        draws = min(at_once, samples - first)
        keys = weights + generator.gumbel(size=(draws * tokens, moe.experts))
        if moe.top_groups < moe.groups:
            grouped = keys.reshape(draws * tokens, moe.groups, group_size)
            # A group is scored by the sum of its two best experts, as noaux_tc routing does.
            best = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
            dropped = np.argpartition(-best, moe.top_groups - 1, axis=1)[:, moe.top_groups :]
            np.put_along_axis(grouped, dropped[:, :, None], -np.inf, axis=1)
            keys = grouped.reshape(draws * tokens, moe.experts)
        chosen = np.argpartition(-keys, moe.top_k - 1, axis=1)[:, : moe.top_k].reshape(draws, tokens * moe.top_k)
        hit = np.zeros((draws, moe.experts), dtype=bool)
        np.put_along_axis(hit, chosen, True, axis=1)
        maxima.append(hit.reshape(draws, ranks, -1).sum(axis=2).max(axis=1))
    drawn = np.concatenate(maxima)
    kind = "uniform routing" if routing.is_uniform else f"routing measured in {routing.source}"
    groups = f" within {moe.top_groups} of {moe.groups} groups" if moe.top_groups < moe.groups else ""
    error = float(drawn.std(ddof=1) / samples**0.5)
    return Expectation(
        float(drawn.mean()), f"E[max over ranks], {samples} seeded draws, {kind}{groups}, +- {error:.2g}", error
    )

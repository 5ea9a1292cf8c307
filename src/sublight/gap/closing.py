"""Whether a saved gap's numbers belong together: sums close, the standing is what the numbers say, nothing is twice."""

from collections.abc import Iterator

from sublight.gap.claims import ClaimedPart
from sublight.gap.compare import Gap, standing_of
from sublight.records import differ, repeated


def gap_flaws(gap: Gap) -> Iterator[str]:
    """What contradicts itself in a gap; nothing in one that was computed."""
    measured = gap.measured_s.value
    if measured is None or measured <= 0:
        yield "its measured step is not above zero"
        return
    yield from gap.limit.flaws()
    if gap.trace is not None:
        yield from gap.trace.flaws()
    told = standing_of(gap.limit, measured, gap.trace)
    if gap.standing != told:
        yield f"it is said to stand {gap.standing!r}, and its numbers say {told!r}"
    yield from _repeats(gap)
    yield from _claims(gap, measured)
    if gap.beside is not None:
        yield from gap_flaws(gap.beside)


def _repeats(gap: Gap) -> Iterator[str]:
    lists: tuple[tuple[str, list[object]], ...] = (
        ("measured row", [r.id for r in gap.rows]),
        ("published row", [p.id for p in gap.published]),
        ("next step", [s.id for s in gap.steps]),
        ("remedy", [r.id for r in gap.remedies]),
        ("batch size", [p.batch for p in gap.points]),
    )
    for what, names in lists:
        for name in repeated(names):
            yield f"{what} {name} is there twice"
    present = {r.id for r in gap.limit.rows} | {c.id for c in gap.limit.collectives}
    named = [*(p.id for p in gap.published), *(id_ for part in gap.claimed_parts for id_ in part.rows)]
    for id_ in named:
        if id_ not in present:
            yield f"{id_!r} is no row of its step"


def _claims(gap: Gap, measured: float) -> Iterator[str]:
    claim = gap.claimed_floor
    if claim is not None:
        terms = {t.id: t.seconds for t in gap.limit.terms}
        if claim.claimed_s <= 0 or not set(claim.left_out) <= set(terms):
            yield "its claimed floor cannot be read"
        elif (
            differ(claim.naive_s, gap.limit.totals.naive_s)
            or differ(claim.room_s, claim.claimed_s - claim.naive_s)
            or differ(claim.left_out_s, sum(terms[id_] for id_ in claim.left_out))
            or differ(claim.share_of_measured, claim.claimed_s / measured)
        ):
            yield "what it says of the claimed floor does not follow from its numbers"
    for part in gap.claimed_parts:
        if _part_is_off(part, measured):
            yield f"what it says of the claimed part {part.text!r} does not follow from its numbers"


def _part_is_off(part: ClaimedPart, measured: float) -> bool:
    return (
        part.published_rows > len(part.rows)
        or differ(part.rest_s, measured - part.claimed_s)
        or part.rest_fp4_floor_s > part.rest_floor_s * (1 + 1e-6)
    )

"""A measured time held against the floor of its row: above it, under one that may itself be off, or impossible."""

import msgspec

from sublight.limits.decode import DecodeLimit, RowLimit
from sublight.records import Evidence
from sublight.units import show_rate

# A time this little under its floor is the scatter of a clock; more is a cache.
_SLACK = 0.98


class Under(msgspec.Struct, frozen=True):
    """A time under the floor of its row.

    Attributes:
        possible: whether there can be such a time, so that the floor may be what is off.
        why: or why not.
        needs: what takes longer in an impossible one: "its bytes", "its arithmetic".
        least_s: the shortest time that is possible.
    """

    possible: bool
    why: str
    needs: str = ""
    least_s: float = 0.0


def collective_floors(limit: DecodeLimit) -> dict[str, float]:
    """Best published time of each kind of message whose time is known; drafting sends some of them at another size."""
    floors: dict[str, float] = {}
    for collective in limit.collectives:
        if collective.best_s.value is not None:
            floors[collective.id] = floors.get(collective.id, 0.0) + collective.calls * collective.best_s.value
    return floors


def under_floor(limit: DecodeLimit, id_: str, seconds: float) -> Under | None:
    """How a row's time of a step stands under its floor; None where it does not.

    What the card's data sheet rules out is a read from a cache. A floor on another bandwidth than the data sheet's, or
    on a published collective, may be beaten, and then it is the floor that is off.
    """
    row = next((r for r in limit.rows if r.id == id_ and r.stage == "main"), None)
    if row is None:
        return _under_messages(limit, id_, seconds)
    if seconds >= row.time_s:
        return None
    least_s = _on_the_data_sheet(limit, row)
    if seconds >= least_s:
        used, sheet = limit.gpu.bandwidth_bytes_per_s, limit.gpu.data_sheet_bandwidth_bytes_per_s
        given = f" ({used.source})" if used.source else ""
        why = (
            f"under the floor, which stands on {show_rate(used.known)}{given} where the data sheet says "
            f"{show_rate(sheet.known)}: the memory is faster than that floor has it"
        )
        return Under(True, why)
    if seconds >= least_s * _SLACK:
        return Under(True, "under the floor by no more than a clock scatters")
    if row.compute_s < least_s:
        return Under(False, "below its floor: read from a cache", "its bytes", least_s)
    return Under(False, "below its floor: its arithmetic alone takes longer", "its arithmetic", least_s)


def _on_the_data_sheet(limit: DecodeLimit, row: RowLimit) -> float:
    """The row's floor at the faster of the bandwidth that was used and the data sheet's."""
    used, sheet = limit.gpu.bandwidth_bytes_per_s.known, limit.gpu.data_sheet_bandwidth_bytes_per_s.value
    return max(row.memory_s * used / max(used, sheet or 0.0), row.compute_s)


def _under_messages(limit: DecodeLimit, id_: str, seconds: float) -> Under | None:
    floor_s = collective_floors(limit).get(id_, 0.0)
    if seconds >= floor_s:
        return None
    known = [c for c in limit.collectives if c.id == id_ and c.best_s.value is not None]
    given = any(c.best_s.evidence is Evidence.GIVEN for c in known)
    of = "a time that was given" if given else "the best published time"
    rules = "; ".join(dict.fromkeys(c.best_rule for c in known))
    return Under(True, f"under the floor, which is {of} and no law ({rules})")

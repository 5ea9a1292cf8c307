"""Gathering: every question to the audited machine, each asked once and kept as long as its answer holds."""

from collections.abc import Iterable

import msgspec

from sublight.audit.cache import Cache
from sublight.audit.doors import Door
from sublight.audit.installation import Installation, normal
from sublight.audit.packages import PREBUILT
from sublight.audit.replies import Distributions, Imported, Objects
from sublight.audit.scene import shipped_roots
from sublight.errors import HostError

IMPORT_LIMIT_S = 120.0  # of one process: an import of a large engine takes 10 s, on a busy machine with GPUs a minute
_MOST_WATCHED = 3000  # files whose state is asked for; of more, only the folders


def known_distributions(cache: Cache, door: Door) -> Distributions | None:
    return cache.peek("distributions", (door.key,), Distributions)


def remember(cache: Cache, door: Door, installation: Installation) -> None:
    if not installation.found.unchanged:
        cache.put("distributions", (door.key,), installation.found, door)


def objects_of(cache: Cache, door: Door, installation: Installation, tops: Iterable[str]) -> dict[str, Objects]:
    """The shipped GPU code of every distribution that owns one of these import names, or brings code for it.

    Of a machine whose connection is lost on the way, of those it still told.
    """
    names = [name for top in tops for name in (top, *(PREBUILT[top].companions if top in PREBUILT else ()))]
    roots: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        for distribution, places in shipped_roots(installation, name).items():
            roots.setdefault(distribution, []).extend(places)
    found: dict[str, Objects] = {}
    for name, places in roots.items():
        try:
            found[name] = _objects(cache, door, installation, name, sorted(places))
        except HostError:
            if not door.lost:
                raise
    return found


def _objects(cache: Cache, door: Door, installation: Installation, name: str, roots: list[str]) -> Objects:
    distribution = installation.distribution(name)

    def compute() -> tuple[Objects, list[str]]:
        answer = door.ask({"objects": {"roots": roots}}, timeout_s=180.0)["objects"].answer
        told = msgspec.json.decode(answer, type=dict[str, Objects]) if answer else {}
        found = Objects(
            tuple(item for part in told.values() for item in part.objects), sum(p.left_out for p in told.values())
        )
        paths = [item.path for item in found.objects]
        return found, [*roots, *(paths if len(paths) <= _MOST_WATCHED else ())]

    return cache.get(
        "objects", (door.key, name, distribution.record if distribution else "", roots), Objects, door, compute
    )


def imports_of(
    cache: Cache, door: Door, installation: Installation, symbols: Iterable[str], limit_s: float = IMPORT_LIMIT_S
) -> tuple[dict[str, Imported], int, str]:
    """What came of importing each symbol in the target, how many were imported now, and why the rest was not ("").

    An answer holds while the package's files that were used, all distributions, the environment and the cards stay;
    that a module crashes or hangs is an answer like any other.
    """
    cards = installation.cards.best if installation.cards else ()
    around = (door.key, installation.found.fingerprint, installation.environment, [card.name for card in cards])
    wanted = list(dict.fromkeys(symbols))
    before = {symbol: cache.peek("import", (*around, symbol), Imported) for symbol in wanted}
    sure = {symbol: done for symbol, done in before.items() if done is not None}
    states = cache.status(door, sorted({path for done in sure.values() for path in done.loaded}))
    kept = {
        symbol: done
        for symbol, done in sure.items()
        if all(states.get(path) == state for path, state in done.loaded.items())
    }
    missing = [symbol for symbol in wanted if symbol not in kept]
    if not missing:
        return kept, 0, ""
    processes = len({symbol.rpartition(".")[0] or symbol for symbol in missing})
    total_s = limit_s * (1 + processes / 2)  # the probe keeps to it and tells what it has by then
    arguments = {"symbols": missing, "timeout_s": limit_s, "total_s": total_s}
    try:
        told = door.ask({"import": arguments}, timeout_s=total_s + 60)["import"]
    except HostError as error:
        return kept, 0, error.found
    if not told.answer:
        return kept, 0, told.error
    fresh = msgspec.json.decode(told.answer, type=dict[str, Imported])
    for symbol, done in fresh.items():
        if done.outcome != "untried":
            cache.put("import", (*around, symbol), done, door)
    return {**kept, **fresh}, len(fresh), ""


def tops_of(symbols: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(symbol.partition(".")[0] for symbol in symbols))


def owning(installation: Installation, names: Iterable[str]) -> str:
    """Which of an engine's possible distributions is installed; "" for none."""
    present = (installation.distribution(name) for name in names)
    return next((normal(found.name) for found in present if found is not None), "")

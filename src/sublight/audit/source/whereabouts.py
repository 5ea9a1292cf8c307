"""Whereabouts: where a symbol that was asked for in vain really lives in the package.

Two searches, cheapest first: modules whose name is the asked one written otherwise (`jit.cutedsl` for `cute_dsl`), and
definitions of the last name anywhere in the package, found in the bytes before anything is parsed.
"""

import difflib
import re
from weakref import WeakKeyDictionary

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.source.outline import bindings
from sublight.audit.source.symbols import Existence, Resolution, resolve
from sublight.audit.source.tree import Module, Sources

_MOST_FILES = 6000  # a package beyond this is searched as far as that
_LARGEST_BYTES = 4_000_000  # files beyond this are generated tables
_DEEPEST = 8
_ENOUGH = 6  # definitions named
_bytes: "WeakKeyDictionary[Sources, dict[str, bytes | None]]" = WeakKeyDictionary()  # all names are looked for in them
_HELPER = re.compile(r"(is|has|get|make|create|convert|require|torch_to)_")


class Place(msgspec.Struct, frozen=True):
    """A name that can be asked for instead, and the line that proves it."""

    symbol: str
    proof: Proof


def modules(sources: Sources, package: str) -> list[str]:
    """Dotted names of the modules of a package, the shallow ones first.

    A folder without `__init__.py` is a package all the same when code lies in it, or in a folder right inside it; data
    that is shipped beside code is left out.
    """
    found: list[str] = []
    level = [package]

    def held(name: str) -> tuple[str, ...]:
        return sources.reader.names(f"{sources.roots[package]}/{name.replace('.', '/')}")

    for _ in range(_DEEPEST):
        following: list[str] = []
        for name in level:
            entries = held(name)
            inside = [f"{name}.{entry[:-1]}" for entry in entries if entry.endswith("/") and entry[:-1].isidentifier()]
            if not _is_code(entries):
                following += [each for each in inside if _is_code(held(each))]
                continue
            if "__init__.py" in entries:
                found.append(name)
            found += [f"{name}.{entry[:-3]}" for entry in entries if entry.endswith(".py") and entry != "__init__.py"]
            following += inside
            if len(found) >= _MOST_FILES:
                return found
        level = following
    return found


def _is_code(entries: tuple[str, ...]) -> bool:
    return any(entry.endswith(".py") for entry in entries)


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _definitions(sources: Sources, modules: list[str], name: str) -> list[Place]:
    """Modules that define or assign `name` on their module level; names they only import do not count."""
    pattern = re.compile(rf"^(?:[ \t]*)(?:async def|def|class)[ \t]+{name}\b|^{name}[ \t]*[:=]".encode(), re.MULTILINE)
    places = []
    for dotted in modules:
        data = read(sources, dotted)
        if data is None or name.encode() not in data or not pattern.search(data):
            continue
        module = sources.module(dotted)
        found = [item for item in bindings(module).get(name, ()) if not item.target] if module else []
        if module and found:
            line = found[0].node.lineno
            places.append(Place(f"{dotted}.{name}", Proof("source", f"{module.shown}:{line}", module.line(line))))
        if len(places) >= _ENOUGH:
            break
    return places


def read(sources: Sources, dotted: str) -> bytes | None:
    """The bytes of a module; None when there is none, or it is too large to be worth it."""
    known = _bytes.setdefault(sources, {})
    if dotted not in known:
        root, relative = sources.roots[dotted.partition(".")[0]], dotted.replace(".", "/")
        found = (sources.reader.read(f"{root}/{shown}") for shown in (f"{relative}.py", f"{relative}/__init__.py"))
        data = next((data for data in found if data is not None), b"")
        known[dotted] = data if 0 < len(data) <= _LARGEST_BYTES else None
    return known[dotted]


def _exports(sources: Sources, dotted: str) -> list[Place]:
    """What a package offers from its own submodules, by the name it imports it under, with the line that defines it.

    The first few: kernels and classes before the helpers that stand beside them, for they are what people look for.
    """
    module = sources.module(dotted)
    if module is None:
        return []
    places = []
    for name, found in bindings(module).items():
        if name != "*" and not name.startswith("_") and found[0].target.startswith(f"{dotted}."):
            resolution = resolve(sources, found[0].target)
            if resolution.found and resolution.kind in ("function", "class") and resolution.chain:
                places.append(Place(found[0].target, resolution.chain[-1]))
    return sorted(places, key=lambda place: _HELPER.match(place.symbol.rpartition(".")[2]) is not None)[: _ENOUGH - 1]


def _alike(modules: list[str], prefix: str, wanted: str) -> list[str]:
    """Modules whose last name is `wanted` in another spelling, begins with it, or nearly is it, the likeliest first.

    Neighbours of the asked module come first: somebody who asks for `cute` beside `cute_dsl` meant that one, and not a
    `cute` six folders down.
    """
    folded = _folded(wanted)
    near = set(
        difflib.get_close_matches(folded, {_folded(name.rpartition(".")[2]) for name in modules}, n=3, cutoff=0.85)
    )
    ranked = []
    for name in modules:
        parent, _, last = name.rpartition(".")
        stem = _folded(last)
        if stem == folded or stem in near or (len(folded) > 3 and stem.startswith(folded)):
            ranked.append(((parent != prefix) + (stem != folded), name.count("."), name))
    return [name for *_, name in sorted(ranked)]


def _module_place(sources: Sources, dotted: str) -> Place | None:
    module: Module | None = sources.module(dotted)
    if module is None:
        return None
    return Place(dotted, Proof("source", f"{module.shown}:1", f"module {dotted}"))


def whereabouts(sources: Sources, resolution: Resolution) -> tuple[Place, ...]:
    """Where what was asked for lives: empty when it was found, or when nothing of the kind is in the package.

    A definition of the last name wins; else the likeliest module that is named alike, and functions and classes that it
    offers: what lies in a module farther away has nothing to do with what was asked.
    """
    if resolution.existence is not Existence.MISSING or not resolution.prefix:
        return ()
    rest = resolution.asked.removeprefix(resolution.prefix).strip(".").split(".")
    package = resolution.asked.partition(".")[0]
    names = modules(sources, package)
    if places := _definitions(sources, names, rest[-1]):
        return tuple(_nearest_first(places, resolution.prefix))
    for dotted in _alike([name for name in names if name != package], resolution.prefix, rest[0]):
        if place := _module_place(sources, dotted):
            return (place, *_exports(sources, dotted))
    return ()


def _nearest_first(places: list[Place], prefix: str) -> list[Place]:
    return sorted(
        places,
        key=lambda place: ("._" in place.symbol, not place.symbol.startswith(f"{prefix}."), place.symbol.count(".")),
    )

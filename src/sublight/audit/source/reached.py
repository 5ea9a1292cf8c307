"""Modules that are loaded along with one: its unconditional imports, and theirs, found in the text without parsing.

What a module registers, it registers when it is loaded, so whoever is loaded along counts. Imports inside functions,
`if` and `try` are left to the walk, which comes past them or does not.
"""

import re
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from sublight.audit.source.tree import Module, Sources

# At the start of a line only: `from x import (a, b)`, over several lines too, and `import x, y`.
_IMPORT = re.compile(
    r"^(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n\\]*(?:\\\n[^\n\\]*)*)|import[ \t]+([^\n#]+))",
    re.MULTILINE,
)
_NOISE = re.compile(r"#[^\n]*|[()\\]")
_FOUND: "WeakKeyDictionary[Module, tuple[str, ...]]" = WeakKeyDictionary()


def imported(sources: Sources, module: Module) -> tuple[str, ...]:
    """Modules that loading this one loads at once: what it imports at top level, and the packages these lie in."""
    found = _FOUND.get(module)
    if found is None:
        names = [name for name in _named(sources, module) if name.partition(".")[0] in sources.roots]
        packages = [".".join(name.split(".")[:at]) for name in names for at in range(1, name.count(".") + 1)]
        found = tuple(dict.fromkeys([*names, *packages]))
        _FOUND[module] = found
    return found


def _named(sources: Sources, module: Module) -> Iterator[str]:
    for match in _IMPORT.finditer(module.text):
        origin, names, plain = match.groups()
        if plain is not None:
            yield from (each.split(" as ")[0].strip() for each in plain.split(","))
            continue
        level = len(origin) - len(origin.lstrip("."))
        base = sources.absolute(module, origin[level:] or None, level)
        yield base
        for each in _NOISE.sub("", names).split(","):
            name = each.split(" as ")[0].strip()
            # A class or constant is no module, and asking for a file that is not there costs more than this test.
            if name.isidentifier() and name[0].islower():
                yield f"{base}.{name}"

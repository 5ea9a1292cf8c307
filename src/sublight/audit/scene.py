"""Everything that was gathered before rungs are answered. Whoever answers a rung looks here and asks nobody."""

import sys
from collections.abc import Mapping
from functools import cached_property

import msgspec

from sublight.audit.engines.base import Pin, Route
from sublight.audit.installation import Installation, normal
from sublight.audit.packages import COMPILERS
from sublight.audit.replies import CodeObject, Distribution, Imported, Objects, Owner
from sublight.audit.source.failing import Failure, Loader
from sublight.audit.source.symbols import Resolution, resolve
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target


class Surroundings(msgspec.Struct, kw_only=True, dict=True):
    """What is known of installed code, whatever it is judged for.

    Attributes:
        imported: by symbol: what came of importing it.
        not_imported: why nothing was imported; "" when it was.
        partial: whether sources come from a snapshot, where what is absent may only not have been recorded.
    """

    installation: Installation
    sources: Sources
    imported: Mapping[str, Imported] = {}
    not_imported: str = ""
    partial: bool = False

    @cached_property
    def _resolved(self) -> dict[str, Resolution]:
        return {}

    def resolve(self, symbol: str) -> Resolution:
        """What the source says of a symbol; every symbol is followed once."""
        if symbol not in self._resolved:
            self._resolved[symbol] = resolve(self.sources, symbol)
        return self._resolved[symbol]

    @cached_property
    def _loaders(self) -> dict[str, Loader]:
        return {}

    def has(self, dotted: str) -> bool:
        """Whether a package outside of the sources is there. Of a folder nobody knows, but for what a kernel needs."""
        top = dotted.partition(".")[0]
        if self.installation.owners(top) or top in self.sources.roots or top in sys.stdlib_module_names:
            return True
        if self.installation.interpreter is None:
            return top not in COMPILERS
        return any(done.outcome == "found" and name.partition(".")[0] == top for name, done in self.imported.items())

    def lacking(self, symbol: str) -> Failure | None:
        """What a name cannot be imported without, of packages that are not there, as sources show; None for nothing.

        Only its own package is followed into: one beside it that is installed has what it needs, or says so itself.
        """
        if self.partial:
            return None
        own = symbol.partition(".")[0]
        failure = self._loaders.setdefault(own, Loader(self.sources, self.has, (own,))).why(symbol)
        top = failure.missing.partition(".")[0] if failure else ""
        return failure if top.isidentifier() and not self.has(top) else None


class Trying(msgspec.Struct, frozen=True):
    """How backends may be tried on this machine's GPU: in which interpreter, and for how long each."""

    python: str
    limit_s: float


class Scene(Surroundings, kw_only=True, dict=True):
    """What is known while one engine is judged for one target.

    Attributes:
        package: the engine's import name.
        distribution: that it is installed by, None where no metadata says so (a source tree).
        pins: versions that the engine's own code asks for when it runs.
        objects: by distribution name: the shipped files with GPU code.
        variables: environment variables this version of the engine reads, None where its list was not found.
        trying: None where nothing is called, and `not_tried` says why.
    """

    target: Target
    package: str
    distribution: Distribution | None
    pins: tuple[Pin, ...] = ()
    objects: Mapping[str, Objects] = {}
    variables: frozenset[str] | None = None
    trying: Trying | None = None
    not_tried: str = "nobody asked for it"

    def code(self, distributions: tuple[str, ...], top: str = "") -> tuple[CodeObject, ...]:
        """Files with GPU code of these distributions; with `top`, those inside that package alone."""
        return tuple(
            found
            for name in distributions
            for found in self.objects.get(normal(name), Objects()).objects
            if any(codes for codes, _ in found.units) and (not top or f"/{top}/" in found.path)
        )


def needed_tops(route: Route, package: str) -> tuple[str, ...]:
    """Import names that a path needs, the engine's own left out, in the order they are needed."""
    tops = (need.symbol.partition(".")[0] for need in route.needs)
    return tuple(dict.fromkeys(top for top in tops if top and top != package))


def shipped_roots(installation: Installation, top: str) -> dict[str, list[str]]:
    """Distribution -> folders or files of an import name that it ships, for finding its code objects."""
    found: dict[str, list[str]] = {}
    for owner in installation.owners(top):
        found.setdefault(normal(owner.distribution), []).append(f"{owner.folder}/{top}")
    return found


def main_owner(installation: Installation, top: str) -> Owner | None:
    """The distribution with most files of an import name."""
    owners = installation.owners(top)
    return owners[0] if owners else None

"""CuTe DSL: its own compiler builds a kernel when it is first called, so it is as much a part of it as a library."""

import msgspec

from sublight.audit.engines.base import Route
from sublight.audit.ladder import Answer, Proof
from sublight.audit.packages import DSL, builder
from sublight.audit.record import Build
from sublight.audit.scene import Scene, main_owner
from sublight.audit.source.failing import outside


class Taken(msgspec.Struct, frozen=True):
    """Who takes a package, and the line that does."""

    who: str
    line: Proof


def taken(scene: Scene, route: Route) -> Taken | None:
    """Which code of a path is written in CuTe DSL; None for none."""
    for name in _names(route):
        if _written_in_it(scene, name):
            home = scene.resolve(name).home or name
            parts = home.split(".")
            modules = (scene.sources.module(".".join(parts[:length])) for length in range(len(parts), 0, -1))
            module = next(module for module in modules if module is not None)
            line = outside(scene.sources, module.name).get(DSL)
            return Taken(name, line or Proof("source", f"{module.shown}:1", f"module {module.name}"))
    return None


def build(scene: Scene, route: Route) -> Build:
    """That it is there is what can be said without a call."""
    if there := _there(scene, route):
        why = f"built by CuTe DSL's own compiler ({there}) when it is first called, which was not tried"
        return Build(Answer.NOT_KNOWN, why)
    if scene.installation.interpreter is None:
        return Build(Answer.NOT_KNOWN, "built by CuTe DSL's own compiler, and CuTe DSL is not in the folder")
    proof = Proof("distribution", DSL, "no installed distribution ships it")
    why = "CuTe DSL, whose compiler builds the kernel when it is first called, is not installed"
    return Build(Answer.FAIL, why, (proof,), "CuTe DSL in the version that the engine asks for")


def _there(scene: Scene, route: Route) -> str:
    """The distribution or folder that CuTe DSL comes from; "" for none."""
    if owner := main_owner(scene.installation, DSL):
        return f"{owner.distribution} {owner.version}"
    if is_imported(scene, route):
        return "imported, but in no distribution's RECORD"
    return scene.sources.roots.get(DSL, "")


def is_imported(scene: Scene, route: Route) -> bool:
    """Whether something of the path was imported that cannot be without CuTe DSL."""
    found = (name for name in _names(route) if (done := scene.imported.get(name)) and done.outcome == "found")
    return any(_written_in_it(scene, name) for name in found)


def _names(route: Route) -> list[str]:
    return [*(need.symbol for need in route.needs), *filter(None, [route.destination])]


def _written_in_it(scene: Scene, name: str) -> bool:
    return builder(scene.sources, scene.resolve(name).home or name) == "cutlass-dsl"

"""Causes: why an import failed, from its error, from what was swallowed on the way, and from the source; what to try.

Three kinds are told apart: the asked name is in no source; its source has it and something kept it from being bound;
and the import ran into an error before anybody looked for the name. Of imports that failed and were swallowed, most
have nothing to do with the name: only those under the guard that it stands under, or in the file that raised, are a
cause.
"""

import re

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.replies import Imported, Swallowed
from sublight.audit.requirements import bringing, install
from sublight.audit.scene import Scene, Surroundings, main_owner
from sublight.audit.source.failing import Failure
from sublight.audit.source.outline import bindings
from sublight.audit.source.symbols import Existence, Resolution
from sublight.audit.toolchain import missing_libraries

_LIBRARY = re.compile(r"(lib[\w+.-]+\.so[.\d]*): cannot open shared object file")
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why, as the end of a sentence ("" where the error says it all), what to try, and lines that show it."""

    why: str = ""
    hint: str = ""
    proofs: tuple[Proof, ...] = ()


def cause_of(scene: Surroundings, read: Resolution, done: Imported) -> Cause:
    """Why `read.asked` could not be imported, and what to try."""
    symbol = read.asked
    if done.outcome in ("crash", "hang", "exit"):
        module = done.inside or symbol.rpartition(".")[0] or symbol
        return Cause(hint=f"{scene.installation.name} -X faulthandler -c 'import {module}'")
    if is_absent(symbol, done):
        return _unbound(scene, read, done)
    top = done.lacks.partition(".")[0]
    if done.lacks and top != symbol.partition(".")[0]:
        return Cause(why=_before(read), hint=installing(scene, top, symbol))
    return _raised(scene, read, done)


def is_absent(symbol: str, done: Imported) -> bool:
    """Whether the error is that the asked name is not there, and not one on the way to it."""
    return bool(done.lacks) and f"{symbol}.".startswith(f"{done.lacks}.")


def _before(read: Resolution) -> str:
    """That the import failed before the name was looked for, and whether it would have been found."""
    if read.existence is not Existence.MISSING:
        return ""
    return f", before the name was looked for: {read.prefix} itself does not import, and {read.why}"


def _unbound(scene: Surroundings, read: Resolution, done: Imported) -> Cause:
    """The module is there without the name: its source has none, or something kept it from being bound."""
    symbol = read.asked
    top = symbol.partition(".")[0]
    if not read.found:
        return Cause(hint=f"a version of {top} that has it" if top in scene.sources.roots else f"what ships {top}")
    failure = scene.lacking(symbol)
    if failure is not None:
        missing = failure.missing.partition(".")[0]
        why = f"; its source has it ({read.home}), and it is left out because {missing} is not there{_told(failure)}"
        return Cause(
            why=why, hint=installing(scene, missing, symbol), proofs=(failure.chain[-1], *failure.swallowed[-1:])
        )
    if swallowed := _under_its_guard(scene, read, done):
        why = f"; inside, {swallowed.by} asked for {swallowed.name} and met {swallowed.message}"
        proof = Proof("import", swallowed.where, swallowed.message)
        return Cause(why=why, hint=f"what {swallowed.by} asks for: {swallowed.name}", proofs=(proof,))
    conditions = f", if {'; '.join(read.conditions)}" if read.conditions else ""
    return Cause(why=f"; its source has it ({read.home}){conditions}", hint=_alone(scene, symbol, ""))


def _told(failure: Failure) -> str:
    return f" ({failure.chain[-1].where})"


def _under_its_guard(scene: Surroundings, read: Resolution, done: Imported) -> Swallowed | None:
    """What failed between the beginning of the guard that a name stands under and the line that binds it."""
    above, _, name = (done.lacks or read.asked).rpartition(".")
    module = scene.sources.module(above)
    for binding in bindings(module).get(name, ()) if module is not None else ():
        for swallowed in done.swallowed:
            line = swallowed.where.rpartition(":")[2]
            inside = line.isdecimal() and 0 < binding.guard <= int(line) <= binding.node.lineno
            if swallowed.by == above and inside:
                return swallowed
    return None


def _raised(scene: Surroundings, read: Resolution, done: Imported) -> Cause:
    """Code on the way raised something else: what it says decides, and what failed in the very file that raised."""
    symbol = read.asked
    top = symbol.partition(".")[0]
    place = done.frames[-1] if done.frames else ""
    file = place.rpartition(":")[0]
    shown = " ".join(done.message.split())
    near = next((s for s in done.swallowed if file and s.where.startswith(f"{file}:") and s.message not in shown), None)
    why = f"; before that, {near.by} asked for {near.name} and met {near.message}" if near else ""
    owner = main_owner(scene.installation, top)
    named = owner.distribution if owner else top
    libraries = dict.fromkeys([*_LIBRARY.findall(done.message), *_needed(scene, top)])
    if libraries and done.is_import_error:
        return Cause(why=why, hint=f"a build of {named} for this machine, or what ships {', '.join(libraries)}")
    if match := _NAME.search(done.message):
        return Cause(why=why, hint=f"a version of {match[2].partition('.')[0]} whose {match[2]} has {match[1]}")
    return Cause(why=why + _before(read), hint=_alone(scene, symbol, place))


def _needed(scene: Surroundings, top: str) -> list[str]:
    """CUDA libraries that the package's own files want and that are not there."""
    if not isinstance(scene, Scene):
        return []
    owners = tuple(owner.distribution for owner in scene.installation.owners(top))
    needed = (missing_libraries(found.needed, scene.installation.toolchain) for found in scene.code(owners, top))
    return list(dict.fromkeys(name for missing in needed for name in missing))


def _alone(scene: Surroundings, symbol: str, place: str) -> str:
    module = symbol.rpartition(".")[0] or symbol
    return f"{scene.installation.name} -c 'import {module}'" + (f", which ends at {place}" if place else "")


def installing(scene: Surroundings, top: str, symbol: str) -> str:
    """How to get a package that is missing, as those who need it ask for it."""
    engine = scene.distribution if isinstance(scene, Scene) else None
    owner = main_owner(scene.installation, symbol.partition(".")[0])
    askers = (engine, scene.installation.distribution(owner.distribution) if owner else None)
    found = bringing(top, askers, scene.installation.interpreter)
    return install(found[1]) if found else f"install what ships {top}"

"""The rung "installed": who ships what a path needs, in which version, and whether two distributions fight over it.

A version outside the engine's metadata is a matter of pip's: nothing looks at it when the engine runs, so it leaves the
rung open. A check in the engine's code refuses.
"""

from collections.abc import Iterable

from sublight.audit import dsl
from sublight.audit.engines.base import Route
from sublight.audit.installation import normal
from sublight.audit.ladder import Answer, Proof, Rung, Step, failed, passed, unknown
from sublight.audit.packages import DSL
from sublight.audit.replies import Clash, Owner
from sublight.audit.requirements import Demand, bringing, demands, install, install_line
from sublight.audit.scene import Scene, main_owner, needed_tops
from sublight.units import counted

# Distributions that ship an import name of another spelling, for naming one when nothing is installed.
_KNOWN_AS = {"cutlass": "nvidia-cutlass-dsl", "flashinfer": "flashinfer-python", "humming": "humming-kernels"}


def installed(scene: Scene, route: Route) -> Step:
    """Every package that the path needs is there, in a version that metadata asks for and code takes."""
    engine = scene.distribution
    proofs: list[Proof] = []
    against: list[Proof] = []  # they come last, where the line is that the sentence is about
    if engine is not None:
        proofs.append(Proof("distribution", str(engine), f"{engine.info} in {engine.folder}"))
    behind = _behind(scene, route)
    tops = dict.fromkeys([*needed_tops(route, scene.package), *behind])
    if not route.needs and route.answer is not Answer.PASS:
        why = "what it would need is not known: no path to its kernel was found"
        return unknown(Rung.INSTALLED, why, *proofs)
    problems, hints, absent, named = [], [], [], [str(engine) if engine else scene.package]
    others, cures = [], []
    for top in tops:
        owner = main_owner(scene.installation, top)
        if owner is None:
            why, proof, hint = _unowned(scene, top, tops)
            (against if why else proofs).append(proof)
            if why and scene.installation.interpreter is None:
                absent.append(top)
            elif why:
                problems.append(why + (f", and {behind[top].who} takes it" if top in behind else ""))
                hints.append(hint)
            against += [behind[top].line] if top in behind else []
            continue
        named.append(f"{owner.distribution} {owner.version}")
        found, trouble = _versions(scene, top, owner)
        other = _other_version(scene, top, owner)
        (against if trouble or other else proofs).extend(found)
        if trouble:
            problems.append(trouble[0])
            hints.append(trouble[1])
        elif other:
            others.append(other[0])
            cures.append(other[1])
    proofs += against
    if problems:
        return failed(Rung.INSTALLED, "; ".join(problems), *proofs, hint="; ".join(dict.fromkeys(hints)))
    if absent:
        why = f"not in the folder, which need not hold all that is installed: {', '.join(absent)}"
        return unknown(Rung.INSTALLED, why, *proofs, hint="--python with the interpreter that runs the engine")
    if others:
        return unknown(Rung.INSTALLED, "; ".join(others), *proofs, hint="; ".join(dict.fromkeys(cures)))
    return passed(Rung.INSTALLED, ", ".join(dict.fromkeys(named)), *proofs)


def _behind(scene: Scene, route: Route) -> dict[str, dsl.Taken]:
    """Packages that code on the path takes besides those it is asked of: what builds it, and what it fails without."""
    found: dict[str, dsl.Taken] = {}
    built = dsl.taken(scene, route)
    if built is not None and (main_owner(scene.installation, DSL) or not dsl.is_imported(scene, route)):
        found[DSL] = built
    for need in route.needs:
        top, done = need.symbol.partition(".")[0], scene.imported.get(need.symbol)
        if top == scene.package or top not in scene.sources.roots or (done is not None and done.outcome == "found"):
            continue
        failure = scene.lacking(need.symbol)
        if failure is not None and failure.certain:
            found.setdefault(failure.missing.partition(".")[0], dsl.Taken(need.symbol, failure.chain[-1]))
    return found


def _versions(scene: Scene, top: str, owner: Owner) -> tuple[list[Proof], tuple[str, str] | None]:
    """Proofs of one distribution, and what is wrong with it: the sentence and what to try."""
    asked = _demands(scene, top, owner)
    proofs = [
        Proof("distribution", f"{owner.distribution} {owner.version}", f"ships {counted(owner.files, 'file')} of {top}")
    ]
    proofs += [demand.proof for demand in asked]
    clash = clash_over(scene, owner.distribution)
    if clash is not None:
        return proofs, (clash_text(clash), f"uninstall both, then {install_line(asked, owner.distribution)}")
    wrong = [demand for demand in asked if demand.met is False and demand.proof.kind != "distribution"]
    if wrong:
        return proofs, (_wrong(wrong), install_line(asked, owner.distribution))
    return proofs, None


def _demands(scene: Scene, top: str, owner: Owner) -> tuple[Demand, ...]:
    """What is asked of the owner; where nothing is, of the distribution that brings it along."""
    names = (owner.distribution, _KNOWN_AS.get(top, owner.distribution))
    every = (demands(scene.distribution, scene.pins, scene.installation, name) for name in names)
    return next((asked for asked in every if asked), ())


def _other_version(scene: Scene, top: str, owner: Owner) -> tuple[str, str] | None:
    """What is said of a distribution in a version that the metadata does not ask for, and what to try."""
    asked = _demands(scene, top, owner)
    wrong = [demand for demand in asked if demand.met is False]
    if not wrong:
        return None
    specifiers = ", ".join(dict.fromkeys(demand.specifier for demand in wrong))
    why = (
        f"{owner.distribution} {owner.version} is installed; the engine's metadata asks for {specifiers}, which "
        "nothing checks when it runs, and with this version it is not known to have been tried"
    )
    return why, install_line(asked, owner.distribution)


def _wrong(wrong: list[Demand]) -> str:
    return ", ".join(
        f"{demand.distribution} {demand.found or 'is not there'}, but {demand.specifier} is asked for"
        + (f" when {demand.when}" if demand.when else "")
        for demand in wrong
    )


def _unowned(scene: Scene, top: str, tops: Iterable[str]) -> tuple[str, Proof, str]:
    """A package that no distribution ships: perhaps on the path all the same, perhaps not there."""
    root = scene.sources.roots.get(top)
    if root:
        return "", Proof("file", f"{root}/{top}", "on the path, but in no distribution's RECORD"), ""
    for symbol, done in scene.imported.items():
        if done.outcome == "found" and symbol.partition(".")[0] == top:
            return "", Proof("import", done.file or symbol, "imported, but in no distribution's RECORD"), ""
    name = _KNOWN_AS.get(top, top.replace("_", "-"))
    asked = demands(scene.distribution, scene.pins, scene.installation, name)
    if asked:
        return f"{top} is not installed", asked[0].proof, install_line(asked, name)
    owners = (main_owner(scene.installation, need) for need in tops)
    askers = [scene.distribution, *(scene.installation.distribution(owner.distribution) for owner in owners if owner)]
    if found := bringing(top, askers, scene.installation.interpreter):
        asker, required = found
        proof = Proof("distribution", f"{asker.info}/METADATA", f"Requires-Dist: {required}")
        return f"{top} is not installed", proof, install(required)
    proof = Proof("distribution", top, "no installed distribution ships it")
    hint = f"a distribution that ships {top}; the engine's metadata names none"
    return f"{top} is not installed", proof, hint


def clash_over(scene: Scene, distribution: str) -> Clash | None:
    """Files of a distribution that another one claims too, with other contents."""
    own = normal(distribution)
    return next((c for c in scene.installation.found.clashes if any(_of(name) == own for name in c.matches)), None)


def _of(named: str) -> str:
    return normal(named.rpartition(" ")[0])


def clash_text(clash: Clash) -> str:
    """ "a 1.0 and b 1.0 both claim 168 files with different contents; on disk 168 match a 1.0, 0 match b 1.0"."""
    names = " and ".join(clash.matches)
    matches = ", ".join(f"{count} match {name}" for name, count in clash.matches.items())
    return f"{names} both claim {counted(clash.paths, 'file')} with different contents; on disk {matches}"

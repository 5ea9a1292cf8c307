"""The rung "capable": gates in Python and code objects in the shipped files, side by side, for the exact architecture.

A gate is a claim: a list that names an architecture proves no kernel for it. Neither does a file's name. The rung
passes when no gate refuses and code for the card is there, or can be built on the machine.
"""

import msgspec

from sublight.audit import dsl
from sublight.audit.code import coverage, shown
from sublight.audit.engines.base import Gate, Route
from sublight.audit.installation import normal
from sublight.audit.ladder import Answer, Proof, Rung, Step, failed, unknown
from sublight.audit.packages import DSL, PREBUILT, builder, holds, operators
from sublight.audit.record import Capability, CodeSet
from sublight.audit.scene import Scene, needed_tops
from sublight.audit.toolchain import can_build, missing_libraries
from sublight.audit.vendors import foreign

_RUN_EVERYTHING = frozenset(("numpy", "torch"))  # every engine stands on them


def capable(scene: Scene, route: Route) -> tuple[Step, Capability]:
    """The answer, and the sets it was drawn from."""
    route = msgspec.structs.replace(route, gates=(*foreign(scene.sources, route), *route.gates))
    sets = tuple(code_set(scene, top, route) for top in _tops(scene, route))
    both = Capability(claimed=_claimed(route), gates=tuple(gate.proof for gate in route.gates), code=sets)
    return _step(scene, route, sets), both


def _claimed(route: Route) -> tuple[str, ...]:
    """The capabilities that the gates let through together; of a refusal, those that it would take.

    A build that is chosen by the card lists only that card's family, so lists of passing gates need not overlap; the
    shortest then says most.
    """
    refused = [gate.targets for gate in route.gates if gate.answer is Answer.FAIL and gate.targets]
    if refused:
        return refused[0]
    lists = [gate.targets for gate in route.gates if gate.targets and gate.answer is Answer.PASS]
    common = [target for target in (lists[0] if lists else ()) if all(target in other for other in lists)]
    return tuple(common) or min(lists, key=len, default=())


def _tops(scene: Scene, route: Route) -> list[str]:
    """Packages whose code runs: those needed, and the engine's own where its libraries have the operators it calls."""
    needed = any(need.symbol.startswith(f"{scene.package}.") for need in route.needs)
    ends_inside = route.destination.startswith(f"{scene.package}.")
    shipped = [found.path for found in scene.code(_distributions(scene, scene.package))]
    inside = ends_inside and any(holds(shipped, name) for name in operators(scene.sources, route.destination))
    own = [scene.package] if shipped and (needed or inside) and not _closed(route) else []
    needs = [*needed_tops(route, scene.package), *own]
    if ends_inside and "triton" not in needs and builder(scene.sources, route.destination) == "triton":
        needs.append("triton")
    if DSL not in needs and dsl.taken(scene, route):
        needs.append(DSL)
    return needs


def _closed(route: Route) -> bool:
    """Whether a gate lets no card of NVIDIA's through: then what such cards could run is not what runs there."""
    return any(gate.answer is Answer.FAIL and not gate.targets and not gate.claim for gate in route.gates)


def _distributions(scene: Scene, top: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(normal(owner.distribution) for owner in scene.installation.owners(top)))


def code_set(scene: Scene, top: str, route: Route) -> CodeSet:
    capability = scene.target.compute_capability
    owners = _distributions(scene, top)
    own = scene.code(owners, top)
    builders = {
        builder(scene.sources, scene.resolve(n.symbol).home or n.symbol)
        for n in route.needs
        if n.symbol.partition(".")[0] == top
    }
    kind = next((b for b in ("nvcc", "triton") if b in builders), "")
    if top == "triton":
        kind = "triton"
    build = None
    if top == DSL:  # what it ships is a compiler, no kernel
        own, build = (), dsl.build(scene, route)
    if kind:
        reason = scene.installation.reasons.get("toolchain", "nobody was asked")
        build = can_build(kind, capability, scene.installation.toolchain, reason)
    companions = PREBUILT[top].companions if top in PREBUILT and kind == "nvcc" else ()
    brought = {normal(owner.distribution): None for name in companions for owner in scene.installation.owners(name)}
    code = own + scene.code(tuple(brought))
    return CodeSet(
        package=top,
        distributions=tuple(
            name for name in (*owners, *brought) if scene.code((name,), "" if name in brought else top)
        ),
        coverage=coverage(code, capability),
        build=build,
        prebuilt=tuple(brought),
    )


def _step(scene: Scene, route: Route, sets: tuple[CodeSet, ...]) -> Step:
    """The answer. Of its proofs the last one is the line that the sentence is about."""
    sm = scene.target.sm
    refusing = [gate for gate in route.gates if gate.answer is Answer.FAIL and not gate.claim]
    lacking = {found.package: problem for found in sets if (problem := _problem(scene, found))}
    if refusing:
        listed = "; ".join(f"{gate.text} ({gate.proof.where})" for gate in refusing)
        beside = f"; {next(iter(lacking.values()))[0]}" if lacking else ""
        proofs = _ordered(route, sets, sm, [gate.proof for gate in reversed(refusing)])
        hint = _other_card(refusing[0].targets)
        return failed(Rung.CAPABLE, f"the code refuses {sm}: {listed}{beside}", *proofs, hint=hint)
    unnamed = [gate for gate in route.gates if gate.answer is Answer.FAIL]
    if lacking:
        claims = any(gate.answer is Answer.PASS for gate in route.gates)
        before = f"claimed, not proven on {sm}: gates let it through, but " if claims and not unnamed else ""
        after = f"; and {_unnamed(unnamed, sm)}" if unnamed else ""
        about = [proof for found in sets if found.package in lacking for proof in _proofs(found, sm)]
        why = before + "; ".join(text for text, _ in lacking.values()) + after
        hint = "; ".join(dict.fromkeys(hint for _, hint in lacking.values()))
        return failed(Rung.CAPABLE, why, *_ordered(route, sets, sm, about), hint=hint)
    return _without_refusal(scene, route, sets, unnamed)


def _without_refusal(scene: Scene, route: Route, sets: tuple[CodeSet, ...], unnamed: list[Gate]) -> Step:
    """Nothing says no: passed where code for the card is there or can be built, and no list leaves the card out."""
    sm = scene.target.sm
    good = [text for found in sets if (text := _support(found, sm))]
    waiting = [b.why for s in sets if (b := s.build) is not None and _waits(s)]
    if unnamed:
        there = "; ".join(good or waiting) or f"no shipped code and no build for {sm} was found either"
        proofs = _ordered(route, sets, sm, [gate.proof for gate in reversed(unnamed)])
        why = f"{_unnamed(unnamed, sm)}, and nothing on the way enforces that; {there}"
        return unknown(
            Rung.CAPABLE, why, *proofs, hint=f"a small call on the card, or {_other_card(unnamed[0].targets)}"
        )
    open_gates = [gate for gate in route.gates if gate.answer is Answer.NOT_KNOWN]
    if open_gates and not _listed(scene, route):
        proofs = _ordered(route, sets, sm, [open_gates[0].proof])
        return unknown(Rung.CAPABLE, f"this gate could not be decided: {open_gates[0].text}", *proofs)
    proofs = _ordered(route, sets, sm, [proof for found in sets if _waits(found) for proof in _proofs(found, sm)])
    holders = _holders(scene, route)
    elsewhere = [found.package for found in sets if found.package in holders and _is_absent(scene, found)]
    if elsewhere:
        beside = f"; beside it {'; '.join(good)}" if good else ""
        why = f"it needs {' and '.join(elsewhere)}, not here to be looked into{beside}"
        claim = f"gates let {sm} through, which is a claim; " if route.gates else ""
        return unknown(Rung.CAPABLE, claim + why, *proofs, hint="the same where all that it needs is installed")
    if good and not waiting:
        return Step(Rung.CAPABLE, Answer.PASS, "; ".join(good), proofs, _switch(scene, sets))
    if waiting:
        return unknown(Rung.CAPABLE, "; ".join(dict.fromkeys(waiting)), *proofs, hint="a small call on the card")
    if route.gates:
        why = f"gates let {sm} through, which is a claim; no shipped code or compiler was found to hold it against"
        return unknown(Rung.CAPABLE, why, *_ordered(route, sets, sm, [gate.proof for gate in route.gates]))
    return unknown(Rung.CAPABLE, "neither a gate nor shipped code was found on the way to the kernel", *proofs)


def _ordered(route: Route, sets: tuple[CodeSet, ...], sm: str, about: list[Proof]) -> tuple[Proof, ...]:
    """Every proof once: gates, then code; those that the answer is about last."""
    every = [gate.proof for gate in route.gates] + [proof for found in sets for proof in _proofs(found, sm)]
    return tuple(dict.fromkeys([proof for proof in every if proof not in about] + about))


def _unnamed(gates: list[Gate], sm: str) -> str:
    """Lists that leave a card out and refuse nobody."""
    return f"its list does not name {sm}: " + "; ".join(f"{gate.proof.text} ({gate.proof.where})" for gate in gates)


def _listed(scene: Scene, route: Route) -> bool:
    """Whether a gate that lets the card through names it: then one that could not be decided is no obstacle alone."""
    major, minor = scene.target.compute_capability
    return any(gate.answer is Answer.PASS and f"{major}.{minor}" in gate.targets for gate in route.gates)


def _holders(scene: Scene, route: Route) -> tuple[str, ...]:
    """Packages that the kernel may lie in: the one that the path ends in, else those that the engine's class calls.

    What a kernel of the engine's own takes besides, such as a loader or a reader of files, holds none.
    """
    end = route.destination.partition(".")[0]
    if end and end != scene.package:
        return (end,)
    own = any(need.symbol.startswith(f"{scene.package}.") for need in route.needs)
    return () if own else tuple(top for top in needed_tops(route, scene.package) if top not in _RUN_EVERYTHING)


def _is_absent(scene: Scene, found: CodeSet) -> bool:
    """Whether nobody knows what code a package has, for it is not there."""
    top = found.package
    there = top in scene.sources.roots or scene.installation.owners(top)
    return not there and found.build is None and not found.coverage.units


def _waits(found: CodeSet) -> bool:
    """Whether a package's code comes from a build here that nobody knows the outcome of."""
    return found.build is not None and found.build.answer is Answer.NOT_KNOWN and not found.coverage.runs


def _problem(scene: Scene, found: CodeSet) -> tuple[str, str] | None:
    """Why no code of a package can run on the card, and what to try; None where some can, or nobody knows."""
    sm = scene.target.sm
    cover, build = found.coverage, found.build
    missing = _needed(scene, found)
    if cover.units and not cover.runs and not cover.translated and (build is None or build.answer is Answer.FAIL):
        text = f"{_named(found)} ships code for {shown(cover.targets)}, none of it runs on {sm}"
        return "; ".join(filter(None, (text, missing))), f"a build of {found.package} for {sm}"
    if missing:
        return missing, f"a build of {found.package} for the CUDA libraries that are there"
    if build is not None and build.answer is Answer.FAIL and not cover.runs:
        return f"{found.package}: {build.why}", build.hint + _prebuilt_hint(found)
    return None


def _needed(scene: Scene, found: CodeSet) -> str:
    """CUDA libraries that shipped files want in another major version than there is."""
    wrong: dict[str, str] = {}
    for shipped in scene.code(found.distributions, "" if found.prebuilt else found.package):
        for wanted, there in missing_libraries(shipped.needed, scene.installation.toolchain).items():
            if there:
                wrong[f"{shipped.path.rpartition('/')[2]} needs {wanted}, found {there}"] = ""
    return "; ".join(list(wrong)[:2])


def _prebuilt_hint(found: CodeSet) -> str:
    if found.package not in PREBUILT or found.prebuilt:
        return ""
    return ", or " + " and ".join(name.replace("_", "-") for name in PREBUILT[found.package].companions)


def _support(found: CodeSet, sm: str) -> str:
    """What speaks for the card, in words; "" where nothing does."""
    cover, build = found.coverage, found.build
    said = []
    if cover.runs or cover.translated:
        said.append(f"{_named(found)}: {cover.counted(sm)}")
    if build is not None and build.answer is Answer.PASS:
        said.append(f"{found.package} is {build.why}")
    elif build is not None and cover.runs and build.answer is Answer.FAIL:
        said.append(f"prebuilt, so it does not matter that {build.why}")
    return ", ".join(said)


def _switch(scene: Scene, sets: tuple[CodeSet, ...]) -> str:
    """A variable that tells the engine of prebuilt code, where it might ask for a compiler that is not there."""
    if not any(s.prebuilt and s.build is not None and s.build.answer is Answer.FAIL for s in sets):
        return ""
    switches = sorted(name for name in scene.variables or () if name.endswith("_CUBIN"))
    if not switches or switches[0] in scene.installation.environment:
        return ""
    return f"{switches[0]}=1, if the engine asks for nvcc before it looks for prebuilt code"


def _named(found: CodeSet) -> str:
    return " and ".join(found.distributions) or found.package


def _proofs(found: CodeSet, sm: str) -> list[Proof]:
    proofs = []
    if found.coverage.units:
        where = _named(found)
        proofs.append(Proof("file", where, f"code objects: {shown(found.coverage.targets)}"))
        proofs.append(Proof("file", where, found.coverage.counted(sm)))
    if found.build is not None:
        proofs += found.build.proofs
    return proofs


def _other_card(targets: tuple[str, ...]) -> str:
    return f"a card of compute capability {' or '.join(targets)}" if targets else "another backend for this card"

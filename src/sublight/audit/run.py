"""The audit: engines, installation and target joined into ladders, eight rungs for every backend."""

from contextlib import suppress

import msgspec

from sublight.audit.auditor import Auditor
from sublight.audit.capable import capable
from sublight.audit.engines.base import Declaration, Engine, HasLayout, Route
from sublight.audit.findings import of_objects
from sublight.audit.gathering import objects_of, owning, tops_of
from sublight.audit.guarded import of_guards
from sublight.audit.importable import importable
from sublight.audit.installed import installed
from sublight.audit.ladder import Answer, Ladder, Proof, Rung, Step, failed, passed, unknown
from sublight.audit.packages import builder
from sublight.audit.proven import Seen, last_rungs
from sublight.audit.question import Question
from sublight.audit.reading import DoorReader, WatchedSources
from sublight.audit.record import AuditFinding, Auto, BackendCode, Capability, EngineAudit
from sublight.audit.roomy import roomy
from sublight.audit.routes import Answered, Answers, as_it_is, read
from sublight.audit.scene import Scene
from sublight.audit.snapshot import KeepingDoor
from sublight.audit.target import NO_EXPERTS, Target
from sublight.audit.tiles import of_tiles
from sublight.audit.tuned import tuned_folders
from sublight.audit.variables import of_variables
from sublight.errors import HostError


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What can be kept of one engine's audit: everything below the rungs that need a GPU."""

    ladders: tuple[Ladder, ...]
    code: tuple[BackendCode, ...]
    findings: tuple[AuditFinding, ...]


class EngineResult(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's ladders, what is odd beside them, and the variables this version reads (None: not known)."""

    audit: EngineAudit
    findings: tuple[AuditFinding, ...]
    variables: frozenset[str] | None


def audit_engine(auditor: Auditor, name: str, question: Question, seen: Seen) -> EngineResult:
    """Read the engine, ask the machine what its paths need, and answer every rung of every backend."""
    return roomy(lambda: _audited(auditor, name, question, seen))


def _audited(auditor: Auditor, name: str, question: Question, seen: Seen) -> EngineResult:
    target = question.target
    engine = auditor.engines[name]
    place = auditor.place(engine)
    folder = place.folder if place else ""
    sources = auditor.sources()
    asked = [area for area in engine.areas if not auditor.options.areas or area in auditor.options.areas]
    areas = tuple(area for area in asked if area != "moe" or target.shape is not None)
    others = [area for area in auditor.options.areas if area not in engine.areas]
    left = dict.fromkeys(set(asked) - set(areas), NO_EXPERTS)
    left |= dict.fromkeys(others, f"Sublight does not read those of {name}")
    distribution = auditor.installation.distribution(
        owning(auditor.installation, engine.distributions) or engine.package
    )
    identity = (name, folder, distribution.record if distribution else "", sources.roots)
    with auditor.timed("reading"):
        answers = _answers(auditor, engine, sources, target, areas, identity)
        tops = (engine.package, *tops_of(answers.symbols))
        objects = objects_of(auditor.cache, auditor.door, auditor.installation, tops)
    imported = auditor.importing(answers.tried)
    scene = Scene(
        target=target,
        installation=auditor.installation,
        sources=sources,
        package=engine.package,
        distribution=distribution,
        pins=answers.pins,
        objects=objects,
        imported=imported,
        not_imported=auditor.not_imported,
        partial=not auditor.door.live,
        variables=answers.variables,
        trying=auditor.trying,
        not_tried=auditor.not_tried,
    )
    with auditor.timed("reading"):
        judged = _judged(auditor, engine, scene, answers, identity, question.shared_memory_bytes)
    if isinstance(auditor.door, KeepingDoor):
        _keep_sources(auditor, auditor.door, engine, sources, folder)
    return EngineResult(
        audit=EngineAudit(
            name=name,
            version=distribution.version if distribution else "",
            distribution=distribution.name if distribution else "",
            place=folder,
            ladders=_completed(auditor, scene, name, answers, judged.ladders, seen),
            autos=tuple(_auto(area, route) for area, route in answers.autos.items()),
            code=judged.code,
            not_read=answers.not_read | left,
        ),
        findings=judged.findings,
        variables=answers.variables,
    )


def _answers(
    auditor: Auditor,
    engine: Engine,
    sources: WatchedSources,
    target: Target,
    areas: tuple[str, ...],
    identity: tuple[object, ...],
) -> Answers:
    told = as_it_is(engine, auditor.installation)

    def compute() -> tuple[Answers, set[str]]:
        auditor.say(f"reading {engine.name} for {target.sm}")
        if isinstance(sources.reader, DoorReader):
            root = sources.roots[engine.package]
            with suppress(HostError):  # what the answers then lack, each of them says
                sources.reader.names(f"{root}/{engine.package}")  # the whole tree, in one question
                sources.reader.fetch([f"{root}/{folder}" for folder in engine.folders])
        return read(engine, sources, target, areas, told), sources.used()

    around = (auditor.installation.found.fingerprint, auditor.installation.environment) if told else ()
    tools = auditor.installation.toolchain if told else None
    return auditor.cache.get("answers", (*identity, target, areas, around, tools), Answers, auditor.door, compute)


def _judged(
    auditor: Auditor,
    engine: Engine,
    scene: Scene,
    answers: Answers,
    identity: tuple[object, ...],
    limit_bytes: float | None,
) -> Judged:
    installation = auditor.installation
    around = (
        installation.found.fingerprint,
        installation.environment,
        installation.toolchain,
        installation.reasons,
        scene.objects,
        {
            symbol: msgspec.structs.replace(done, seconds=0.0, loaded={}, output="")
            for symbol, done in scene.imported.items()
        },
        scene.not_imported,
        limit_bytes,
    )

    def compute() -> tuple[Judged, set[str]]:
        options = engine.layout_options(scene.sources, scene.target) if isinstance(engine, HasLayout) else ""
        pairs = [_lower_or_lost(auditor, scene, answered, options) for answered in answers.backends]
        judged = Judged(
            ladders=tuple(ladder for ladder, _ in pairs),
            code=tuple(code for _, code in pairs if code.capability.gates or code.capability.code),
            findings=() if auditor.door.lost else tuple(_findings(auditor, engine, scene, answers, limit_bytes)),
        )
        return judged, scene.sources.used() if isinstance(scene.sources, WatchedSources) else set()

    return auditor.cache.get("judged", (*identity, scene.target, answers, around), Judged, auditor.door, compute)


def _lower_or_lost(auditor: Auditor, scene: Scene, answered: Answered, options: str) -> tuple[Ladder, BackendCode]:
    """What can be answered without a machine that is no longer there, and not known for the rest."""
    try:
        if not auditor.door.lost:
            return _lower(scene, answered, options)
    except HostError:
        if not auditor.door.lost:
            raise
    declaration, route = answered.declaration, answered.route
    rest = (unknown(rung, auditor.door.lost) for rung in (Rung.INSTALLED, Rung.IMPORTABLE, Rung.CAPABLE))
    ladder = Ladder(
        area=declaration.area,
        name=declaration.name,
        flag=declaration.flag,
        destination=route.destination,
        steps=(declared(declaration), reachable(route), *rest),
        beside=_beside(options, route),
        slow=route.slow,
        alias_of=route.alias_of,
    )
    return ladder, BackendCode(area=declaration.area, name=declaration.name, capability=Capability())


def _lower(scene: Scene, answered: Answered, options: str) -> tuple[Ladder, BackendCode]:
    """The five rungs that need no GPU."""
    declaration, route = answered.declaration, answered.route
    step, capability = capable(scene, route)
    route = advised(scene, route)
    ladder = Ladder(
        area=declaration.area,
        name=declaration.name,
        flag=declaration.flag,
        destination=route.destination,
        steps=(declared(declaration), reachable(route), installed(scene, route), importable(scene, route), step),
        beside=_beside(options, route),
        slow=route.slow,
        alias_of=route.alias_of,
    )
    return ladder, BackendCode(area=declaration.area, name=declaration.name, capability=capability)


def _beside(options: str, route: Route) -> str:
    """Options once each, in order: those of the layout, and those that the route hangs on besides."""
    return " ".join(dict.fromkeys(filter(None, (options, route.beside))))


def advised(scene: Scene, route: Route) -> Route:
    """A route whose advice holds: other options are advised where no rung that can be judged says no to them."""
    refused = ""
    for instead in route.instead:
        other = instead.route
        runs = other.destination.rpartition(".")[2]
        steps = (installed(scene, other), importable(scene, other), capable(scene, other)[0])
        no = next((step for step in steps if step.answer is Answer.FAIL), None)
        if no is None:
            options = f"{instead.options} {other.beside}".rstrip()
            return msgspec.structs.replace(route, hint=f"{options}: there {runs} runs")
        refused = refused or f"{instead.options} leads to {runs}, which is not {no.rung} here"
    return msgspec.structs.replace(route, hint="; ".join(filter(None, (route.hint, refused))))


def declared(declaration: Declaration) -> Step:
    """Whether the command line takes the name; one that only the enumeration has cannot be asked for."""
    if declaration.selectable is False:
        why = declaration.note or "only the engine's enumeration has it, its command line refuses it"
        return failed(
            Rung.DECLARED, why, *declaration.proofs, hint="it cannot be asked for; the engine may choose it itself"
        )
    if declaration.selectable is None:
        own = "the engine's own enumeration has it, but " if declaration.in_enum else ""
        why = declaration.note or f"{own}no list of what the command line takes was found"
        return unknown(Rung.DECLARED, why, *declaration.proofs)
    why = declaration.note or f"{declaration.flag or declaration.name} is accepted"
    return passed(Rung.DECLARED, why, *declaration.proofs)


def reachable(route: Route) -> Step:
    proofs: tuple[Proof, ...] = route.proofs
    if route.answer is Answer.FAIL:
        hint = route.hint or "another backend, or another layout"
        return failed(Rung.REACHABLE, route.why, *proofs, hint=hint)
    return Step(Rung.REACHABLE, route.answer, route.why, proofs, route.hint)


def _completed(
    auditor: Auditor, scene: Scene, name: str, answers: Answers, ladders: tuple[Ladder, ...], seen: Seen
) -> tuple[Ladder, ...]:
    """The ladders with their last three rungs, which a trial on a machine's cards, a log and a trace answer."""
    if scene.trying is not None:
        auditor.say(f"trying backends of {name} on this GPU, each in a process of its own")
    with auditor.timed("trying"):
        return tuple(
            msgspec.structs.replace(
                ladder,
                steps=ladder.steps
                + last_rungs(scene, name, answered.declaration, answered.route, seen, against=ladder.verdict),
            )
            for ladder, answered in zip(ladders, answers.backends, strict=True)
        )


def _auto(area: str, route: Route) -> Auto:
    return Auto(area=area, answer=route.answer, why=route.why, destination=route.destination, proofs=route.proofs)


def _findings(
    auditor: Auditor, engine: Engine, scene: Scene, answers: Answers, limit_bytes: float | None
) -> list[AuditFinding]:
    """What is odd about this engine: variables nobody reads, libraries that do not fit, guards, tiles, files."""
    installation = auditor.installation
    found = list(of_variables(engine.name, engine.variables, answers.variables, installation.environment))
    for distribution, objects in scene.objects.items():
        found += of_objects(distribution, objects, installation)
    found += of_guards(answers.guards, scene.imported)
    if limit_bytes is not None:
        modules = _triton_modules(scene, answers)
        element_bytes = staged_bytes(scene.target.activation_format)
        found += of_tiles(scene.sources, modules, element_bytes, limit_bytes, scene.target.sm)
    if answers.unparsed:
        found.append(
            AuditFinding(
                level="warn",
                subject=engine.name,
                text=f"{len(answers.unparsed)} of its files cannot be parsed by this Python: {answers.unparsed[0]}",
                hint="Sublight under a Python as new as the engine's",
            )
        )
    return found


def staged_bytes(activation_format: str) -> float:
    """Bytes of an activation as Triton's tiles hold it in shared memory: four-bit formats are not held in less."""
    return 1.0 if activation_format in ("FP8", "NVFP4", "MXFP4") else 2.0


def _triton_modules(scene: Scene, answers: Answers) -> list[str]:
    """Modules around kernels for experts that the engine writes in Triton and really runs: tiles stand beside them.

    A name that is accepted and leads there by mistake runs it all the same.
    """
    routes = [answered.route for answered in answers.backends if answered.declaration.area == "moe"]
    routes += [route for area, route in answers.autos.items() if area == "moe"]
    ends = {route.destination for route in routes if route.answer is Answer.PASS}
    written = [end for end in ends if end and builder(scene.sources, end) == "triton"]
    if not written:
        return []
    beside = [name for end in written for name in scene.sources.submodules(end.rsplit(".", 2)[0])]
    read = scene.sources.loaded() if isinstance(scene.sources, WatchedSources) else []
    return list(dict.fromkeys([*beside, *read]))


def _keep_sources(auditor: Auditor, door: KeepingDoor, engine: Engine, sources: WatchedSources, folder: str) -> None:
    """Into the snapshot: what was read, the folders that other targets' answers are read from, what a log may ask."""
    folders = [f"{folder}/{shown}" for shown in engine.folders]
    tuned = tuned_folders(auditor, f"{folder}/{engine.package}")
    door.keep_files(sources.reader.files, folders, {*sources.reader.folders, *tuned})

"""The rung "importable": the exact symbols a path imports, read from source and really imported in the target."""

from collections.abc import Iterable, Iterator

from sublight.audit.causes import cause_of, is_absent
from sublight.audit.engines.base import Need, Route
from sublight.audit.ladder import Answer, Proof, Rung, Step, failed, passed, unknown
from sublight.audit.record import SymbolAnswer
from sublight.audit.replies import Imported
from sublight.audit.scene import Scene, Surroundings
from sublight.audit.source.symbols import Existence, Resolution
from sublight.audit.source.whereabouts import Place, whereabouts
from sublight.units import counted


def importable(scene: Scene, route: Route) -> Step:
    """Whether every symbol of the path can be imported; a failure swallowed on the way is named as the cause."""
    asked = needs_of(route)
    if not asked:
        return unknown(Rung.IMPORTABLE, "what it would import is not known: no path to its kernel was found")
    answers = [(need, symbol_answer(scene, need.symbol)) for need in _distinct(asked)]
    proofs = [proof for need, answer in answers for proof in (_asked(need), *answer.proofs)]
    bad = [(need, answer) for need, answer in answers if answer.answer is Answer.FAIL]
    if bad:
        why = "; ".join(_alike(scene, bad))
        return failed(Rung.IMPORTABLE, why, *proofs, hint="; ".join(dict.fromkeys(a.hint for _, a in bad if a.hint)))
    open_ones = [answer for _, answer in answers if answer.answer is Answer.NOT_KNOWN]
    if open_ones:
        return unknown(Rung.IMPORTABLE, _together(scene, open_ones), *proofs, hint=open_ones[0].hint)
    return passed(Rung.IMPORTABLE, f"imported: {', '.join(answer.symbol for _, answer in answers)}", *proofs)


def needs_of(route: Route) -> tuple[Need, ...]:
    """What the path imports; where it needs nothing of others, the place in the engine's own code that it ends at."""
    if route.needs or route.answer is not Answer.PASS or not route.destination:
        return route.needs
    where = route.proofs[-1].where if route.proofs else ""
    return (Need(route.destination, where, "the engine's own"),)


def _distinct(needs: Iterable[Need]) -> list[Need]:
    return list({need.symbol: need for need in reversed(tuple(needs))}.values())[::-1]


def _asked(need: Need) -> Proof:
    condition = f", if {need.only_if}" if need.only_if else ""
    return Proof("source", need.where, f"imports {need.symbol} ({need.how}{condition})")


def _alike(scene: Scene, bad: list[tuple[Need, SymbolAnswer]]) -> Iterator[str]:
    """Failures, those of one cause in one sentence, and what the engine does then."""
    causes: dict[str, list[tuple[Need, SymbolAnswer]]] = {}
    for need, answer in bad:
        causes.setdefault(answer.why.partition(", found ")[2] or answer.why, []).append((need, answer))
    for cause, pairs in causes.items():
        symbols = [answer.symbol for _, answer in pairs]
        who = ", ".join(symbols) if len(symbols) <= 2 else f"{symbols[0]} and {len(symbols) - 1} more"
        really = scene.imported.get(symbols[0])
        then = pairs[0][0].on_failure if really is None or really.is_import_error else ""
        yield f"asked {who}, found {cause}" + (f" (then: {then})" if then else "")


def _together(scene: Scene, answers: list[SymbolAnswer]) -> str:
    """What is open about several symbols; alike for every backend where nothing at all was imported."""
    if scene.not_imported and all(answer.home for answer in answers):
        return f"the sources have every symbol that it imports; importing them was not tried: {scene.not_imported}"
    first = answers[0].why
    return first if len(answers) == 1 else f"{first}; and {counted(len(answers) - 1, 'more symbol')} alike"


def symbol_answer(scene: Surroundings, symbol: str) -> SymbolAnswer:
    """What source and interpreter say of a symbol, joined. The interpreter decides where both speak."""
    read = scene.resolve(symbol)
    really = scene.imported.get(symbol)
    if really is None or really.outcome == "untried":
        return _by_source(scene, read, really.message if really else scene.not_imported)
    proofs = (*read.chain[-1:], *_import_proofs(symbol, really, scene))
    if really.outcome == "found":
        home = really.home or read.home
        lives = f", which lives in {home}" if home and home != symbol else ""
        return SymbolAnswer(
            symbol=symbol, answer=Answer.PASS, why=f"{symbol} is there{lives}", home=home, proofs=proofs
        )
    cause = cause_of(scene, read, really)
    absent = is_absent(symbol, really)
    instead = whereabouts(scene.sources, read) if really.outcome == "error" else ()
    places = _instead(symbol, instead, "it really lives" if absent else "it would live")
    return SymbolAnswer(
        symbol=symbol,
        answer=Answer.FAIL,
        why=f"asked {symbol}, found {_line(really.message)}{cause.why}{places}",
        home=read.home,
        instead=tuple(place.symbol for place in instead),
        proofs=(*proofs, *cause.proofs, *(place.proof for place in instead)),
        hint=f"import {instead[0].symbol}" if instead and absent else cause.hint,
    )


def _line(message: str) -> str:
    """One line of a message that may be a page with its line breaks spelled out."""
    return " ".join(message.replace("\\n", " ").split())


def _instead(symbol: str, places: tuple[Place, ...], lives: str = "it really lives") -> str:
    """Where the name is defined, or the module that is named like it and one name of those that it offers."""
    if not places:
        return ""
    first, *others = (place.symbol for place in places)
    if first.rpartition(".")[2] == symbol.rpartition(".")[2]:
        more = f"; also defined at {', '.join(others[:2])}" if others else ""
    else:
        more = f", which offers {others[0]}{' among others' if others[1:] else ''}" if others else ""
    return f"; {lives} at {first}{more}"


def _import_proofs(symbol: str, really: Imported, scene: Surroundings) -> tuple[Proof, ...]:
    said = really.message or f"{really.kind} {really.home} in {really.file}" + (
        f":{really.line}" if really.line else ""
    )
    where = f"import of {symbol} by {scene.installation.name}"
    frames = tuple(Proof("import", frame, "in the traceback") for frame in really.frames[-2:])
    tail = really.output.strip().splitlines()[-1:] if really.outcome in ("crash", "exit") else []
    noise = tuple(Proof("import", where, line[:200]) for line in tail)
    return (Proof("import", where, said), *frames, *noise)


def _with_it(symbol: str) -> str:
    if not all(part.isidentifier() for part in symbol.split(".")):
        return "a dotted name: package.module.name"
    return f"a version of {symbol.partition('.')[0]} that has it"


def _by_source(scene: Surroundings, read: Resolution, not_imported: str) -> SymbolAnswer:
    """Without an import: a name that the source does not have is missing; one that it has may still fail."""
    if read.existence is Existence.MISSING and not scene.partial:
        instead = whereabouts(scene.sources, read)
        hint = f"import {instead[0].symbol}" if instead else _with_it(read.asked)
        return SymbolAnswer(
            symbol=read.asked,
            answer=Answer.FAIL,
            why=f"asked {read.asked}, found {read.why}" + _instead(read.asked, instead),
            instead=tuple(place.symbol for place in instead),
            proofs=(*read.chain, *(place.proof for place in instead)),
            hint=hint,
        )
    said = f"its source has it ({read.home})" if read.found and read.home else read.why
    return SymbolAnswer(
        symbol=read.asked,
        answer=Answer.NOT_KNOWN,
        why=f"{read.asked}: {said}; importing it was not tried: {not_imported or 'nobody asked for it'}",
        home=read.home,
        proofs=read.chain,
        hint="the same with --python and without --no-import" if scene.not_imported else "",
    )

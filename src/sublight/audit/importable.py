"""The rung "importable": the exact symbols a path imports, read from source and really imported in the target."""

from collections.abc import Iterable

from sublight.audit.engines.base import Need, Route
from sublight.audit.ladder import Answer, Proof, Rung, Step, failed, passed, unknown
from sublight.audit.record import SymbolAnswer
from sublight.audit.replies import Imported
from sublight.audit.scene import Scene, Surroundings
from sublight.audit.source.symbols import Existence, Resolution
from sublight.audit.source.whereabouts import whereabouts


def importable(scene: Scene, route: Route) -> Step:
    """Whether every symbol of the path can be imported; a failure swallowed on the way is named as the cause."""
    if not route.needs:
        if route.answer is Answer.PASS:
            return passed(Rung.IMPORTABLE, "the path imports nothing beyond the engine itself", *route.proofs[-1:])
        return unknown(Rung.IMPORTABLE, "what it would import is not known: no path to its kernel was found")
    answers = [(need, symbol_answer(scene, need.symbol)) for need in _distinct(route.needs)]
    proofs = [proof for need, answer in answers for proof in (_asked(need), *answer.proofs)]
    bad = [(need, answer) for need, answer in answers if answer.answer is Answer.FAIL]
    if bad:
        why = "; ".join(_with_failure(need, answer) for need, answer in bad)
        return failed(Rung.IMPORTABLE, why, *proofs, hint="; ".join(dict.fromkeys(a.hint for _, a in bad if a.hint)))
    open_ones = [answer for _, answer in answers if answer.answer is Answer.NOT_KNOWN]
    if open_ones:
        return unknown(Rung.IMPORTABLE, _together(open_ones), *proofs, hint=open_ones[0].hint)
    return passed(Rung.IMPORTABLE, f"imported: {', '.join(answer.symbol for _, answer in answers)}", *proofs)


def _distinct(needs: Iterable[Need]) -> list[Need]:
    return list({need.symbol: need for need in reversed(tuple(needs))}.values())[::-1]


def _asked(need: Need) -> Proof:
    condition = f", if {need.only_if}" if need.only_if else ""
    return Proof("source", need.where, f"imports {need.symbol} ({need.how}{condition})")


def _with_failure(need: Need, answer: SymbolAnswer) -> str:
    return f"{answer.why} (then: {need.on_failure})" if need.on_failure else answer.why


def _together(answers: list[SymbolAnswer]) -> str:
    first = answers[0].why
    return first if len(answers) == 1 else f"{first}; and {len(answers) - 1} more symbols alike"


def symbol_answer(scene: Surroundings, symbol: str) -> SymbolAnswer:
    """What source and interpreter say of a symbol, joined. The interpreter decides where both speak."""
    read = scene.resolve(symbol)
    really = scene.imported.get(symbol)
    if really is None:
        return _by_source(scene, read)
    proofs = (*read.chain[-1:], *_import_proofs(symbol, really, scene))
    if really.outcome == "found":
        home = really.home or read.home
        lives = f", which lives in {home}" if home and home != symbol else ""
        return SymbolAnswer(
            symbol=symbol, answer=Answer.PASS, why=f"{symbol} is there{lives}", home=home, proofs=proofs
        )
    instead = whereabouts(scene.sources, read) if really.outcome == "error" else ()
    why = f"asked {symbol}, found {really.message}" + _instead(instead) + _cause(really)
    return SymbolAnswer(
        symbol=symbol,
        answer=Answer.FAIL,
        why=why,
        home=read.home,
        instead=tuple(place.symbol for place in instead),
        proofs=(*proofs, *(place.proof for place in instead)),
        hint=_hint(scene, symbol, really, instead),
    )


def _instead(places: tuple[object, ...]) -> str:
    names = [getattr(place, "symbol", "") for place in places]
    return f"; it really lives at {', '.join(names[:3])}" if names else ""


def _cause(really: Imported) -> str:
    """The first import that failed inside the package, where the error itself does not say it."""
    first = next((s for s in really.swallowed if s.message not in really.message), None)
    if first is None:
        return ""
    return f"; inside, {first.by} asked for {first.name} and met {first.message}"


def _import_proofs(symbol: str, really: Imported, scene: Surroundings) -> tuple[Proof, ...]:
    said = really.message or f"{really.kind} {really.home} in {really.file}" + (
        f":{really.line}" if really.line else ""
    )
    where = f"import of {symbol} by {scene.installation.name}"
    frames = tuple(Proof("import", frame, "in the traceback") for frame in really.frames[-2:])
    tail = really.output.strip().splitlines()[-1:] if really.outcome in ("crash", "exit") else []
    noise = tuple(Proof("import", where, line[:200]) for line in tail)
    return (Proof("import", where, said), *frames, *noise)


def _hint(scene: Surroundings, symbol: str, really: Imported, places: tuple[object, ...]) -> str:
    if places:
        return f"import {getattr(places[0], 'symbol', '')}"
    missing = next((s.name for s in really.swallowed if "No module named" in s.message), "")
    if missing:
        return f"install what ships {missing.partition('.')[0]}"
    if really.outcome in ("crash", "hang"):
        return f"{scene.installation.name} -X faulthandler -c 'import {symbol.rpartition('.')[0] or symbol}'"
    return f"a version of {symbol.partition('.')[0]} that has it"


def _by_source(scene: Surroundings, read: Resolution) -> SymbolAnswer:
    """Without an import: a name that the source does not have is missing; one that it has may still fail."""
    if read.existence is Existence.MISSING and not scene.partial:
        instead = whereabouts(scene.sources, read)
        hint = f"import {instead[0].symbol}" if instead else f"a version of {read.asked.partition('.')[0]} that has it"
        return SymbolAnswer(
            symbol=read.asked,
            answer=Answer.FAIL,
            why=f"asked {read.asked}, found {read.why}" + _instead(instead),
            instead=tuple(place.symbol for place in instead),
            proofs=(*read.chain, *(place.proof for place in instead)),
            hint=hint,
        )
    said = f"its source has it ({read.home})" if read.found and read.home else read.why
    return SymbolAnswer(
        symbol=read.asked,
        answer=Answer.NOT_KNOWN,
        why=f"{read.asked}: {said}; importing it was not tried: {scene.not_imported or 'nobody asked for it'}",
        home=read.home,
        proofs=read.chain,
        hint="the same with --python and without --no-import" if scene.not_imported else "",
    )

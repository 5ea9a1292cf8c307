"""vLLM's choice of the experts' kernel: where a name leads, and what runs without one, as routes with their proof.

The oracle of the weight format asks kernel classes in an order that it edits itself; each one's answer is told.
"""

import ast

import msgspec

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.vllm.declared import MOE_FLAG, option
from sublight.audit.engines.vllm.formats import SIXTEEN_BITS, Scheme, schemes_of
from sublight.audit.engines.vllm.judge import Verdict, gates
from sublight.audit.engines.vllm.needs import asked_by, of, switches_for
from sublight.audit.engines.vllm.oracle import ASKED, ORACLES, Choice, choose
from sublight.audit.engines.vllm.walk import Assumed, Walk, walking
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Member, options
from sublight.audit.target import Target


def route(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed) -> Route:
    """Where `--moe-backend NAME` leads."""
    return _agreed(target, [_route(sources, declaration, target, scheme, assumed) for scheme in schemes_of(target)])


def _agreed(target: Target, routes: list[Route]) -> Route:
    """The one answer of all that the checkpoint may be; not known, with each, where they differ."""
    if not routes:
        return Route(answer=Answer.NOT_KNOWN, why=f"no oracle of vLLM's is known for {target.expert_format} experts")
    first, other = routes[0], routes[-1]
    if (first.answer, first.destination) == (other.answer, other.destination):
        return first
    why = f"with static activation scales: {first.why}; with dynamic ones: {other.why}"
    return msgspec.structs.replace(first, answer=Answer.NOT_KNOWN, why=why, proofs=(*first.proofs, *other.proofs))


def _route(sources: Sources, declaration: Declaration, target: Target, scheme: Scheme, assumed: Assumed) -> Route:
    if declaration.selectable is False:
        return Route(answer=Answer.FAIL, why=declaration.note or "no option takes this name", proofs=declaration.proofs)
    walk = walking(sources, target, assumed)
    if walk.problem:
        return Route(answer=Answer.NOT_KNOWN, why=walk.problem)
    choice = choose(walk, target, scheme, declaration.name, unknown=False)
    if isinstance(choice, str):
        return Route(answer=Answer.NOT_KNOWN, why=choice)
    if choice.cls is None and walk.missing and assumed != Assumed():
        ideal = _route(sources, declaration, target, scheme, Assumed())
        if ideal.answer is not Answer.FAIL:
            return _hidden(walk, ideal, declaration.name)
    if choice.cls is None and any(verdict.passes is None for verdict in choice.verdicts):
        hopeful = choose(walk, target, scheme, declaration.name, unknown=True)
        choice = hopeful if not isinstance(hopeful, str) and hopeful.cls is not None else choice
    if choice.cls is not None:
        return _taken(walk, choice, declaration.name, target)
    return _refused(walk, choice, declaration.name, target)


def _hidden(walk: Walk, ideal: Route, name: str) -> Route:
    """The engine does not offer a kernel that the card could run, because its own test of the installation says no."""
    lacking = ", ".join(dict.fromkeys(walk.missing.values()))
    switches = switches_for(walk, tuple(walk.missing))
    why = f"{name} is not offered here: {lacking}. The card is no obstacle: with it, {ideal.why}"
    hint = f"install what is missing, or set {' or '.join(switches)} where its code is there" if switches else ""
    return msgspec.structs.replace(
        ideal,
        answer=Answer.FAIL,
        why=why,
        proofs=(*ideal.proofs, *(Proof("source", need.where, need.symbol) for need in asked_by(walk))),
        hint=hint or "install what is missing",
    )


def _taken(walk: Walk, choice: Choice, name: str, target: Target) -> Route:
    verdict = next((item for item in reversed(choice.verdicts) if item.cls is choice.cls), None)
    cls = choice.cls
    assert cls is not None
    proofs = _way(walk, choice, name) + (verdict.proofs if verdict else ())
    found = gates(walk, verdict, ASKED, target.compute_capability) if verdict else ()
    needs = of(walk, (verdict,) if verdict else (), ASKED)
    if verdict is not None and verdict.passes is None:
        why = f"{name} leads to {cls.qualified}; whether it takes this layer {verdict.reason}"
        return Route(answer=Answer.NOT_KNOWN, why=why, destination=cls.dotted, proofs=proofs, needs=needs, gates=found)
    why = f"{name} is {choice.backend}, which runs {cls.qualified}"
    if others := [item for item in choice.verdicts if item.cls is not cls]:
        why += f" ({_said(others[0])})"
    return Route(answer=Answer.PASS, why=why, destination=cls.dotted, proofs=proofs, needs=needs, gates=found)


def _refused(walk: Walk, choice: Choice, name: str, target: Target) -> Route:
    at = choice.outcome.refused_at
    end = (Proof("source", at.where, at.module.line(at.line)),) if at else ()
    asked = choice.verdicts
    if not choice.refusal and choice.outcome.gave_up:
        return Route(answer=Answer.NOT_KNOWN, why=choice.outcome.gave_up)
    if not choice.refusal:
        return Route(answer=Answer.NOT_KNOWN, why=_open(choice, name))
    proofs = tuple(dict.fromkeys(proof for verdict in asked for proof in verdict.proofs))
    found = gates(walk, asked[0], ASKED, target.compute_capability) if asked else ()
    why = f"refused: {choice.refusal}"
    if asked and not any(verdict.reason and verdict.reason in why for verdict in asked):
        why = f"{why} ({'; '.join(_said(verdict) for verdict in asked)})"
    hint = _hint(walk, asked, target)
    return Route(
        answer=Answer.FAIL,
        why=why,
        destination=asked[0].cls.dotted if asked else "",
        proofs=(*proofs, *end),
        needs=of(walk, asked, ASKED),
        gates=found,
        hint=hint,
    )


def _open(choice: Choice, name: str) -> str:
    """Why a choice has no one end: what it may come to, and what that depends on."""
    pairs = [option for option in options(choice.outcome.value) if isinstance(option, tuple) and option]
    names = dict.fromkeys(pair[0].name for pair in pairs if isinstance(pair[0], Member))
    doubt = next((event for event in choice.outcome.of("branch") if event.outcome is None), None)
    if not names or doubt is None:
        return f"what {name} leads to could not be told from the source"
    return f"{' or '.join(reversed(names))}: depends on {doubt.text} ({doubt.where})"


def _hint(walk: Walk, asked: tuple[Verdict, ...], target: Target) -> str:
    if walk.missing:
        return f"not there: {', '.join(list(walk.missing)[:3])}"
    if any("quantization scheme" in verdict.reason for verdict in asked) and target.activation_format in SIXTEEN_BITS:
        return (
            "this checkpoint is weight-only (16-bit activations): an export with quantised activations would be taken"
        )
    if option(walk.sources, MOE_FLAG):
        return f"{MOE_FLAG} auto takes the first kernel that supports this configuration"
    return ""


def _said(verdict: Verdict) -> str:
    lacking = f" ({', '.join(verdict.lacking)})" if verdict.lacking and verdict.passes is False else ""
    return f"{verdict.name}: {verdict.reason}{lacking}" if verdict.reason else verdict.name


def _way(walk: Walk, choice: Choice, name: str) -> tuple[Proof, ...]:
    """The entry that gives a name its backend, the import of the class, and the line that settles on it."""
    found = []
    calls = [event.name for event in choice.outcome.of("call") if event.name.startswith(ORACLES)]
    mapped = next((walk.function(called) for called in calls if ".map_" in called), None)
    for node in ast.walk(mapped.node) if mapped else ():
        if mapped and isinstance(node, ast.Constant) and node.value == name:
            found.append(Proof("source", mapped.module.module.at(node), mapped.module.module.line(node.lineno)))
            break
    dotted = choice.cls.dotted if choice.cls else ""
    led = [event for event in choice.outcome.of("import") if event.name == dotted]
    said = [event for event in choice.outcome.of("log") if "backend" in str(event.value)]
    found += [Proof("source", event.where, event.module.line(event.line)) for event in (*led[-1:], *said[-1:])]
    return tuple(found)


def auto(sources: Sources, target: Target, assumed: Assumed) -> Route:
    """What runs without the option: in vLLM's order for this card the first candidate that takes the configuration."""
    return _agreed(target, [_auto(sources, target, scheme, assumed) for scheme in schemes_of(target)])


def _auto(sources: Sources, target: Target, scheme: Scheme, assumed: Assumed) -> Route:
    walk = walking(sources, target, assumed)
    if walk.problem:
        return Route(answer=Answer.NOT_KNOWN, why=walk.problem)
    choice = choose(walk, target, scheme, "auto", unknown=False)
    if isinstance(choice, str):
        return Route(answer=Answer.NOT_KNOWN, why=choice)
    hopeful = choose(walk, target, scheme, "auto", unknown=True)
    if choice.cls is None:
        return _refused(walk, choice, "auto", target)
    before = [item for item in choice.verdicts if item.cls is not choice.cls]
    passed_over = "; ".join(_said(item) for item in before if item.passes is False)
    verdict = next(item for item in choice.verdicts if item.cls is choice.cls)
    found = gates(walk, verdict, ASKED, target.compute_capability)
    unsure = not isinstance(hopeful, str) and hopeful.backend != choice.backend
    why = f"{choice.backend} ({choice.cls.qualified})" + (f"; before it: {passed_over}" if passed_over else "")
    if unsure and not isinstance(hopeful, str):
        doubt = next((item.reason for item in choice.verdicts if item.passes is None), "")
        why = f"{hopeful.backend} or {choice.backend}: {doubt}"
    return Route(
        answer=Answer.NOT_KNOWN if unsure else Answer.PASS,
        why=why,
        destination=(hopeful.cls or choice.cls).dotted
        if unsure and not isinstance(hopeful, str)
        else choice.cls.dotted,
        proofs=_way(walk, choice, "") + verdict.proofs,
        needs=of(walk, (verdict,), ASKED),
        gates=found,
    )

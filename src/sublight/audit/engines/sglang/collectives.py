"""Routes of all-reduces: from the options of a launch to the communicator that sums a step of decoding.

The server's options are settled, handed to the groups' module as a starting server does, a group of all
tensor-parallel ranks is made, and one token's activations are given to it. Whether cards are joined by NVLink is what
the catalogue says of the card; of a card that it says nothing of, both is walked, and where that decides, the answer is
not known.
"""

from collections.abc import Iterable

import msgspec

from sublight.audit.engines.base import Declaration, Gate, Need, Route
from sublight.audit.engines.sglang import communicators, fusion, kernels, story
from sublight.audit.engines.sglang.arguments import Launch, launch
from sublight.audit.engines.sglang.communicators import GROUPS, Way, option
from sublight.audit.engines.sglang.groups import GroupWalk, Taker, message_bytes
from sublight.audit.engines.sglang.layers import Stage
from sublight.audit.ladder import Answer, Proof
from sublight.audit.links import SAID, linked
from sublight.audit.source.events import Event
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Instance, options
from sublight.audit.target import Target

AREA = "all-reduce"
_FIRST = "accepted, but"
_OF_A_MACHINE = 8  # cards: more are hardly ever in one
_NO_KERNELS = ("torch.", "msgspec.", "flashinfer.autotuner.")  # outside, and nothing that a kernel is in


def declared(sources: Sources) -> tuple[Declaration, ...]:
    """Communicators in the order in which a group makes them, then the sums that are fused with a norm."""
    found = [(way.name, way.flag, way.proof) for way in communicators.ways(sources)]
    found += [(way.name, way.flag, way.proof) for way in fusion.ways(sources)]
    return tuple(Declaration(AREA, name, flag, bool(flag) or None, None, (proof,)) for name, flag, proof in found)


def route(sources: Sources, name: str, target: Target) -> Route:
    """Where asking for a way to sum leads; "auto" is asking for none."""
    layout = target.layout
    if layout.tp < 2:
        return Route(answer=Answer.FAIL, why="nothing is summed: one rank holds every layer", hint="--tp 2 or more")
    if layout.dp > 1:
        why = "with data-parallel attention groups of fewer ranks sum, and gather instead; those were not followed"
        return Route(answer=Answer.NOT_KNOWN, why=why)
    begun = launch(sources, target, _options(sources), _loaded(sources))
    if name == "auto":
        return _auto(begun)
    fused = next((way for way in fusion.ways(sources) if way.name == name), None)
    if fused is not None:
        return fusion.route(begun, fused)
    way = next((way for way in communicators.ways(sources) if way.name == name), None)
    if way is None:
        return Route(answer=Answer.NOT_KNOWN, why=f"{name} is not among the ways to sum of these sources")
    found = _asked(begun, way, dict(way.options))
    if not found.why.startswith(_FIRST):
        return found
    off: dict[str, bool | str] = {each.unless: True for each in communicators.ways(sources) if each.unless}
    besides = {field: value for field, value in off.items() if field not in dict(way.options) and field != way.unless}
    alone = _asked(begun, way, dict(way.options) | besides) if besides else found
    if alone.answer is Answer.FAIL:
        return found
    then = f"there {name} sums" if alone.answer is Answer.PASS else f"then {alone.why}"
    return msgspec.structs.replace(found, hint=f"{' '.join(option(field) for field in besides)} besides: {then}")


def _options(sources: Sources) -> frozenset[str]:
    """Options that switch a way. Those of a second use are not among them: steps that size memory read them as well."""
    fields = {field for way in communicators.ways(sources) if not way.line for field, _ in way.options}
    return frozenset(fields | {field for way in fusion.ways(sources) for field, _ in way.options})


def _loaded(sources: Sources) -> tuple[str, ...]:
    """Modules that every launch needs: the groups', the one that hands the options to it, the one of fused sums."""
    found = [communicators.started(sources, setter) for setter in communicators.setters(sources).values()]
    starters = dict.fromkeys(each.module.name for each in found if each is not None and each.inside)
    return (GROUPS, *starters, fusion.LIBRARY)


def _asked(begun: Launch, way: Way, asked: dict[str, bool | str]) -> Route:
    settled = begun.settle(asked)
    if settled.reason:
        return Route(answer=Answer.NOT_KNOWN, why=f"the arguments could not be followed: {settled.reason}")
    if settled.refused is not None:
        return story.refused(settled.refused, "the arguments are checked")
    told = [_told(GroupWalk(begun, settled, way, joined), way) for joined in _links(begun.target)]
    return told[0] if len({each.answer for each in told}) == 1 else _by_link(way.name, *told)


def _links(target: Target) -> tuple[bool, ...]:
    """How the cards are taken to be joined: as the catalogue says, else both by NVLink and not."""
    link = linked(target.gpu)
    return (True, False) if link is None else (link,)


def _by_link(name: str, joined: Route, apart: Route) -> Route:
    """The answer where it hangs on NVLink, which nobody knows of."""
    if Answer.NOT_KNOWN in (joined.answer, apart.answer):
        return joined if joined.answer is Answer.NOT_KNOWN else apart
    good, bad = (joined, apart) if joined.answer is Answer.PASS else (apart, joined)
    where = "NVLink joins them all" if good is joined else "NVLink does not join them all"
    why = f"hangs on NVLink, which is not known of this card: {name} sums where {where}; else: {bad.why}"
    return msgspec.structs.replace(good, answer=Answer.NOT_KNOWN, why=why, proofs=(*good.proofs, *bad.proofs[-2:]))


# -- one walk -----------------------------------------------------------------------------------------------------


def _told(walk: GroupWalk, way: Way) -> Route:
    """What a walk came to for the way that was asked for."""
    last = walk.stages[-1] if walk.stages else None
    if walk.lost or last is None:
        return Route(answer=Answer.NOT_KNOWN, why=walk.lost or "nothing could be walked")
    if last.outcome.refusal is not None:
        return _stopped(way, last)
    takers = walk.takers()
    mine = [taker for taker in takers if taker.runs == way.runs and way.line in (0, taker.event.line)]
    if mine and len({taker.runs for taker in takers}) == 1:
        return _sums(walk, way, mine[0])
    inner = _within(walk.events(walk.MADE), way.runs)
    made = walk.made(way.runs)
    instead = f"{_names(takers)} sums instead" if takers else ""
    if made is None:
        return msgspec.structs.replace(_not_made(walk, way), hint=instead)
    if made.attributes.get("disabled") is True:
        return msgspec.structs.replace(_disabled(inner, way), hint=instead)
    if mine:
        on = _deciding(walk, way, inner, mine[0])
        why = f"{_names(takers)} sums, depending on {on.text} ({on.where})"
        asks = bool(way.options or way.variables)
        return Route(answer=Answer.NOT_KNOWN, why=why, destination=way.runs, proofs=(way.proof, on),
                     needs=_needs(walk, [*inner, *_own(walk, way)]),
                     hint=f"{way.flag}, and a trace of it: its kernels tell" if asks else "")  # fmt: skip
    if not takers:
        return Route(answer=Answer.NOT_KNOWN, why="the sum was followed and no communicator was seen in it")
    size = _size(walk.target)
    why = f"{_FIRST} {_names(takers)} sums a message of {size}: it is asked first"
    if any(".should_" in each.name for each in walk.events(walk.SUMMED) if each.kind == "call" and _is_of(each, made)):
        why = f"{_FIRST} it leaves a message of {size} to {_names(takers)}"
    return Route(answer=Answer.FAIL, why=why, destination=takers[0].runs,
                 proofs=(way.proof, *(story.proof(taker.event) for taker in takers)), hint=instead)  # fmt: skip


def _is_of(event: Event, made: Instance) -> bool:
    """Whether what is called is a method of an object."""
    line = made.cls.line() if made.cls is not None else []
    return event.name.rpartition(".")[0] in {cls.dotted for cls in line}


def _own(walk: GroupWalk, way: Way) -> list[Event]:
    """What a communicator's own methods do for a message."""
    return [event for event in walk.events(walk.SUMMED) if event.function.startswith(f"{way.runs}.")]


def _names(takers: Iterable[Taker]) -> str:
    return " or ".join(dict.fromkeys(taker.name for taker in takers))


def _deciding(walk: GroupWalk, way: Way, inner: list[Event], mine: Taker) -> Proof:
    """What it hangs on that a communicator sums: who is asked first, whether it is on at all, or its own decision."""
    first = next((each for each in mine.event.conditions if "(" in each.text.removeprefix("not (")[:-1]), None)
    if first is not None:
        return Proof("source", first.where, first.text)
    summed = walk.events(walk.SUMMED)
    own = [*(each for each in inner if each.function.startswith(f"{way.runs}.")), *_own(walk, way)]
    open_ = [each for each in own if each.kind == "branch" and each.outcome is None]
    made = walk.made(way.runs)
    if made is not None and len(options(made.attributes.get("disabled"))) > 1 and open_:
        return Proof("source", open_[0].where, open_[0].text)
    asked = next((each for each in summed if each.kind == "call" and each.name.startswith(f"{way.runs}.should_")), None)
    if asked is None:
        return Proof("source", mine.event.where, "something that could not be worked out")
    at = next((each for each in open_ if each.function == asked.name), None)
    if at is not None:
        return Proof("source", at.where, at.text)
    return Proof(
        "source", asked.where, f"the answer of {asked.name.rpartition('.')[2]}(), which was not followed to its end"
    )


def _stopped(way: Way, last: Stage) -> Route:
    """The server stops. A key that a table of the engine's lacks is no refusal of its own, and stops it as well."""
    failure = last.outcome.refusal
    if failure is None or last.outcome.refused_at is not None or failure.kind not in ("KeyError", "IndexError"):
        return story.refused(last.outcome, last.name)
    looked = [event for event in last.outcome.events if event.kind == "lacking" and event.value is failure][-1:]
    lines = tuple(story.proof(event) for event in looked)
    why = f"accepted, but the server stops when {last.name}: {failure.kind}: {failure.message}"
    return Route(answer=Answer.FAIL, why=why, proofs=(way.proof, *lines), hint="a launch without it")


def _sums(walk: GroupWalk, way: Way, taker: Taker) -> Route:
    events = [*_within(walk.events(walk.MADE), way.runs), *_within(walk.events(walk.SUMMED), taker.event.name)]
    return Route(
        answer=Answer.PASS,
        why=f"{taker.name} sums a step of decoding: {_between(walk)}",
        destination=way.runs,
        proofs=(way.proof, story.proof(taker.event)),
        needs=_needs(walk, events),
        gates=story.gates(events),
    )


def _not_made(walk: GroupWalk, way: Way) -> Route:
    """The first test on the way to its making that fails, with what the engine says there of its own accord."""
    events = walk.events(walk.MADE)
    for where in way.made_under:
        at = next((n for n, event in enumerate(events) if event.kind == "branch" and event.where == where), None)
        if at is None or events[at].outcome is not False:
            continue
        said = [event for event in events[:at] if event.kind == "log" and way.name in str(event.value)]
        if said:
            return _refusal(events, said[-1], way, "not made")
        why = f"it is made only where {events[at].text} holds, which it does not here"
        return Route(answer=Answer.FAIL, why=why, destination=way.runs, proofs=(way.proof, story.proof(events[at])))
    return Route(answer=Answer.NOT_KNOWN, why="why the group does not make it could not be worked out",
                 proofs=(way.proof,))  # fmt: skip


def _disabled(inner: list[Event], way: Way) -> Route:
    said = [event for event in inner if event.kind == "log"]
    if said:
        return _refusal(inner, said[-1], way, "disabled")
    taken = [event for event in inner if event.kind == "branch" and event.outcome is True]
    lines = tuple(story.proof(event) for event in taken[-1:])
    why = f"disabled: {taken[-1].text} ({taken[-1].where})" if taken else "disabled, and it does not say why"
    return Route(answer=Answer.FAIL, why=why, destination=way.runs, proofs=(way.proof, *lines))


def _refusal(events: list[Event], said: Event, way: Way, how: str) -> Route:
    """What the engine says when it does without a communicator, and the condition that it says it under."""
    cause = story.cause(events, said)
    gates = tuple(Gate(Answer.FAIL, event.text, story.proof(event)) for event in cause
                  if story.of_the_card(f"{event.text} {said.value}"))  # fmt: skip
    return Route(
        answer=Answer.FAIL,
        why=f"{how}: {story.shortened(str(said.value))}",
        destination=way.runs,
        proofs=(way.proof, *(story.proof(event) for event in cause), story.proof(said)),
        gates=gates,
    )


def _within(events: list[Event], called: str) -> list[Event]:
    """What happened inside the last call of a name; of a class, inside its constructor."""
    at = next(
        (n for n in range(len(events) - 1, -1, -1) if events[n].kind == "call" and events[n].name == called), None
    )
    if at is None:
        return []
    if events[at + 1 : at + 2] and events[at + 1].name.endswith(".__init__"):
        at += 1
    after = range(at + 1, len(events))  # modules that are loaded meanwhile stand in no function, however deep
    end = next((n for n in after if events[n].function and events[n].depth <= events[at].depth), len(events))
    return events[at + 1 : end]


def _needs(walk: GroupWalk, events: Iterable[Event]) -> tuple[Need, ...]:
    """Symbols of other packages that are called, each with the import that brings it."""
    brought = {event.name: event for event in walk.walk.events if event.kind == "import"}
    found: dict[str, Need] = {}
    for event in events:
        if not kernels.is_foreign(event) or event.name.startswith(_NO_KERNELS) or event.name in found:
            continue
        parts = event.name.split(".")
        names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        by = next((brought[name] for name in names if name in brought), None)
        where, how, then = (by.where, by.how, by.on_failure) if by else (event.where, "lazy", "")
        found[event.name] = Need(event.name, where, how, then or "ImportError")
    return tuple(found.values())


def _size(target: Target) -> str:
    return f"{message_bytes(target):,} B"


def _between(walk: GroupWalk) -> str:
    layout = walk.target.layout
    reach = ", where peer access works" if walk.asked_for_peers() else ""
    besides = "" if layout.ep in (1, layout.tp) else "; groups that the experts have to themselves were not followed"
    if layout.tp > _OF_A_MACHINE:
        besides += "; all of them are taken to be in one machine"
    return f"{_size(walk.target)} of each of {layout.tp} cards{SAID[linked(walk.target.gpu)]}{reach}{besides}"


# -- nothing asked for --------------------------------------------------------------------------------------------


def _auto(begun: Launch) -> Route:
    """What sums when nothing is asked for: fused with a norm where the engine switches that on, else a communicator."""
    settled = begun.settle({})
    if settled.reason:
        return Route(answer=Answer.NOT_KNOWN, why=f"the arguments could not be followed: {settled.reason}")
    if settled.refused is not None:
        return story.refused(settled.refused, "the arguments are checked")
    fused = fusion.of_a_launch(begun, settled)
    walks = [GroupWalk(begun, settled, None, joined) for joined in _links(begun.target)]
    lost = next((walk.lost for walk in walks if walk.lost), "")
    if lost:
        return Route(answer=Answer.NOT_KNOWN, why=lost)
    takers = [walk.takers() for walk in walks]
    who = [_names(each) or "nobody that was seen" for each in takers]
    said = who[0] if len(set(who)) == 1 else f"{who[0]} where NVLink joins the cards, else {who[1]}"
    certain = len({taker.runs for each in takers for taker in each}) == 1
    if fused is not None:
        why = f"{fused.why}; other sums: {said}"
        return msgspec.structs.replace(fused, why=why)
    if not certain:
        hangs = "" if len(set(who)) > 1 else ", which of them could not be worked out"
        lines = dict.fromkeys(story.proof(taker.event) for each in takers for taker in each)
        return Route(answer=Answer.NOT_KNOWN, why=f"{said}{hangs}", proofs=tuple(lines))
    taker = takers[0][0]
    events = _within(walks[0].events(walks[0].MADE), taker.runs)
    return Route(
        answer=Answer.PASS,
        why=f"{said} sums a step of decoding: {_between(walks[0])}",
        destination=taker.runs,
        proofs=(story.proof(taker.event),),
        needs=_needs(walks[0], events),
    )

"""Routes of the experts' backends: from `--moe-runner-backend` to the kernel that runs."""

import re

import msgspec

from sublight.audit.engines.base import Gate, Instead, Route
from sublight.audit.engines.sglang import kernels, matching, story
from sublight.audit.engines.sglang.arguments import Launch, Settled, launch
from sublight.audit.engines.sglang.experts import ExpertsWalk
from sublight.audit.engines.sglang.layers import Stage, Way
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.events import Event
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Class, Value
from sublight.audit.target import NO_EXPERTS, Target

OPTIONS = frozenset(("moe_runner_backend", "moe_a2a_backend"))
_ENUM = "sglang.srt.layers.moe.utils.MoeRunnerBackend"
_OTHER_A2A = ("deepep", "flashinfer")
_FOR_ALL = "low_latency"  # the mode of an all-to-all that takes prompts and decoding the same way
_PROMPT = {"get_is_extend_in_batch": True}  # what is known of a batch with prompts
_WORD = re.compile(r"\w+")


def route(sources: Sources, name: str, target: Target) -> Route:
    """Where asking for a backend leads."""
    if target.shape is None:
        return Route(answer=Answer.NOT_KNOWN, why=NO_EXPERTS)
    begun = launch(sources, target, OPTIONS)
    found = _walked(begun, name, target.a2a)
    if found.answer is not Answer.FAIL:
        return _with_prompts(begun, name, found, target.a2a)
    if target.a2a == "none" and found.destination and name != "auto":
        return _with_other_layout(begun, name, found)
    if target.a2a != "none" and found.why.startswith(story.REFUSED):
        found = _with_other_mode(begun, name, found)
    return _with_advice_that_works(begun, name, found)


def _with_advice_that_works(begun: Launch, name: str, found: Route) -> Route:
    """The engine's own advice names a backend: one that it refuses here as well is no advice, what auto leads to is."""
    words = _WORD.findall(found.hint)
    advised = [other for other in _members(begun) if other in words and other not in (name, "auto")]
    if not advised or any(_once(begun, other).answer is not Answer.FAIL for other in advised):
        return found
    auto = _once(begun, "auto")
    hint = f"auto, which leads to {auto.destination.rpartition('.')[2]} here; " if auto.answer is Answer.PASS else ""
    hint += f"{' and '.join(advised)}, which the engine advises, does not work here either"
    return msgspec.structs.replace(found, hint=hint)


def _once(begun: Launch, name: str) -> Route:
    """Where a backend leads with the target's own all-to-all, followed once for all advice that names it."""
    if name not in begun.advised:
        begun.advised[name] = _walked(begun, name, begun.target.a2a)
    return begun.advised[name]


def _with_other_layout(begun: Launch, name: str, found: Route) -> Route:
    """A name that leads elsewhere may be right with another all-to-all: then that is the thing to try."""
    others = []
    for a2a in _OTHER_A2A:
        other = _walked(begun, name, a2a)
        if other.answer is Answer.PASS:
            other = _with_prompts(begun, name, other, a2a)
            others.append(Instead(f"--moe-a2a-backend {a2a}", other))
    return msgspec.structs.replace(found, instead=tuple(others))


def _with_other_mode(begun: Launch, name: str, found: Route) -> Route:
    """An all-to-all that has one of its two modes only is refused in both together, which is the default."""
    other = _walked(begun, name, begun.target.a2a, deepep_mode=_FOR_ALL)
    if other.answer is not Answer.PASS:
        return found
    return msgspec.structs.replace(found, instead=(Instead(f"--deepep-mode {_FOR_ALL}", other),))


def _with_prompts(begun: Launch, name: str, found: Route, a2a: str) -> Route:
    """A way that decodes, beside what prompts meet: an all-to-all may send them another way, which refuses them.

    Then the mode that takes both the same way belongs to the options.
    """
    if found.answer is not Answer.PASS or a2a == "none":
        return found
    with begun.knowing(_PROMPT):
        prompts = _walked(begun, name, a2a)
        if prompts.answer is not Answer.FAIL:
            return found
        both = _walked(begun, name, a2a, deepep_mode=_FOR_ALL)
    line = prompts.proofs[-1:]
    why = f"{found.why}; prompts take another way, which is {prompts.why}"
    beside = f"--deepep-mode {_FOR_ALL}" if both.answer is Answer.PASS else ""
    return msgspec.structs.replace(found, why=why, proofs=(*found.proofs, *line), beside=beside)


def _walked(begun: Launch, name: str, a2a: str, **more: str) -> Route:
    settled = begun.settle({"moe_runner_backend": name, "moe_a2a_backend": a2a, **more})
    if settled.reason:
        return Route(answer=Answer.NOT_KNOWN, why=f"the arguments could not be followed: {settled.reason}")
    if settled.refused is not None:
        return story.refused(settled.refused, "the arguments are checked")
    way = ExpertsWalk(begun.walk, begun.target, settled.values).follow()
    return _told(begun, name, a2a, settled, way)


def _told(begun: Launch, name: str, asked_a2a: str, settled: Settled, way: Way) -> Route:
    last = way.last
    if way.reason or last is None:
        return Route(answer=Answer.NOT_KNOWN, why=way.reason or "nothing could be walked")
    events = [event for stage in way.stages for event in stage.outcome.events]
    a2a = settled.values.get("moe_a2a_backend")
    if not isinstance(a2a, str):
        return _open(settled)
    if last.outcome.refusal is not None:
        return story.refused(last.outcome, last.name, [e for s in way.stages[:-1] for e in s.outcome.events])
    asked = settled.values.get("moe_runner_backend", name)
    rewritten = (
        *_rewritten("moe_runner_backend", name, asked, settled),
        *_rewritten("moe_a2a_backend", asked_a2a, a2a, settled),
    )
    working = kernels.working(last.outcome.events)
    unset = _unset(way) if not working else None
    if unset is not None:
        why = f"accepted, but the call fails: {unset.name} is set for other names only"
        return Route(answer=Answer.FAIL, why=why, proofs=(*rewritten, story.proof(unset)), gates=story.gates(events),
                     hint="another name: this one has no kernel here")  # fmt: skip
    if not working and kernels.calls_nothing(last.outcome.events):
        return _nothing(name, way, rewritten)
    if not working:
        return _unseen(last.outcome.events, rewritten, story.gates(events))
    found = _judged(begun, name, asked_a2a, asked, way, working, rewritten)
    if a2a == asked_a2a:
        return found
    return msgspec.structs.replace(found, why=f"the engine sets all-to-all {asked_a2a} to {a2a}; {found.why}")


def _open(settled: Settled) -> Route:
    """The arguments leave the all-to-all open, and with it all that follows, conditions on the card included."""
    why = "the arguments do not settle which all-to-all is used"
    at = settled.undecided("moe_a2a_backend")
    if at is None:
        return Route(answer=Answer.NOT_KNOWN, why=why)
    why += f": it hangs on a condition that could not be worked out, {at.text} ({at.where})"
    return Route(answer=Answer.NOT_KNOWN, why=why, proofs=(story.proof(at),))


def _unseen(events: tuple[Event, ...], rewritten: tuple[Proof, ...], gates: tuple[Gate, ...]) -> Route:
    """No kernel on a way that could not be followed everywhere; refusals seen on it are named."""
    perhaps = [event for event in events if event.kind == "raise" and not event.certain]
    why = "the layer's call was followed and no kernel was seen in it"
    if perhaps:
        why += f"; it may refuse: {perhaps[0].text}"
    lines = tuple(story.proof(event) for event in perhaps[:3])
    return Route(answer=Answer.NOT_KNOWN, why=why, proofs=(*rewritten, *lines), gates=gates)


def _nothing(name: str, way: Way, rewritten: tuple[Proof, ...]) -> Route:
    assert way.last is not None
    events = list(way.last.outcome.events)
    method = kernels.deciding(events)
    lines = [story.proof(event) for event in events if event.kind == "branch" and event.function == method]
    short = ".".join(method.split(".")[-2:])
    return Route(
        answer=Answer.FAIL,
        why=f"accepted, but nothing runs: no branch of {short}() asks for {name}",
        proofs=(*rewritten, *lines[-story.PROOFS_AT_MOST :]),
        gates=story.gates(events),
        hint="another name: this one has no kernel here",
    )


def _unset(way: Way) -> Event | None:
    """What the deciding function uses for certain and nothing has set: the runner that no branch made."""
    assert way.last is not None
    method = kernels.deciding(way.last.outcome.events)
    cls = method.split(".")[-2] if method else ""
    return next(
        (
            event
            for event in way.last.outcome.events
            if event.kind == "missing"
            and event.function == method
            and event.certain
            and event.name.startswith(f"{cls}.")
        ),
        None,
    )


def _rewritten(option: str, name: str, asked: Value, settled: Settled) -> tuple[Proof, ...]:
    """The lines that changed an option, where it was changed."""
    if asked == name or not isinstance(asked, str):
        return ()
    lines = [
        story.proof(event, event.module.line(event.line))
        for outcome in settled.outcomes
        for event in outcome.events
        if event.kind in ("write", "call", "branch") and option in event.module.line(event.line)
        and f'"{asked}"' in event.module.line(event.line)
    ]  # fmt: skip
    return tuple(dict.fromkeys(lines))[-2:]


def _judged(
    begun: Launch, name: str, a2a: str, asked: Value, way: Way, working: list[Event], rewritten: tuple[Proof, ...]
) -> Route:
    assert way.last is not None
    events = [event for stage in way.stages for event in stage.outcome.events]
    working = sorted(working, key=lambda event: (not matching.alike(name, event), len(event.name)))
    ends = list(dict.fromkeys(kernels.destination(event) for event in working))
    chosen = working[0]
    end = kernels.destination(chosen)
    spelled = _spellings(begun, name)
    branches = [event for event in _choices(way) if event.outcome is True and matching.asks_for(event, spelled)]
    begun.ends[name, a2a] = end
    fits = name == "auto" or matching.alike(name, chosen) or bool(branches)
    fits = fits or (chosen.certain and _specific(begun, name, a2a, end))
    answer = Answer.PASS if fits else Answer.FAIL
    if name == "auto":
        same = len({kernels.provider(event) for event in working}) == 1
    else:
        same = all(matching.alike(name, event) for event in working)
        same = same or (not fits and _of_others(begun, name, working))
    if not chosen.certain and len(ends) > 1 and not same:
        answer = Answer.NOT_KNOWN
    proofs = (*rewritten, *_followed(way, chosen))
    used = story.used_packages(way.last.outcome.events)
    return Route(
        answer=answer,
        why=_why(name, asked, answer, chosen, ends),
        destination=end,
        proofs=proofs,
        needs=story.needs(events, used),
        gates=story.gates(events),
        hint="another name: this one does not lead to a kernel of its own here" if answer is Answer.FAIL else "",
    )


def _of_others(begun: Launch, name: str, working: list[Event]) -> bool:
    """Whether every kernel that may run is named after another backend: then none of them is this one's."""
    others = [other for other in _members(begun) if other not in (name, "auto")]
    return all(any(matching.alike(other, event) for other in others) for event in working)


def _specific(begun: Launch, name: str, a2a: str, end: str) -> bool:
    """Whether a kernel is reached by this name only: then something on the way does ask for it, however it is written.

    No other accepted name may lead there, and one has to lead elsewhere: a fallback swallows every name.
    """
    others = [other for other in _members(begun) if other not in (name, "auto")]
    reached = False
    for other in others:
        there = _end(begun, other, a2a)
        if there == end:
            return False
        reached = reached or bool(there)
    return reached


def _end(begun: Launch, name: str, a2a: str) -> str:
    """Where a name leads, "" when it is refused or the way is lost."""
    if (name, a2a) not in begun.ends:
        begun.ends[name, a2a] = ""
        settled = begun.settle({"moe_runner_backend": name, "moe_a2a_backend": a2a})
        if not settled.reason and settled.refused is None:
            way = ExpertsWalk(begun.walk, begun.target, settled.values).follow()
            if way.last is not None and not way.reason and way.last.outcome.refusal is None:
                working = kernels.working(way.last.outcome.events)
                begun.ends[name, a2a] = kernels.destination(working[0]) if working else ""
    return begun.ends[name, a2a]


def _members(begun: Launch) -> list[str]:
    enum = begun.walk.name(_ENUM)
    return [str(member.value) for member in enum.members.values()] if isinstance(enum, Class) else []


def _why(name: str, asked: Value, answer: Answer, chosen: Event, ends: list[str]) -> str:
    runs = kernels.destination(chosen).rpartition(".")[2]
    by = kernels.provider(chosen)
    also = f" ({by})" if by.lower() not in runs.lower() else ""
    if answer is Answer.NOT_KNOWN:
        condition = " and ".join(each.text for each in chosen.conditions[-2:])
        listed = ", ".join(end.rpartition(".")[2] for end in ends[:4])
        return f"one of {listed} runs, depending on something that could not be worked out: {condition}"
    changed = f"rewritten to {asked}, " if isinstance(asked, str) and asked != name else ""
    if answer is Answer.PASS:
        runs = " or ".join(end.rpartition(".")[2] for end in ends[:3]) if not chosen.certain else runs
        return f"{changed}{runs}{also} runs"
    return f"accepted, but {changed}{runs}{also} runs: no branch on the way to it asks for {name}"


def _choices(way: Way) -> list[Event]:
    """Decisions that lead to the kernel: those of the call itself, and of the runner that it goes through."""
    assert way.last is not None
    found = [event for event in way.last.outcome.events if event.kind == "branch"]
    if any(event.name.endswith("Runner.run") for event in way.last.outcome.events if event.kind == "call"):
        found += [
            event
            for stage in way.stages[:-1]
            for event in stage.outcome.events
            if event.kind == "branch" and "Runner." in event.function
        ]
    return found


def _spellings(begun: Launch, name: str) -> list[str]:
    """A name as code may spell it: its value, and its member of the enumeration."""
    enum = begun.walk.name(_ENUM)
    members = enum.members.values() if isinstance(enum, Class) else ()
    return [name, *(member.name.lower() for member in members if member.value == name and member.name.lower() != name)]


def _followed(way: Way, chosen: Event) -> tuple[Proof, ...]:
    """The lines to the kernel: what the quantisation method decides, the import of what it calls, the call."""
    assert way.last is not None
    events = list(way.last.outcome.events)
    method = kernels.deciding(events) or chosen.function
    upto = events[: events.index(chosen)]
    lines: list[Proof] = []
    for stage in way.stages[:-1]:
        lines += _runner_lines(stage)
    for event in upto:
        if event.kind == "branch" and event.certain and event.function == method:
            lines.append(story.proof(event))
    holder = kernels.destination(chosen)
    for event in upto:
        if (event.kind == "import" and event.name in (holder, chosen.name)) or (
            event.kind == "call" and event.name == holder
        ):
            lines.append(story.proof(event))
    lines.append(story.proof(chosen))
    return tuple(dict.fromkeys(lines))[-story.PROOFS_AT_MOST :]


def _runner_lines(stage: Stage) -> list[Proof]:
    return [
        story.proof(event)
        for event in stage.outcome.events
        if event.kind == "branch" and event.outcome is True and "Runner.__init__" in event.function
    ]

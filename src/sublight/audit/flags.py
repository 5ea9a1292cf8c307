"""Launch flags worth trying: backends that nothing speaks against, those that were seen running first.

One that is right and only slow is among them: it may be all that there is. One that by its own name stands in for a
kernel comes last, and says so, as does one that does more work than the model asks for. A name that only leads to the
kernel of a simpler name, or is another spelling of it, is left out: nobody asked for it. So is what changes nothing,
where anything else is left in its area.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from sublight.audit.ladder import Answer, Ladder, Rung
from sublight.audit.record import Auto, Flag

_GPU_RUNGS = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)
_AND = "; "
_SWITCHES_OFF = re.compile(r"--(?:disable|no)-|\w+=0$")
# In the name of a backend, or of what it leads to -> what that means for a decode step.
_STANDS_IN = {
    "emulat": "emulation: weights are unpacked at every call, which is slow",
    "torch_?native": "plain PyTorch in the place of a kernel, which is slow",
}


def worth_trying(engine: str, ladders: Iterable[Ladder], autos: Iterable[Auto] = ()) -> tuple[Flag, ...]:
    """Backends without a failing rung that are known to be declared and reachable, by area; most proof first.

    Args:
        autos: what runs when nothing is asked for.
    """
    found: list[tuple[Ladder, Flag]] = []
    as_it_is: list[tuple[Ladder, Flag]] = []
    runs_anyway = {(auto.area, auto.destination) for auto in autos if auto.answer is Answer.PASS}
    for ladder in ladders:
        answers = {step.rung: step.answer for step in ladder.steps}
        certain = answers[Rung.DECLARED] is Answer.PASS and answers[Rung.REACHABLE] is Answer.PASS
        if (ladder.verdict is None or ladder.verdict.rung is Rung.FAST) and certain and ladder.flag:
            flag = Flag(
                engine=engine,
                area=ladder.area,
                flag=ladder.line,
                proven=tuple(rung for rung in _GPU_RUNGS if answers[rung] is Answer.PASS),
                open=tuple(r for r, a in answers.items() if a is Answer.NOT_KNOWN and r not in _GPU_RUNGS),
                slow=stands_in(ladder),
            )
            idle = not flag.proven and _changes_nothing(ladder, runs_anyway)
            (as_it_is if idle else found).append((ladder, flag))
    told = {flag.area for _, flag in found}
    found += [(ladder, flag) for ladder, flag in as_it_is if flag.area not in told]
    kept = [flag for ladder, flag in found if not any(_is_alias(ladder, flag, *other) for other in found)]
    areas = list(dict.fromkeys(flag.area for flag in kept))
    return tuple(
        sorted(kept, key=lambda flag: (areas.index(flag.area), _reasons(flag), -len(flag.proven), len(flag.open)))
    )


def _reasons(flag: Flag) -> int:
    """How many there are why it is slow."""
    return len(flag.slow.split(_AND)) if flag.slow else 0


def stands_in(ladder: Ladder) -> str:
    """Why a backend is slow by what it is, "" for one that is a kernel as far as its names and its source tell."""
    names = f"{ladder.name} {ladder.destination}".lower()
    named = next((said for word, said in _STANDS_IN.items() if re.search(word, names)), "")
    return _AND.join(filter(None, (ladder.slow, named)))


def _changes_nothing(ladder: Ladder, runs_anyway: AbstractSet[tuple[str, str]]) -> bool:
    """Whether a flag leaves the choice as it is, or switches others off to get what runs without that."""
    off = _SWITCHES_OFF.match(ladder.flag) is not None
    return ladder.name == "auto" or (off and (ladder.area, ladder.destination) in runs_anyway)


def _is_alias(ladder: Ladder, flag: Flag, other: Ladder, others: Flag) -> bool:
    """Whether a name has all words of another and more, leads to the same kernel, and has no proof of its own.

    One that the engine itself takes for another spelling is that whatever its words are.
    """
    same = ladder.area == other.area and bool(ladder.destination) and ladder.destination == other.destination
    longer = _words(other) < _words(ladder) or ladder.alias_of == other.name
    return same and longer and set(flag.proven) <= set(others.proven)


def _words(ladder: Ladder) -> set[str]:
    return set(re.split(r"[_-]", ladder.name.lower()))

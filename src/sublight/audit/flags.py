"""Launch flags worth trying: backends that nothing speaks against, those that were seen running first.

One that is right and only slow is among them: it may be all that there is. One that by its own name stands in for a
kernel comes last, and says so, as does one that does more work than the model asks for. A name that only leads to the
kernel of a simpler name, or is another spelling of it, is left out: nobody asked for it.
"""

import re
from collections.abc import Iterable

from sublight.audit.ladder import Answer, Ladder, Rung
from sublight.audit.record import Flag

_GPU_RUNGS = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)
_AND = "; "
# In the name of a backend, or of what it leads to -> what that means for a decode step.
_STANDS_IN = {
    "emulat": "emulation: weights are unpacked at every call, which is slow",
    "torch_?native": "plain PyTorch in the place of a kernel, which is slow",
}


def worth_trying(engine: str, ladders: Iterable[Ladder]) -> tuple[Flag, ...]:
    """Backends without a failing rung that are known to be declared and reachable, by area; most proof first."""
    found: list[tuple[Ladder, Flag]] = []
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
            found.append((ladder, flag))
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


def _is_alias(ladder: Ladder, flag: Flag, other: Ladder, others: Flag) -> bool:
    """Whether a name has all words of another and more, leads to the same kernel, and has no proof of its own.

    One that the engine itself takes for another spelling is that whatever its words are.
    """
    same = ladder.area == other.area and bool(ladder.destination) and ladder.destination == other.destination
    longer = _words(other) < _words(ladder) or ladder.alias_of == other.name
    return same and longer and set(flag.proven) <= set(others.proven)


def _words(ladder: Ladder) -> set[str]:
    return set(re.split(r"[_-]", ladder.name.lower()))

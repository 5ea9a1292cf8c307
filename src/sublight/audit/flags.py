"""Launch flags worth trying: backends that nothing speaks against, those that were seen running first.

One that is right and only slow is among them: it may be all that there is.
"""

from collections.abc import Iterable

from sublight.audit.ladder import Answer, Ladder, Rung
from sublight.audit.record import Flag

_GPU_RUNGS = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)


def worth_trying(engine: str, ladders: Iterable[Ladder]) -> tuple[Flag, ...]:
    """Backends without a failing rung that are known to be declared and reachable, by area; most proof first."""
    found = []
    for ladder in ladders:
        answers = {step.rung: step.answer for step in ladder.steps}
        certain = answers[Rung.DECLARED] is Answer.PASS and answers[Rung.REACHABLE] is Answer.PASS
        if (ladder.verdict is None or ladder.verdict.rung is Rung.FAST) and certain and ladder.flag:
            found.append(
                Flag(
                    engine=engine,
                    area=ladder.area,
                    flag=ladder.line,
                    proven=tuple(rung for rung in _GPU_RUNGS if answers[rung] is Answer.PASS),
                    open=tuple(r for r, a in answers.items() if a is Answer.NOT_KNOWN and r not in _GPU_RUNGS),
                )
            )
    areas = list(dict.fromkeys(flag.area for flag in found))
    return tuple(sorted(found, key=lambda flag: (areas.index(flag.area), -len(flag.proven), len(flag.open))))

"""What is not known of backends of several areas alike: said once for the engine, and left out of each area's list."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from sublight.audit.ladder import Answer, Ladder, Rung, Step
from sublight.report.blocks import Block, Cell, Heading, Listing, Paragraph
from sublight.units import counted

AREAS = {"moe": "MoE", "fp4-gemm": "FP4 GEMM", "attention": "attention", "all-reduce": "all-reduce"}
ON_A_GPU = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)
_ALIKE = re.compile(r"(?P<before>; importing it was not tried: [^;]*)(?P<alike>; and [\d,]+ more symbols? alike)")
_APART = re.compile(
    r"; (?!and [\d,]+ more |what there is|no shipped code)"
)  # parts of a sentence that do not stand alone stay
_SHORT = 3  # names of an area that are listed; of more there are in the tables


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What comes back: parts of sentences -> the backends by area, and things to try, each with its rung."""

    parts: dict[tuple[Rung, str], dict[str, list[str]]] = {}
    hints: tuple[tuple[Rung, str], ...] = ()

    def rest(self, step: Step) -> Step | None:
        """A step without what is said once elsewhere; None where nothing of it is left."""
        parts = _parts(step.why)
        left = [part for part in parts if (step.rung, part) not in self.parts]
        if not left:
            return None
        why = step.why if len(left) == len(parts) else "; ".join(left)
        hint = "" if self.parts and (step.rung, step.hint) in self.hints else step.hint
        return msgspec.structs.replace(step, why=why, hint=hint)


def unknown_steps(ladder: Ladder) -> list[Step]:
    """Rungs below those on a GPU that are not known, of a backend that nothing is said against."""
    if ladder.verdict is not None:
        return []
    return [step for step in ladder.steps if step.answer is Answer.NOT_KNOWN and step.rung not in ON_A_GPU]


def shared(ladders: Iterable[Ladder]) -> Shared:
    """What is not known in more than one area."""
    parts: dict[tuple[Rung, str], dict[str, list[str]]] = {}
    hints: dict[tuple[Rung, str], set[str]] = {}
    for ladder in ladders:
        for step in unknown_steps(ladder):
            hints.setdefault((step.rung, step.hint), set()).add(ladder.area)
            for part in _parts(step.why):
                parts.setdefault((step.rung, part), {}).setdefault(ladder.area, []).append(ladder.name)
    return Shared(
        parts={key: areas for key, areas in parts.items() if len(areas) > 1},
        hints=tuple(key for key, areas in hints.items() if len(areas) > 1 and key[1]),
    )


def _parts(why: str) -> list[str]:
    """The parts of a sentence, worded alike where they say the same of one symbol and of several."""
    together = _ALIKE.sub(r"\g<alike>\g<before>", why)
    return [
        part.replace("importing it was not tried", "importing was not tried").replace(
            "importing them was not tried", "importing was not tried"
        )
        for part in _APART.split(together)
    ]


def told_once(found: Shared) -> Iterator[Block]:
    """The parts, those of the same backends in one line; then what to try."""
    if not found.parts:
        return
    alike: dict[tuple[Rung, str], list[str]] = {}
    for (rung, part), areas in found.parts.items():
        who = "; ".join(_who(area, names) for area, names in areas.items())
        alike.setdefault((rung, who), []).append(part.rstrip("."))
    ordered = sorted(alike.items(), key=lambda item: list(Rung).index(item[0][0]))
    yield Heading("What is not known in several areas")
    yield Listing(tuple(Cell(f"{rung}: {'; '.join(said)}. ({who})", "muted") for (rung, who), said in ordered))
    tries: dict[Rung, list[str]] = {}
    for rung, hint in found.hints:
        tries.setdefault(rung, []).append(hint)
    said = [f"for {rung}: {'; or '.join(tries[rung])}" for rung in Rung if rung in tries]
    if said:
        yield Paragraph("Where nothing else is named, try", "muted")
        yield Listing(tuple(Cell(f"{text}.", "muted") for text in said))


def _who(area: str, names: list[str]) -> str:
    what = AREAS.get(area, area)
    return f"{what}: {', '.join(names)}" if len(names) <= _SHORT else f"{counted(len(names), f'{what} backend')}"

"""Facts of one start of an engine, gathered line by line: what is said again, by whom, and whether ranks agree."""

import math
from collections.abc import Iterator

from sublight.audit.log.echo import arguments, without_secrets
from sublight.audit.log.record import EVIDENCE_CHARACTERS, Argument, Disagreement, Echo, Fact, FactKind, Sighting
from sublight.audit.log.rules import Reading
from sublight.audit.log.spoken import Speaker, Spoken

MOST_FACTS = 5000
_WORLD_VLLM = ("tensor_parallel_size", "pipeline_parallel_size")
_WORLD_SGLANG = ("tp_size", "pp_size")
# Of these every rank should say the same: about which topic, and what.
_SHARED: dict[FactKind, tuple[str, tuple[str, ...]]] = {
    FactKind.MOE_BACKEND: ("format", ("backend",)),
    FactKind.MOE_RUNNER: ("", ("backend",)),
    FactKind.MOE_METHOD: ("", ("method",)),
    FactKind.ATTENTION: ("phase", ("backend",)),
    FactKind.LINEAR_KERNEL: ("format", ("kernel",)),
    FactKind.ALL_REDUCE: ("method", ("state",)),
    FactKind.NCCL: ("", ("version",)),
    FactKind.GRAPH_PLAN: ("phase", ("sizes", "full_largest", "piecewise_largest")),
    FactKind.QUANTIZATION: ("", ("method",)),
}


class _Gathered:
    """A fact while lines still add to it. `sure` are those speakers that nothing else could have been."""

    def __init__(self, reading: Reading, fields: dict[str, str], first: Sighting) -> None:
        self.kind, self.rule, self.engine = reading.rule.fact, reading.rule.id, reading.rule.engine
        self.fields, self.first = fields, first
        self.times = 0
        self.speakers: dict[Speaker, bool] = {}


class Start:
    """What one start of the engine said."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.asked = Echo()
        self.config = Echo()
        self.dropped = 0
        self._gathered: dict[tuple[object, ...], _Gathered] = {}
        self._ranks: dict[str, str] = {}

    def hear(self, reading: Reading, spoken: Spoken, line: int) -> None:
        """Add what one line says."""
        kind = reading.rule.fact
        fields = {name: text for name, text in reading.fields.items() if name != "text"}
        if kind in (FactKind.ARGUMENTS, FactKind.CONFIG):
            self._echo(kind, arguments(reading.fields.get("text", "")), Sighting(line, shortened(spoken.text)))
        found = self._gathered.get((kind, *sorted(fields.items())))
        if found is None:
            fields = {name: without_secrets(text) for name, text in fields.items()}
            key = (kind, *sorted(fields.items()))
            if key not in self._gathered and len(self._gathered) >= MOST_FACTS:
                self.dropped += 1
                return
            sighting = Sighting(line, shortened(spoken.text))
            found = self._gathered.setdefault(key, _Gathered(reading, fields, sighting))
        found.times += spoken.times
        if spoken.speaker is not None:
            found.speakers[spoken.speaker] = found.speakers.get(spoken.speaker, False) or spoken.sure

    def meet(self, speaker: Speaker | None) -> None:
        """Learn the rank of a process: workers are known by their id alone until they have one."""
        if speaker is not None and speaker.rank and speaker.pid:
            self._ranks.setdefault(speaker.pid, speaker.rank)

    def _echo(self, kind: FactKind, found: tuple[Argument, ...], sighting: Sighting) -> None:
        echo = self.asked if kind is FactKind.ARGUMENTS else self.config
        if echo.at is None or len(found) > len(echo.arguments):
            echo = Echo(found, sighting)
        if kind is FactKind.ARGUMENTS:
            self.asked = echo
        else:
            self.config = echo

    def drop_others(self, engine: str) -> int:
        """Forget what only another engine prints; says how many lines that were."""
        mine = {key: g for key, g in self._gathered.items() if g.engine in ("", engine)}
        dropped = sum(g.times for key, g in self._gathered.items() if key not in mine)
        self._gathered = mine
        return dropped

    def facts(self) -> tuple[Fact, ...]:
        """All of them, in the order of their first lines."""
        found = sorted(self._gathered.values(), key=lambda g: g.first.line)
        return tuple(
            Fact(
                kind=g.kind,
                rule=g.rule,
                fields=g.fields,
                first=g.first,
                times=g.times,
                ranks=tuple(sorted({r for s in g.speakers if (r := self._rank(s))}, key=_in_order)),
            )
            for g in found
        )

    def world(self) -> int | None:
        """How many ranks there are: what the lines of ranks say, else the arguments, else how many spoke."""
        said = [g.fields["world"] for g in self._gathered.values() if g.kind is FactKind.RANK and "world" in g.fields]
        if said:
            return max(map(int, said))
        for echo, names in ((self.config, _WORLD_VLLM), (self.asked, _WORLD_VLLM), (self.asked, _WORLD_SGLANG)):
            degrees = [int(d) for n in names if (d := echo.get(n)).isdecimal() and len(d) < 6]
            if degrees:
                return math.prod(degrees)
        spoke = {rank for g in self._gathered.values() for s in g.speakers if (rank := self._rank(s))}
        return len(spoke) or None

    def disagreements(self) -> Iterator[Disagreement]:
        """Kinds of which two ranks say different things, neither of them only less than the other."""
        said: dict[tuple[FactKind, str], dict[str, dict[str, Sighting]]] = {}
        for gathered in self._gathered.values():
            if gathered.kind not in _SHARED:
                continue
            about, names = _SHARED[gathered.kind]
            topic = gathered.fields.get(about, "")
            text = " ".join([topic, *(gathered.fields[n] for n in names if n in gathered.fields)]).strip()
            by_rank = said.setdefault((gathered.kind, topic), {})
            for speaker, sure in gathered.speakers.items():
                if sure and (rank := self._rank(speaker)):
                    by_rank.setdefault(rank, {}).setdefault(text, gathered.first)
        for (kind, _), by_rank in said.items():
            found = _apart(kind, by_rank)
            if found is not None:
                yield found

    def _rank(self, speaker: Speaker) -> str:
        """The rank; of a worker that never says it, its process."""
        return speaker.rank or self._ranks.get(speaker.pid, "") or (f"process {speaker.pid}" if speaker.worker else "")


def _apart(kind: FactKind, said: dict[str, dict[str, Sighting]]) -> Disagreement | None:
    """The first two groups of ranks that contradict each other. Ranks that only say less may log less."""
    ranks = sorted(said, key=_in_order)
    for rank in ranks[1:]:
        one, other = said[ranks[0]], said[rank]
        mine, theirs = one.keys() - other.keys(), other.keys() - one.keys()
        if mine and theirs:
            first, second = min(mine), min(theirs)
            return Disagreement(
                kind=kind,
                one=first,
                one_ranks=tuple(r for r in ranks if first in said[r]),
                one_at=one[first],
                other=second,
                other_ranks=tuple(r for r in ranks if second in said[r]),
                other_at=other[second],
            )
    return None


def _in_order(rank: str) -> tuple[list[int], str]:
    """TP2 before TP10."""
    return [int(digits) for digits in "".join(c if c.isascii() and c.isdecimal() else " " for c in rank).split()], rank


def shortened(text: str) -> str:
    """A line as evidence: secrets hidden, no control characters, and no longer than a reader looks at."""
    kept = without_secrets(text[: EVIDENCE_CHARACTERS * 4])
    plain = "".join(c if c.isprintable() else " " for c in kept).strip()
    return plain if len(plain) <= EVIDENCE_CHARACTERS else plain[: EVIDENCE_CHARACTERS - 1] + "…"

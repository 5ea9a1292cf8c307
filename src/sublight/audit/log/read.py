"""read_log: from a log file to what the engine said, in one pass that holds a line at a time."""

from collections import Counter, deque
from pathlib import Path

from sublight.audit.log.collect import MOST_FACTS, Start
from sublight.audit.log.physical import Damage, log_name, physical_lines
from sublight.audit.log.record import EngineLog, FactKind
from sublight.audit.log.rules import Reading, Rules, built_in
from sublight.audit.log.spoken import Listener, Spoken
from sublight.errors import InputFileError
from sublight.units import counted

_EARLY = {FactKind.ENGINE, FactKind.UNKNOWN_VARIABLE, FactKind.ARCHITECTURE}
# SGLang fills in its arguments, and says how, before it prints them.
_EARLY_IN_SGLANG = {FactKind.MOE_RUNNER, FactKind.ATTENTION, FactKind.OVERRIDE, FactKind.GRAPH_OFF}
_MOST_EARLY = 200


def read_log(path: str | Path, rules: Rules | None = None) -> EngineLog:
    """What the last start of an engine in this log says it chose.

    Args:
        path: plain or gzipped text, also as Docker keeps it; "-" is standard input.
        rules: other rules than the built-in ones.

    Raises:
        InputFileError: it cannot be read, or no line of it is one that vLLM or SGLang prints.
    """
    reader = _Reader(rules or built_in())
    damage = Damage()
    for line in physical_lines(path, damage):
        reader.take(line)
    engine = reader.engine()
    if not engine:
        raise InputFileError(
            f"reading {path} as the log of an engine",
            f"none of its {reader.lines:,} {'line' if reader.lines == 1 else 'lines'} is one that vLLM or SGLang "
            "prints about itself",
            "all that the server printed since its start, at its usual log level",
        )
    start = reader.start
    said = [*damage.said()]
    others = start.drop_others(engine)
    if others:
        said.append(counted(others, "line of another engine was", "lines of another engine were") + " left out")
    if start.dropped:
        said.append(
            f"{counted(start.dropped, 'line says', 'lines say')} things beyond the first {MOST_FACTS:,} different ones"
        )
    return EngineLog(
        name=log_name(path),
        engine=engine,
        engine_version=reader.version(),
        lines=reader.lines,
        starts=tuple(reader.starts),
        asked=start.asked,
        config=start.config,
        world=start.world(),
        facts=start.facts(),
        disagreements=tuple(start.disagreements()),
        damage=tuple(said),
    )


class _Reader:
    def __init__(self, rules: Rules) -> None:
        self.lines = 0
        self.start = Start(1)
        self.starts: list[int] = []
        self._loaded = False
        self._early: deque[tuple[Reading, Spoken, int]] = deque(maxlen=_MOST_EARLY)
        self._rules = rules
        self._listener = Listener()
        self._told: Counter[str] = Counter()
        self._heard: Counter[str] = Counter()
        self._version: dict[str, str] = {}

    def take(self, line: str) -> None:
        self.lines += 1
        for spoken in self._listener.hear(line):
            self.start.meet(spoken.speaker)
            for reading in self._rules.read(spoken.message) if spoken.message else ():
                self._note(reading)
                self._begin(reading, spoken)
                self.start.hear(reading, spoken, self.lines)

    def _begin(self, reading: Reading, spoken: Spoken) -> None:
        """A list of arguments begins a start, unless nothing was loaded since the last: several processes print theirs.

        Lines that an engine prints before its arguments belong to the start that they announce.
        """
        rule = reading.rule
        if rule.fact is FactKind.ARGUMENTS:
            if self.starts and self._loaded:
                self.start = Start(self.lines)
                for early, said, line in self._early:
                    self.start.hear(early, said, line)
            if not self.starts or self._loaded:
                self.starts.append(self.lines)
            self._early.clear()
            self._loaded = False
        elif rule.fact in _EARLY or (rule.engine == "sglang" and rule.fact in _EARLY_IN_SGLANG):
            self._early.append((reading, spoken, self.lines))
        else:
            self._early.clear()
            self._loaded = True

    def _note(self, reading: Reading) -> None:
        rule = reading.rule
        if rule.engine:
            self._heard[rule.engine] += 1
            self._told[rule.engine] += rule.telling
            if "version" in reading.fields:
                self._version[rule.engine] = reading.fields["version"]

    def engine(self) -> str:
        """Whose log it is: by lines that only one engine prints, else by all lines of its own."""
        for times in (self._told, self._heard):
            best = times.most_common(1)
            if best and best[0][1]:
                return best[0][0]
        return ""

    def version(self) -> str:
        return self._version.get(self.engine(), "")

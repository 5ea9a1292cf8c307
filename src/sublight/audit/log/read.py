"""read_log: from a log file to what the engine said, in one pass that holds a line at a time."""

from collections import Counter
from pathlib import Path

from sublight.audit.log.collect import MOST_FACTS, Start
from sublight.audit.log.physical import Damage, log_name, physical_lines
from sublight.audit.log.record import EngineLog, FactKind
from sublight.audit.log.rules import Reading, Rules, built_in
from sublight.audit.log.spoken import Listener
from sublight.errors import InputFileError


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
            f"none of its {reader.lines:,} lines is one that vLLM or SGLang prints about itself",
            "all that the server printed since its start, at its usual log level",
        )
    start = reader.start
    said = [*damage.said()]
    others = start.drop_others(engine)
    if others:
        said.append(f"{others:,} lines are those of another engine and were left out")
    if start.dropped:
        said.append(f"{start.dropped:,} lines say things beyond the first {MOST_FACTS:,} different ones")
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
                self.start.hear(reading, spoken, self.lines)

    def _note(self, reading: Reading) -> None:
        rule = reading.rule
        if rule.fact is FactKind.ARGUMENTS:
            # Lists of arguments before anything was chosen are of one start: several processes print them.
            if self.starts and self.start.begun:
                self.start = Start(self.lines)
                self.starts.append(self.lines)
            elif not self.starts:
                self.starts.append(self.lines)
        if rule.engine:
            self._heard[rule.engine] += 1
            self._told[rule.engine] += rule.telling
            if "version" in reading.fields:
                self._version[rule.engine] = reading.fields["version"]

    def engine(self) -> str:
        """Whose log it is: by lines that only one engine prints, else by all lines of its own."""
        for counted in (self._told, self._heard):
            best = counted.most_common(1)
            if best and best[0][1]:
                return best[0][0]
        return ""

    def version(self) -> str:
        return self._version.get(self.engine(), "")

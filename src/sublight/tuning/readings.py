"""What a machine said, by source: text, where it stands, and why there is none."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sublight.errors import HostError
from sublight.hosts.base import Completed, Host
from sublight.tuning.clean import message
from sublight.tuning.parsers.system import Value
from sublight.tuning.sources import SOURCES, Source

TIMEOUT_S = 60.0  # nvidia-smi without persistence initialises every card first
_FILES = ("kernel settings", "scheduler", "cpufreq", "cpuidle", "IOMMU groups", "NVIDIA driver")


class Reading(msgspec.Struct, frozen=True):
    """One source. `text` is None where there is no answer, and then `missing` is the reason."""

    label: str  # what the reader finds it under: the command, or the file it was saved in
    text: str | None = None
    missing: str = ""
    saved: bool = False  # whether the label is the name of a file


class Readings:
    """All sources of one machine; each is parsed once, when it is first looked at.

    `lost` says that the machine went away on the way, and why; the sources after that are missing.
    """

    def __init__(self, readings: Mapping[str, Reading], lost: str = "") -> None:
        self.lost = lost
        self._readings = readings
        self._parsed: dict[str, Any] = {}

    def __getitem__(self, source: str) -> Reading:
        return self._readings.get(source) or Reading(source, missing="it was not asked")

    def parsed(self, source: str) -> Any:
        """The values of a source; None where there is no text."""
        if source not in self._parsed:
            text = self[source].text
            self._parsed[source] = None if text is None else SOURCES[source].parse(text)
        return self._parsed[source]

    def where(self, source: str, line: int = 0) -> str:
        """Source and line, as in "nvidia-smi -q, line 67"."""
        return self[source].label + (f", line {line}" if line else "")

    def place(self, path: str) -> str:
        """Where a file that `files` found was read."""
        found = self.file(path)
        return found[1] if found else ""

    def missing(self, *sources: str) -> str:
        """Why these say nothing, in one sentence."""
        reasons: dict[str, list[str]] = {}
        for source in sources:
            if self[source].missing:
                reasons.setdefault(self[source].missing, []).append(source)
        return "; ".join(
            # A reason that names the program needs no name before it.
            text if all(name.split()[0] in text for name in names) else f"{', '.join(names)}: {text}"
            for text, names in reasons.items()
        )

    def file(self, path: str) -> tuple[Value, str] | None:
        """What is in a file of /proc or /sys, and where that was read."""
        for source in _FILES:
            values: dict[str, Value] = self.parsed(source) or {}
            if path in values and values[path].text.strip():
                return values[path], self.where(source, values[path].line) if self[source].saved else path
        return None

    def files(self, start: str, end: str) -> dict[str, Value]:
        """Every file whose path starts and ends so."""
        return {
            path: value
            for source in _FILES
            for path, value in (self.parsed(source) or {}).items()
            if path.startswith(start) and path.endswith(end) and value.text.strip()
        }


def collect(host: Host, labels: Mapping[str, str] | None = None, absent: str = "") -> Readings:
    """Ask a host everything. Raises HostError when not even the first question reaches it.

    Args:
        host: who is asked.
        labels: source -> the file it was saved in, for answers that come from files.
        absent: why a recorded host has no answer, where more can be said than that it has none.
    """
    readings: dict[str, Reading] = {}
    hung: dict[str, str] = {}  # a program that waits in a hung driver would do so each time
    lost = ""
    for name, source in SOURCES.items():
        label = (labels or {}).get(name, "")
        program = source.argv[0]
        if lost or program in hung:
            readings[name] = Reading(label or source.label, missing=lost or hung[program])
            continue
        try:
            done = host.run(source.argv, timeout_s=TIMEOUT_S)
        except HostError as error:
            if not readings:  # it could not be asked at all
                raise
            lost = f"the connection was lost: {message(error.found)}"
            readings[name] = Reading(label or source.label, missing=lost)
            continue
        if done.timed_out:
            hung[program] = done.failure
        readings[name] = _reading(source, done, label, absent)
    return Readings(readings, lost)


def _reading(source: Source, done: Completed, label: str, absent: str) -> Reading:
    saved = bool(label)
    label = label or source.label
    if done.not_run:
        return Reading(label, missing=absent or done.not_run)
    usable = done.ok or (source.partly and done.exit_code is not None and done.exit_code > 0 and done.stdout.strip())
    if not usable:
        nothing = source.partly and not done.stdout.strip() and done.exit_code in (1, 2)
        return Reading(label, missing="no such file there" if nothing else done.failure)
    if source.talks and not source.looks_like(done.text):
        said = message(done.text)
        program = source.argv[0]
        return Reading(label, missing=f"{program} says: {said}" if said else f"{program} printed nothing that is known")
    return Reading(label, done.text, saved=saved)

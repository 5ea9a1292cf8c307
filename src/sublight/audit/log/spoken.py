"""Who said a line, and what: prefixes of processes, ranks, clocks, containers and colours taken off.

Several processes write to one stream, and each writes its prefix and its message in two goes, so that prefixes pile up:

    (Worker_TP3 pid=353) (Worker_TP4 pid=354) INFO 05-15 03:31:20 [a.py:1] message
    INFO 05-15 03:31:20 [a.py:1] message

is two workers saying one thing each. A line behind several prefixes belongs to the last; the others wait for lines that
have none. Which of them said which is then likely but not certain, and `sure` says so.
"""

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[@-Z\\^_])")
# What follows a progress bar on the same line.
_BAR = re.compile(r"(?:(?<=it/s\])|(?<=s/it\]))\s*(?=[\[(A-Z])")
# One prefix: of a process, of vLLM or SGLang (their message follows), or of what runs the engine: Docker Compose,
# Kubernetes, journald, Python's own logging.
_LEVEL = "(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_PREFIX = re.compile(
    r"\((?P<process>[A-Za-z][\w:-]{0,60})(?: rank=(?P<rank>\d{1,6}))? pid=(?P<pid>\d{1,10})(?:, ip=[^)\s]{1,64})?\) ?"
    r"|(?P<sglang>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?P<ranks>(?: [A-Z][A-Z_]{0,12}\d{1,6}){0,8})\] ?)"
    rf"|(?P<vllm>{_LEVEL} (?:\d{{4}}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{{1,9}})? \[?[^\]\s]{{1,120}}\] ?)"
    rf"|{_LEVEL}(?::[\w.]{{1,120}}:|:? - |: +)"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: std(?:out|err) [FP])?[ \t]+(?:- )?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d{1,10}\])?: ?"
    r"|[\w.-]{1,64} +\| ?"
)
_RANK = re.compile(r"(?:DP|PP|PCP|DCP|CP|TP|EP|MOE_DP|ATTN_\w+?)\d+")
_RAY_REPEATS = re.compile(r" ?\[repeated (\d{1,6})x across cluster\].*", re.DOTALL)
_MOST_WAITING = 256


class Speaker(NamedTuple):
    """A process: its rank as the log labels it ("" where the label has none), its id, and whether it is a worker."""

    rank: str
    pid: str
    worker: bool = True


class Spoken(NamedTuple):
    """One message; `speaker` is None where nothing tells who said it. `times` counts what Ray folded into one line."""

    text: str
    message: str
    speaker: Speaker | None
    sure: bool = True
    times: int = 1


class Listener:
    """Takes lines apart; knows which prefixes still wait for their message."""

    def __init__(self) -> None:
        self._waiting: deque[Speaker] = deque(maxlen=_MOST_WAITING)

    def hear(self, line: str) -> Iterator[Spoken]:
        """The messages of one physical line: parts of progress bars that were overwritten count as lines."""
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        for part in line.split("\r"):
            if "it/s]" in part or "s/it]" in part:
                for piece in _BAR.split(part):
                    yield self._taken_apart(piece)
            elif part:
                yield self._taken_apart(part)

    def _taken_apart(self, text: str) -> Spoken:
        speakers, headed, place = _prefixes(text)
        message = text[place:].rstrip()
        sure = True
        speaker = speakers[-1] if speakers else None
        if message and len(speakers) > 1:
            self._waiting.extend(speakers[:-1])
            sure = False
        elif message and headed and not speakers and self._waiting:
            speaker, sure = self._waiting.pop(), False
        times = 1
        if "x across cluster]" in message and (repeats := _RAY_REPEATS.search(message)):
            message, times = message[: repeats.start()], int(repeats[1])
        return Spoken(text, message, speaker, sure, times)


def _prefixes(text: str) -> tuple[list[Speaker], bool, int]:
    """The processes named in front of a message, whether vLLM's own head is there, and where the message begins."""
    speakers: list[Speaker] = []
    place = 0
    while match := _PREFIX.match(text, place):
        place = match.end()
        if match["process"]:
            if match["process"].startswith("Ray"):  # stands behind the process that started it: no second speaker
                speakers.clear()
            speakers.append(_speaker(match["process"], match["rank"], match["pid"]))
        elif match["sglang"]:
            if match["ranks"]:
                speakers.append(Speaker(match["ranks"].strip(), ""))
            return speakers, False, place
        elif match["vllm"]:
            return speakers, True, place
    return speakers, False, place


def _speaker(name: str, rank: str | None, pid: str) -> Speaker:
    """ "Worker_DP0_TP3 pid=7" is rank DP0 TP3; "VllmWorker rank=3" is rank 3; "APIServer" and "EngineCore" are none."""
    if rank is not None:
        return Speaker(f"rank {rank}", pid)
    parts = name.rsplit(":", 1)[-1].split("_")
    if "worker" not in parts[0].lower():
        return Speaker("", pid, worker=False)
    return Speaker(" ".join(part for part in parts[1:] if _RANK.fullmatch(part)), pid)

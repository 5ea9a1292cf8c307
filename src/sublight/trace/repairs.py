"""Repairs: what a reader found wrong with a trace, what it did about it, and how often.

Profilers lose time stamps, write numbers that are no numbers, and are stopped half way. None of that is fatal here;
all of it is counted, with one example, so that a report can say what its numbers rest on.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class RepairKind(StrEnum):
    """What was wrong. The first group is about the file, the second about single events, the third about times."""

    TRUNCATED = "truncated"  # the file stops before its end
    DAMAGED_COMPRESSION = "damaged compression"  # the compressed data is wrong, or something follows it
    TRAILING_TEXT = "trailing text"  # something follows the end of the document
    UNREADABLE_HEADER = (
        "unreadable header"  # text around the events that is not JSON; the events were found all the same
    )
    REPEATED_EVENTS = "repeated events"  # more than one list of events in a file; all were read

    UNREADABLE_EVENT = "unreadable event"  # no JSON even after mending; left out
    MENDED_TEXT = "mended text"  # not JSON as written (quotes, backslashes, encoding, NaN); read after mending
    BAD_NUMBER = "bad number"  # a field that is not the number it should be; the event is left out if it is a time

    NO_TIME = "no time"  # GPU rows whose time stamp was lost; left out
    NEGATIVE_DURATION = "negative duration"  # left out on the GPU, taken as zero on the CPU
    ZERO_DURATION = "zero duration"  # kept
    CLIPPED = "clipped"  # an impossible duration, cut at the next start on its stream
    IMPOSSIBLE_DURATION = "impossible duration"  # the same without a next start to cut at; left out
    OVERLAP = "overlap"  # one stream, two kernels at once, possible with dependent launch; kept
    OUTSIDE_WINDOW = "outside window"  # GPU rows far from the time in which the profiler ran; kept
    LOST_KERNELS = "lost kernels"  # launches whose kernel is not in the trace
    GRAPHS_ONLY = "graphs only"  # CUDA graphs as single rows, without the kernels in them
    OPEN_RANGE = "open range"  # a range that never ends; left out


GRAPHS_ONLY_NOTE = (
    "CUDA graphs were recorded as single rows, so the kernels in them are not known; to have them, profile with "
    "--cuda-graph-trace=node"
)
# Said, and nothing changed for it.
OBSERVATIONS = frozenset(
    {
        RepairKind.ZERO_DURATION,
        RepairKind.OVERLAP,
        RepairKind.OUTSIDE_WINDOW,
        RepairKind.LOST_KERNELS,
        RepairKind.GRAPHS_ONLY,
    }
)


class Repair(msgspec.Struct, frozen=True):
    """One kind of trouble in one trace.

    Args:
        kind: what was wrong.
        count: how many events, or 1 for the file.
        note: one sentence: what it is and what was done.
        example: the first case.
        removed_ns: time that the repair took away, where it took away time.
    """

    kind: RepairKind
    count: int
    note: str
    example: str = ""
    removed_ns: int = 0

    @property
    def changed(self) -> bool:
        """Whether something was left out or changed; otherwise it is only worth knowing."""
        return self.kind not in OBSERVATIONS


class RepairLog:
    """Counts repairs while a file is read; the first case of a kind gives the note and the example."""

    def __init__(self) -> None:
        self._found: dict[RepairKind, Repair] = {}

    def add(self, kind: RepairKind, note: str, example: str = "", count: int = 1, removed_ns: int = 0) -> None:
        """Count `count` more cases of `kind`."""
        first = self._found.get(kind, Repair(kind, 0, note, shortened(example)))
        self._found[kind] = msgspec.structs.replace(
            first, count=first.count + count, removed_ns=first.removed_ns + removed_ns
        )

    def extend(self, repairs: list[Repair]) -> None:
        """Count what another part of the same reading found, after what is here."""
        for repair in repairs:
            self.add(repair.kind, repair.note, repair.example, repair.count, repair.removed_ns)

    def __contains__(self, kind: RepairKind) -> bool:
        return kind in self._found

    def all(self) -> list[Repair]:
        """In the order of the kinds."""
        return [self._found[kind] for kind in RepairKind if kind in self._found]


# Something of the file is missing: what a reader does not find may have been in it.
_CUT = (RepairKind.TRUNCATED, RepairKind.DAMAGED_COMPRESSION)
WHOLE_FILE = "the whole file (copy it again, or let the profiler finish writing), or a longer part of it"


def cut_words(repairs: Iterable[Repair]) -> str:
    """That the file is cut or broken, and where; "" for one that was read to its end."""
    return "; ".join(repair.note for repair in repairs if repair.kind in _CUT)


def shortened(text: str, at_most: int = 200) -> str:
    """One line of at most `at_most` characters, so that an example can not fill a report."""
    line = " ".join(text.split())
    return line if len(line) <= at_most else line[: at_most - 1] + "…"

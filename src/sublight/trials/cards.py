"""Which of a machine's GPUs a trial takes, and whether somebody is at work on it."""

import os
import shutil
import time

import msgspec

from sublight.errors import SublightError
from sublight.facts.gpu import get_gpu
from sublight.hosts.process import run_bounded

_QUERY = ("uuid", "name", "utilization.gpu", "memory.free")
_LIMIT_S = 20.0
AGAIN_S = 2.0
_AT_WORK = 5.0  # percent of the last second or so that some kernel ran: a desktop's screen takes less


class Chosen(msgspec.Struct, frozen=True):
    """A GPU for a trial.

    Attributes:
        environment: variables that make it the first one.
        busy: "" or who is at work on it, so that a time would be nobody's.
    """

    environment: dict[str, str] = {}
    busy: str = ""


def choose(gpu: str) -> Chosen:
    """The card of this catalogue name with nobody at work, and of those the one with most free memory.

    Where CUDA_VISIBLE_DEVICES is set, or nobody tells, torch's first one stands.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return Chosen()
    argv = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]

    def look() -> Chosen:
        return of_answer(run_bounded(argv, b"", _LIMIT_S).text, gpu, os.environ.get("CUDA_VISIBLE_DEVICES"))

    chosen = look()
    if chosen.busy:  # it may have been something of a moment, such as an import that looks at the GPU
        time.sleep(AGAIN_S)
        chosen = look()
    return chosen


def of_answer(text: str, gpu: str, visible: str | None) -> Chosen:
    """`text` is nvidia-smi's, one line a card; `visible` is CUDA_VISIBLE_DEVICES, None where it is not set."""
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == len(_QUERY)]
    if visible is not None:
        first = visible.split(",")[0].strip()
        rows = [row for number, row in enumerate(rows) if first in (str(number), row[0])]
        return Chosen({}, _busy(rows[0])) if rows else Chosen()
    several = len(rows) > 1
    rows = sorted((row for row in rows if _is(row[1], gpu)), key=lambda row: (bool(_busy(row)), -_number(row[3])))
    if not rows:
        return Chosen()
    return Chosen({"CUDA_VISIBLE_DEVICES": rows[0][0]} if several else {}, _busy(rows[0]))


def _busy(row: list[str]) -> str:
    share = _number(row[2])
    return f"somebody is at work on this GPU ({share:.0f} % of the time)" if share >= _AT_WORK else ""


def _is(title: str, gpu: str) -> bool:
    try:
        return get_gpu(title).name == gpu
    except SublightError:
        return False


def _number(text: str) -> float:
    """0 where the driver does not say ("[N/A]")."""
    try:
        return float(text)
    except ValueError:
        return 0.0

"""The measuring side of a process that is watched: it reads a job, and writes what it finds as lines. No torch.

It is a process of its own because a kernel can hang, or take its process down; whoever started it is left to say which
one it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from sublight.bench.leave import leave_with_parent
from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.measurement import Environment
from sublight.errors import BenchError, SublightError

_Job = TypeVar("_Job")
Say = Callable[[msgspec.Struct], None]


class Machine(msgspec.Struct, frozen=True, tag="machine"):
    environment: Environment
    ceilings: Ceilings


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The process itself cannot go on: one of our errors."""

    asked: str
    found: str
    hint: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    environment: Environment


def over_time(machine: Machine, done: Done | None) -> Environment:
    """Where it ran, with clocks and notes as they were in the end, where it came to one."""
    last = (done or machine).environment
    return msgspec.structs.replace(machine.environment, clocks_mhz=last.clocks_mhz, notes=last.notes)


def answer(job_type: type[_Job], work: Callable[[_Job, Say], None], job_file: str, lines_file: str) -> None:
    """Do the job in one file; whatever is said of it is a line of the other at once."""
    job = msgspec.json.decode(Path(job_file).read_bytes(), type=job_type)
    with Path(lines_file).open("ab", buffering=0) as lines:

        def say(said: msgspec.Struct) -> None:
            lines.write(msgspec.json.encode(said) + b"\n")

        work(job, say)


def answer_watcher(
    job_type: type[_Job], work: Callable[[_Job, Say], None], job_file: str, lines_file: str, *, aloud: bool = True
) -> None:
    """`answer` in a process that `watch` started: it ends with whoever did, and says which of our errors ended it.

    Args:
        aloud: whether anything is said; of several processes with one job, one speaks.
    """
    leave_with_parent()

    def work_or_say_why(job: _Job, say: Say) -> None:
        heard: Say = say if aloud else lambda _: None
        try:
            work(job, heard)
        except SublightError as error:
            heard(Failed(error.asked, error.found, error.hint))

    answer(job_type, work_or_say_why, job_file, lines_file)


@contextmanager
def torch_for(asked: str) -> Iterator[None]:
    """Raises BenchError where what is imported inside is not installed."""
    try:
        yield
    except ImportError as error:
        raise BenchError(asked, str(error), "pip install 'sublight[kernels]', which brings torch") from error

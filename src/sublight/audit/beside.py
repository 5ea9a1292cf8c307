"""A second process for a part of the reading: forked, so that what was parsed by then is there already.

Nothing hangs on it. Where a process cannot be forked safely, or the second one fails in any way, the first does the
part itself. Only what can be encoded comes back: what the second one has parsed is lost with it.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

_Answer = TypeVar("_Answer")


def possible() -> bool:
    """Whether there is a processor for it, and no thread that a fork would leave without its locks.

    Linux alone: system libraries of other systems do not bear being forked.
    """
    alone = sys.platform == "linux" and threading.active_count() == 1
    return alone and len(os.sched_getaffinity(0)) > 1


@contextmanager
def beside(work: Callable[[], _Answer], answer_type: type[_Answer]) -> Iterator[Callable[[], _Answer]]:
    """Begins `work` in a second process, and gives what waits for its answer. One that nobody waits for is ended."""
    if not possible():
        yield work
        return
    receiving, sending = os.pipe()
    process = os.fork()
    if not process:
        _answer(work, sending)
    os.close(sending)
    file = os.fdopen(receiving, "rb")

    def wait() -> _Answer:
        try:
            return msgspec.msgpack.decode(file.read(), type=answer_type)
        except (OSError, msgspec.DecodeError):
            return work()

    try:
        yield wait
    finally:
        file.close()
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # it has answered, or nobody wants its answer any more
        with suppress(ChildProcessError):
            os.waitpid(process, 0)


def _answer(work: Callable[[], _Answer], sending: int) -> None:
    """The second process: its answer into the pipe, then gone, without anything that the first one does at its end."""
    status = 1
    try:
        with os.fdopen(sending, "wb") as file:
            file.write(msgspec.msgpack.encode(work()))
        status = 0
    finally:
        os._exit(status)

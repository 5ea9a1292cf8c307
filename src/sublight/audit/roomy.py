"""Room for deep calls: Python's own frames in one piece of memory, for work that goes hundreds of calls deep and back.

CPython keeps the frames of Python functions in pieces of 16 KiB, takes one from the system when the last is full, and
gives it back as soon as its first frame is left. Walking a program goes up and down across such an edge all the time:
half a million pages fetched and thrown away for one engine, a fifth of its reading. A frame too large for a piece gets
one of its own, of the next power of two that holds it, and the frames after it lie in what is left of that one. So
`roomy` calls the work from a frame that is said to need a little more than half of a large piece. The half that is
never used costs addresses and no memory.
"""

from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")
_SLOTS = 270_000  # of 8 bytes: above 2 MiB, so the piece has 4, of which almost 2 are left: some 10,000 calls


def _call(work: Callable[[], _Answer]) -> _Answer:
    return work()


_call.__code__ = _call.__code__.replace(co_stacksize=_SLOTS)


def roomy(work: Callable[[], _Answer]) -> _Answer:
    """What `work` gives. Its deep calls are cheap; nothing else is different."""
    return _call(work)

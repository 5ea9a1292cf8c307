"""This machine."""

from collections.abc import Sequence

from sublight.hosts.base import Completed
from sublight.hosts.process import run_bounded


class LocalHost:
    """Runs commands here, each in a process group of its own that is gone when the command is over."""

    name = "this machine"

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        return run_bounded(argv, stdin, timeout_s)

"""What a host is: something that runs an argument list and says what came of it.

Local, ssh and recorded hosts differ in nothing else, so whatever asks one can be tested with answers from a file. There
is no shell on this side of any of them: an argument list stays one.
"""

import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

NOT_EXECUTABLE = 126  # a file is there and is no program: what shells answer, and what every host here answers
NOT_FOUND = 127  # there is no such program
OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024  # of each stream; a command that writes more is stopped


class Completed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a command.

    `exit_code` is None when the time limit ended it, or when nothing was run at all (`not_run` says why). Negative, it
    is the signal that ended the command, as in `subprocess`.
    """

    argv: tuple[str, ...]
    exit_code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    truncated: bool = False  # it wrote more than OUTPUT_LIMIT_BYTES and was stopped there
    not_run: str = ""

    @property
    def ok(self) -> bool:
        """Whether the command ran to its end and said that all went well."""
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None and not self.not_run

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def failure(self) -> str:
        """Why there is no good answer, in a few words; "" when there is one."""
        if self.ok:
            return ""
        program = self.argv[0] if self.argv else "the command"
        if self.not_run:
            return self.not_run
        if self.truncated:
            return f"{program} wrote more than {OUTPUT_LIMIT_BYTES // 2**20} MiB and was stopped"
        if self.exit_code is None:
            return f"{program} did not end within {self.seconds:.0f} s"
        if self.exit_code == NOT_FOUND:
            return f"{program} was not found"
        if self.exit_code < 0:
            return f"{program} was ended by {_signal_name(-self.exit_code)}"
        said = self._last_words()
        return f"{program} left with exit code {self.exit_code}" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        """The last line it wrote, from the stream for errors if there is one: where programs say what is wrong."""
        for stream in (self.stderr, self.stdout):
            lines = stream.decode("utf-8", "replace").strip().splitlines()
            if lines:
                return lines[-1].strip()[:200]
        return ""


class Host(Protocol):
    """A machine that can be asked.

    `run` never raises for what the command did; it raises HostError when the machine itself could not be asked.
    """

    @property
    def name(self) -> str: ...

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed: ...


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"

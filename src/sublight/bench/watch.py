"""A process that is watched: it says what it is about to do, and if it then falls silent, that is what hangs."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05
_ERROR_LINES = 5
# "ValueError: what is wrong", as a traceback ends, with or without the rank before it.
_ERROR = re.compile(r"(?:\[rank\d+\]:\s*)?([\w.]*(?:Error|Exception)\b.*)")
# How long processes have to leave once their input is closed, before they are ended by a signal.
_LEAVE_S = 3.0


@dataclass(frozen=True)
class Ended:
    """How a watched process ended.

    Attributes:
        silent_s: how long it had said nothing when it was ended for that; None where it was not.
        code: what it left with; below zero is the signal that ended it.
        error: the last lines of its standard error; of several processes, the first line that names an error.
    """

    silent_s: float | None
    code: int
    error: str

    @property
    def reason(self) -> str:
        if self.silent_s is not None:
            return f"no answer within {self.silent_s:g} s"
        how = f"was ended by signal {-self.code}" if self.code < 0 else f"left with {self.code}"
        return f"its process {how}" + (f": {self.error}" if self.error else "")


def watch(
    module: str, job: bytes, limit_s: float, heard: Callable[[bytes], None], launcher: Sequence[str] = ()
) -> Ended:
    """Run `python -m module JOB LINES` and hand on every line it writes.

    Args:
        limit_s: how long it may be silent.
        launcher: words between python and "-m module", such as torchrun's, which starts several processes. Each of them
            has to leave when its standard input ends (`answer_watcher`): a launcher that is killed leaves them
            behind.
    """
    with tempfile.TemporaryDirectory(prefix="sublight-bench-") as folder:
        job_file, lines_file, errors = (Path(folder) / name for name in ("job.json", "lines.jsonl", "errors"))
        job_file.write_bytes(job)
        lines_file.touch()
        argv = [sys.executable, *launcher, "-m", module, str(job_file), str(lines_file)]
        with errors.open("wb") as stream, lines_file.open("rb") as lines:
            # Nothing is written to its input; it ends when we do, by whatever hand.
            process = subprocess.Popen(  # noqa: S603
                argv, stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=bool(launcher)
            )
            try:
                hung = _listen(process, _lines(lines), limit_s, heard)
            finally:
                code = _end(process, bool(launcher))
        return Ended(limit_s if hung else None, code, _first_error(errors) if launcher else _last_lines(errors))


def _end(process: "subprocess.Popen[bytes]", several: bool) -> int:
    """Ended for certain, and what it left with."""
    if not several and process.poll() is None:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    if several:
        try:
            return process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the launcher's session; the others' input has ended
    return process.wait()


def _lines(stream: "object") -> Iterator[bytes]:
    """Whole lines, as far as they are there; then b"" until more are."""
    held = b""
    while True:
        held += stream.read()  # type: ignore[attr-defined]
        whole, _, held = held.rpartition(b"\n")
        yield from (line for line in whole.split(b"\n") if line)
        yield b""


def _listen(
    process: "subprocess.Popen[bytes]", lines: Iterator[bytes], limit_s: float, heard: Callable[[bytes], None]
) -> bool:
    """Until it ends; whether it was silent for too long instead."""
    last = time.monotonic()
    while True:
        ended = process.poll() is not None
        for line in iter(lambda: next(lines), b""):
            heard(line)
            last = time.monotonic()
        if ended:
            return False
        if time.monotonic() - last > limit_s:
            return True
        time.sleep(_POLL_S)


def _last_lines(path: Path) -> str:
    text = path.read_bytes()[-4000:].decode("utf-8", "replace").strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-_ERROR_LINES:])[-400:]


def _first_error(path: Path) -> str:
    """The first line that names an error, or the last one: a launcher ends with a summary that names none."""
    lines = [line.strip() for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    named = [found[1] for found in map(_ERROR.match, lines) if found and "ChildFailedError" not in found[1]]
    return (named or lines or [""])[0 if named else -1][-400:]

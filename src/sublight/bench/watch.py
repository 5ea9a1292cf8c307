"""A process that is watched: it says what it is about to do, and if it then falls silent, that is what hangs."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05
_ERROR_LINES = 5


@dataclass(frozen=True)
class Ended:
    """How a watched process ended.

    Attributes:
        hung: it said nothing for the time allowed, and was ended.
        code: what it left with; below zero is the signal that ended it.
        error: the last lines of its standard error.
    """

    hung: bool
    code: int
    error: str

    @property
    def reason(self) -> str:
        if self.hung:
            return "no answer"
        if self.code < 0:
            return f"its process was ended by signal {-self.code}"
        return f"its process left with {self.code}" + (f": {self.error}" if self.error else "")


def watch(module: str, job: bytes, limit_s: float, heard: Callable[[bytes], None]) -> Ended:
    """Run `python -m module JOB LINES` and hand on every line it writes.

    Args:
        limit_s: how long it may be silent.
    """
    with tempfile.TemporaryDirectory(prefix="sublight-bench-") as folder:
        job_file, lines_file, errors = (Path(folder) / name for name in ("job.json", "lines.jsonl", "errors"))
        job_file.write_bytes(job)
        lines_file.touch()
        argv = [sys.executable, "-m", module, str(job_file), str(lines_file)]
        with errors.open("wb") as stream, lines_file.open("rb") as lines:
            # Nothing is written to its input; it ends when we do, by whatever hand.
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=stream, stderr=stream)  # noqa: S603
            try:
                hung = _listen(process, _lines(lines), limit_s, heard)
            finally:
                if process.poll() is None:
                    process.kill()
                code = process.wait()
                if process.stdin is not None:
                    process.stdin.close()
        return Ended(hung, code, _last_lines(errors))


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

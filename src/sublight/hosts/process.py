"""One child process with everything bounded: its time, what it writes, and what it leaves behind.

The standard library's `communicate` bounds the time alone, and waits for every process that inherited a pipe; a command
that starts a daemon would keep it waiting. Here the child leads a process group of its own, and the whole group is gone
when `run_bounded` returns.
"""

import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from sublight.errors import HostError
from sublight.hosts.base import NOT_EXECUTABLE, NOT_FOUND, OUTPUT_LIMIT_BYTES, Completed

_CHUNK_BYTES = 1 << 16
_LINGER_S = 0.5  # how long pipes may stay open after the child has ended, for what is still in them
_REAP_S = 2.0  # a killed process that waits inside a driver does not die; it is left to the system after this


def run_bounded(
    argv: Sequence[str],
    stdin: bytes,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
) -> Completed:
    """Run a program and wait for it, for `timeout_s` at the most.

    A program that is not there or cannot be executed is an answer with the exit code a shell gives for it. Text that no
    argument can hold (a NUL) is too: there is no such program. Raises HostError where processes have no groups.
    """
    if not hasattr(os, "killpg"):
        raise HostError(f"running {argv[0]}", "this needs a POSIX system", "Linux or macOS, or WSL on Windows")
    started = time.monotonic()
    try:
        # argv is a list and no shell is involved; what may be in it is the business of the caller
        child = subprocess.Popen(  # noqa: S603
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=None if environment is None else dict(environment),
        )
    except (OSError, ValueError) as error:
        no_program = isinstance(error, PermissionError) or getattr(error, "errno", None) == errno.ENOEXEC
        code = NOT_EXECUTABLE if no_program else NOT_FOUND
        return Completed(tuple(argv), code, stderr=str(error).encode(errors="replace"))
    exchange = _Exchange(child, stdin, output_limit_bytes)
    try:
        within = exchange.run(started + timeout_s)
    finally:
        _end_group(child)
        exchange.close()
    return Completed(
        tuple(argv),
        child.returncode if within else None,
        bytes(exchange.stdout),
        bytes(exchange.stderr),
        time.monotonic() - started,
        exchange.truncated,
    )


def run_leaving(argv: Sequence[str], timeout_s: float, environment: Mapping[str, str], said: Path) -> Completed:
    """Run a program that ends well when something it started goes on behind it, and leave that alone.

    Such a something may need its siblings: the connection that ssh leaves behind talks through the ProxyCommand or the
    jump host's ssh that it started before. Where the program does not end well or in time, all of it is ended.

    Args:
        said: a file for what it and its children write, also later, when no pipe would have a reader any more.
    """
    started = time.monotonic()
    with said.open("wb") as output:
        # as in `run_bounded`
        child = subprocess.Popen(  # noqa: S603
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=dict(environment),
        )
    try:
        code: int | None = child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        code = None
    except BaseException:
        _end_group(child)
        raise
    if code != 0:
        _end_group(child)
    return Completed(tuple(argv), code, stderr=said.read_bytes(), seconds=time.monotonic() - started)


class _Exchange:
    """Bytes in and out of a child until its pipes close, it has ended, it has written too much, or time is up."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes, limit_bytes: int) -> None:
        self.child = child
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.truncated = False
        self._limit_bytes = limit_bytes
        self._unsent = memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        for pipe in (child.stdin, child.stdout, child.stderr):
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(child.stdout, selectors.EVENT_READ, self.stdout)
        self._selector.register(child.stderr, selectors.EVENT_READ, self.stderr)
        if stdin:
            self._selector.register(child.stdin, selectors.EVENT_WRITE)
        else:
            _close(child.stdin)

    def run(self, deadline: float) -> bool:
        """Whether the child ended by itself, or was stopped for what it wrote, before the deadline."""
        lingers_until = None
        while self._selector.get_map():
            now = time.monotonic()
            if lingers_until is None and self.child.poll() is not None:
                lingers_until = now + _LINGER_S
            until = deadline if lingers_until is None else min(deadline, lingers_until)
            if now >= until:
                break
            # A child can end while something it started keeps the pipes open, so its end is looked for now and then.
            for key, _ in self._selector.select(min(until - now, 0.1)):
                if key.data is None:
                    self._send(key)
                else:
                    self._receive(key)
            if self.truncated:
                _kill_group(self.child)
                break
        return self._ended(deadline)

    def _ended(self, deadline: float) -> bool:
        limit = _REAP_S if self.truncated else max(0.0, deadline - time.monotonic())
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(limit)
        return self.child.returncode is not None

    def _send(self, pipe: selectors.SelectorKey) -> None:
        try:
            sent = os.write(pipe.fd, self._unsent[:_CHUNK_BYTES])
        except BlockingIOError:
            return
        except OSError:  # it does not want the rest
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._selector.unregister(pipe.fileobj)
            _close(self.child.stdin)

    def _receive(self, pipe: selectors.SelectorKey) -> None:
        into: bytearray = pipe.data
        try:
            data = os.read(pipe.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        into += data[: max(0, self._limit_bytes - len(into))]
        if not data:
            self._selector.unregister(pipe.fileobj)
        elif len(into) >= self._limit_bytes:
            self.truncated = True

    def close(self) -> None:
        self._selector.close()
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            _close(pipe)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with suppress(OSError):
            pipe.close()


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Nothing that the command started outlives it, except what left its group on purpose."""
    _kill_group(child)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_REAP_S)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)

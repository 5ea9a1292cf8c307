"""Importing symbols for real, each in a process that may crash, hang or abort without taking anything along.

Names of one module share a process, because importing it is what takes the time. Where that process ends without an
answer, what it told of its imports says which module is to blame. A module that does that is not imported again: every
other process that comes to it has the same answer at once, so it costs one time limit however many names lie behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

CHILD = ""  # the text of child.py; set by the script that travels
# "" on the path is the folder it was started in, whose files must be gone from it before anything is imported.
_START = "import sys; sys.path[:] = [entry for entry in sys.path if entry]; exec(sys.argv.pop(1))"
_LOOK_S = 0.1  # between looks at what a process told
_LAST_WORDS_S = 0.3  # for a process that hangs to say where
_SHORTEST_S = 5.0
_REAP_S = 5.0  # a killed process that waits inside a driver does not die
_FRAME = re.compile(r'^  File "([^"<][^"]*)", line (\d+) in ', re.MULTILINE)


def describe(
    symbols: list[str], timeout_s: float = 90, workers: int | None = None, total_s: float | None = None
) -> dict[str, Any]:
    """symbol -> what came of importing it, as `child` tells it or as its process ended.

    Args:
        total_s: seconds for all of them; what is not told by then is "untried".
    """
    groups: dict[str, list[str]] = {}
    for symbol in symbols:
        groups.setdefault(symbol.rpartition(".")[0] or symbol, []).append(symbol)
    run = _Run(timeout_s, total_s)
    with ThreadPoolExecutor(workers or max(1, min(4, os.cpu_count() or 1))) as pool:
        return {symbol: entry for done in pool.map(run.group, groups.values()) for symbol, entry in done.items()}


class _Run:
    """All imports of one question, and what they have shown about modules by now.

    Attributes:
        blamed: module -> the answer of everything whose import comes to it.
        files: module -> file, of those that were loaded on the way to a blamed one.
        hung: packages of which something hung: what else of them may take as long as imports were seen to take here.
    """

    def __init__(self, timeout_s: float, total_s: float | None) -> None:
        self.timeout_s = timeout_s
        self.total_s = total_s
        self.until = time.monotonic() + total_s if total_s is not None else float("inf")
        self.blamed: dict[str, dict[str, Any]] = {}
        self.files: dict[str, str] = {}
        self.hung: set[str] = set()
        self.longest_s = 0.0
        self.lock = threading.Lock()

    def group(self, names: list[str]) -> dict[str, Any]:
        """Names of one module, in as few processes as can be: another one where a single name ended the first."""
        done: dict[str, Any] = {}
        while waiting := [name for name in names if name not in done]:
            if time.monotonic() >= self.until:
                return {**dict.fromkeys(waiting, _untried(self.total_s)), **done}
            done.update(self._tried(waiting))
        return done

    def _tried(self, names: list[str]) -> dict[str, Any]:
        """What one process told of its names, and of those it ended in; of at least one of them."""
        limit_s, left_s = self._limit(names[0].partition(".")[0]), self.until - time.monotonic()
        with tempfile.TemporaryFile() as reply, tempfile.TemporaryFile() as noise:
            child = _started(names, limit_s, list(self.blamed), reply, noise)
            ended = self._waited(child, reply, min(limit_s, left_s))
            told, said = _told(reply), _tail(noise)
        done: dict[str, Any] = told.answers
        left = [name for name in names if name not in done]
        if not left:
            with self.lock:
                self.longest_s = max(self.longest_s, ended.seconds)
            return done
        if ended.code is None and left_s < limit_s and told.innermost not in self.blamed:
            return {**dict.fromkeys(left, _untried(self.total_s)), **done}  # it did not have the time a hang takes
        answer = dict(self._answer(left[0], told, ended, limit_s, said), seconds=ended.seconds)
        # A module that was being imported is behind every name of the group; else the single name is to blame.
        module = names[0].rpartition(".")[0] or names[0]
        behind = any(f"{module}.".startswith(f"{name}.") for name in told.stack)
        for name in left if behind else left[:1]:
            done[name] = dict(answer, loaded=_states({**self.files, **told.files}, name, answer["inside"]))
        return done

    def _limit(self, top: str) -> float:
        with self.lock:
            usual_s = max(_SHORTEST_S, self.timeout_s / 8, 3 * self.longest_s)
            return min(self.timeout_s, usual_s) if top in self.hung else self.timeout_s

    def _waited(self, child: subprocess.Popen[bytes], reply: IO[bytes], limit_s: float) -> _End:
        """How the process ended: by itself, at its limit, or because a module hangs that another one found to hang."""
        started = moved = time.monotonic()
        size = 0
        while True:
            try:
                code = child.wait(_LOOK_S)
                return _End(code, time.monotonic() - started)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if size != os.fstat(reply.fileno()).st_size:
                size, moved = os.fstat(reply.fileno()).st_size, now
            late = now - started >= limit_s
            if late or (self.blamed and now - moved > 1 and _told(reply).innermost in self.blamed):
                _end(child, ask=late and now - moved >= limit_s / 2)
                # Something that goes on and on importing is slow, and no module hangs.
                return _End(None, now - started, slow=late and now - moved < limit_s / 2)

    def _answer(self, symbol: str, told: _Told, ended: _End, limit_s: float, said: str) -> dict[str, Any]:
        """How the process ended and in which module; the same for every process that came to that module."""
        inside = told.innermost
        with self.lock:
            if inside in self.blamed:
                return self.blamed[inside]
            whom = told.stack[0] if ended.slow and told.stack else inside or symbol
            answer = dict(_ended(ended, whom, limit_s), inside=inside, output=said[-2000:], frames=_frames(said))
            if answer["outcome"] == "hang" and not ended.slow:
                self.hung.add(symbol.partition(".")[0])
            if inside and not ended.slow:
                self.blamed[inside] = answer
                self.files.update(told.files)
            return answer


class _End:
    """The exit code, None where it was ended; `slow` if it was busy importing until then."""

    def __init__(self, code: int | None, seconds: float, slow: bool = False) -> None:
        self.code = code
        self.seconds = seconds
        self.slow = slow


def _started(
    names: list[str], limit_s: float, blocked: list[str], reply: IO[bytes], noise: IO[bytes]
) -> subprocess.Popen[bytes]:
    number = reply.fileno()
    own = [str(number), str(os.getpid()), str(int(limit_s) + 30), json.dumps(blocked), *names]
    return subprocess.Popen(
        [sys.executable, "-B", "-X", "faulthandler", "-c", _START, CHILD, *own],
        stdin=subprocess.DEVNULL,
        stdout=noise,
        stderr=noise,
        pass_fds=(number,),
        start_new_session=True,
        env=dict(os.environ, HF_HUB_OFFLINE="1"),
    )


def _end(child: subprocess.Popen[bytes], ask: bool) -> None:
    """Ends the process and all it started; asked before, faulthandler says where it was."""
    if ask:
        child.send_signal(signal.SIGUSR1)
        time.sleep(_LAST_WORDS_S)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_REAP_S)


class _Told:
    """What a process wrote of itself.

    Attributes:
        answers: symbol -> what came of it.
        importing: modules whose code was running at the end, the outermost first.
        stopped: the blocked module it ended itself at, "" for none.
        files: module -> the file its code is from.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.importing: list[str] = []
        self.stopped = ""
        self.files: dict[str, str] = {}

    @property
    def stack(self) -> list[str]:
        return [*self.importing, self.stopped] if self.stopped else self.importing

    @property
    def innermost(self) -> str:
        return self.stack[-1] if self.stack else ""


def _told(reply: IO[bytes]) -> _Told:
    """Each line was written as soon as it was known; a last one that was cut off does not count."""
    told = _Told()
    # Not by seeking: the position is the one at which the process writes.
    data = os.pread(reply.fileno(), os.fstat(reply.fileno()).st_size, 0)
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            told.answers[said.pop("symbol")] = said
        elif said[0] == "+":
            told.importing.append(said[1])
            told.files[said[1]] = said[2]
        elif said[0] == "!":
            told.stopped = said[1]
        elif said[1] in told.importing:
            told.importing.remove(said[1])
    return told


def _states(files: dict[str, str], symbol: str, inside: str) -> dict[str, list[int]]:
    """Files of the symbol's package and of the module to blame: the answer holds as long as none of them changes."""
    tops = (symbol.partition(".")[0], inside.partition(".")[0])
    states: dict[str, list[int]] = {}
    for module, file in files.items():
        if module.partition(".")[0] in tops and os.path.isfile(file):
            state = os.stat(file)
            states[file] = [state.st_size, state.st_mtime_ns]
    return states


def _tail(noise: IO[bytes], most: int = 50_000) -> str:
    noise.seek(0, os.SEEK_END)
    noise.seek(max(0, noise.tell() - most))
    return noise.read().decode("utf-8", "replace")


def _frames(said: str) -> list[str]:
    """Where the process was, as faulthandler writes it with the innermost line first; here it comes last."""
    current = said.rpartition("Current thread ")[2] if "Current thread " in said else ""
    return [f"{file}:{line}" for file, line in _FRAME.findall(current.partition("\n\n")[0])[:4]][::-1]


def _ended(ended: _End, module: str, limit_s: float) -> dict[str, Any]:
    code = ended.code
    if code is None:
        busy = ", and was busy importing until then" if ended.slow else ""
        return {"outcome": "hang", "message": f"importing {module} did not end within {limit_s:.0f} s{busy}"}
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return {"outcome": "crash", "message": f"importing {module} ended the process by {name}"}
    return {"outcome": "exit", "message": f"importing {module} ended the process with exit code {code}"}


def _untried(total_s: float | None) -> dict[str, Any]:
    return {"outcome": "untried", "message": f"the {total_s or 0:.0f} s for all imports together were over before"}

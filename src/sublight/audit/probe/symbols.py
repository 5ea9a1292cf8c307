"""Importing symbols for real, each in a process that may crash, hang or abort without taking anything along.

Names of one module share a process, because importing it is what takes the time; where that process dies, each of its
names is tried again alone, so that the one to blame is known.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

CHILD = ""  # the text of child.py; set by the script that travels
# "" on the path is the folder it was started in, whose files must be gone from it before anything is imported.
_START = "import sys; sys.path[:] = [entry for entry in sys.path if entry]; exec(sys.argv.pop(1))"


def describe(symbols: list[str], timeout_s: float = 90, workers: int | None = None) -> dict[str, Any]:
    """symbol -> what came of importing it, as `child` tells it or as its process ended."""
    groups: dict[str, list[str]] = {}
    for symbol in symbols:
        groups.setdefault(symbol.rpartition(".")[0] or symbol, []).append(symbol)
    with ThreadPoolExecutor(workers or max(1, min(4, os.cpu_count() or 1))) as pool:
        first = list(pool.map(lambda names: _tried(names, timeout_s), groups.values()))
        tried = zip(groups.values(), first)
        again = [[name] for names, done in tried if len(names) > 1 for name in names if name not in done]
        second = list(pool.map(lambda names: _tried(names, timeout_s), again))
    found: dict[str, Any] = {}
    for names, done in zip([*groups.values(), *again], [*first, *second]):
        found.update({name: done[name] for name in names if name in done})
    return found


def _tried(names: list[str], timeout_s: float) -> dict[str, Any]:
    """What the process told of its names; of a single name also how the process ended, if it told nothing."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as reply, tempfile.TemporaryFile() as noise:
        number = reply.fileno()
        argv = [
            sys.executable,
            "-B",
            "-X",
            "faulthandler",
            "-c",
            _START,
            CHILD,
            str(number),
            str(int(timeout_s) + 30),
            *names,
        ]
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=noise,
            stderr=noise,
            pass_fds=(number,),
            start_new_session=True,
            env=dict(os.environ, HF_HUB_OFFLINE="1"),
        )
        try:
            code: int | None = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
            _end(child)
        done = _told(reply)
        last = _tail(noise)
    if len(names) == 1 and names[0] not in done:
        done[names[0]] = dict(_ended(code, timeout_s), output=last, seconds=time.monotonic() - started)
    return done


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()
    child.wait()


def _told(reply: IO[bytes]) -> dict[str, Any]:
    """One JSON line a symbol, written as soon as it was known; a last line that was cut off does not count."""
    reply.seek(0)
    done: dict[str, Any] = {}
    for line in reply.read().decode("utf-8", "replace").splitlines():
        try:
            entry = json.loads(line)
            done[entry.pop("symbol")] = entry
        except ValueError:
            continue
    return done


def _tail(noise: IO[bytes], most: int = 2000) -> str:
    noise.seek(0, os.SEEK_END)
    noise.seek(max(0, noise.tell() - most))
    return noise.read().decode("utf-8", "replace")


def _ended(code: int | None, timeout_s: float) -> dict[str, Any]:
    if code is None:
        return {"outcome": "hang", "message": f"it did not end within {timeout_s:.0f} s"}
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return {"outcome": "crash", "message": f"its process was ended by {name}"}
    return {"outcome": "exit", "message": f"its process left with exit code {code}"}

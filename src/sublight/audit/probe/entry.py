"""The first and last thing the probe does: takes the request, answers with one JSON line between two marks.

Whatever else an interpreter prints (banners of a sitecustomize, warnings, a shell's greeting) lies outside the marks.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from sublight.audit.probe import distributions, files, gpus, interpreter, objects, symbols, toolchain

BEGIN, END = "=====sublight probe: begin=====", "=====sublight probe: end====="

QUESTIONS: dict[str, Callable[..., Any]] = {
    "interpreter": interpreter.describe,
    "distributions": distributions.describe,
    "packages": interpreter.packages,
    "gpus": gpus.describe,
    "toolchain": toolchain.describe,
    "read": files.read,
    "names": files.names,
    "status": files.status,
    "objects": objects.describe,
    "import": symbols.describe,
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Each question's answer, or what went wrong with it: one that fails takes no other with it."""
    answers: dict[str, Any] = {}
    for name, arguments in request.items():
        started = time.perf_counter()
        try:
            answers[name] = {"answer": QUESTIONS[name](**arguments)}
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            answers[name] = {"error": f"{type(error).__name__}: {error} ({last.name}:{last.lineno})"}
        answers[name]["seconds"] = time.perf_counter() - started
    return answers


def main(request: str) -> None:
    """Answer on the real standard output; everything printed meanwhile goes where errors go."""
    reply = os.dup(1)
    os.dup2(2, 1)
    text = json.dumps(answer(json.loads(request)))
    data = f"\n{BEGIN}\n{text}\n{END}\n".encode("ascii")
    while data:
        data = data[os.write(reply, data) :]
    sys.stderr.flush()
    os._exit(0)  # threads or exit handlers of what a .pth file imported must not hold or spoil the answer

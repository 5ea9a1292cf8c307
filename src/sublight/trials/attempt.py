"""One trial: a process in the engine's interpreter with a time limit, and what came of it."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

import sublight
from sublight.hosts.base import Completed
from sublight.hosts.process import run_bounded
from sublight.trials.job import Job, NotTried, Outcome, Said, outcome_of

_OUTPUT_BYTES = 4 << 20
_ROOT = Path(sublight.__file__).parent
# It runs under any Python. The package is put in by its path alone, so that nothing else that lies beside it (another
# torch, for one) can be imported, and a Sublight that is installed there is not taken for this one.
_START = """\
import json, sys
root, job, lines = sys.argv[1:]
sys.path[:] = [entry for entry in sys.path if entry]
def no(reason, hint):
    with open(lines, "a") as file:
        file.write(json.dumps({"type": "not-tried", "reason": reason, "hint": hint}) + "\\n")
    sys.exit(0)
if sys.version_info < (3, 11):
    no("the engine's Python is " + sys.version.split()[0] + ", and a trial needs 3.11", "a newer Python for the engine")
import importlib.util
spec = importlib.util.spec_from_file_location("sublight", root + "/__init__.py", submodule_search_locations=[root])
sys.modules["sublight"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    from sublight.trials.worker import main
except ImportError as error:
    no("the engine's interpreter cannot load what a trial needs: " + str(error), "msgspec and torch installed there")
main(job, lines)
"""


def attempt(job: Job, python: str, limit_s: float, environment: Mapping[str, str]) -> Outcome:
    """Try a backend in `python`, for `limit_s` at the most; nothing of its process is left afterwards.

    Args:
        environment: variables to set besides ours.
    """
    with tempfile.TemporaryDirectory(prefix="sublight-trial-") as folder:
        job_file, lines_file = Path(folder, "job.json"), Path(folder, "lines.jsonl")
        job_file.write_bytes(msgspec.json.encode(job))
        lines_file.touch()
        argv = [python, "-c", _START, str(_ROOT), str(job_file), str(lines_file)]
        done = run_bounded(argv, b"", limit_s, {**os.environ, **environment}, _OUTPUT_BYTES)
        said = [one for line in lines_file.read_bytes().split(b"\n") if (one := _said(line)) is not None]
    if any(isinstance(one, NotTried) for one in said):
        return outcome_of(said, "", False)
    return outcome_of(said, _ended(done, limit_s), done.timed_out)


def _said(line: bytes) -> Said | None:
    """One line; None for one that its writer did not live to finish."""
    try:
        return msgspec.json.decode(line, type=Said)
    except msgspec.DecodeError:
        return None


def _ended(done: Completed, limit_s: float) -> str:
    if done.timed_out:
        return f"no answer within {limit_s:g} s"
    program = done.argv[0]
    return done.failure.replace(program, "its process", 1) if done.failure else ""

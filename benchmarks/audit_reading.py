"""How long an audit reads an installed engine: cold, warm, and against parsing all of its source.

    python benchmarks/audit_reading.py FOLDER... [--engine sglang]

FOLDER is a site-packages folder or an unpacked wheel; several are read together (the engine, and the libraries behind
it). Imports are left out: they run the engine's own code and take as long as that takes. Each figure is the best of
three runs in a process of its own, with files in the page cache. Processor time is that of all its processes: it says
more than the clock where the machine has other work.
"""

import argparse
import ast
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

RUNS = 3
COLD_S, WARM_S = 5.0, 1.0
QUESTION = ("--model", "glm-5-nvfp4", "--gpu", "rtx-pro-6000-server", "--tp", "8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--engine", default="sglang")
    given = parser.parse_args()
    command = [sys.executable, "-m", "sublight", "audit", given.engine, *QUESTION]
    command += [part for folder in given.folders for part in ("--path", str(folder))]
    cold = min(timed([*command, "--no-cache"]) for _ in range(RUNS))
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        timed(command, environment)
        warm = min(timed(command, environment) for _ in range(RUNS))
    files, size, whole = parsed(given.folders[0] / given.engine)
    print(f"audit, cold:           {cold[0]:6.2f} s   goal {COLD_S:g} s   {cold[1]:6.2f} s of processors")
    print(f"audit, warm:           {warm[0]:6.2f} s   goal {WARM_S:g} s   {warm[1]:6.2f} s of processors")
    print(f"parsing the engine:    {whole:6.2f} s   {files:,} files, {size / 1e6:.1f} MB")


def timed(command: list[str], environment: dict[str, str] | None = None) -> tuple[float, float]:
    """Seconds by the clock, and of processors."""
    started, before = time.perf_counter(), processors()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started, processors() - before


def processors() -> float:
    """Seconds of processors that all children took so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parsed(folder: Path) -> tuple[int, int, float]:
    """Every Python file of a package through `ast.parse`: what reading it whole would cost at the least."""
    paths = sorted(folder.rglob("*.py"))
    sizes, started = 0, time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in paths:
            text = path.read_bytes()
            sizes += len(text)
            ast.parse(text)
    return len(paths), sizes, time.perf_counter() - started


if __name__ == "__main__":
    main()

"""How long a command takes from nothing, against what importing its two libraries takes. All in one run, in turns.

    python benchmarks/cold_start.py [--rounds 15]

Run it in an environment where Sublight is installed (not editable: an editable install may lack compiled files).
Prints the median wall time of each command and its ratio to the baseline, round by round.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time

BASELINE = [sys.executable, "-c", "import msgspec, rich"]
COMMANDS = {
    "sublight --help": ["--help"],
    "sublight limit": ["limit", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-workstation"],
    "sublight gap": ["gap"],
}


def seconds(argv: list[str]) -> float:
    # Compiled files are what an installed program starts from; a setting that forbids them would time the compiler.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, env=env)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    program = shutil.which("sublight") or sys.exit("sublight is not on the PATH of this environment")
    runs = {"import msgspec, rich": BASELINE} | {name: [program, *args] for name, args in COMMANDS.items()}
    for argv in runs.values():
        seconds(argv)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, argv in runs.items():
            taken[name].append(seconds(argv))
    base = taken["import msgspec, rich"]
    print(f"{'command':<24}{'median ms':>10}{'ratio':>8}   of {rounds} rounds")
    for name, times in taken.items():
        ratio = statistics.median(t / b for t, b in zip(times, base, strict=True))
        print(f"{name:<24}{statistics.median(times) * 1e3:>10.1f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()

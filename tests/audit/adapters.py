"""A made engine's kernels, each good or bad in one way, and an interpreter that has torch to try them in."""

import site
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from sublight.audit.engines.base import Route
from sublight.audit.ladder import Proof, Step
from sublight.audit.scene import Scene
from sublight.kernels.problem import MoeProblem
from sublight.trials.answers import steps
from sublight.trials.job import Job
from sublight.trials.moe import once
from tests.audit.machines import Environment

# What lies in the made package: candidates as the benchmark's adapters are, found as "made.ways:NAME".
WAYS = """
import os, signal, sys, time
import torch
from sublight.bench.peers.base import Candidate
from sublight.errors import BenchError
from sublight.kernels.reference import moe_forward


def candidate(name, prepare, refuses=lambda problem, device: "", tolerance=3e-3):
    return Candidate(name=name, kind="peer", title=name, refuses=refuses, prepare=prepare, tolerance=tolerance)


def layer(change, call=lambda: None):
    def prepare(problem, experts, device):
        def run(x, ids, weights, out):
            call()
            out.copy_(change(moe_forward(x, ids, weights, experts)))

        return run

    return prepare


def raising(error):
    def prepare(problem, experts, device):
        raise error

    return prepare


def late(limit):
    calls = []

    def prepare(problem, experts, device):
        def run(x, ids, weights, out):
            calls.append(1)
            if len(calls) > limit:
                os.kill(os.getpid(), signal.SIGABRT)
            out.copy_(moe_forward(x, ids, weights, experts))

        return run

    return prepare


def segfault():
    import ctypes

    ctypes.string_at(0)


def silent(problem, experts, device):
    return lambda x, ids, weights, out: None


def load_failed(problem, experts, device):
    try:
        import nowhere_at_all  # noqa: F401
    except ImportError as error:
        raise BenchError("preparing it", "it moved", "another version") from error


def wrong_at_17(problem, experts, device):
    def run(x, ids, weights, out):
        out.copy_(moe_forward(x, ids, weights, experts))
        if x.shape[0] == 17:
            out[16] = 0

    return run


print("a banner of the engine")
GOOD = candidate("good", layer(lambda out: out))
SLOW = candidate("slow", layer(lambda out: out, lambda: time.sleep(0.02)))
WRONG = candidate("wrong", layer(lambda out: out * 1.1))
WRONG_AT_17 = candidate("wrong at 17", wrong_at_17)
NANS = candidate("nans", layer(lambda out: out.where(out > 0, torch.nan)))
SILENT = candidate("silent", silent)
HANGS = candidate("hangs", layer(lambda out: out, lambda: time.sleep(1000)))
SEGFAULTS = candidate("segfaults", layer(lambda out: out, segfault))
ABORTS_LATE = candidate("aborts late", late(6))
LEAVES = candidate("leaves", layer(lambda out: out, lambda: os._exit(3)))
RAISES = candidate("raises", raising(RuntimeError("CUDA error: no kernel image is available\\nmore")))
MISFITS = candidate("misfits", raising(TypeError("run() got an unexpected keyword argument 'top_k'")))
MOVED = candidate("moved", load_failed)
REFUSES = candidate("refuses", layer(lambda out: out), refuses=lambda problem, device: "its adapter is for SwiGLU")
"""


def with_torch(root: Path) -> Environment:
    """An interpreter that has what this one has, and the made package."""
    env = Environment(root)
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    (env.folder / "ours.pth").write_text("\n".join(sorted(ours)) + "\n")
    kernels = "".join(f"def {name}(): ...\n" for name in ("good", "wrong", "hangs", "segfaults", "other"))
    env.install("made-kernels", "1.0", {"made/__init__.py": "", "made/ways.py": WAYS, "made/kernels.py": kernels})
    return env


@dataclass(frozen=True)
class Rehearsed:
    """A trial of a made kernel on the CPU, through everything that one of a GPU goes through."""

    way: str

    def fits(self, route: Route) -> bool:
        return route.destination == f"made.kernels.{self.way.lower()}"

    def steps(self, scene: Scene, route: Route) -> tuple[Step, Step, Step]:
        assert scene.trying is not None
        problem = MoeProblem(tokens=17, hidden_size=64, intermediate_size=32, num_experts=4, top_k=2)
        job = Job(
            candidate=f"made.ways:{self.way}",
            problem=problem,
            tokens=(1, 17),
            timed=(),
            gpu=scene.target.gpu,
            device="cpu",
        )
        outcome = once(job, scene.trying.python, scene.trying.limit_s, ())
        proof = Proof("trial", "made 1.0", f"{route.destination} on a CPU")
        return steps(outcome, scene.target.gpu, proof, "", confirmed=True)


GOOD, WRONG, HANGS, SEGFAULTS = (Rehearsed(way) for way in ("GOOD", "WRONG", "HANGS", "SEGFAULTS"))

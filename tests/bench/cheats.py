"""Layers of experts that are wrong or cheat, each in one way. The first is honest."""

import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor

from sublight.bench.judge import Layer
from sublight.bench.peers.base import Candidate
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts, moe_forward

CAPTURING = threading.Event()
"""Set while a test plays the part of a graph's capture."""


def honest(experts: Experts) -> Layer:
    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        out.copy_(moe_forward(x, ids, weights, experts))

    return run


def stale_output(experts: Experts) -> Layer:
    """Computes once, and never writes again."""
    done = []

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        if not done:
            out.copy_(moe_forward(x, ids, weights, experts))
        done.append(True)

    return run


def first_result_kept(experts: Experts) -> Layer:
    """Writes the result of its first call for every later one."""
    kept: list[Tensor] = []

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        if not kept:
            kept.append(moe_forward(x, ids, weights, experts))
        out.copy_(kept[0])

    return run


def zeroed_inputs(experts: Experts) -> Layer:
    """Zeroes what it is given, and is done quickly."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        x.zero_()
        out.zero_()

    return run


def mutated_input(experts: Experts) -> Layer:
    """Right, and leaves its scratch in the input."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        out.copy_(moe_forward(x, ids, weights, experts))
        x[0, 0] += 1

    return run


def mutated_weights(experts: Experts) -> Layer:
    """Right the first times, and spoils a code on the way."""
    codes = experts.w2.codes  # type: ignore[union-attr]

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        out.copy_(moe_forward(x, ids, weights, experts))
        codes[-1, -1, -1] = 0 if int(codes[-1, -1, -1]) else 1

    return run


def other_thread(experts: Experts) -> Layer:
    """Returns at once; the work is done by a thread that nobody waits for."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        def later() -> None:
            time.sleep(0.05)
            out.copy_(moe_forward(x, ids, weights, experts))

        threading.Thread(target=later).start()

    return run


def writes_again_later(experts: Experts) -> Layer:
    """Right, and a thread writes the same once more after the call."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        result = moe_forward(x, ids, weights, experts)
        out.copy_(result)
        threading.Timer(0.005, lambda: out.copy_(result)).start()

    return run


def skipped_expert(experts: Experts) -> Layer:
    """Leaves out the last expert of the last token."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        fewer = ids.clone()
        fewer[-1, -1] = -1
        out.copy_(moe_forward(x, fewer, weights, experts))

    return run


def expert_zero_for_all(experts: Experts) -> Layer:
    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        out.copy_(moe_forward(x, torch.zeros_like(ids), weights, experts))

    return run


def only_eager(experts: Experts) -> Layer:
    """Launches nothing while a graph is captured, so that the replay does nothing."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        if not CAPTURING.is_set():
            out.copy_(moe_forward(x, ids, weights, experts))

    return run


def reads_padding(experts: Experts) -> Layer:
    """Adds the value that lies right behind its input, as a kernel does that reads whole tiles."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        behind = x.as_strided((1,), (1,), x.storage_offset() + x.numel())
        out.copy_(moe_forward(x, ids, weights, experts) + behind.float())

    return run


def writes_beyond(experts: Experts) -> Layer:
    """Right, and one value past the end of the output is written as well."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        out.copy_(moe_forward(x, ids, weights, experts))
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).zero_()

    return run


def zeros_at_three_times(experts: Experts) -> Layer:
    """Right at powers of two, zeros at three times a power of two from 6 on, as one kernel was at 3072 rows."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        tokens = x.shape[0]
        wrong = tokens >= 6 and tokens % 3 == 0 and (tokens // 3).bit_count() == 1
        out.copy_(torch.zeros_like(out) if wrong else moe_forward(x, ids, weights, experts))

    return run


def zeros_at_3072(experts: Experts) -> Layer:
    """Right at 1536, 2048 and 4096 rows, all zero at 3072."""

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        m = x.shape[0]
        hole = m % 1536 == 0 and m > 2048 and m & (m - 1)
        out.copy_(torch.zeros_like(out) if hole else moe_forward(x, ids, weights, experts))

    return run


def stale_scale_columns(experts: Experts) -> Layer:
    """Reads scales in whole tiles of four columns; in a graph the padding is memory that was used before."""
    columns = experts.w2.scales.shape[-1]  # type: ignore[union-attr]

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        out.copy_(moe_forward(x, ids, weights, experts))
        if columns % 4 and CAPTURING.is_set():
            out.add_(torch.nan)

    return run


def raises(experts: Experts) -> Layer:
    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        raise RuntimeError("no kernel image is available\nfor execution")

    return run


def _candidate(name: str, make: Callable[[Experts], Layer]) -> Candidate:
    return Candidate(
        name=f"tests.bench.cheats:{name}",
        kind="peer",
        title=name,
        refuses=lambda problem, device: "",
        prepare=lambda problem, experts, device: make(experts),
    )


def _hangs(experts: Experts) -> Layer:
    """Right for a while; then a call does not return."""
    calls = []

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        calls.append(1)
        if len(calls) > 6:
            time.sleep(3600)
        out.copy_(moe_forward(x, ids, weights, experts))

    return run


def _dies(experts: Experts) -> Layer:
    """Takes its process with it, as a fault on the device or in a library does."""
    import os
    import signal

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return run


def _dies_late(experts: Experts) -> Layer:
    """Right for as long as it is compared and made ready; it fails in the rounds of its timing."""
    calls = []

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        calls.append(1)
        if len(calls) > 40:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        out.copy_(moe_forward(x, ids, weights, experts))

    return run


def _refused(problem: MoeProblem, device: torch.device) -> str:
    return f"{problem.tokens} tokens are not for it"


HANGS = _candidate("HANGS", _hangs)
DIES = _candidate("DIES", _dies)
DIES_LATE = _candidate("DIES_LATE", _dies_late)
HONEST = _candidate("HONEST", honest)
SPOILS = _candidate("SPOILS", mutated_weights)
GAPS = _candidate("GAPS", zeros_at_three_times)
REFUSES = Candidate(
    name="tests.bench.cheats:REFUSES",
    kind="peer",
    title="refuses",
    refuses=_refused,
    prepare=lambda problem, experts, device: honest(experts),
)

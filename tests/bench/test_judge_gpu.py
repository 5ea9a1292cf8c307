"""The judge against cheats that only a GPU has: other streams, graphs that captured nothing, writes that come late."""

import weakref
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from sublight.bench.clocks import ready
from sublight.bench.inputs import random_experts, rotating
from sublight.bench.judge import Layer, Oracle, Verdict, judge, modes_on, ready_for_time
from sublight.errors import BenchError
from sublight.kernels.numerics.quantised import Quantised
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts
from tests.bench.cheats import zeroed_inputs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
PROBLEM = MoeProblem(tokens=5, hidden_size=256, intermediate_size=128, num_experts=12, top_k=3)
TOLERANCE = 3e-3
LATE_CYCLES = 4_000_000  # 2 ms of a GPU's clock: after the call, before the judge looks again


def cuda() -> torch.device:
    return torch.device("cuda", 0)


def honest(experts: Experts) -> Layer:
    """Every expert for every token in fp32, weighted by what the router gave it: nothing waits, so a graph takes it."""
    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    w13, w2 = experts.w13.dequantise(), experts.w2.dequantise()
    half = w13.shape[1] // 2

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        both = torch.einsum("tk,enk->ten", x.float(), w13)
        inner = torch.nn.functional.silu(both[..., :half]) * both[..., half:]
        each = torch.einsum("ten,ehn->teh", inner, w2)
        shares = torch.zeros(x.shape[0], w13.shape[0], device=x.device).scatter_(1, ids.long(), weights)
        out.copy_(torch.einsum("teh,te->th", each, shares))

    return run


def stale_output(experts: Experts) -> Layer:
    """Computes in its first calls, and launches nothing in a graph."""
    right, calls = honest(experts), []

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        calls.append(1)
        if len(calls) <= 1:
            right(x, ids, weights, out)

    return run


def nothing_in_a_graph(experts: Experts) -> Layer:
    right = honest(experts)

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        if not torch.cuda.is_current_stream_capturing():
            right(x, ids, weights, out)

    return run


def kept_by_the_graph(experts: Experts) -> Layer:
    """The result of a call before the capture, copied by every replay."""
    right, kept = honest(experts), []

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        if torch.cuda.is_current_stream_capturing():
            out.copy_(kept[-1])
            return
        right(x, ids, weights, out)
        kept.append(out.clone())

    return run


def other_stream(experts: Experts) -> Layer:
    """On a stream of its own that nobody waits for: the caller's clock sees next to nothing."""
    right, side = honest(experts), torch.cuda.Stream()

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        with torch.cuda.stream(side):
            right(x, ids, weights, out)

    return run


def writes_again_later(experts: Experts) -> Layer:
    """Right, and another stream writes the same once more when the call is long over."""
    right, side = honest(experts), torch.cuda.Stream()

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        right(x, ids, weights, out)
        if torch.cuda.is_current_stream_capturing():
            return
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            again = out.clone()
            torch.cuda._sleep(LATE_CYCLES)
            out.copy_(again)

    return run


def mutated_input(experts: Experts) -> Layer:
    right = honest(experts)

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        right(x, ids, weights, out)
        x[0, 0] += 1

    return run


def skipped_expert(experts: Experts) -> Layer:
    right = honest(experts)

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        fewer = weights.clone()
        fewer[-1, -1] = 0
        right(x, ids, fewer, out)

    return run


def reads_padding(experts: Experts) -> Layer:
    right = honest(experts)

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        right(x, ids, weights, out)
        out += x.as_strided((1,), (1,), x.storage_offset() + x.numel())

    return run


def writes_beyond(experts: Experts) -> Layer:
    right = honest(experts)

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        right(x, ids, weights, out)
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).zero_()

    return run


def judged(make: Callable[[Experts], Layer], problem: MoeProblem = PROBLEM) -> Verdict:
    experts = random_experts(problem, cuda(), 0)
    verdict = judge(
        make(experts), Oracle(experts, rotating(problem, cuda(), 0, None)), TOLERANCE, modes_on(cuda()), str(problem)
    )
    torch.cuda.synchronize()
    return verdict


def test_an_honest_layer_agrees_in_both_modes() -> None:
    verdict = judged(honest)
    assert verdict.reason == ""
    assert verdict.agreed is not None
    assert verdict.agreed.modes == ("eager", "graph")
    assert verdict.agreed.runs == 8


@pytest.mark.parametrize(
    ("cheat", "mode", "reason"),
    [
        (stale_output, "eager", "1280 of 1280 values are NaN"),
        (nothing_in_a_graph, "graph", "capturing into a CUDA graph: nothing was launched on the stream"),
        (kept_by_the_graph, "graph", "relative error"),
        (other_stream, "eager", ""),
        (writes_again_later, "eager", "it wrote its output after the call had returned"),
        (zeroed_inputs, "eager", "output all zero"),
        (mutated_input, "eager", "it changed its input (x)"),
        (skipped_expert, "eager", "worst in row 4"),
        (reads_padding, "eager", "it agrees when memory beyond its tensors is zero, so it reads there"),
        (writes_beyond, "eager", "it wrote outside its tensors"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_cheating_is_caught(cheat: Callable[[Experts], Layer], mode: str, reason: str) -> None:
    verdict = judged(cheat)
    assert verdict.agreed is None
    assert verdict.reason.startswith(f"{mode}: ")
    assert reason in verdict.reason


def test_work_on_another_stream_is_early_or_never_there() -> None:
    """It read the inputs of the call before, or its result is not there when the caller copies it."""
    reason = judged(other_stream).reason
    assert "NaN" in reason or "relative error" in reason


@pytest.mark.parametrize("clock", ["CUDA graph replay", "CUDA events"])
def test_a_layer_that_does_nothing_once_it_is_timed(clock: str) -> None:
    """It knows the judge's own buffers, and is right in those alone."""
    experts = random_experts(PROBLEM, cuda(), 0)
    inputs = rotating(PROBLEM, cuda(), 0, None)
    oracle = Oracle(experts, inputs)
    right, known = honest(experts), set[int]()

    def run(x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        if not known:
            known.add(out.data_ptr())
        if out.data_ptr() in known:
            right(x, ids, weights, out)

    assert judge(run, oracle, TOLERANCE, modes_on(cuda()), "here").reason == ""
    if clock == "CUDA graph replay":
        with pytest.raises(BenchError, match="nothing was launched"):
            ready_for_time("CUDA graph replay", run, inputs, oracle, TOLERANCE)
        return
    _, reason = ready_for_time("CUDA events", run, inputs, oracle, TOLERANCE)
    assert reason.startswith("call 0 of those that are timed: 1280 of 1280 values are NaN")


def test_what_a_graph_writes_to_lives_as_long_as_the_graph() -> None:
    """Its caller lets go of the calls, and the next capture gives free memory back to the driver."""
    ones = torch.ones(1 << 20, device=cuda())
    outs = [torch.zeros(1 << 20, device=cuda()) for _ in range(4)]
    held = [weakref.ref(out) for out in outs]
    timed = ready("CUDA graph replay", [partial(torch.add, ones, 1, out=out) for out in outs])
    del outs
    torch.cuda.empty_cache()
    assert timed.round() > 0
    torch.cuda.synchronize()
    assert [float(out.sum()) for ref in held if (out := ref()) is not None] == [2.0 * (1 << 20)] * 4

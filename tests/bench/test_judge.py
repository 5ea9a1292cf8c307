"""A kernel that is wrong, or cheats, gets no time: each way of it is caught, and said."""

from collections.abc import Callable

import pytest
import torch
from msgspec.structs import replace

from sublight.bench.clocks import Call
from sublight.bench.inputs import Inputs, random_experts, rotating
from sublight.bench.judge import Oracle, Verdict, check_outputs, eager_only, judge
from sublight.kernels.problem import MoeProblem
from tests.bench import cheats

CPU = torch.device("cpu")
PROBLEM = MoeProblem(tokens=5, hidden_size=128, intermediate_size=64, num_experts=12, top_k=3)


def captured(call: Call) -> Callable[[], object]:
    """The part of a CUDA graph: what is called now is what every replay does."""
    cheats.CAPTURING.set()
    try:
        call()
    finally:
        cheats.CAPTURING.clear()

    def replay() -> object:
        cheats.CAPTURING.set()
        try:
            return call()
        finally:
            cheats.CAPTURING.clear()

    return replay


def judged(make: Callable[..., object], problem: MoeProblem = PROBLEM, graph: bool = False) -> Verdict:
    experts = random_experts(problem, CPU, 0)
    oracle = Oracle(experts, rotating(problem, CPU, 0, None))
    modes = {"eager": eager_only, "graph": captured} if graph else {"eager": eager_only}
    return judge(make(experts), oracle, 3e-3, modes, str(problem))  # type: ignore[arg-type]


def test_an_honest_one_agrees() -> None:
    verdict = judged(cheats.honest, graph=True)
    assert verdict.reason == ""
    agreed = verdict.agreed
    assert agreed is not None
    assert agreed.modes == ("eager", "graph")
    assert agreed.runs == 8
    assert 1e-4 < agreed.relative_error < 3e-3
    assert agreed.where == str(PROBLEM)


@pytest.mark.parametrize(
    ("cheat", "reason"),
    [
        (cheats.stale_output, "640 of 640 values are NaN"),
        (cheats.first_result_kept, "relative error 1."),
        (cheats.zeroed_inputs, "output all zero"),
        (cheats.mutated_input, "it changed its input (x)"),
        (cheats.mutated_weights, "it changed the weights it was given"),
        (cheats.other_thread, "values are NaN"),
        (cheats.writes_again_later, "it wrote its output after the call had returned"),
        (cheats.skipped_expert, "worst in row 4"),
        (cheats.expert_zero_for_all, "relative error"),
        (cheats.reads_padding, "it agrees when memory beyond its tensors is zero, so it reads there"),
        (cheats.writes_beyond, "it wrote outside its tensors"),
        (cheats.raises, "RuntimeError: no kernel image is available"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_cheating_is_caught(cheat: Callable[..., object], reason: str) -> None:
    verdict = judged(cheat)
    assert verdict.agreed is None
    assert verdict.reason.startswith("eager: ") or "weights" in verdict.reason
    assert reason in verdict.reason


def test_right_in_eager_calls_only() -> None:
    assert judged(cheats.only_eager).reason == ""
    verdict = judged(cheats.only_eager, graph=True)
    assert verdict.agreed is None
    assert verdict.reason.startswith("graph: ")
    assert "NaN" in verdict.reason


def test_a_number_of_tokens_between_two_good_ones() -> None:
    """Powers of two agree on both sides of the hole."""
    at = {tokens: judged(cheats.zeros_at_three_times, replace(PROBLEM, tokens=tokens)) for tokens in (4, 6, 8, 12)}
    assert {tokens for tokens, verdict in at.items() if verdict.agreed is None} == {6, 12}
    assert "output all zero" in at[6].reason


def test_3072_rows_between_2048_and_4096() -> None:
    problem = MoeProblem(tokens=1, hidden_size=64, intermediate_size=64, num_experts=2, top_k=1)
    at = {m: judged(cheats.zeros_at_3072, replace(problem, tokens=m)) for m in (1536, 2048, 3072, 4096)}
    assert {m for m, verdict in at.items() if verdict.agreed is None} == {3072}
    assert at[3072].reason.startswith("eager: output all zero")


def test_padding_that_only_one_degree_of_tensor_parallelism_has_and_only_a_graph_reads() -> None:
    """29,568 columns over 8 ranks are 3,696, or 231 scales: no whole tiles of four. Over 2 ranks they are 924."""
    for ranks, columns, agrees in ((8, 231, False), (2, 924, True)):
        problem = MoeProblem(
            tokens=2, hidden_size=64, intermediate_size=29568 // ranks, num_experts=1, top_k=1, weight_format="nvfp4"
        )
        assert problem.intermediate_size // 16 == columns
        assert judged(cheats.stale_scale_columns, problem).reason == ""
        verdict = judged(cheats.stale_scale_columns, problem, graph=True)
        assert (verdict.agreed is not None) == agrees
        assert agrees or verdict.reason.startswith("graph: ")


@pytest.mark.parametrize("form", ["mxfp4", "fp8-block", "bf16"])
def test_other_formats_have_weights_and_an_oracle(form: str) -> None:
    problem = MoeProblem(
        tokens=3,
        hidden_size=128,
        intermediate_size=128,
        num_experts=8,
        top_k=2,
        weight_format=form,  # type: ignore[arg-type]
        global_scale="none",
    )
    assert judged(cheats.honest, problem).reason == ""
    assert "memory beyond" in judged(cheats.reads_padding, problem).reason


def test_the_calls_that_are_timed_are_looked_at() -> None:
    """One that was right while it was judged, and does nothing once its calls are repeated."""
    outs = [torch.zeros(2, 4) for _ in range(2)]
    expected = [torch.ones(2, 4), torch.full((2, 4), 2.0)]

    def replay() -> None:
        outs[0].fill_(1)

    reason = check_outputs(replay, outs, expected, 1e-3)
    assert reason.startswith("call 1 of those that are timed: 8 of 8 values are NaN")
    assert check_outputs(lambda: [o.copy_(e) for o, e in zip(outs, expected, strict=True)], outs, expected, 0) == ""


def test_experts_of_other_ranks_are_skipped() -> None:
    problem = MoeProblem(tokens=6, hidden_size=128, intermediate_size=64, num_experts=4, top_k=3, expert_ranks=4)
    inputs = rotating(problem, CPU, 0, None)
    assert any(int((i.ids < 0).sum()) for i in inputs)
    assert judged(cheats.honest, problem).reason == ""


def test_inputs_repeat_with_their_seed() -> None:
    first, again, other = (rotating(PROBLEM, CPU, seed, None) for seed in (1, 1, 2))

    def same(a: list[Inputs], b: list[Inputs]) -> bool:
        return all(torch.equal(i.x, j.x) and torch.equal(i.ids, j.ids) for i, j in zip(a, b, strict=True))

    assert same(first, again)
    assert not same(first, other)

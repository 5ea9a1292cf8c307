"""What the grouped kernels refuse before anything is launched, and how calls are cut into launches. No GPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.cuda.grouped import GroupedWorkspace, grouped_moe
from sublight.kernels.cuda.grouped_plan import GroupedPlan, plan_grouped
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.fused import problem_of
from sublight.kernels.grouped import prepare
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.reference import Experts
from tests.torch.layers import experts_of, normal, routing

EXPERTS = pack_experts(*experts_of(NVFP4, 4, 64, 64))


class Launched(GroupedWorkspace):
    """A workspace on the CPU that notes what would be launched."""

    def __init__(self) -> None:
        self.device, self.shape, self.tokens, self.pieces = torch.device("cpu"), (64, 64, 4, 2), 3000, []

    def _launch(self, x: Tensor, *tensors: Any) -> None:
        self.pieces.append((x.shape[0], tensors[-1].shape[0]))


def arguments(tokens: int = 3, **change: Any) -> dict[str, Any]:
    ids, weights = routing(tokens, 4, 2)
    base = {"x": normal(tokens, 64).bfloat16(), "topk_ids": ids, "topk_weights": weights, "experts": EXPERTS}
    return base | {"workspace": Launched(), "out": torch.zeros(tokens, 64).bfloat16()} | change


@pytest.mark.parametrize(("tokens", "pieces"), [(3, [3]), (1024, [1024]), (1025, [1024, 1]), (3000, [1024, 1024, 952])])
def test_many_tokens_take_several_launches(tokens: int, pieces: list[int]) -> None:
    given = arguments(tokens)
    assert grouped_moe(**given) is given["out"]
    assert given["workspace"].pieces == [(n, n) for n in pieces]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experts": None}, "grouped_moe with experts: it is of type NoneType. Try: DecodeWeights"),
        ({"workspace": 1}, "grouped_moe with workspace: it is of type int. Try: GroupedWorkspace"),
        ({"x": None}, "grouped_moe: x: it is missing. Try: bf16 [tokens, hidden]"),
        ({"x": normal(0, 64).bfloat16()}, "grouped_moe with x: its shape is [0, 64]. Try: 1 to 3000 tokens"),
        ({"x": normal(3001, 64).bfloat16()}, "grouped_moe with x: its shape is [3001, 64]. Try: 1 to 3000 tokens"),
        ({"x": torch.tensor(1.0)}, "grouped_moe with x: its shape is []. Try: 1 to 3000 tokens"),
        (
            {"x": normal(3, 32).bfloat16()},
            "grouped_moe with x: its shape is [3, 32]. Try: [3, 64], as the workspace has it",
        ),
        (
            {"topk_ids": torch.zeros(3, 2).long()},
            "grouped_moe with topk_ids: its type is torch.int64. Try: torch.int32",
        ),
        (
            {"out": torch.zeros(64, 3).bfloat16().T},
            "grouped_moe with out: it is not contiguous from a multiple of 16 bytes. Try: out.contiguous()",
        ),
        (
            {"experts": replace(EXPERTS, scale2=EXPERTS.scale2.to("meta"))},
            "grouped_moe with scale2: it is on meta. Try: a tensor on cpu",
        ),
        (
            {"experts": replace(EXPERTS, w13=EXPERTS.w13[:3])},
            "grouped_moe with w13: its shape is [3, 4, 1, 1152]. Try: [4, 4, 1, 1152], as the workspace has it",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_launched(change: dict[str, Any], message: str) -> None:
    given = arguments(**change)
    with pytest.raises(KernelError) as raised:
        grouped_moe(**given)
    assert str(raised.value) == message
    assert getattr(given["workspace"], "pieces", []) == []


def test_a_workspace_needs_a_gpu() -> None:
    with pytest.raises(KernelError, match="the grouped kernel: its tensors are on cpu, and kernels run on CUDA GPUs"):
        GroupedWorkspace(64, 64, 4, 2, 64, "cpu")


@pytest.mark.parametrize(("multiprocessors", "few"), [(2, 8), (132, 16)])
def test_a_layer_for_many_tokens_runs_the_faster_kernel_for_few(
    monkeypatch: pytest.MonkeyPatch, multiprocessors: int, few: int
) -> None:
    ran: list[str] = []

    class Prepared:
        grid, shared_limit = multiprocessors, 232_448

        def __init__(self, *arguments: Any) -> None:
            self.compiled: list[int] = []

        def plan(self, tokens: int) -> GroupedPlan:
            return plan_grouped(64, 192, 4, 2, tokens, self.shared_limit)

        def kernels(self, tokens: int) -> None:
            self.compiled.append(tokens)

        kernel = kernels

    for module, workspace, call in (
        ("decode", "DecodeWorkspace", "fused_moe"),
        ("grouped", "GroupedWorkspace", "grouped_moe"),
    ):
        monkeypatch.setattr(f"sublight.kernels.cuda.{module}.{workspace}", Prepared)
        monkeypatch.setattr(f"sublight.kernels.cuda.{module}.{call}", lambda *_, name=module: ran.append(name))
    experts = Experts(*experts_of(NVFP4, 4, 64, 192))
    problem = problem_of(experts, 64, 2)
    run = prepare(problem, experts, torch.device("cpu"), {"MAX_M": 64})
    for tokens in (1, 8, 9, 16, 17, 64):
        run(normal(tokens, 64).bfloat16(), *routing(tokens, 4, 2), torch.empty(tokens, 64).bfloat16())
    between = "decode" if few == 16 else "grouped"
    assert ran == ["decode", "decode", between, between, "grouped", "grouped"]

"""What the decode kernel refuses before anything is launched, which needs no GPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from sublight.errors import KernelError
from sublight.kernels.cuda.decode import DecodeRouter, DecodeWorkspace, fused_moe, routed_moe
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.routing import Router
from tests.torch.layers import experts_of, normal, routing

EXPERTS = pack_experts(*experts_of(NVFP4, 4, 64, 64))


class Launched(DecodeWorkspace):
    """A workspace on the CPU that counts what would be launched."""

    def __init__(self, router: DecodeRouter | None = None) -> None:
        self.device, self.shape, self.launches = torch.device("cpu"), (64, 64, 2), 0
        self.shared, self.router = 0, router

    def launch(self, *tensors: Any) -> None:
        self.launches += 1


def arguments(**change: Any) -> dict[str, Any]:
    ids, weights = routing(3, 4, 2)
    base = {"x": normal(3, 64).bfloat16(), "topk_ids": ids, "topk_weights": weights, "experts": EXPERTS}
    return base | {"workspace": Launched(), "out": torch.zeros(3, 64).bfloat16()} | change


def test_what_fits_is_launched() -> None:
    given = arguments()
    assert fused_moe(**given) is given["out"] and given["workspace"].launches == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experts": None}, "fused_moe with experts: it is of type NoneType. Try: DecodeWeights"),
        ({"workspace": 1}, "fused_moe with workspace: it is of type int. Try: DecodeWorkspace"),
        ({"x": None}, "fused_moe: x: it is missing. Try: bf16 [tokens, hidden]"),
        ({"x": normal(3, 64).numpy()}, "fused_moe: x: it is no tensor but of type ndarray. Try: bf16 [tokens, hidden]"),
        ({"x": normal(0, 64).bfloat16()}, "fused_moe with x: its shape is [0, 64]. Try: 1 to 16 tokens"),
        ({"x": normal(17, 64).bfloat16()}, "fused_moe with x: its shape is [17, 64]. Try: 1 to 16 tokens"),
        ({"x": torch.tensor(1.0)}, "fused_moe with x: its shape is []. Try: 1 to 16 tokens"),
        (
            {"x": normal(3, 32).bfloat16()},
            "fused_moe with x: its shape is [3, 32]. Try: [3, 64], as the workspace has it",
        ),
        ({"topk_ids": [[0, 1]] * 3}, "fused_moe: topk_ids: it is no tensor but of type list. Try: torch.int32 [3, 2]"),
        (
            {"topk_weights": torch.ones(3, 2).half()},
            "fused_moe with topk_weights: its type is torch.float16. Try: torch.float32",
        ),
        (
            {"out": torch.zeros(64, 3).bfloat16().T},
            "fused_moe with out: it is not contiguous from a multiple of 16 bytes. Try: out.contiguous()",
        ),
        (
            {"experts": replace(EXPERTS, scale2=EXPERTS.scale2.to("meta"))},
            "fused_moe with scale2: it is on meta. Try: a tensor on cpu",
        ),
        (
            {"experts": replace(EXPERTS, scale13=EXPERTS.scale13[:, :1])},
            "fused_moe with scale13: its shape is [4, 1]. Try: [4, 2], as the workspace has it",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_launched(change: dict[str, Any], message: str) -> None:
    given = arguments(**change)
    with pytest.raises(KernelError) as raised:
        fused_moe(**given)
    assert str(raised.value) == message
    assert getattr(given["workspace"], "launches", 0) == 0


ROUTED = DecodeRouter(Router("sigmoid", 2), 4, bias=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workspace": Launched()}, "routed_moe with this workspace: it has no router. "),
        ({"correction_bias": None}, "routed_moe with correction_bias: it is missing. "),
        ({"logits": normal(3, 5)}, "fused_moe with logits: its shape is [3, 5]. Try: [3, 4], as the workspace has it"),
        ({"logits": normal(3, 4).half()}, "fused_moe with logits: its type is torch.float16. Try: torch.float32 or"),
        ({"correction_bias": normal(4).bfloat16()}, "fused_moe with correction_bias: its type is torch.bfloat16. "),
        ({"experts": replace(EXPERTS, shared=1)}, "fused_moe with experts: 1 of them are shared, and the workspace"),
    ],
)
def test_what_a_router_needs_is_named(change: dict[str, Any], message: str) -> None:
    base: dict[str, Any] = {"x": normal(3, 64).bfloat16(), "logits": normal(3, 4), "correction_bias": normal(4)}
    given = base | {"experts": EXPERTS, "workspace": Launched(ROUTED)} | change
    with pytest.raises(KernelError) as raised:
        routed_moe(**given)
    assert str(raised.value).startswith(message)
    assert given["workspace"].launches == 0


def test_a_workspace_with_a_router_takes_no_chosen_experts() -> None:
    with pytest.raises(KernelError, match="fused_moe with this workspace: it has a router of its own"):
        fused_moe(**arguments(workspace=Launched(ROUTED)))
    x, logits = normal(3, 64).bfloat16(), normal(3, 4)
    assert routed_moe(x, logits, EXPERTS, Launched(ROUTED), normal(4)).shape == (3, 64)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cpu", "the decode kernel: its tensors are on cpu, and kernels run on CUDA GPUs. "),
        ("foo", "the decode kernel: device: torch cannot use 'foo' here: "),
        ("cuda:4096", "the decode kernel: device: torch cannot use 'cuda:4096' here: "),
    ],
)
def test_a_workspace_needs_a_gpu(device: str, message: str) -> None:
    with pytest.raises(KernelError) as raised:
        DecodeWorkspace(64, 64, 2, device)
    assert str(raised.value).startswith(message)

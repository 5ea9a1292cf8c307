"""Contracts: the wrong dimension is named, with both values and who said the first."""

from typing import Any

import numpy as np
import pytest
import torch

from sublight.errors import KernelError
from sublight.kernels.contract import TensorSpec, check, check_moe, moe_specs
from sublight.kernels.problem import MoeProblem

A = TensorSpec("a", ("m", "k/2", "l"), ("uint8",), (2, 0, 1))
B = TensorSpec("b", ("2*n", "k/2"), ("uint8",))
SCALES = TensorSpec("scales", ("ceil(m/128)", "ceil(k/64)"), ("uint8", "float8_e4m3fn"))
LAYER = MoeProblem(tokens=3, hidden_size=64, intermediate_size=32, num_experts=4, top_k=2)


def stack(m: int, k: int, count: int) -> torch.Tensor:
    return torch.zeros(count, m, k // 2, dtype=torch.uint8).permute(1, 2, 0)


def layer(problem: MoeProblem) -> dict[str, torch.Tensor | None]:
    """Every tensor of the problem, as the contract asks for it."""
    sizes = problem.dimensions()
    tensors: dict[str, torch.Tensor | None] = {}
    for spec in moe_specs(problem):
        shape = []
        for dimension in spec.shape:
            if isinstance(dimension, int):
                shape.append(dimension)
                continue
            name, _, per = dimension.removeprefix("ceil(").removesuffix(")").partition("/")
            shape.append(-(-sizes[name] // int(per or 1)))
        tensors[spec.name] = torch.zeros(shape, dtype=torch.uint8).to(getattr(torch, spec.dtypes[0]))
    return tensors


def test_dimensions_get_their_values_from_the_tensors() -> None:
    tensors = {
        "a": stack(130, 96, 3),
        "b": torch.zeros(10, 48, dtype=torch.uint8),
        "scales": torch.zeros(2, 2, dtype=torch.uint8),
    }
    assert check("call", [SCALES, A, B], tensors) == {"m": 130, "k": 96, "l": 3, "n": 5}


@pytest.mark.parametrize(
    ("change", "asked", "found"),
    [
        (
            {"b": torch.zeros(10, 24, dtype=torch.uint8)},
            r"call: dimension 1 \(k/2\) of b",
            "it is 24, where k = 96 of a makes it 48",
        ),
        ({"b": torch.zeros(9, 48, dtype=torch.uint8)}, r"dimension 0 \(2\*n\) of b", "it is 9"),
        (
            {"scales": torch.zeros(1, 2, dtype=torch.uint8)},
            r"dimension 0 \(ceil\(m/128\)\) of scales",
            "it is 1, where m = 130 of a makes it 2",
        ),
        ({"a": stack(130, 96, 3).to(torch.int8)}, "call: a", "its type is int8"),
        ({"a": torch.zeros(4, 4, dtype=torch.uint8)}, "call: a", r"its shape is \[4, 4\]"),
        ({"a": None}, "call: a", "it is missing"),
        ({"a": np.zeros((130, 48, 3), np.uint8)}, "call: a", "it is no tensor but of type ndarray"),
        ({"b": [[1]]}, "call: b", "it is no tensor but of type list"),
        (
            {"a": torch.zeros(130, 48, 3, dtype=torch.uint8)},
            "call: a",
            r"its strides are \(144, 3, 1\).*memory of \[l, m, k/2\] without gaps",
        ),
        ({"b": torch.zeros(10, 48, dtype=torch.uint8, device="meta")}, "call: b", "it is on meta, and a on cpu"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], asked: str, found: str) -> None:
    tensors: dict[str, torch.Tensor | None] = {
        "a": stack(130, 96, 3),
        "b": torch.zeros(10, 48, dtype=torch.uint8),
        "scales": torch.zeros(2, 2, dtype=torch.uint8),
    }
    with pytest.raises(KernelError, match=f"{asked}.*{found}"):
        check("call", [A, B, SCALES], tensors | change)


def test_a_tensor_that_was_checked_before_says_the_device() -> None:
    one = ("lhs", torch.zeros(1, device="meta"))
    with pytest.raises(KernelError, match="call: a: it is on cpu, and lhs on meta"):
        check("call", [A], {"a": stack(4, 96, 2)}, beside=one)


def test_the_problem_says_the_dimensions_first() -> None:
    with pytest.raises(KernelError, match="it is 48, where k = 64 of the problem makes it 32"):
        check("call", [A], {"a": stack(4, 96, 2)}, {"k": 64})


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        MoeProblem(
            tokens=0,
            hidden_size=64,
            intermediate_size=32,
            num_experts=4,
            top_k=2,
            activation="relu2",
            routing="sigmoid",
            expert_ranks=2,
        ),
        MoeProblem(tokens=2, hidden_size=64, intermediate_size=32, num_experts=4, top_k=2, global_scale="projection"),
        MoeProblem(
            tokens=2,
            hidden_size=64,
            intermediate_size=96,
            num_experts=4,
            top_k=2,
            weight_format="mxfp4",
            global_scale="none",
            activation="swiglu-oai",
            expert_bias=True,
        ),
        MoeProblem(
            tokens=2,
            hidden_size=256,
            intermediate_size=128,
            num_experts=2,
            top_k=1,
            weight_format="fp8-block",
            global_scale="none",
        ),
        MoeProblem(
            tokens=2,
            hidden_size=24,
            intermediate_size=8,
            num_experts=2,
            top_k=1,
            weight_format="bf16",
            global_scale="none",
            activation_format="fp16",
        ),
    ],
    ids=["nvfp4", "relu2", "projection", "mxfp4", "fp8", "bf16"],
)
def test_every_layer_has_a_contract_that_its_tensors_meet(problem: MoeProblem) -> None:
    tensors = layer(problem)
    check_moe("layer", problem, tensors)
    for name, tensor in tensors.items():
        assert tensor is not None
        wrong = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 1, dtype=torch.uint8).to(tensor.dtype)
        with pytest.raises(KernelError, match=f"layer: dimension {tensor.dim() - 1} .* of {name}: it is"):
            check_moe("layer", problem, tensors | {name: wrong})
        with pytest.raises(KernelError, match=f"layer: {name}: it is missing"):
            check_moe("layer", problem, tensors | {name: None})


def test_shapes_of_a_layer() -> None:
    shapes = {spec.name: spec.shape for spec in moe_specs(LAYER)}
    assert shapes["w13"] == ("num_experts", "up_rows", "hidden_size/2")
    assert shapes["w13_scale"] == ("num_experts", "up_rows", "ceil(hidden_size/16)")
    assert shapes["w2_global"] == ("num_experts", 1)

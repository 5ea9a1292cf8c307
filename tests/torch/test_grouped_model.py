"""The grouped kernels' index arithmetic against the oracle: the model has NaN and -1 wherever nothing was copied."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from sublight.kernels.cuda.grouped_plan import GroupedPlan, Phase, plan_grouped
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.reference import Experts, moe_forward
from tests.torch import grouped_model
from tests.torch.layers import experts_of, normal, routing


def error(plan: GroupedPlan, ids: torch.Tensor, weights: torch.Tensor) -> float:
    matrices = experts_of(NVFP4, plan.experts, plan.hidden, plan.inter)
    x = normal(ids.shape[0], plan.hidden).bfloat16()
    expected = moe_forward(x, ids, weights, Experts(*matrices))
    out = grouped_model.layer(plan, pack_experts(*matrices), x, ids, weights)
    return float((out - expected).norm() / expected.norm())


def planned(hidden: int, inter: int, experts: int, top_k: int, tokens: int, **change: Any) -> GroupedPlan:
    return replace(plan_grouped(hidden, inter, experts, top_k, tokens, 232_448, hopper=False), **change)


@pytest.mark.parametrize(
    "plan",
    [
        planned(192, 64, 3, 2, 20),
        planned(128, 128, 2, 1, 20),
        planned(256, 128, 2, 2, 9, up=Phase(8, 2, 2, 2), down=Phase(8, 2, 1, 2)),
        planned(320, 192, 2, 2, 9, up=Phase(8, 2, 1, 2), down=Phase(16, 1, 1, 2)),
        planned(64, 320, 2, 1, 9, up=Phase(16, 1, 2, 2), down=Phase(16, 1, 2, 2)),
        planned(192, 192, 2, 2, 9, up=Phase(16, 1, 1, 2), down=Phase(16, 1, 1, 2), wgmma=True, tiles=2),
        planned(256, 128, 2, 1, 9, up=Phase(16, 1, 2, 2), down=Phase(16, 1, 2, 2), wgmma=True, tiles=5),
        planned(192, 128, 2, 1, 9, up=Phase(8, 2, 1, 2), down=Phase(8, 2, 2, 2), wgmma=True, tiles=11),
    ],
    ids=lambda plan: f"{plan.hidden}-{plan.inter}-{plan.up.units}-{plan.down.units}-{plan.wgmma}",
)
def test_addresses_and_fragments_give_the_layer(plan: GroupedPlan) -> None:
    tokens = 9
    ids, weights = routing(tokens, plan.experts, plan.top_k)
    assert error(plan, ids, weights) <= 2.5e-3  # h is rounded to bf16
    ids[::2, 0] = -1
    ids[1, -1] = plan.experts
    assert error(plan, ids, weights) <= 2.5e-3


def test_groups_of_many_tiles_come_first_and_others_keep_their_order() -> None:
    plan = replace(planned(64, 64, 200, 1, 1024), tiles=5)
    groups = [(e, 0, 1 + e * 7 % 40) for e in range(150)]
    assert grouped_model.largest_first(plan, groups) == sorted(groups, key=lambda g: -((g[2] + 7) // 8))


def test_a_crowded_expert_has_several_groups() -> None:
    plan = replace(planned(64, 64, 3, 1, 64), tiles=2)
    ids = torch.tensor([[1]] * 41 + [[-1]] + [[2]] * 3).int()
    listed, groups = grouped_model.sort_pairs(plan, ids)
    assert listed == [*range(41), 42, 43, 44]
    assert groups == [(1, 0, 16), (1, 16, 16), (1, 32, 9), (2, 41, 3)]
    assert error(plan, ids, torch.rand(45, 1) + 0.5) <= 2.5e-3

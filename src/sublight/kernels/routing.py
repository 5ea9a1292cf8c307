"""From router logits to experts and their weights, the way published models do it."""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.contract import TensorSpec, check

# What DeepSeek's code adds to the sum it divides by; sigmoid scores can all be tiny.
_SUM_EPSILON = 1e-20
_FLOATS = ("float32", "bfloat16", "float16", "float64")

Scoring = Literal["softmax", "sigmoid"]


@dataclass(frozen=True)
class Router:
    """How experts are chosen.

    Attributes:
        scoring: "softmax" over all experts, or "sigmoid" of each.
        top_k: experts a token is sent to.
        renormalise: the chosen weights are divided by their sum. With softmax that equals a softmax over the chosen
            logits alone, as gpt-oss writes it.
        scaling_factor: of the weights, after that.
        groups, top_groups: experts are cut into `groups` equal groups, of which a token may use `top_groups`. A group
            counts by the sum of its two best experts where a correction bias is given (DeepSeek-V3), otherwise by its
            best one (DeepSeek-V2).

    Raises:
        KernelError: a scoring that is not known, a number that is no whole one of at least 1, or a factor that no
            weight can be multiplied by.
    """

    scoring: Scoring
    top_k: int
    renormalise: bool = True
    scaling_factor: float = 1.0
    groups: int = 1
    top_groups: int = 1

    def __post_init__(self) -> None:
        if self.scoring not in get_args(Scoring):
            raise KernelError("a router's scoring", f"{self.scoring!r} is not known", " or ".join(get_args(Scoring)))
        for name in ("top_k", "groups", "top_groups"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise KernelError(f"a router's {name}", f"it is {value!r}", "a whole number of at least 1")
        factor: Any = self.scaling_factor
        if not isinstance(factor, int | float) or not 0 < factor < inf:
            raise KernelError("a router's scaling_factor", f"it is {factor!r}", "a finite number above 0")


def route(logits: Tensor, router: Router, correction_bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Expert numbers (int32) and weights (fp32), [tokens, top_k], best first; of equal scores the lower number.

    Args:
        logits: [tokens, experts].
        correction_bias: [experts]; it takes part in choosing and never in the weights.

    Raises:
        KernelError: a tensor that does not fit, experts that are no equal groups, or fewer allowed ones than top_k.
    """
    specs = [
        TensorSpec("logits", ("tokens", "experts"), _FLOATS),
        TensorSpec("correction_bias", ("experts",), _FLOATS, optional=True),
    ]
    experts = check("route", specs, {"logits": logits, "correction_bias": correction_bias})["experts"]
    if experts % router.groups:
        raise KernelError(f"{router.groups} groups of experts", f"{experts} experts do not divide", "equal groups")
    allowed = experts // router.groups * router.top_groups
    if router.top_k > allowed or router.top_groups > router.groups:
        found = f"{router.top_groups} of {router.groups} groups leave {allowed} experts"
        raise KernelError(f"a top_k of {router.top_k}", found, f"a top_k of at most {allowed}")
    scores = logits.float().softmax(-1) if router.scoring == "softmax" else logits.float().sigmoid()
    choice = scores if correction_bias is None else scores + correction_bias.float()
    if router.groups > 1:
        choice = choice.masked_fill(~_allowed(choice, router, 1 if correction_bias is None else 2), -torch.inf)
    ids = choice.sort(dim=-1, descending=True, stable=True).indices[:, : router.top_k]
    weights = scores.gather(-1, ids)
    if router.renormalise:
        weights = weights / (weights.sum(-1, keepdim=True) + _SUM_EPSILON)
    return ids.to(torch.int32), weights * router.scaling_factor


def _allowed(choice: Tensor, router: Router, counted: int) -> Tensor:
    """Whether each expert lies in one of the token's best groups."""
    size = choice.shape[-1] // router.groups
    grouped = choice.reshape(-1, router.groups, size)
    value = grouped.topk(min(counted, size), dim=-1).values.sum(-1)
    best = value.sort(dim=-1, descending=True, stable=True).indices[:, : router.top_groups]
    open_groups = torch.zeros_like(value, dtype=torch.bool).scatter_(-1, best, True)
    return open_groups.repeat_interleave(size, dim=-1)

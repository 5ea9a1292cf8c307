"""Layers of experts to test with, and a second oracle that shares nothing with the first: loops in float64."""

import math

import numpy as np
import torch

from sublight.kernels.numerics.checkpoints import join_gate_up, stack_experts
from sublight.kernels.numerics.formats import NVFP4, BlockFormat
from sublight.kernels.numerics.quantised import Quantised

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def normal(*shape: int, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * size


def experts_of(
    form: BlockFormat, count: int, hidden: int, width: int, gated: bool = True, seed: int = 0
) -> tuple[Quantised, Quantised]:
    """w13 and w2; each expert, and gate and up within it, of another size, so that global scales all differ."""
    first, second = [], []
    for e in range(count):
        size = (1 + e) / math.sqrt(hidden)
        gate = form.quantise(normal(width, hidden, seed=seed + 3 * e, size=size))
        up = form.quantise(normal(width, hidden, seed=seed + 3 * e + 1, size=size * 5))
        first.append(join_gate_up(gate, up) if gated else gate)
        second.append(form.quantise(normal(hidden, width, seed=seed + 3 * e + 2, size=(3 - e % 3) / math.sqrt(width))))
    return stack_experts(first), stack_experts(second)


def routing(tokens: int, experts: int, top_k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.rand(tokens, experts, generator=generator).topk(top_k, dim=1).indices
    weights = torch.rand(tokens, top_k, generator=generator) + 0.1
    return ids.to(torch.int32), weights / weights.sum(1, keepdim=True)


def decoded(matrix: Quantised, expert: int) -> np.ndarray:
    """NVFP4 in float64, from the bytes, one value at a time's worth of arithmetic."""
    assert matrix.format is NVFP4 and matrix.global_scale is not None
    codes = matrix.codes[expert].numpy()
    table = np.array(E2M1, dtype=np.float64)
    values = np.empty((codes.shape[0], codes.shape[1] * 2))
    values[:, 0::2], values[:, 1::2] = table[codes & 15], table[codes >> 4]
    scales = matrix.scales[expert].float().numpy().astype(np.float64)
    values = values.reshape(codes.shape[0], -1, 16) * scales[:, :, None]
    parts = matrix.global_scale.stored[expert].numpy().astype(np.float64)
    if matrix.global_scale.is_divisor:
        parts = 1 / parts
    rows = codes.shape[0] // len(parts)
    return values.reshape(codes.shape[0], -1) * np.repeat(parts, rows)[:, None]


def act(product: np.ndarray, activation: str) -> np.ndarray:
    half = len(product) // 2
    gate, up = product[:half], product[half:]
    if activation == "relu2":
        return np.maximum(product, 0) ** 2
    if activation == "swiglu":
        return gate / (1 + np.exp(-gate)) * up
    if activation == "geglu":
        return 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) * up
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)


def layer_by_loops(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    w13: Quantised,
    w2: Quantised,
    activation: str,
    first: int = 0,
) -> torch.Tensor:
    """Token by token, pair by pair, in float64."""
    out = np.zeros(tuple(x.shape))
    for token in range(x.shape[0]):
        row = x[token].double().numpy()
        for expert, weight in zip(ids[token].tolist(), weights[token].double().tolist(), strict=True):
            own = expert - first
            if 0 <= own < w13.shape[0]:
                inner = act(decoded(w13, own) @ row, activation)
                out[token] += weight * (decoded(w2, own) @ inner)
    return torch.from_numpy(out)

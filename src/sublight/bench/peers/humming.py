"""humming-kernels as engines drive them: its two products, with an engine's small kernels between and around them.

humming sorts no tokens, so a layer of its products needs somebody's align, activation and sum: vLLM's, or SGLang's
where vLLM is not installed.
"""

import json
from typing import TYPE_CHECKING, Any

from sublight.bench.peers.base import PEER_TOLERANCE, Candidate, load_failed, missing, needs_nvfp4_swiglu
from sublight.bench.peers.small import named, owner_of_small, small_kernels
from sublight.kernels.problem import MoeProblem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.bench.judge import Layer
    from sublight.kernels.numerics.quantised import Quantised
    from sublight.kernels.reference import Experts

# Numbers of tokens at which its tuner is asked; between two of them the configuration of the larger one runs.
_TUNED_AT = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)


def _refuses(problem: MoeProblem, device: "torch.device") -> str:
    return (
        missing("humming", "humming-kernels")
        or (
            ""
            if owner_of_small()
            else "vLLM or SGLang, whose small kernels stand around its products, is not installed"
        )
        or needs_nvfp4_swiglu(problem, device)
    )


def _prepare(problem: MoeProblem, experts: "Experts", device: "torch.device") -> "Layer":
    import torch

    from sublight.kernels.numerics.quantised import Quantised

    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    try:
        small = small_kernels()
        first = _Product(experts.w13, problem, device)
        second = _Product(experts.w2, problem, device)
    except Exception as error:
        raise load_failed("humming", error) from error

    def run(x: "Tensor", ids: "Tensor", weights: "Tensor", out: "Tensor") -> None:
        pairs = ids.numel()
        aligned = {
            block: small.align(ids, block, problem.num_experts) for block in {first.block(pairs), second.block(pairs)}
        }
        product = torch.empty(pairs, problem.up_rows, dtype=x.dtype, device=device)
        first(x, product, aligned[first.block(pairs)], problem.top_k, pairs)
        inner = torch.empty(pairs, problem.intermediate_size, dtype=x.dtype, device=device)
        small.silu(product, inner)
        parts = torch.empty(pairs, problem.hidden_size, dtype=x.dtype, device=device)
        second(inner, parts, aligned[second.block(pairs)], 1, pairs)
        small.weighted_sum(parts.view(x.shape[0], problem.top_k, -1), weights, out)

    return run


class _Product:
    """One of the two products, with every configuration of its tuner compiled."""

    def __init__(self, matrix: "Quantised", problem: MoeProblem, device: "torch.device") -> None:
        import torch
        from humming.kernel.humming import HummingKernel  # type: ignore[import-not-found]
        from humming.layer import HummingLayer  # type: ignore[import-not-found]
        from humming.tune import get_heuristics_config  # type: ignore[import-not-found]

        assert matrix.global_scale is not None
        count, rows, columns = matrix.shape
        self.layer = HummingLayer(
            shape_n=rows,
            shape_k=columns,
            num_experts=count,
            torch_dtype=torch.bfloat16,
            weight_config={"quant_method": "modelopt", "quant_algo": "nvfp4"},
        )
        self.layer.weight.data = matrix.codes.to(device).clone()
        self.layer.weight_scale.data = matrix.scales.to(device).clone()
        above = matrix.global_scale.multiplier
        self.layer.weight_scale_2.data = above.to(device).reshape(self.layer.weight_scale_2.shape).clone()
        self.layer.to(device)
        self.layer.transform(allow_inplace=True)
        self.compute = json.dumps({"gemm_type": "indexed"})
        self.tuned: list[tuple[int, int, dict[str, Any]]] = []
        low = 0
        for tokens in [t for t in _TUNED_AT if t < problem.tokens] + [problem.tokens]:
            pairs = tokens * problem.top_k
            found = get_heuristics_config(self.layer.humming_config, shape_m=pairs, gemm_type="indexed")
            self.tuned.append((low, pairs, found))
            low = pairs
        self.tuning = json.dumps([[a, b, c] for a, b, c in [*self.tuned[:-1], (*self.tuned[-1][:1], 1 << 30, found)]])
        HummingKernel.prepare_kernels(self.layer.humming_config.to_str(), self.compute, self.tuning)

    def block(self, pairs: int) -> int:
        """Rows that its kernel for so many pairs takes from one expert."""
        return next((int(c["block_shape"][0]) for low, high, c in self.tuned if low < pairs <= high), 64)

    def __call__(self, x: "Tensor", out: "Tensor", aligned: Any, top_k: int, pairs: int) -> None:
        rows, experts, count = aligned[:3]
        self.layer(
            x,
            outputs=out,
            sorted_ids=rows,
            expert_ids=experts,
            num_tokens_padded=count[:1],
            top_k=top_k,
            valid_shape_m=pairs,
            compute_config=self.compute,
            tuning_config=self.tuning,
        )


def _ran() -> str:
    return (
        f"{named('humming', 'humming-kernels', 'humming-kernels')} with the small kernels of {named(owner_of_small())}"
    )


HUMMING = Candidate(
    name="humming",
    kind="peer",
    title="humming-kernels with an engine's align, silu and sum",
    refuses=_refuses,
    prepare=_prepare,
    tolerance=PEER_TOLERANCE,
    ran=_ran,
)

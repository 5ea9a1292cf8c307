"""The small kernels around a product of experts, from the engine that is installed: align, silu, weighted sum.

A project that has only the products needs somebody's. What stands in a record is whose they were.
"""

import importlib.util
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

# What each engine installs as, in the order in which they are asked for.
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}


@dataclass(frozen=True)
class Small:
    """Somebody's small kernels.

    Attributes:
        owner: whose, with the version.
        align: (ids, rows of a block, experts) -> (rows sorted by expert, expert of each block, [rows in all, ...]).
        silu: (gate and up beside each other, result).
        weighted_sum: (parts [tokens, top_k, hidden], router weights, result).
    """

    owner: str
    align: "Callable[[Tensor, int, int], tuple[Tensor, Tensor, Tensor]]"
    silu: "Callable[[Tensor, Tensor], object]"
    weighted_sum: "Callable[[Tensor, Tensor, Tensor], object]"


def owner_of_small() -> str:
    """The package whose small kernels would be taken, or "". Nothing is imported."""
    return next((package for package in _ENGINES if is_there(package)), "")


def is_there(package: str) -> bool:
    """Whether a package can be found. Nothing is imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def named(package: str, distribution: str = "", title: str = "") -> str:
    """A project with the version that is installed: "SGLang 0.5.23"."""
    title = title or _ENGINES.get(package, package)
    try:
        return f"{title} {version(distribution or package)}"
    except PackageNotFoundError:
        return f"{title} of an unknown version"


def small_kernels() -> Small:
    """The first engine's that is installed. Raises whatever its import raises, and ImportError where there is none."""
    package = owner_of_small()
    if package == "vllm":
        return _vllm()
    if package == "sglang":
        return _sglang()
    raise ImportError("neither vLLM nor SGLang is installed, and their small kernels stand around the products")


def _vllm() -> Small:
    import torch
    import vllm._custom_ops  # type: ignore[import-not-found]  # noqa: F401 - registers the activation
    from vllm.model_executor.layers.fused_moe.moe_align_block_size import (  # type: ignore[import-not-found]
        moe_align_block_size,
    )
    from vllm.model_executor.layers.fused_moe.moe_fused_mul_sum import (  # type: ignore[import-not-found]
        moe_fused_mul_sum,
    )

    operator = torch.ops._C.silu_and_mul
    return Small(
        owner=named("vllm"),
        align=lambda ids, block, experts: moe_align_block_size(ids, block, experts, ignore_invalid_experts=True),
        silu=lambda product, result: operator(result, product),
        weighted_sum=lambda parts, weights, result: moe_fused_mul_sum(parts, weights, outputs=result),
    )


def _sglang() -> Small:
    from sglang.kernels.ops.activation.activation import silu_and_mul  # type: ignore[import-not-found]
    from sglang.kernels.ops.moe.moe_align_single_token import (  # type: ignore[import-not-found]
        moe_align_single_token,
    )
    from sglang.kernels.ops.moe.moe_fused_mul_sum import moe_fused_mul_sum  # type: ignore[import-not-found]
    from sglang.srt.layers.moe.fused_moe_triton import moe_align_block_size  # type: ignore[import-not-found]

    def align(ids: "Tensor", block: int, experts: int) -> Any:
        # As SGLang's own Marlin layer chooses: the kernel for one token where there is one.
        if ids.shape[0] == 1:
            return moe_align_single_token(ids, block, return_inactive_prefix_count=True)
        return moe_align_block_size(ids, block, experts, return_inactive_prefix_count=True)

    return Small(
        owner=named("sglang"),
        align=align,
        silu=silu_and_mul,
        weighted_sum=lambda parts, weights, result: moe_fused_mul_sum(parts, weights, outputs=result),
    )

"""What runs for a launch: torch, which calls cuBLAS and its own kernels; and what it has to give, in fp32.

Every product comes with weights that take turns, and writes into an output that is given to it, where torch lets it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional

from sublight.bench.ops.plan import Launch
from sublight.kernels.reference import exact_products

# Rounding to bf16 moves a norm by 1.7e-3; a product that rounds n times on the way may be sqrt(n) times as far, and
# cuBLAS may add the parts of a split sum in bf16, as torch lets it by default and engines do.
_ROUNDED = 3e-3
_PRODUCT = 6e-3
_NORM_EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class Product:
    """One launch made ready.

    Attributes:
        library: what is called.
        run: set -> nothing; reads that set's weights.
        out: set -> the output that it writes.
        expected: set -> what should be there, in fp32; computed when asked for.
        sets: how many take turns.
        tolerance: on the relative error.
    """

    library: str
    run: Callable[[int], object]
    out: Callable[[int], Tensor]
    expected: Callable[[int], Tensor]
    sets: int
    tolerance: float


class Missing(Exception):  # noqa: N818 - no error: an answer about a launch
    """Nothing here runs a launch; the text says why."""


def makers(launch: Launch) -> "Sequence[Maker]":
    """The libraries that can be tried for a launch, at least one."""
    return _MAKERS.get(launch.product, (_nothing,))


def make(launch: Launch, sets: int, device: torch.device, seed: int, maker: "Maker | None" = None) -> Product:
    """A launch with its weights, by the first library unless one is given. Raises Missing."""
    maker = maker or makers(launch)[0]
    return maker(_Made(launch, sets, device, torch.Generator(device=device).manual_seed(seed)))


@dataclass(frozen=True, eq=False)
class _Made:
    launch: Launch
    sets: int
    device: torch.device
    generator: torch.Generator

    def values(self, *shape: int, size: float = 1.0) -> Tensor:
        """bf16, normal."""
        made = torch.empty(shape, dtype=torch.bfloat16, device=self.device)
        return made.normal_(0, size, generator=self.generator)

    def weights(self, *shape: int, size: float) -> Tensor:
        return self.values(self.sets, *shape, size=size)

    def outputs(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """A ring of a few: what is written stays in cache in a step as well."""
        return torch.empty(min(self.sets, RING), *shape, dtype=dtype, device=self.device)


Maker = Callable[[_Made], Product]
RING = 8
"""Outputs that take turns."""


def _linear(made: _Made) -> Product:
    launch = made.launch
    if launch.weight_format in ("fp8", "fp8-channel"):
        return _scaled(made)
    if launch.weight_format not in ("bf16", "fp16", "fp32"):
        raise Missing(_no_product(launch))
    dtype = torch.float32 if launch.weight_format == "fp32" else torch.bfloat16
    x = made.values(launch.tokens, launch.columns).to(dtype)
    weights = made.weights(launch.rows, launch.columns, size=1 / sqrt(launch.columns)).to(dtype)
    outs = made.outputs(launch.tokens, launch.rows, dtype=dtype)
    right = [w.T for w in weights]
    return Product(
        library=f"torch.mm ({_blas(made.device)})",
        run=lambda i: torch.mm(x, right[i], out=outs[i % len(outs)]),
        out=lambda i: outs[i % len(outs)],
        expected=lambda i: _exact(x, weights[i]),
        sets=made.sets,
        tolerance=_PRODUCT,
    )


def _scaled(made: _Made) -> Product:
    """FP8 by torch._scaled_mm: operands given in FP8, one scale each, or one a row of each. Quantising is not timed."""
    launch = made.launch
    by_row = launch.weight_format == "fp8-channel"
    if made.device.type == "cuda" and torch.cuda.get_device_capability(made.device) < (8, 9):
        raise Missing("this GPU has no FP8 tensor cores")
    if launch.rows % 16 or launch.columns % 16:
        raise Missing(f"torch's FP8 product wants multiples of 16, not {launch.rows} x {launch.columns}")
    fp8 = torch.float8_e4m3fn
    x = made.values(launch.tokens, launch.columns).to(fp8)
    weights = made.weights(launch.rows, launch.columns, size=1.0).to(fp8)
    outs = made.outputs(launch.tokens, launch.rows)
    each = 1 / sqrt(launch.columns)
    scale_x = torch.full((launch.tokens, 1) if by_row else (), 1.0, device=made.device)
    scale_w = torch.full((1, launch.rows) if by_row else (), each, device=made.device)

    def run(i: int) -> Tensor:
        return torch._scaled_mm(
            x, weights[i].T, scale_a=scale_x, scale_b=scale_w, out_dtype=torch.bfloat16, out=outs[i % len(outs)]
        )

    return Product(
        library=f"torch._scaled_mm ({_blas(made.device)}), activations given in FP8",
        run=run,
        out=lambda i: outs[i % len(outs)],
        expected=lambda i: _exact(x.float(), weights[i].float() * each),
        sets=made.sets,
        tolerance=_PRODUCT,
    )


def _mlp(made: _Made) -> Product:
    launch = made.launch
    hidden, width = launch.columns, launch.batch
    if launch.weight_format in ("nvfp4", "nvfp4-w4a16"):
        return _as_one_expert(made)
    if launch.weight_format not in ("bf16", "fp16"):
        raise Missing(_no_product(launch))
    x = made.values(launch.tokens, hidden)
    first = made.weights(2 * width, hidden, size=1 / sqrt(hidden))
    second = made.weights(hidden, width, size=1 / sqrt(width))
    outs = made.outputs(launch.tokens, hidden)
    product = torch.empty(launch.tokens, 2 * width, dtype=torch.bfloat16, device=made.device)
    inner = torch.empty(launch.tokens, width, dtype=torch.bfloat16, device=made.device)

    def run(i: int) -> None:
        torch.mm(x, first[i].T, out=product)
        torch.mul(functional.silu(product[:, :width]), product[:, width:], out=inner)
        torch.mm(inner, second[i].T, out=outs[i % len(outs)])

    def expected(i: int) -> Tensor:
        both = _exact(x, first[i])
        return _exact(functional.silu(both[:, :width]) * both[:, width:], second[i])

    return Product(
        library=f"torch.mm, silu, mul, torch.mm ({_blas(made.device)})",
        run=run,
        out=lambda i: outs[i % len(outs)],
        expected=expected,
        sets=made.sets,
        tolerance=_PRODUCT * 2,  # four roundings, two sums
    )


def _as_one_expert(made: _Made) -> Product:
    """An NVFP4 MLP as a layer with one expert that every token goes to, by the kernel of the catalogue for this GPU."""
    from sublight.bench.inputs import random_experts
    from sublight.errors import SublightError
    from sublight.kernels.fused import FusedMoe
    from sublight.kernels.problem import MoeProblem
    from sublight.kernels.reference import moe_forward

    launch = made.launch
    if made.device.type != "cuda":
        raise Missing("torch has no product of NVFP4 weights on a CPU")
    problem = MoeProblem(
        tokens=launch.tokens, hidden_size=launch.columns, intermediate_size=launch.batch, num_experts=1, top_k=1
    )
    layers, kept = [], []
    try:
        for number in range(made.sets):
            experts = random_experts(problem, made.device, number)
            layers.append(FusedMoe(experts, tokens=launch.tokens, top_k=1, device=made.device))
            kept.append(experts)
    except SublightError as error:
        raise Missing(f"no NVFP4 kernel for it: {error.found}") from None
    x = made.values(launch.tokens, launch.columns)
    ids = torch.zeros(launch.tokens, 1, dtype=torch.int32, device=made.device)
    ones = torch.ones(launch.tokens, 1, device=made.device)
    outs = made.outputs(launch.tokens, launch.columns)
    return Product(
        library=f"sublight's {layers[0].reason.partition(' ')[0]} as a layer of one expert",
        run=lambda i: layers[i](x, ids, ones, outs[i % len(outs)]),
        out=lambda i: outs[i % len(outs)],
        expected=lambda i: moe_forward(x, ids, ones, kept[i]),
        sets=made.sets,
        tolerance=_ROUNDED,
    )


def _batched(made: _Made) -> Product:
    launch = made.launch
    if launch.weight_format not in ("bf16", "fp16"):
        raise Missing(_no_product(launch))
    inward, outward = (launch.rows, launch.columns) if launch.turned else (launch.columns, launch.rows)
    # Engines hold queries token by token, [tokens, heads, size], and multiply a view of them head by head.
    x = made.values(launch.tokens, launch.batch, inward).transpose(0, 1)
    weights = made.weights(launch.batch, launch.rows, launch.columns, size=1 / sqrt(inward))
    right = [w if launch.turned else w.transpose(1, 2) for w in weights]
    outs = made.outputs(launch.batch, launch.tokens, outward)
    return Product(
        library=f"torch.bmm ({_blas(made.device)})",
        run=lambda i: torch.bmm(x, right[i], out=outs[i % len(outs)]),
        out=lambda i: outs[i % len(outs)],
        expected=lambda i: torch.bmm(x.float(), right[i].float()),
        sets=made.sets,
        tolerance=_PRODUCT,
    )


def _norm(made: _Made) -> Product:
    """By torch's own kernel."""
    size = (made.launch.columns,)
    return _norm_by(made, lambda x, w: functional.rms_norm(x, size, w, _NORM_EPSILON), "torch's rms_norm")


def _compiled_norm(made: _Made) -> Product:
    """By the kernel that torch.compile makes of the same words, as vLLM runs its norms."""
    if made.device.type != "cuda":
        raise Missing("compiled norms are timed on GPUs")
    return _norm_by(made, torch.compile(_rms_norm, dynamic=False), "torch.compile'd rms_norm")


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    values = x.float()
    scaled = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + _NORM_EPSILON)
    return scaled.to(x.dtype) * weight


def _norm_by(made: _Made, norm: Callable[[Tensor, Tensor], Tensor], title: str) -> Product:
    launch = made.launch
    x = made.values(launch.tokens, launch.columns)
    weights = made.weights(launch.columns, size=1.0)
    results = list(torch.empty(min(made.sets, RING), *x.shape, dtype=x.dtype, device=made.device))

    def run(i: int) -> None:
        results[i % len(results)] = norm(x, weights[i])

    return Product(
        library=f"{title}, without the residual that engines add in the same kernel",
        run=run,
        out=lambda i: results[i % len(results)],
        expected=lambda i: functional.rms_norm(x.float(), (launch.columns,), weights[i].float(), _NORM_EPSILON),
        sets=made.sets,
        tolerance=_ROUNDED,
    )


def _embedding(made: _Made) -> Product:
    launch = made.launch
    table = made.values(launch.rows, launch.columns)
    rows = torch.randint(launch.rows, (made.sets, launch.tokens), device=made.device, generator=made.generator)
    outs = made.outputs(launch.tokens, launch.columns)
    return Product(
        library="torch.index_select",
        run=lambda i: torch.index_select(table, 0, rows[i], out=outs[i % len(outs)]),
        out=lambda i: outs[i % len(outs)],
        expected=lambda i: table[rows[i]].float(),
        sets=made.sets,
        tolerance=_ROUNDED,
    )


def _argmax(made: _Made) -> Product:
    launch = made.launch
    logits = torch.randn(
        made.sets, launch.tokens, launch.columns, device=made.device, generator=made.generator, dtype=torch.float32
    )
    outs = torch.empty(min(made.sets, RING), launch.tokens, dtype=torch.int64, device=made.device)
    return Product(
        library="torch.argmax (greedy)",
        run=lambda i: torch.argmax(logits[i], dim=-1, out=outs[i % len(outs)]),
        out=lambda i: outs[i % len(outs)],
        expected=lambda i: logits[i].argmax(-1).float(),
        sets=made.sets,
        tolerance=1e-9,
    )


def _attention(made: _Made) -> Product:
    launch = made.launch
    sequences, (query, shared) = launch.batch, launch.heads
    q = made.values(sequences, query, launch.tokens, launch.columns)
    keys = made.weights(sequences, shared, launch.rows, launch.columns, size=1.0)
    values = made.weights(sequences, shared, launch.rows, launch.columns, size=1.0)
    results = list(torch.empty(min(made.sets, RING), *q.shape, dtype=q.dtype, device=made.device))

    def run(i: int) -> None:
        results[i % len(results)] = functional.scaled_dot_product_attention(
            q, keys[i], values[i], enable_gqa=query != shared
        )

    def expected(i: int) -> Tensor:
        k, v = (t[i].float().repeat_interleave(query // shared, 1) for t in (keys, values))
        return functional.scaled_dot_product_attention(q.float(), k, v)

    return Product(
        library="torch's scaled_dot_product_attention over a contiguous cache, where engines read pages",
        run=run,
        out=lambda i: results[i % len(results)],
        expected=expected,
        sets=made.sets,
        tolerance=_ROUNDED * 3,  # probabilities are rounded to bf16, and an average of many values is small
    )


def _nothing(made: _Made) -> Product:
    raise Missing(made.launch.reason or f"nothing runs {made.launch.product}")


def _exact(x: Tensor, weight: Tensor) -> Tensor:
    with exact_products():
        return x.float() @ weight.float().T


def _no_product(launch: Launch) -> str:
    if launch.weight_format == "fp8-block":
        return "products of FP8 in blocks are not timed: engines call DeepGEMM's"
    return f"torch has no product of {launch.weight_format} weights with bf16 activations"


def _blas(device: torch.device) -> str:
    return "cuBLAS" if device.type == "cuda" else "CPU"


_MAKERS: dict[str, tuple[Maker, ...]] = {
    "linear": (_linear,),
    "mlp": (_mlp,),
    "batched": (_batched,),
    "norm": (_norm, _compiled_norm),
    "embedding": (_embedding,),
    "argmax": (_argmax,),
    "attention": (_attention,),
}
"""Product -> libraries; the fastest that agrees stands in the record."""

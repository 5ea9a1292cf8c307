"""A layer of experts, prepared once and called for every step: kernel chosen, weights in its layout, nothing allocated.

    layer = FusedMoe(experts, tokens=16, top_k=8, device="cuda")
    layer(x, ids, weights, out)      # may be captured in a CUDA graph after one call
    FusedMoe(experts, ..., router=router, shared=shared)(x, logits=logits)    # the whole layer, one launch on Hopper
    print(layer.reason)

The kernel is the catalogue's for this problem on this GPU, or the one that `backend` names; "reference" is the oracle,
on any device. Nothing falls back to anything else. This module imports no torch.
"""

from typing import TYPE_CHECKING, Any, get_args

from sublight.errors import KernelError
from sublight.kernels.contract import TensorSpec, check, check_moe, require_tensor
from sublight.kernels.dispatch import dispatch
from sublight.kernels.problem import MoeProblem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.kernels.numerics.quantised import Quantised
    from sublight.kernels.reference import Experts, InputScales
    from sublight.kernels.routing import Router

_CALL = "a layer of experts"
_TYPES = {"bf16": "bfloat16", "fp16": "float16", "nvfp4": "bfloat16"}
_CHOICES = {
    "ids": TensorSpec("ids", ("tokens", "top_k"), ("int32",), (0, 1)),
    "weights": TensorSpec("weights", ("tokens", "top_k"), ("float32",), (0, 1)),
    "logits": TensorSpec("logits", ("tokens", "experts"), ("float32", "bfloat16"), (0, 1)),
}


class FusedMoe:
    """One layer on one device.

    Args:
        experts: their weights as the checkpoint has them. A kernel with a layout of its own makes its copy here, after
            which nothing holds on to these.
        tokens: the most of a call; fewer are taken as well.
        top_k: experts of a token.
        expert_ranks: ranks that the experts are dealt out to.
        device: where calls will come from; that of the weights where left out.
        backend: a kernel by name.
        router: how experts are chosen; calls then bring logits instead of experts and weights.
        correction_bias: [experts of all ranks], of that router.
        shared: one expert that every token goes to with weight 1, added to the rest.

    Attributes:
        problem: what is computed.
        reason: which kernel computes it, and why that one.

    Raises:
        KernelError: weights that do not fit together or whose global scales nothing can be multiplied by, a device
            that torch cannot use, tensors on a CPU without the reference named, or no kernel for this problem on this
            GPU, with the reason of every candidate.
        UnknownNameError: a backend that is no kernel.
    """

    def __init__(
        self,
        experts: "Experts",
        *,
        tokens: int,
        top_k: int,
        expert_ranks: int = 1,
        device: "torch.device | str | None" = None,
        backend: str | None = None,
        router: "Router | None" = None,
        correction_bias: "Tensor | None" = None,
        shared: "Experts | None" = None,
    ) -> None:
        from sublight.kernels.device import usable_device

        self.problem = problem_of(experts, tokens, top_k, expert_ranks, router, shared)
        _check_router(self.problem, router, correction_bias)
        for each in (experts, shared):
            if each is not None:
                _require_sound_scales(each)
        self.device = usable_device(_CALL, _codes(experts.w13).device if device is None else device)
        kernel = dispatch(_CALL, self.problem, self.device, backend)
        self.reason = kernel.reason
        fused: dict[str, Any] = {} if router is None else {"router": router, "correction_bias": correction_bias}
        fused |= {} if shared is None else {"shared": shared}
        self._run = kernel.run(self.problem, experts, self.device, kernel.configuration, **fused)

    def __call__(
        self,
        x: "Tensor",
        ids: "Tensor | None" = None,
        weights: "Tensor | None" = None,
        out: "Tensor | None" = None,
        *,
        logits: "Tensor | None" = None,
    ) -> "Tensor":
        """The weighted sum over each token's experts, [tokens, hidden] in the type of `x`; written to `out` if given.

        Args:
            x: [tokens, hidden].
            ids: int32 [tokens, top_k]; experts that are not held here, and negative numbers, are skipped.
            weights: fp32 [tokens, top_k].
            logits: fp32 or bf16 [tokens, experts of all ranks], instead of both where the layer has a router.

        Raises:
            KernelError: a tensor that does not fit; it and its dimension are named.
        """
        import torch

        kind = (_TYPES[self.problem.activation_format],)
        routed = self.problem.routing != "given"
        choice = {"logits": logits} if routed else {"ids": ids, "weights": weights}
        for name, value in (("ids", ids), ("weights", weights), ("logits", logits)):
            if value is not None and name not in choice:
                found = "the layer's router chooses experts" if routed else "the layer has no router"
                raise KernelError(f"{_CALL}: {name}", found, " and ".join(choice))
        sizes = check(
            _CALL,
            [
                TensorSpec("x", ("tokens", "hidden_size"), kind, (0, 1)),
                *(_CHOICES[name] for name in choice),
                TensorSpec("out", ("tokens", "hidden_size"), kind, (0, 1), optional=True),
            ],
            {"x": x, "out": out} | choice,
            {
                "hidden_size": self.problem.hidden_size,
                "top_k": self.problem.top_k,
                "experts": self.problem.num_experts * self.problem.expert_ranks,
            },
        )
        if sizes["tokens"] > self.problem.tokens:
            found = f"it is {sizes['tokens']}, and the layer was prepared for {self.problem.tokens}"
            raise KernelError(f"{_CALL}: dimension 0 (tokens) of x", found, f"FusedMoe(tokens={sizes['tokens']})")
        if x.device != self.device:
            raise KernelError(f"{_CALL}: x", f"it is on {x.device}, and the layer on {self.device}", "one device")
        out = torch.empty_like(x) if out is None else out
        if sizes["tokens"]:
            self._run(x, logits if routed else ids, weights, out)
        return out


def problem_of(
    experts: "Experts",
    tokens: int,
    top_k: int,
    expert_ranks: int = 1,
    router: "Router | None" = None,
    shared: "Experts | None" = None,
) -> MoeProblem:
    """What a layer with these weights computes. Raises KernelError where they do not fit together."""
    from sublight.kernels.numerics.quantised import Quantised

    _check_experts(experts)
    count, hidden, width = experts.w2.shape
    above = experts.w13.global_scale if isinstance(experts.w13, Quantised) else None
    scale = "none" if above is None else "projection" if above.stored.shape[-1] == 2 else "expert"
    problem = MoeProblem(
        tokens=tokens,
        hidden_size=hidden,
        intermediate_size=width,
        num_experts=count,
        top_k=top_k,
        expert_ranks=expert_ranks,
        weight_format=_format(experts.w13),  # type: ignore[arg-type]  # checked on construction
        activation_format="bf16" if experts.input_scales is None else "nvfp4",
        activation=experts.activation,
        global_scale=scale,  # type: ignore[arg-type]
        expert_bias=experts.bias13 is not None or experts.bias2 is not None,
        routing="given" if router is None else router.scoring,
        shared_width=0 if shared is None else _shared_width(shared, experts),
        shared_format="nvfp4" if shared is None else _format(shared.w2),  # type: ignore[arg-type]
    )
    if experts.first + count > count * expert_ranks:
        found = f"experts {experts.first} to {experts.first + count - 1} of {count * expert_ranks} over all ranks"
        raise KernelError(f"{_CALL}: first", found, f"expert_ranks, or a first of at most {count * (expert_ranks - 1)}")
    if _format(experts.w2) != problem.weight_format:
        found = f"w13 is {problem.weight_format} and w2 {_format(experts.w2)}"
        raise KernelError(_CALL, found, "one format for both")
    tensors: dict[str, Tensor | None] = {"w13_bias": experts.bias13, "w2_bias": experts.bias2}
    for name, matrix in (("w13", experts.w13), ("w2", experts.w2)):
        tensors[name] = _codes(matrix)
        if isinstance(matrix, Quantised):
            tensors[f"{name}_scale"] = matrix.scales
            tensors[f"{name}_global"] = matrix.global_scale.stored if matrix.global_scale else None
    check_moe(_CALL, problem, tensors, weights_only=True)
    if experts.input_scales is not None:
        _check_input_scales(experts.input_scales, count)
    return problem


def _shared_width(shared: "Experts", experts: "Experts") -> int:
    """Of a shared expert that goes with these. Raises KernelError."""
    alone = problem_of(shared, 1, 1)
    for name, has, wanted in (
        ("number", alone.num_experts, 1),
        ("hidden size", alone.hidden_size, experts.w2.shape[1]),
        ("activation", alone.activation, experts.activation),
    ):
        if has != wanted:
            raise KernelError(f"{_CALL}: {name} of the shared expert", f"it is {has}", str(wanted))
    return alone.intermediate_size


def _check_router(problem: MoeProblem, router: Any, correction_bias: "Tensor | None") -> None:
    """Raises KernelError for a router that is none, or that chooses another number of experts."""
    if router is None:
        if correction_bias is not None:
            raise KernelError(f"{_CALL}: correction_bias", "the layer has no router", "FusedMoe(router=...) as well")
        return
    if router.top_k != problem.top_k:
        found = f"its router chooses {router.top_k}"
        raise KernelError(f"{_CALL} with a top_k of {problem.top_k}", found, f"top_k={router.top_k}")
    spec = TensorSpec("correction_bias", ("experts",), ("float32", "bfloat16"), (0,), optional=True)
    sizes = {"experts": problem.num_experts * problem.expert_ranks}
    check(_CALL, [spec], {"correction_bias": correction_bias}, sizes)


def _check_experts(experts: Any) -> None:
    """What sizes are read from before the contract sees them. Raises KernelError."""
    from sublight.kernels.numerics.gate_up import Order
    from sublight.kernels.numerics.quantised import Quantised
    from sublight.kernels.reference import Experts

    if not isinstance(experts, Experts):
        raise KernelError(f"{_CALL}: experts", f"they are of type {type(experts).__name__}", "Experts(w13, w2)")
    for name, matrix in (("w13", experts.w13), ("w2", experts.w2)):
        hint = "a stack of matrices, plain or Quantised: [experts, rows, columns]"
        if not isinstance(matrix, Quantised):
            require_tensor(_CALL, name, matrix, hint)
        if len(matrix.shape) != 3:
            raise KernelError(f"{_CALL}: {name}", f"its shape is {list(matrix.shape)}", hint)
        above = matrix.global_scale if isinstance(matrix, Quantised) else None
        if above is not None and above.stored.dim() != 2:
            found = f"its shape is {list(above.stored.shape)}"
            raise KernelError(f"{_CALL}: {name}_global", found, "[experts, parts], such as one of [experts, 1]")
    if experts.order not in get_args(Order):
        raise KernelError(f"{_CALL}: order", f"{experts.order!r} is not known", "one of " + ", ".join(get_args(Order)))
    first: Any = experts.first
    if not isinstance(first, int) or first < 0:
        raise KernelError(f"{_CALL}: first", f"it is {first!r}", "the number of the rank's first expert")


def _check_input_scales(scales: "InputScales", experts: int) -> None:
    """Raises KernelError for what no activation can be quantised under."""
    from sublight.kernels.numerics.scales import require_sound

    given = {"first": scales.first, "second": scales.second}
    check(_CALL, [TensorSpec(n, ("num_experts",), ("float32",), (0,)) for n in given], given, {"num_experts": experts})
    for name, tensor in given.items():
        require_sound(f"{_CALL}: the {name} input scale", tensor)


def _require_sound_scales(experts: "Experts") -> None:
    """Zero makes the whole layer zero, and infinity and NaN make it NaN, without a word. Raises KernelError."""
    from sublight.kernels.numerics.quantised import Quantised
    from sublight.kernels.numerics.scales import require_sound

    for name, matrix in (("w13", experts.w13), ("w2", experts.w2)):
        if not isinstance(matrix, Quantised) or matrix.global_scale is None:
            continue
        stored = matrix.global_scale.stored
        if stored.is_meta:
            raise KernelError(f"{_CALL}: {name}", "it is on meta, where nothing has values", "weights on a real device")
        parts = stored.shape[-1]
        for part in range(parts):
            whose = name if parts == 1 else f"part {part + 1} of {parts} of {name}"
            hint = "amax / 2688 of the matrix, or 2688 / amax as a divisor"
            require_sound(f"{_CALL}: the global scale of {whose}", stored[:, part], hint)


def _format(matrix: "Quantised | Tensor") -> str:
    """The name of its block format; "bf16" for a plain matrix, whose type the contract then checks."""
    form = getattr(matrix, "format", None)
    return "bf16" if form is None else str(form.name)


def _codes(matrix: "Quantised | Tensor") -> "Tensor":
    codes: Tensor | None = getattr(matrix, "codes", None)
    return matrix if codes is None else codes  # type: ignore[return-value]  # what has no codes is a tensor

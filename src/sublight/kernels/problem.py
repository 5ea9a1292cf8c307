"""Problems: what a kernel is asked to compute, in named dimensions, and nothing of how.

`MoeProblem` is one layer of experts as one GPU runs it, `GroupedGemmProblem` one product of such a layer. Contracts of
tensors, the choice of a kernel and the key of a compiled one all read their sizes here.
"""

from typing import Any, ClassVar, Literal, Protocol, get_args

import msgspec

from sublight.errors import KernelError
from sublight.facts.formats import get_format
from sublight.facts.model import Model
from sublight.facts.tensors import Tensor
from sublight.facts.workload import Layout
from sublight.limits.sharding import copies_on_rank, ways
from sublight.units import counted

WeightFormat = Literal["nvfp4", "mxfp4", "fp8-block", "bf16"]
ActivationFormat = Literal["bf16", "fp16", "nvfp4", "fp8-block"]
Activation = Literal["swiglu", "swiglu-oai", "geglu", "relu2"]
RoutingKind = Literal["given", "softmax", "sigmoid"]
GlobalScale = Literal["none", "expert", "projection"]


class Problem(Protocol):
    """What choosing a kernel needs to know: the operation, its sizes, and everything that is no size."""

    op: ClassVar[str]

    def dimensions(self) -> dict[str, int]: ...

    def traits(self) -> dict[str, str]: ...


_CHOICES = {
    "weight_format": get_args(WeightFormat),
    "activation_format": get_args(ActivationFormat),
    "activation": get_args(Activation),
    "routing": get_args(RoutingKind),
    "global_scale": get_args(GlobalScale),
}
_SIZES = ("tokens", "hidden_size", "intermediate_size", "num_experts", "top_k", "expert_ranks")
_LARGEST = 2**31 - 1  # kernels index with 32 bits


class MoeProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One MoE layer on one rank.

    Attributes:
        tokens: rows of the layer's input.
        hidden_size: channels of the layer's input and output.
        intermediate_size: channels of one expert on this rank, after tensor parallelism.
        num_experts: experts that this rank holds.
        top_k: experts a token is sent to, over all ranks.
        expert_ranks: ranks that the experts are dealt out to; pairs of experts held elsewhere are skipped.
        weight_format: how the experts are stored.
        activation_format: what both products read their activations as. "bf16" beside "nvfp4" weights is W4A16.
        activation: between the two products. "swiglu": silu(gate) * up; "swiglu-oai": the clamped form of gpt-oss;
            "geglu": gelu(gate) * up in the tanh form; "relu2": relu(up) squared, without a gate.
        routing: "given" means that expert numbers and weights come in; otherwise router logits do.
        global_scale: scales above the blocks: none; one an expert and matrix; or one a projection, where gate and up
            differ.
        expert_bias: a bias vector follows each product.
        shared_width: channels, on this rank, of an expert that every token goes to with weight 1; 0 where there is none
            or where it is computed elsewhere.
        shared_format: how that one is stored.

    Raises:
        KernelError: a dimension that is out of range or does not fit another; it is named.
    """

    op: ClassVar[str] = "fused_moe"

    tokens: int
    hidden_size: int
    intermediate_size: int
    num_experts: int
    top_k: int
    expert_ranks: int = 1
    weight_format: WeightFormat = "nvfp4"
    activation_format: ActivationFormat = "bf16"
    activation: Activation = "swiglu"
    routing: RoutingKind = "given"
    global_scale: GlobalScale = "expert"
    expert_bias: bool = False
    shared_width: int = 0
    shared_format: WeightFormat = "nvfp4"

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            least = 0 if name == "tokens" else 1
            if not _is_size(value, least):
                raise _wrong(name, f"it is {value!r}", f"a {name} from {least} to {_LARGEST:,}")
        if not _is_size(self.shared_width, 0):
            raise _wrong("shared_width", f"it is {self.shared_width!r}", f"a width from 0 to {_LARGEST:,}")
        for name, known in (*_CHOICES.items(), ("shared_format", _CHOICES["weight_format"])):
            if getattr(self, name) not in known:
                raise _wrong(name, f"{getattr(self, name)!r} is not known", "one of " + ", ".join(known))
        if self.top_k > self.num_experts * self.expert_ranks:
            everyone = self.num_experts * self.expert_ranks
            raise _wrong("top_k", f"{self.top_k} of {everyone} experts", f"a top_k of at most {everyone}")
        self._check_blocks()
        if self.weight_format != "nvfp4" and self.global_scale != "none":
            raise _wrong("global_scale", f"{self.weight_format} has none", "global_scale 'none'")
        if self.activation_format == "nvfp4" and self.weight_format != "nvfp4":
            raise _wrong("activation_format", f"nvfp4 beside {self.weight_format} weights", "bf16 activations")
        if self.global_scale == "projection" and not self.is_gated:
            raise _wrong("global_scale", f"{self.activation} has one projection only", "global_scale 'expert'")

    def _check_blocks(self) -> None:
        block = get_format(self.weight_format).block
        for name in ("hidden_size", "intermediate_size"):
            value = getattr(self, name)
            if block and value % block:
                found = f"{value} cuts through a group of {block} values that share a scale ({value / block:g} groups)"
                raise _wrong(name, found, f"a multiple of {block}: fewer tensor-parallel ranks, or whole experts")

    @property
    def is_gated(self) -> bool:
        return self.activation != "relu2"

    @property
    def up_rows(self) -> int:
        """Rows of the first matrix: gate and up, or up alone."""
        return self.intermediate_size * (2 if self.is_gated else 1)

    @property
    def pairs(self) -> int:
        """(token, expert) pairs over all ranks."""
        return self.tokens * self.top_k

    def dimensions(self) -> dict[str, int]:
        """Every size by its name, as contracts bind them."""
        shared = {"shared_width": self.shared_width} if self.shared_width else {}
        return {name: getattr(self, name) for name in _SIZES} | {"up_rows": self.up_rows} | shared

    def traits(self) -> dict[str, str]:
        """Everything that is no size. A kernel that knows nothing of shared experts need not name them."""
        shared = {"shared_expert": self.shared_format} if self.shared_width else {}
        return {name: getattr(self, name) for name in _CHOICES} | {"expert_bias": _yes(self.expert_bias)} | shared

    def __str__(self) -> str:
        share = f" of {self.num_experts * self.expert_ranks}" if self.expert_ranks > 1 else ""
        return (
            f"{counted(self.tokens, 'token')}, top {self.top_k} of {self.num_experts}{share} experts, "
            f"{self.hidden_size} -> {self.intermediate_size} {self.activation}, "
            f"{self.weight_format} weights, {self.activation_format} activations"
            + ("" if self.routing == "given" else f", {self.routing} routing")
            + (f", a shared expert of {self.shared_width} in {self.shared_format}" if self.shared_width else "")
        )

    @classmethod
    def of(
        cls, model: Model, layout: Layout, tokens: int, activation_format: ActivationFormat = "bf16"
    ) -> "MoeProblem":
        """The routed experts of a model's layers on one rank, expert numbers and weights given.

        Raises:
            KernelError: no routed experts, several formats among them, a family whose activation is not known here, or
                a cut that leaves a rank with part of a group.
        """
        asked = f"the expert layer of {model.name} under {layout}"
        moe = model.moe
        if moe is None:
            raise KernelError(asked, "the model is dense", "a mixture-of-experts model")
        matrices = [t for t in model.main if t.part == "experts" and len(t.shape) == 2]
        down = [t for t in matrices if t.cut is not None and t.cut.axis == 1]
        weights = _format_of(asked, matrices)
        if weights == "nvfp4-w4a16" and activation_format == "nvfp4":
            raise KernelError(
                asked, "the checkpoint is weight-only: it has no activation scales", "activation_format 'bf16'"
            )
        weights = "nvfp4" if weights == "nvfp4-w4a16" else weights
        ranks = ways(down[0], layout)
        if moe.width % ranks:
            found = f"intermediate_size {moe.width} does not divide over {ranks} ranks"
            raise KernelError(asked, found, "a tensor-parallel degree that divides it, or whole experts (--ep)")
        return cls(
            tokens=tokens,
            hidden_size=down[0].shape[0],
            intermediate_size=moe.width // ranks,
            num_experts=copies_on_rank(down[0], layout),
            top_k=moe.top_k,
            expert_ranks=layout.ep,
            weight_format=weights,  # type: ignore[arg-type]  # checked on construction
            activation_format=activation_format,
            activation=_activation(asked, model),
            global_scale="expert" if weights == "nvfp4" else "none",
            expert_bias=any(t.part == "experts" and len(t.shape) == 1 for t in model.main),
        )


class GroupedGemmProblem(msgspec.Struct, frozen=True, kw_only=True):
    """`num_groups` products of [m, k] and [n, k] transposed, of which each has its own number of valid rows.

    Attributes:
        m: rows that each group has room for.
        operands: format of both operands, such as "nvfp4".
        out_dtype: torch's name of the result's type.
        signals: whether finished groups are announced while the kernel still runs.
        sm_limit: whether it may use only some of the SMs.

    Raises:
        KernelError: a dimension that is out of range.
    """

    op: ClassVar[str] = "grouped_gemm_nt_masked"

    m: int
    n: int
    k: int
    num_groups: int
    operands: str
    out_dtype: str
    signals: bool = False
    sm_limit: bool = False

    def __post_init__(self) -> None:
        _check_sizes("a grouped product", self.dimensions())

    def dimensions(self) -> dict[str, int]:
        return {"m": self.m, "n": self.n, "k": self.k, "num_groups": self.num_groups}

    def traits(self) -> dict[str, str]:
        choices = {"signals": _yes(self.signals), "sm_limit": _yes(self.sm_limit)}
        return {"operands": self.operands, "out_dtype": self.out_dtype} | choices

    def __str__(self) -> str:
        sizes = f"{self.num_groups} products [{self.m}, {self.k}] x [{self.n}, {self.k}]"
        return f"{sizes} of {self.operands} to {self.out_dtype}"


class GroupedQuantiseProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Activations of `num_groups` experts to NVFP4 as the masked GEMM reads them, each group under its own scale.

    Attributes:
        m: rows that each group has room for.
        k: channels of the result.
        in_dtype: torch's name of the input's type.
        silu: the input has gate and up, and silu(gate) * up is quantised.

    Raises:
        KernelError: a dimension that is out of range.
    """

    op: ClassVar[str] = "grouped_quantise"

    m: int
    k: int
    num_groups: int
    in_dtype: str
    silu: bool

    def __post_init__(self) -> None:
        _check_sizes("a grouped quantisation", self.dimensions())

    def dimensions(self) -> dict[str, int]:
        return {"m": self.m, "k": self.k, "num_groups": self.num_groups}

    def traits(self) -> dict[str, str]:
        return {"in_dtype": self.in_dtype, "silu": _yes(self.silu)}

    def __str__(self) -> str:
        what = "silu(gate) * up" if self.silu else "activations"
        return f"{what} of {self.num_groups} x [{self.m}, {self.k}] in {self.in_dtype}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _is_size(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def _check_sizes(what: str, sizes: dict[str, int]) -> None:
    for name, value in sizes.items():
        if not _is_size(value, 1):
            raise KernelError(f"{what} with this {name}", f"it is {value!r}", f"1 to {_LARGEST:,}")


def _wrong(dimension: str, found: str, hint: str) -> KernelError:
    return KernelError(f"an expert layer with this {dimension}", found, hint)


def _format_of(asked: str, matrices: list[Tensor]) -> str:
    formats = sorted({t.format.name for t in matrices})
    if len(formats) != 1:
        raise KernelError(
            asked, f"its experts are stored in {', '.join(formats) or 'no matrices'}", "a MoeProblem for each of them"
        )
    return formats[0]


# What the families' published code multiplies between the two products. A configuration's `hidden_act` says "silu" for
# gpt-oss as well, whose code clamps and adds one, so the family decides.
_ACTIVATIONS: dict[str, Activation] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa"), "swiglu"),
    **dict.fromkeys(("glm4_moe", "glm4_moe_lite", "mixtral", "minimax_m2", "qwen3_moe", "qwen3_next"), "swiglu"),
    **dict.fromkeys(("qwen3_vl_moe_text", "qwen3_5_moe_text"), "swiglu"),
    "gpt_oss": "swiglu-oai",
    "gemma4_text": "geglu",
    "nemotron_h": "relu2",
}


def _activation(asked: str, model: Model) -> Activation:
    try:
        return _ACTIVATIONS[model.model_type]
    except KeyError:
        found = f"the activation of family {model.model_type!r} is not known here"
        raise KernelError(asked, found, "MoeProblem(...) with the activation named") from None

"""Target: what the ladder is asked for. A backend works or fails for a checkpoint, a card and a layout, not as such."""

import msgspec

from sublight.facts.gpu import Gpu
from sublight.facts.model import Model
from sublight.facts.workload import Layout

NO_EXPERTS = "the model has no experts"  # why no backend for them is judged


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The routed experts as one rank holds them; `width` is the hidden channels of one expert on that rank."""

    hidden: int
    width: int
    experts: int
    top_k: int


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The question.

    Attributes:
        model: name of the checkpoint.
        model_type: as its configuration says ("glm_moe_dsa").
        architecture: `architectures[0]` of the configuration, "" where it has none; engines choose by it.
        method: how the checkpoint was quantised: "modelopt", "compressed-tensors", "fp8", "mxfp4", "awq", "none", ...
        expert_format: format of the routed experts' weights ("NVFP4", "MXFP4", "FP8 block", "BF16", ...).
        activation_format: what the checkpoint asks activations of the experts to be: a format name, "BF16" for
            weight-only quantisation, "" where the checkpoint does not say.
        activation: of the experts, as the configuration names it: "silu", "relu2", ...; engines may call it otherwise.
        swiglu_limit: where the configuration clamps the activation's inputs, None where it does not.
        shape: the experts on one rank, None for a dense model.
        heads: of a model's attention, for queries, over all ranks; None where the configuration does not say.
        gpu: name of the card to judge for.
        compute_capability: (12, 0) is sm_120, exactly.
        gpus: how many cards serve the model.
        layout: how it is cut.
        a2a: the engine's all-to-all backend for experts; "none" is plain tensor parallelism.
        speculative: whether drafting layers run, which engines choose kernels by.
    """

    model: str
    model_type: str
    architecture: str
    method: str
    expert_format: str
    activation_format: str
    activation: str = "silu"
    swiglu_limit: float | None = None
    shape: Shape | None
    gpu: str
    compute_capability: tuple[int, int]
    gpus: int = 1
    layout: Layout = Layout()
    a2a: str = "none"
    speculative: bool = False
    heads: int | None = None

    @property
    def rank_heads(self) -> int | None:
        """Query heads that one rank attends with."""
        return None if self.heads is None else -(-self.heads // self.layout.attention_tp)

    @property
    def sm(self) -> str:
        """The exact architecture: "sm_120"."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"


def capability(gpu: Gpu) -> tuple[int, int] | None:
    """(major, minor) of a card of NVIDIA's; None for others, whose targets are not numbers of this kind."""
    if not gpu.target.startswith("sm_"):
        return None
    digits = gpu.target.removeprefix("sm_")
    return int(digits[:-1]), int(digits[-1])


def rank_shape(model: Model, layout: Layout) -> Shape | None:
    """The experts of the busiest rank: all of a rank's share of experts, each cut over the ranks that share one."""
    if model.moe is None:
        return None
    return Shape(
        hidden=model.hidden,
        width=-(-model.moe.width // layout.expert_tp),
        experts=-(-model.moe.experts // layout.ep),
        top_k=model.moe.top_k,
    )

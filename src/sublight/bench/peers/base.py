"""What the benchmark needs to know of a candidate."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sublight.errors import BenchError
from sublight.kernels.problem import MoeProblem

if TYPE_CHECKING:
    import torch

    from sublight.bench.judge import Layer
    from sublight.kernels.reference import Experts

Kind = Literal["kernel", "peer", "reference"]
PEER_TOLERANCE = 1.5e-2
"""On the relative error of other projects' kernels: Marlin rounds the global scale to bf16 and adds parts of a sum with
bf16 atomics, 6e-3 to 1.1e-2 against an fp32 oracle; each rounding of what lies between the products adds 2e-3."""


@dataclass(frozen=True)
class Candidate:
    """A way to compute a layer of experts.

    Attributes:
        name: in records and on the command line.
        kind: ours, another project's, or the oracle.
        title: what runs, for a reader.
        refuses: (problem, device) -> why it cannot run there, or "".
        prepare: (problem of the most tokens, experts, device) -> what is called; weights are brought into its layout.
        tolerance: on the relative error; None is that of the weights' format.
        weight_format: that its bytes are counted in, where it is not the problem's.
        token_limit: the most tokens it takes; None for any number.
        ran: what stands in the record: projects and versions, asked once its weights are prepared. None: the title.
    """

    name: str
    kind: Kind
    title: str
    refuses: "Callable[[MoeProblem, torch.device], str]"
    prepare: "Callable[[MoeProblem, Experts, torch.device], Layer]"
    tolerance: float | None = None
    weight_format: str | None = None
    token_limit: int | None = None
    ran: "Callable[[], str] | None" = None

    @property
    def words(self) -> str:
        """What runs, for a record."""
        return self.title if self.ran is None else self.ran()


def missing(package: str, project: str) -> str:
    """Why a package cannot be used, or "". Nothing is imported."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    return "" if found is not None else f"{project} is not installed here"


def needs_nvfp4_swiglu(problem: MoeProblem, device: "torch.device") -> str:
    """What every weight-only FP4 kernel of an engine asks for."""
    if device.type != "cuda":
        return "it runs on CUDA GPUs"
    if problem.weight_format != "nvfp4" or problem.activation_format != "bf16":
        return f"its adapter is for NVFP4 weights and bf16 activations, these are {problem.weight_format}"
    if problem.activation != "swiglu":
        return f"its adapter is for SwiGLU, this is {problem.activation}"
    if problem.expert_ranks > 1:
        return "its adapter takes no experts of other ranks"
    return ""


def load_failed(project: str, error: Exception) -> BenchError:
    """Importing or preparing another project's code went wrong; its first line is the reason."""
    lines = str(error).strip().splitlines()
    found = f"{type(error).__name__}: {lines[0][:200] if lines else 'no message'}"
    return BenchError(f"preparing {project}", found, "another version of it, or --peers without it")

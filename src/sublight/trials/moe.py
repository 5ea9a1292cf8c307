"""Trials of backends for routed experts: the benchmark's adapter of a kernel, at the target's shape on one rank."""

from dataclasses import dataclass

import msgspec

from sublight.audit.engines.base import Route
from sublight.audit.ladder import Proof, Rung, Step, unknown
from sublight.audit.scene import Scene
from sublight.audit.target import Target
from sublight.errors import KernelError
from sublight.kernels.problem import Activation, ActivationFormat, MoeProblem, WeightFormat
from sublight.trials.answers import steps
from sublight.trials.attempt import attempt
from sublight.trials.cards import choose
from sublight.trials.job import Job, Outcome

TOKENS = (1, 2, 3, 8, 17, 64)
"""Compared at: powers of two and what lies beyond them, where kernels take another tile or pad."""
TIMED = (1, 8)
_FORMATS: dict[str, WeightFormat] = {"NVFP4": "nvfp4", "MXFP4": "mxfp4", "FP8 block": "fp8-block", "BF16": "bf16"}
_ACTIVATIONS: dict[str, Activation] = {"silu": "swiglu", "relu2": "relu2"}


@dataclass(frozen=True)
class MoeTrial:
    """One adapter.

    Attributes:
        candidate: its name in the benchmark.
        ends: last parts of the destinations it calls: a name that leads elsewhere is not tried with it.
        activations: what the kernel reads its activations as, whatever the checkpoint asks for.
        agreed_with: the version in whose hands it was seen to agree on a GPU, and the card; "" where it never was.
        stands_for: how the call differs from the engine's own, "" where it is the same.
    """

    candidate: str
    ends: tuple[str, ...]
    activations: ActivationFormat = "bf16"
    agreed_with: str = ""
    stands_for: str = ""

    def fits(self, route: Route) -> bool:
        """Whether the way ends at the kernel that is called here."""
        return route.destination.rpartition(".")[2] in self.ends

    def steps(self, scene: Scene, route: Route) -> tuple[Step, Step, Step]:
        assert scene.trying is not None
        try:
            problem, load = problem_of(scene.target, self.activations)
        except KernelError as error:
            return _not_tried(f"{error.asked}: {error.found}")
        chosen = choose(scene.target.gpu)
        job = Job(
            candidate=self.candidate,
            problem=problem,
            tokens=TOKENS,
            timed=() if chosen.busy else TIMED,
            gpu=scene.target.gpu,
        )
        outcome = once(job, scene.trying.python, scene.trying.limit_s, tuple(chosen.environment.items()))
        ran = outcome.executed.ran if outcome.executed is not None else ""
        proof = Proof("trial", _where(scene, outcome), self._said(route, problem, load, ran))
        return steps(outcome, scene.target.gpu, proof, chosen.busy, confirmed=bool(self.agreed_with))

    def _said(self, route: Route, problem: MoeProblem, load: str, ran: str) -> str:
        called = f"{route.destination} through Sublight's adapter {self.candidate}"
        words = "; ".join(part for part in (ran, self.stands_for) if part)
        layer = str(problem).partition(", ")[2]
        return f"{called}{f' ({words})' if words else ''}: {layer}; random weights and routing, seed 0" + (
            f"; {load}" if load else ""
        )


def problem_of(target: Target, activations: ActivationFormat) -> tuple[MoeProblem, str]:
    """The layer that one rank runs, and what was assumed of its load, in words.

    Raises:
        KernelError: no routed experts, or a format or activation that no oracle here computes.
    """
    asked = f"a layer of {target.model}'s experts"
    shape = target.shape
    if shape is None:
        raise KernelError(asked, "the model is dense", "a mixture-of-experts model")
    weights = _FORMATS.get(target.expert_format)
    if weights is None:
        raise KernelError(asked, f"no small call is made in {target.expert_format}", "another checkpoint")
    activation = _ACTIVATIONS.get(target.activation) if target.swiglu_limit is None else None
    if activation is None:
        clamp = "" if target.swiglu_limit is None else f", clamped at {target.swiglu_limit:g}"
        raise KernelError(asked, f"no small call is made with {target.activation}{clamp}", "another model")
    problem = MoeProblem(
        tokens=max(TOKENS),
        hidden_size=shape.hidden,
        intermediate_size=shape.width,
        num_experts=shape.experts,
        top_k=shape.top_k,
        expert_ranks=target.layout.ep,
        weight_format=weights,
        activation_format=activations,
        activation=activation,
        global_scale="expert" if weights == "nvfp4" else "none",
    )
    ranks = problem.expert_ranks
    if ranks == 1 or problem.top_k % ranks:
        return problem, ""
    mean = problem.top_k // ranks
    return msgspec.structs.replace(problem, top_k=mean, expert_ranks=1), f"at the mean load of a rank, top {mean}"


_OUTCOMES: dict[tuple[Job, str, float, tuple[tuple[str, str], ...]], Outcome] = {}


def once(job: Job, python: str, limit_s: float, variables: tuple[tuple[str, str], ...]) -> Outcome:
    """Several names of an engine may lead to one kernel; it is tried once in a run. Nothing is kept beyond that."""
    key = (job, python, limit_s, variables)
    if key not in _OUTCOMES:
        _OUTCOMES[key] = attempt(job, python, limit_s, dict(variables))
    return _OUTCOMES[key]


def _where(scene: Scene, outcome: Outcome) -> str:
    """Versions and card, as far as the process came to tell them."""
    engine = str(scene.distribution) if scene.distribution is not None else scene.package
    seen = outcome.environment
    if seen is None:
        return engine
    parts = (engine, f"torch {seen.torch}", f"driver {seen.driver}" if seen.driver else "", seen.title)
    return ", ".join(part for part in parts if part)


def _not_tried(why: str) -> tuple[Step, Step, Step]:
    said = f"not tried: {why}"
    return unknown(Rung.EXECUTED, said), unknown(Rung.CORRECT, said), unknown(Rung.FAST, said)


# Each of these agreed with the oracle, eager and in a graph, at numbers of tokens from 1 to 1024 of GLM-5's shards and
# Qwen3-30B-A3B's layer: docs/measured/2026-11-30-h200-kernels-*.json. Their adapters take NVFP4 with SwiGLU only.
SGLANG_MARLIN = MoeTrial(
    candidate="sglang-marlin",
    ends=("moe_wna16_marlin_gemm", "fused_marlin_moe"),
    agreed_with="SGLang 0.5.23 on an H200",
)
VLLM_MARLIN = MoeTrial(candidate="vllm-marlin", ends=("MarlinExperts",), agreed_with="vLLM 0.20.2 on an H200")
VLLM_HUMMING = MoeTrial(
    candidate="humming",
    ends=("HummingIndexedExperts",),
    agreed_with="humming-kernels 0.1.20 with the small kernels of vLLM 0.20.2 on an H200",
    stands_for="humming's two products with vLLM's align, silu and weighted sum, as that class puts them together",
)

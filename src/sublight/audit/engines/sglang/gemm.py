"""Routes of the FP4 products outside the experts: from `--fp4-gemm-backend` to the product that runs."""

from sublight.audit.engines.base import Gate, Route
from sublight.audit.engines.sglang import checkpoint, kernels, matching, story
from sublight.audit.engines.sglang.arguments import launch
from sublight.audit.engines.sglang.layers import LayerWalk, Lost
from sublight.audit.ladder import Answer
from sublight.audit.source.events import Event
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Class, Instance, Unknown
from sublight.audit.target import Target

OPTIONS = frozenset(("fp4_gemm_runner_backend", "fp4_gemm_backend"))
_INITIALISERS = ("sglang.srt.layers.quantization.fp4_utils.initialize_fp4_gemm_config",)
_LAYERS = ("sglang.srt.layers.linear.ReplicatedLinear",)
PREFIX = "model.layers.0.self_attn.o_proj"


class ProductWalk(LayerWalk):
    """From the settled arguments to the call of a quantised linear layer."""

    def _steps(self) -> None:
        self._initialise(_INITIALISERS)
        quantization = self._quantization()
        cls = self._find(_LAYERS, (Class,))
        if not isinstance(cls, Class):
            raise self._lost(_LAYERS, "the class of linear layers is not where it was in other versions")
        hidden = self.target.shape.hidden if self.target.shape else 4096
        asked = {"input_size": hidden, "output_size": hidden, "bias": False, "quant_config": quantization,
                 "prefix": PREFIX}  # fmt: skip
        layer = self._step("a linear layer is built", self.walk.run(cls, [], asked))
        if not isinstance(layer, Instance):
            raise Lost("the linear layer is not an object that can be followed")
        self._weights(layer)
        self._step(self.CALLED, self.walk.call_method(layer, "forward", [Unknown("activations", solid=True)]))


def route(sources: Sources, name: str, target: Target) -> Route:
    """Where asking for a backend of FP4 products leads."""
    if checkpoint.quantization(target) is None or "FP4" not in target.expert_format.upper():
        return Route(answer=Answer.FAIL, why=f"no product of this checkpoint is FP4: it is {target.expert_format}",
                     hint="an NVFP4 checkpoint of the model")  # fmt: skip
    begun = launch(sources, target, OPTIONS)
    settled = begun.settle(dict.fromkeys(OPTIONS, name))
    if settled.reason:
        return Route(answer=Answer.NOT_KNOWN, why=f"the arguments could not be followed: {settled.reason}")
    if settled.refused is not None:
        return story.refused(settled.refused, "the arguments are checked")
    way = ProductWalk(begun.walk, target, settled.values).follow()
    last = way.last
    if way.reason or last is None:
        return Route(answer=Answer.NOT_KNOWN, why=way.reason or "nothing could be walked")
    if last.outcome.refusal is not None:
        return story.refused(last.outcome, last.name)
    working = kernels.working(last.outcome.events)
    if not working:
        return Route(answer=Answer.NOT_KNOWN, why="the layer's call was followed and no product was seen in it")
    events = [event for stage in way.stages for event in stage.outcome.events]
    chosen = next((event for event in working if matching.alike(name, event)), working[0])
    fits = name == "auto" or matching.alike(name, chosen)
    said = ", ".join(f'{key}="{value}"' for key, value in (chosen.value or {}).items())
    call = f"{chosen.name}({said})" if said else chosen.name
    return Route(
        answer=Answer.PASS if fits else Answer.FAIL,
        why=f"{call} runs" if fits else f"accepted, but {call} runs",
        destination=chosen.name,
        proofs=(story.proof(chosen),),
        needs=story.needs(events, story.used_packages(last.outcome.events)),
        gates=(*story.gates(events), *_of_the_backend(sources, chosen, target)),
        hint="" if fits else "another name: this one does not lead to a product of its own here",
    )


def _of_the_backend(sources: Sources, chosen: Event, target: Target) -> tuple[Gate, ...]:
    """What the product's own library asks of the card for the backend that the call names."""
    backend = chosen.value.get("backend", "") if isinstance(chosen.value, dict) else ""
    if not backend or kernels.root(chosen) != "flashinfer" or "flashinfer" not in sources.roots:
        return ()
    from sublight.audit.engines.flashinfer.gates import gates

    return gates(sources, chosen.name, target.compute_capability, backend)

"""The experts' layer: built, its weights prepared, and called, as the engine does it with these arguments."""

from sublight.audit.engines.sglang.block import MODELS, block, model_module
from sublight.audit.engines.sglang.layers import LayerWalk, Lost
from sublight.audit.source.values import MISSING, Class, Function, Instance, Unknown, Value

# Where versions keep these; the first that is there counts.
_SELECTORS = ("sglang.srt.layers.moe.ep_moe.layer.get_moe_impl_class",)
_LAYERS = ("sglang.srt.layers.moe.fused_moe_triton.layer.FusedMoE", "sglang.srt.layers.moe.layer.FusedMoE")
_INITIALISERS = ("sglang.srt.layers.moe.utils.initialize_moe_config", "sglang.srt.layers.moe.initialize_moe_config")
# All-to-alls with which the models' own code calls a kernel past the layer: all-to-all -> the word it is written as.
PAST_THE_LAYER = {"megamoe": "mega_moe"}
_CAPTURED = "get_is_capture_mode"
PREFIX = "model.layers.0.mlp.experts"


class ExpertsWalk(LayerWalk):
    """From the settled arguments to the call of the experts."""

    def _steps(self) -> None:
        self._initialise(_INITIALISERS)
        layer = self._layer(self._quantization())
        self._weights(layer)
        self._forward(layer)

    def _layer(self, quantization: Value) -> Instance:
        selector = self._find(_SELECTORS, (Function,))
        cls: Value = MISSING
        if selector is not MISSING:
            cls = self._step("the layer's class", self.walk.run(selector, [quantization], {}))
        if not isinstance(cls, Class):
            cls = self._find(_LAYERS, (Class,))
        if not isinstance(cls, Class) or self.target.shape is None:
            raise self._lost(_LAYERS, "the class of the experts' layer is not where it was in other versions")
        shape = self.target.shape
        arguments = {
            "num_experts": shape.experts * self.target.layout.ep,
            "hidden_size": shape.hidden,
            "intermediate_size": shape.width * self.target.layout.expert_tp,
            "layer_id": 0,
            "top_k": shape.top_k,
            "quant_config": quantization,
            "prefix": PREFIX,
            "activation": self.target.activation,
            "routing_method_type": Unknown("the routing that the model asks for", solid=True),
        } | self._of_the_model()
        made = self._step("the experts' layer is built", self.walk.run(cls, [], arguments))
        if not isinstance(made, Instance):
            raise Lost("the experts' layer is not an object that can be followed")
        return made

    def _of_the_model(self) -> dict[str, Value]:
        """What gpt-oss's model hands to its experts besides: biases, and the clamp and slope of its SwiGLU."""
        if self.target.model_type != "gpt_oss" or not self.target.swiglu_limit:
            return {}
        alpha = Unknown("the slope of the activation", solid=True)
        return {"with_bias": True, "gemm1_alpha": alpha, "gemm1_clamp_limit": self.target.swiglu_limit}

    def _forward(self, layer: Instance) -> None:
        hidden, chosen = Unknown("activations", solid=True), Unknown("the experts chosen", solid=True)
        if self.values.get("moe_a2a_backend") in PAST_THE_LAYER:
            found = self._block(layer)
            if found is not None:
                self._step(self.CALLED, self.walk.call_method(found, "forward", [hidden]))
                return
        self._step(self.CALLED, self.walk.call_method(layer, "forward", [hidden, chosen]))

    def _block(self, layer: Instance) -> Instance | None:
        """The model's block, where its code knows the all-to-all. A step of decoding runs under a captured graph."""
        calls = self.walk.facts.calls
        assert isinstance(calls, dict)
        calls[_CAPTURED] = True
        architecture, word = self.target.architecture, PAST_THE_LAYER[str(self.values["moe_a2a_backend"])]
        if model_module(self.walk.sources, architecture) is None:
            raise Lost(f"the model's own code calls the experts, and no module of {MODELS} defines {architecture}")
        return block(self.walk, architecture, word, layer)

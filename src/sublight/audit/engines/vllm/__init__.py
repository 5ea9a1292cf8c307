"""vLLM: its declarations and its choices, read from its source."""

from sublight.audit.engines.base import Declaration, Pin, Route
from sublight.audit.engines.vllm.walk import Assumed
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target


class Vllm:
    """The engine's description. `route` and `auto` take what is assumed of the machine besides, for asking it twice:
    once as it is, once as it could be."""

    name = "vllm"
    package = "vllm"
    distributions: tuple[str, ...] = ("vllm",)
    areas: tuple[str, ...] = ("moe", "fp4-gemm", "attention", "all-reduce")
    folders: tuple[str, ...] = (
        "vllm/config",
        "vllm/engine",
        "vllm/platforms",
        "vllm/utils",
        "vllm/model_executor/layers/fused_moe",
        "vllm/model_executor/layers/quantization/utils",
        "vllm/model_executor/kernels/linear",
        "vllm/v1/attention",
        "vllm/distributed/device_communicators",
    )
    variables: tuple[str, ...] = ("VLLM_",)

    def declared(self, sources: Sources, area: str) -> tuple[Declaration, ...]:
        from sublight.audit.engines.vllm import attention, collectives, declared, linear

        if area == "moe":
            return declared.moe(sources)
        if area == "fp4-gemm":
            return linear.declared(sources)
        if area == "all-reduce":
            return collectives.declared(sources)
        return attention.declared(sources) if area == "attention" else ()

    def concerns(self, declaration: Declaration, target: Target) -> bool:
        from sublight.audit.engines.vllm.declared import concerns

        return concerns(declaration, target)

    def route(
        self, sources: Sources, declaration: Declaration, target: Target, assumed: Assumed | None = None
    ) -> Route:
        from sublight.audit.engines.vllm import attention, collectives, linear, moe

        assumed = assumed or Assumed()
        if declaration.name == "auto" and declaration.area == "moe":
            return moe.auto(sources, target, assumed)
        if declaration.area == "moe":
            return moe.route(sources, declaration, target, assumed)
        if declaration.area == "fp4-gemm":
            return linear.route(sources, declaration, target, assumed)
        if declaration.area == "attention":
            return attention.route(sources, declaration, target, assumed)
        if declaration.area == "all-reduce":
            if declaration.name == "auto":
                return collectives.auto(sources, target, assumed)
            return collectives.route(sources, declaration, target, assumed)
        return Route(answer=Answer.NOT_KNOWN, why=f"vLLM's {declaration.area} backends are not read")

    def auto(self, sources: Sources, area: str, target: Target, assumed: Assumed | None = None) -> Route:
        """What runs when nothing is asked for."""
        return self.route(sources, Declaration(area, "auto", "", None, None, ()), target, assumed)

    def pins(self, sources: Sources) -> tuple[Pin, ...]:  # noqa: ARG002 - the versions of its metadata are all it asks
        return ()

    def known_variables(self, sources: Sources) -> frozenset[str] | None:
        from sublight.audit.engines.vllm.declared import variables

        return variables(sources)

    def layout_options(self, sources: Sources, target: Target) -> str:  # noqa: ARG002 - all versions spell them so
        layout = target.layout
        found = ["--enable-expert-parallel"] if layout.ep > 1 else []
        found += [f"--all2all-backend {target.a2a}"] if target.a2a != "none" else []
        found += [f"--data-parallel-size {layout.dp}"] if layout.dp > 1 else []
        return " ".join(found)

    def all_to_alls(self, sources: Sources) -> tuple[str, ...] | None:
        from sublight.audit.engines.vllm.declared import all_to_alls

        return all_to_alls(sources)


VLLM = Vllm()

"""SGLang: where its versions keep what the audit asks for. Every answer is read from the installed source."""

from sublight.audit.engines.base import Declaration, Pin, Route
from sublight.audit.engines.sglang import attention, collectives, gemm, moe
from sublight.audit.engines.sglang import declared as names
from sublight.audit.engines.sglang import pins as versions
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target

_ROUTES = {"moe": moe.route, "fp4-gemm": gemm.route, "attention": attention.route,
           collectives.AREA: collectives.route}  # fmt: skip


class Sglang:
    """The SGLang engine, as the audit sees it."""

    name = "sglang"
    package = "sglang"
    distributions = ("sglang",)
    areas = tuple(_ROUTES)
    folders = (
        "sglang/srt/layers",
        "sglang/srt/arg_groups",
        "sglang/srt/utils",
        "sglang/srt/configs",
        "sglang/srt/platforms",
        "sglang/srt/distributed",
        "sglang/kernels",
        "sglang/jit_kernel",
    )
    variables = ("SGLANG_", "SGL_", "FLASHINFER_", "DEEPGEMM_", "DG_", "NVSHMEM_")

    def declared(self, sources: Sources, area: str) -> tuple[Declaration, ...]:
        return collectives.declared(sources) if area == collectives.AREA else names.declared(sources, area)

    def route(self, sources: Sources, declaration: Declaration, target: Target) -> Route:
        return _ROUTES[declaration.area](sources, declaration.name, target)

    def auto(self, sources: Sources, area: str, target: Target) -> Route:
        return _ROUTES[area](sources, "auto", target)

    def pins(self, sources: Sources) -> tuple[Pin, ...]:
        return versions.pins(sources)

    def known_variables(self, sources: Sources) -> frozenset[str] | None:
        return versions.known_variables(sources)

    def layout_options(self, sources: Sources, target: Target) -> str:
        return names.layout_options(sources, target)

    def all_to_alls(self, sources: Sources) -> tuple[str, ...] | None:
        return names.all_to_alls(sources)


SGLANG = Sglang()

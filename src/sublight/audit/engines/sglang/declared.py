"""Names of backends: what the command line accepts, what the engine's own enumerations and registries hold."""

import msgspec

from sublight.audit.engines.base import Declaration
from sublight.audit.ladder import Proof
from sublight.audit.source import declarations
from sublight.audit.source.declarations import Listed
from sublight.audit.source.tree import Module, Sources
from sublight.audit.target import Target


class Area(msgspec.Struct, frozen=True):
    """Where an area's backends are declared.

    Attributes:
        name: of the area.
        field: of the server's arguments; its option is the same with dashes.
        enums: dotted names under which versions keep the enumeration, "" where there is none.
        registry: the decorator that registers one, and the module that holds them.
    """

    name: str
    field: str
    enums: tuple[str, ...] = ()
    registry: tuple[str, str] = ("", "")

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")


AREAS = {
    "moe": Area("moe", "moe_runner_backend", ("sglang.srt.layers.moe.utils.MoeRunnerBackend",)),
    "fp4-gemm": Area(
        "fp4-gemm",
        "fp4_gemm_runner_backend",
        ("sglang.srt.layers.quantization.fp4_utils.Fp4GemmRunnerBackend",),
    ),
    "attention": Area(
        "attention",
        "attention_backend",
        registry=("register_attention_backend", "sglang.srt.layers.attention.attention_registry"),
    ),
}
_FLAGS = {"fp4-gemm": "--fp4-gemm-backend"}
_ARGUMENTS = "sglang.srt.server_args"
_GROUPS = "sglang.srt.arg_groups"


def flag(area: str) -> str:
    return _FLAGS.get(area, AREAS[area].flag)


def declared(sources: Sources, area: str) -> tuple[Declaration, ...]:
    """Every name of an area, in the order of the command line, then what only the engine's own lists hold."""
    if area not in AREAS:
        return ()
    spec = AREAS[area]
    accepted = _accepted(sources, spec)
    own = _own(sources, spec)
    names = dict.fromkeys([each.value for each in accepted or []] + [each.value for each in own or []])
    why = ""
    if accepted is None:  # any of the files that lists are kept in may be the reason
        why = sources.unparsed_at(_ARGUMENTS, *(module.name for module in holders(sources, spec.field)))
        why = why or sources.unparsed_at(*sources.submodules(_GROUPS))
    return tuple(_declaration(spec, str(name), accepted, own, why) for name in names if isinstance(name, str))


def all_to_alls(sources: Sources) -> tuple[str, ...] | None:
    """Names that the option for the experts' all-to-all takes; None when no list of them was found."""
    found = listed(sources, "--moe-a2a-backend", "moe_a2a_backend")
    return tuple(str(each.value) for each in found if isinstance(each.value, str)) if found else None


def layout_options(sources: Sources, target: Target) -> str:
    """Options of a layout beyond plain tensor parallelism, as this version spells them."""
    layout, found = target.layout, []
    if target.a2a != "none":
        found.append(f"--moe-a2a-backend {target.a2a}")
    if layout.ep > 1:
        found.append(f"--ep-size {layout.ep}")
    if layout.dp > 1:
        own = bool(holders(sources, "attn_dp_size"))
        found.append(f"--attn-dp-size {layout.dp}" if own else f"--dp-size {layout.dp} --enable-dp-attention")
    return " ".join(found)


def _declaration(
    spec: Area, name: str, accepted: list[Listed] | None, own: list[Listed] | None, why: str = ""
) -> Declaration:
    """`why`: what kept the choices of the command line from being read."""
    here = [each for each in accepted or [] if each.value == name]
    there = [each for each in own or [] if each.value == name]
    kept_in = "registry" if spec.registry[0] else "enumeration"
    note = ""
    if accepted is None and why:
        note = f"what the command line takes is not known: {why}"
    elif accepted is not None and not here:
        note = f"only in the engine's own {kept_in}, {flag(spec.name)} refuses it"
    elif own is not None and not there:
        note = f"only on the command line, the engine's own {kept_in} lacks it"
    proofs = tuple(Proof("source", each.where, each.text) for each in [*here, *there])
    selectable = None if accepted is None else bool(here)
    return Declaration(
        area=spec.name,
        name=name,
        flag=f"{flag(spec.name)} {name}" if selectable is not False else "",
        selectable=selectable,
        in_enum=None if own is None else bool(there),
        proofs=proofs,
        note=note,
    )


def _accepted(sources: Sources, spec: Area) -> list[Listed] | None:
    return listed(sources, flag(spec.name), spec.field)


def listed(sources: Sources, option: str, field: str) -> list[Listed] | None:
    """What the command line accepts: `add_argument`, annotated fields, wherever this version keeps them."""
    main = sources.module(_ARGUMENTS)
    if main is not None and option in main.text:
        found = declarations.choices(sources, main, option)
        if found is not None:
            return found
    for module in holders(sources, field):
        found = declarations.field_choices(sources, module, field)
        if found is not None:
            return found
    return None


def holders(sources: Sources, field: str) -> list[Module]:
    """Modules whose text annotates the field, the nearest first."""
    main = sources.module(_ARGUMENTS)
    names = [_GROUPS, *sources.submodules(_GROUPS)]
    names += [inner for name in names[1:] for inner in sources.submodules(name)]
    found = [main] if main is not None else []
    found += [module for name in names if (module := sources.module(name)) is not None]
    return [module for module in found if f"{field}:" in module.text]


def _own(sources: Sources, spec: Area) -> list[Listed] | None:
    for dotted in spec.enums:
        found = declarations.named(sources, dotted)
        if found is not None:
            return found
    decorator, origin = spec.registry
    module = sources.module(origin) if origin else None
    if module is None or sources.unparsed_at(origin):
        return None
    return [
        Listed(arguments[0], module, node.lineno)
        for arguments, node in declarations.decorated(module, decorator)
        if arguments
    ]

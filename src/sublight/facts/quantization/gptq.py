"""GPTQ: integers with a scale per group, for every linear module of the decoder layers but routers.

The file names no exclusions of its own, except through two fields. GPTQModel's `dynamic` maps an expression to other
settings ("+:" or nothing before it) or to none ("-:"), first match first (vLLM and SGLang, `get_dynamic_override`).
`modules_in_block_to_quantize` lists what was quantised, and the rest was not. Routers are left alone by the
quantisers (vLLM passes GPTQ's settings to no gate for that reason), lm_head unless `lm_head` says true.

Zero points and group indices are always stored; kernels read the former of asymmetric checkpoints and the latter
where `desc_act` reordered the inputs (Marlin drops them otherwise), and so they are counted.
"""

from re import Pattern
from typing import Any

import msgspec

from sublight.facts.fields import Fields
from sublight.facts.formats import Format
from sublight.facts.quantization.awq import group_size, integer_bits
from sublight.facts.quantization.base import Quantization, Rules, Site
from sublight.facts.quantization.exclusion import may_be_quantised
from sublight.facts.quantization.expressions import check_together, compiled
from sublight.facts.quantization.names import tail
from sublight.facts.quantization.patterns import Paths
from sublight.facts.quantization.summary import described, summary
from sublight.facts.quantization.variants import integers

_KEPT = frozenset({"lm_head", "gate", "router", "shared_expert_gate"})


class Override(msgspec.Struct, frozen=True):
    """An entry of `dynamic`: modules whose name it matches from the front have this format, or none (`format` None)."""

    written: str
    match: Pattern[str]
    format: Format | None


class Gptq:
    """One format, overrides by expression, and optionally a list outside of which nothing is quantised."""

    def __init__(
        self, quantised: Format, plain: Format, overrides: list[Override], only: Paths, kept: frozenset[str]
    ) -> None:
        self.quantised = quantised
        self.plain = plain
        self.overrides = overrides
        self.only = only
        self.kept = kept
        self.names_experts = any("experts" in override.written for override in overrides) or only.names_experts
        self._asked: set[str] = set()

    def format_of(self, site: Site) -> Format:
        module = site.module
        self._asked.add(module)
        if not may_be_quantised(site):
            return self.plain
        for override in self.overrides:
            if override.match.match(module):
                return override.format or self.plain
        if tail(module) in self.kept or (self.only.patterns and not self.only.covers(module)):
            return self.plain
        return self.quantised

    def unmatched(self) -> list[str]:
        idle = [o.written for o in self.overrides if not any(o.match.match(module) for module in self._asked)]
        return [*idle, *self.only.unmatched(self._asked)]

    def rules(self) -> Rules:
        left = frozenset(o.written for o in self.overrides if o.format is None)
        named = {o.written: o.format.name for o in self.overrides if o.format is not None}
        return Rules(self.quantised.name, left, {**named, **dict.fromkeys(self.only.patterns, self.quantised.name)})


def read(fields: Fields, plain: Format) -> Quantization:
    """A scheme from `quantization_config`. Raises ConfigError for widths, groups or expressions that are none."""
    format = _format(fields)
    overrides = _overrides(fields, format)
    only = Paths(_quantised_modules(fields))
    kept = _KEPT - {"lm_head"} if fields.flag("lm_head") else _KEPT
    left = sum(override.format is None for override in overrides)
    what = described(format) + (", in activation order" if format.input_bytes else "")
    return Quantization(
        method="gptq",
        source="",
        summary=summary(what, "", left),
        kv_cache="",
        scheme=Gptq(format, plain, overrides, only, kept),
    )


def _format(fields: Fields) -> Format:
    group = group_size(fields, "group_size")
    # One group for all inputs needs no index of groups.
    reordered = fields.flag("desc_act") and group > 0
    return integers(
        integer_bits(fields, "bits"), group, zero_points=not fields.flag("sym", True), group_index=reordered
    )


def _overrides(fields: Fields, base: Format) -> list[Override]:
    table = fields.object("dynamic")
    overrides = []
    for written in table.data if table else ():
        entry = table.object(written) if table else None
        settings = entry.data if entry else {}
        match = compiled(written.removeprefix("-:").removeprefix("+:"), table or fields)
        format: Format | None = base
        if written.startswith("-:"):
            format = None
        elif settings:
            changed: dict[str, Any] = {**fields.data, **settings}
            format = _format(Fields(changed, f"{fields.name} (dynamic {written})"))
        overrides.append(Override(written, match, format))
    check_together((override.match.pattern for override in overrides), table or fields)
    return overrides


def _quantised_modules(fields: Fields) -> list[str]:
    """`modules_in_block_to_quantize` is a list of names, or a list of lists in the order they were quantised."""
    names = []
    for item in fields.list("modules_in_block_to_quantize") or []:
        names += item if isinstance(item, list) else [item]
    if not all(isinstance(name, str) for name in names):
        raise fields.error("modules_in_block_to_quantize holds something that is no name", "names, or lists of names")
    return names

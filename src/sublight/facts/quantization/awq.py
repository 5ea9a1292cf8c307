"""AWQ: integers with a scale and a zero point per group, for every linear module of the decoder layers.

`modules_to_not_convert` is matched as AutoAWQ matched it when it wrote the file, as text anywhere in the name; vLLM
and SGLang do the same. Two limits follow from how engines ask. Experts are asked as one `experts` module, so an entry
such as "gate" reaches the router and not the experts' `gate_proj`. And the halves of a fused matrix must agree, so an
entry that is found in one half only is not taken to mean it: no engine loads a checkpoint that splits `gate_up_proj`.
"""

from sublight.facts.fields import Fields
from sublight.facts.formats import Format
from sublight.facts.quantization.base import Quantization
from sublight.facts.quantization.exclusion import AllBut
from sublight.facts.quantization.names import FUSIONS
from sublight.facts.quantization.patterns import ModuleList
from sublight.facts.quantization.summary import described, summary
from sublight.facts.quantization.variants import integers

_HALVES = {part: parts for parts in FUSIONS.values() for part in parts}
_KEPT = frozenset({"gate", "router", "shared_expert_gate"})


class Substrings(ModuleList):
    """Entries found anywhere in the module's name, within the limits above."""

    def covers_name(self, module: str) -> bool:
        return any(_found_in(pattern, module) for pattern in self.patterns)

    def idle(self, patterns: list[str], modules: set[str]) -> list[str]:
        return [pattern for pattern in patterns if not any(_found_in(pattern, module) for module in modules)]


def _found_in(pattern: str, module: str) -> bool:
    stack, inside, _ = module.partition(".experts.")
    if inside:
        return pattern in f"{stack}.experts"
    parent, dot, last = module.rpartition(".")
    return all(pattern in parent + dot + half for half in _HALVES.get(last, (last,)))


def read(fields: Fields, plain: Format) -> Quantization:
    """A scheme from `quantization_config`. Raises ConfigError for a width or group that is none."""
    bits = integer_bits(fields, "bits", "w_bit")
    group = group_size(fields, "group_size", "q_group_size")
    format = integers(bits, group, zero_points=fields.flag("zero_point", True))
    excluded = Substrings(fields.names("modules_to_not_convert") or [])
    kept = _KEPT if fields.flag("lm_head") else _KEPT | {"lm_head"}
    return Quantization(
        method="awq",
        source="",
        summary=summary(described(format), "", len(excluded.patterns)),
        kv_cache="",
        scheme=AllBut(format, plain, excluded, kept=kept),
    )


def integer_bits(fields: Fields, *keys: str) -> int:
    """Width of the codes under the first of `keys` that is there."""
    bits = fields.size(*keys)
    if bits not in (2, 3, 4, 8):
        raise fields.error(f"{keys[0]} is {bits}", "2, 3, 4 or 8 bits, which the loaders unpack")
    return bits


def group_size(fields: Fields, *keys: str) -> int:
    """Inputs that share a scale; 0 for whole columns, which the files write as -1."""
    key = next((k for k in keys if k in fields), keys[0])
    return 0 if fields.data.get(key) == -1 else fields.size(*keys, default=128)

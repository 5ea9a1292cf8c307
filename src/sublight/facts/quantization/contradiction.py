"""Two files that describe one scheme: do they say the same?

ModelOpt writes `hf_quant_config.json` and a `quantization_config` in config.json, and repacked checkpoints change one
of them. Which one counts depends on the reader:

- vLLM (`model_loader/weight_utils.py`, `get_quant_config`) and SGLang (`configs/model_config.py`,
  `_parse_quant_hf_config`; `model_loader/weight_utils.py`) take config.json, and the other file only where
  config.json is silent. SGLang alone also takes it for mixed precision when config.json lacks the table or the KV
  format.
- TensorRT-LLM (`_torch/model_config.py`, `from_pretrained`) takes hf_quant_config.json and warns where config.json
  differs.

So config.json counts here, and every difference is told.
"""

from collections.abc import Set as AbstractSet

from sublight.facts.quantization.base import Quantization, Rules
from sublight.facts.quantization.names import shortened
from sublight.facts.quantization.variants import format_named
from sublight.units import counted


def differences(first: Quantization, second: Quantization, names: tuple[str, str]) -> list[str]:
    """How two readings of the weights differ, one clause each; empty when they say the same.

    Args:
        first, second: the readings.
        names: what to call them.
    """
    here, there = _rules(first), _rules(second)
    if here is None or there is None:
        same = first.method == second.method and first.summary == second.summary
        return (
            []
            if same
            else [f"{names[0]} {first.method}: {first.summary}, {names[1]} {second.method}: {second.summary}"]
        )
    found = []
    if here.default != there.default:
        found.append(f"linear modules: {names[0]} {_title(here.default)}, {names[1]} {_title(there.default)}")
    found += _one_sided("exclusions", here.excluded, there.excluded, names)
    found += _one_sided("modules named", here.named.keys(), there.named.keys(), names)
    other = [name for name in here.named if name in there.named and here.named[name] != there.named[name]]
    if other:
        pair = f"{names[0]} {_title(here.named[other[0]])}, {names[1]} {_title(there.named[other[0]])}"
        found.append(f"format of {counted(len(other), 'module')} ({shortened(sorted(other))}): {pair}")
    return found


def _rules(quantization: Quantization) -> Rules | None:
    rules = getattr(quantization.scheme, "rules", None)
    return rules() if rules is not None else None


def _title(name: str) -> str:
    return format_named(name).title if name else "no format for all"


def _one_sided(what: str, here: AbstractSet[str], there: AbstractSet[str], names: tuple[str, str]) -> list[str]:
    clauses = []
    for mine, theirs, name in ((here, there, names[0]), (there, here, names[1])):
        only = sorted(mine - theirs)
        if only:
            clauses.append(f"{what} only in {name}: {len(only)} ({shortened(only)})")
    return clauses

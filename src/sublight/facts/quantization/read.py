"""Reading how a checkpoint is quantised, from the one or two files that say so.

A method of quantisation is one file with a function `read(fields, plain) -> Quantization`, and one line in `METHODS`.
What is not known here is refused by name: bytes guessed for an unknown scheme would be worse than none.
"""

from typing import Any

import msgspec

from sublight.errors import near_misses
from sublight.facts.fields import Fields
from sublight.facts.formats import BF16, Format
from sublight.facts.quantization import modelopt
from sublight.facts.quantization.base import DTYPES, Finding, Quantization, Unquantised
from sublight.facts.quantization.contradiction import differences
from sublight.registry import Registry

_HERE = "sublight.facts.quantization"
METHODS = Registry(
    "quantisation method",
    "sublight.quantization",
    {
        "modelopt": f"{_HERE}.modelopt:read",
        "modelopt_fp4": f"{_HERE}.modelopt:read",
        "modelopt_fp8": f"{_HERE}.modelopt:read",
        "modelopt_mixed": f"{_HERE}.modelopt:read",
        "compressed-tensors": f"{_HERE}.compressed_tensors:read",
        "fp8": f"{_HERE}.fp8:read",
        "mxfp8": f"{_HERE}.fp8:read",
        "mxfp4": f"{_HERE}.mxfp4:read",
        "awq": f"{_HERE}.awq:read",
        "gptq": f"{_HERE}.gptq:read",
    },
)

_CONFIG, _SIDE = "config.json", "hf_quant_config.json"
_WHO = "vLLM and SGLang read config.json first, TensorRT-LLM reads hf_quant_config.json"


def read_quantization(config: Fields, text: Fields, hf_quant: Fields | None) -> Quantization:
    """The scheme of a checkpoint, with every choice that was made on the way as a finding.

    Args:
        config: config.json.
        text: its text_config; the same object where the model is not multimodal.
        hf_quant: hf_quant_config.json, where there is one.

    Raises:
        ConfigError: an unknown method or algorithm, or a field that is garbled or contradicts another.
    """
    plain, notes = _dtype(config, text)
    where, declared, more = _declared(config, text)
    notes += more
    if hf_quant is not None:
        modelopt.require_statement(hf_quant)
    side = hf_quant if hf_quant is not None and not modelopt.says_nothing(hf_quant) else None
    if side is not None and (declared is None or (_is_modelopt(declared) and modelopt.lacks_table(declared))):
        missing = "config.json silent" if declared is None else "config.json lacks the table of its mixed precision"
        found = _from_source(modelopt.read(side, plain), f"{_SIDE} ({missing})")
    elif declared is None:
        scheme = Unquantised(plain)
        source = f"{_CONFIG} (no quantization_config, no {_SIDE})"
        found = Quantization("none", source, f"{plain.title}, not quantised", "", scheme)
    elif side is None:
        found = _from_source(_read(declared, plain), f"{_CONFIG} ({where})")
    else:
        found = _reconciled(_read(declared, plain), modelopt.read(side, plain), where)
    return msgspec.structs.replace(found, findings=(*notes, *found.findings))


def _from_source(quantization: Quantization, source: str) -> Quantization:
    return msgspec.structs.replace(quantization, source=source)


def _read(fields: Fields, plain: Format) -> Quantization:
    method = fields.text("quant_method").strip().lower()
    if not method and _is_modelopt(fields):
        return modelopt.read(fields, plain)
    if not method:
        raise fields.error("it has no quant_method", f"a quantization_config with one of {', '.join(METHODS.names())}")
    if method not in METHODS:
        names = METHODS.names()
        hint = " or ".join(near_misses(method, names)) or f"one of {', '.join(names)}"
        raise fields.error(f"quant_method is {method!r}, which is not known here", hint)
    quantization: Quantization = METHODS.load(method)(fields, plain)
    return quantization


def _is_modelopt(fields: Fields) -> bool:
    """As SGLang and TensorRT-LLM tell: by the method, or without one by the producer or a ModelOpt field."""
    method = fields.text("quant_method").lower()
    if method:
        return method.startswith("modelopt")
    producer = fields.object("producer")
    by_producer = producer is not None and producer.text("name").lower() == "modelopt"
    return by_producer or "quant_algo" in modelopt.section_of(fields)


def _reconciled(first: Quantization, second: Quantization, where: str) -> Quantization:
    """config.json's reading, with what hf_quant_config.json says otherwise (`contradiction` has who reads which)."""
    findings = list(first.findings)
    findings += [finding for finding in second.findings if finding.level != "warn"]
    unlike = differences(first, second, (_CONFIG, _SIDE))
    if unlike:
        text = f"the two files differ in the {'; '.join(unlike)}. Counted as config.json says: {_WHO}"
        findings.append(Finding("warn", "quantisation", text))
    agreement = "says otherwise" if unlike else "agrees"
    kv_cache = first.kv_cache or second.kv_cache
    line = first.summary
    if first.kv_cache != second.kv_cache:
        one, other = (q.kv_cache.upper() or "nothing" for q in (first, second))
        text = f"KV cache: config.json says {one}, hf_quant_config.json {other}. Counted as {kv_cache.upper()}: {_WHO}"
        findings.append(Finding("warn", "KV cache", text))
        agreement += "" if unlike else " but for the KV cache"
        if not first.kv_cache:
            weights, _, exclusions = line.rpartition(", ")
            line = f"{weights}, KV {kv_cache.upper()}, {exclusions}"
    return msgspec.structs.replace(
        first,
        source=f"{_CONFIG} ({where}; {_SIDE} {agreement})",
        summary=line,
        kv_cache=kv_cache,
        findings=tuple(dict.fromkeys(findings)),
    )


def _declared(config: Fields, text: Fields) -> tuple[str, Fields | None, list[Finding]]:
    """Where config.json declares a scheme, in the order of vLLM and SGLang, and the declaration itself."""
    places = [("quantization_config", config), ("compression_config", config)]
    if text is not config:
        places.insert(1, ("text_config.quantization_config", text))
    found = [(where, holder.object(where.rpartition(".")[2])) for where, holder in places]
    declared = [(where, fields) for where, fields in found if fields is not None and fields.data]
    notes = []
    for where, fields in found:
        if fields is not None and not fields.data:
            text_of = f"config.json has a {where} that is empty: it is passed over"
            notes.append(Finding("warn", "quantisation", text_of))
    if not declared:
        return "", None, notes
    where, fields = declared[0]
    if any(other.data != fields.data for _, other in declared[1:]):
        names = " and ".join(name for name, _ in declared)
        notes.append(Finding("warn", "quantisation", f"config.json has {names}, and they differ; the first is read"))
    if "expert_dtype" in text and "expert_dtype" not in fields:
        # DeepSeek-V4 says it beside the scheme; transformers moves it in as well.
        fields = Fields({**fields.data, "expert_dtype": text.data["expert_dtype"]}, fields.name)
    return where, fields, notes


def _dtype(config: Fields, text: Fields) -> tuple[Format, list[Finding]]:
    """The dtype of what is not quantised: `dtype`, by its older name `torch_dtype`; the language model's own first.

    Most configurations say bfloat16. Where none says anything it is counted so, because every release since has been
    stored so, and a finding tells; float32 is honoured: the file is that large, whatever an engine casts it to.
    """
    for fields in (text, config):
        for key in ("dtype", "torch_dtype"):
            if key not in fields:
                continue
            value: Any = fields.data[key]
            name = value.removeprefix("torch.") if isinstance(value, str) else value
            if name == "auto":
                continue
            if not isinstance(name, str) or name not in DTYPES:
                raise fields.error(f"{key} is {value!r}", f"one of {', '.join(DTYPES)}")
            return DTYPES[name], []
    text_of = "config.json names no dtype: what is not quantised is counted as BF16"
    return BF16, [Finding("info", "dtype", text_of)]

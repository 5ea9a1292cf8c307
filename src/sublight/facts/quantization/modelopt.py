"""NVIDIA ModelOpt, in both of its shapes.

`hf_quant_config.json` nests everything under `quantization`, with `exclude_modules` and `kv_cache_quant_algo`.
config.json holds the same flat, under `quant_method: modelopt`, with `ignore`, `kv_cache_scheme` and, in the words of
compressed-tensors, `config_groups` (modelopt 0.47, `export/convert_hf_config.py`). `quant_algo` decides, as it does
in vLLM, SGLang and TensorRT-LLM; no engine reads the formats in `config_groups`, so where the two differ that is
reported and `quant_algo` or `quantized_layers` is believed. Exports that name no algorithm are read through their
groups.
"""

from sublight.errors import ConfigError
from sublight.facts.fields import Fields
from sublight.facts.formats import Format
from sublight.facts.quantization.algorithms import MIXED, algorithm_format
from sublight.facts.quantization.arguments import format_of_group, kv_cache_format, read_arguments
from sublight.facts.quantization.base import Finding, Quantization, Scheme, Unquantised
from sublight.facts.quantization.exclusion import AllBut
from sublight.facts.quantization.layers import Table, Template, read_template
from sublight.facts.quantization.names import shortened
from sublight.facts.quantization.patterns import Globs
from sublight.facts.quantization.summary import described, summary
from sublight.units import counted

# No recipe quantises a router (modelopt_recipes, `default_disabled_quantizers.yaml`), and one that the model holds as a
# bare parameter is in no list; vLLM builds the gates of a ModelOpt checkpoint unquantised (vllm#35261).
_ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
_TABLES = ("quantized_layers", "quantized_layers_compressed", "config_groups")
_EXCLUSIONS = ("exclude_modules", "ignore", "modules_to_not_convert")


def read(fields: Fields, plain: Format) -> Quantization:
    """A scheme from either shape. Raises ConfigError for an unknown algorithm or a table that is missing or garbled."""
    section = section_of(fields)
    exclusions = next((names for key in _EXCLUSIONS if (names := section.names(key)) is not None), [])
    excluded = Globs(exclusions)
    kv_cache = kv_cache_format(section, "kv_cache_quant_algo", "kv_cache_scheme")
    algorithm = _algorithm(section)
    decide = _by_algorithm if algorithm and algorithm != MIXED else _by_table
    scheme, what, findings = decide(section, excluded, plain)
    return Quantization(
        method="modelopt",
        source="",
        summary=summary(what, kv_cache, len(excluded.patterns)),
        kv_cache=kv_cache,
        scheme=scheme,
        findings=tuple(findings),
    )


def _by_algorithm(section: Fields, excluded: Globs, plain: Format) -> tuple[Scheme, str, list[Finding]]:
    """One format for every linear module: (scheme, what to call it, findings)."""
    algorithm = _algorithm(section)
    format = algorithm_format(algorithm, section.size("group_size", default=0, least=0), section)
    findings = _notes(algorithm)
    default, _ = _config_groups(section)
    if default is not None and default.name != format.name:
        findings.append(_groups_differ(section, f"{algorithm} in quant_algo and {default.title} in config_groups"))
    return AllBut(format, plain, excluded, kept=_ROUTERS), described(format), findings


def _by_table(section: Fields, excluded: Globs, plain: Format) -> tuple[Scheme, str, list[Finding]]:
    """A format for each module named, or what the groups say where no algorithm is named."""
    default, groups = _config_groups(section)
    named, templates = _layers(section)
    if named or templates:
        table = Table(named, templates, excluded, plain)
        other = [name for name, format in named.items() if name in groups and groups[name].name != format.name]
        findings = []
        if other:
            pair = f"{named[other[0]].title} in quantized_layers and {groups[other[0]].title} in config_groups"
            which = f"{counted(len(other), 'module')} ({shortened(other, 2)})"
            findings.append(_groups_differ(section, f"{pair}, for {which}"))
        return table, _mixture(table), findings
    if groups:
        table = Table(groups, (), excluded, plain, rest=default)
        return table, _mixture(table), []
    if _algorithm(section) == MIXED:
        raise section.error(
            "quant_algo is MIXED_PRECISION and no quantized_layers says which module has which format",
            "the whole file: vLLM, SGLang and TensorRT-LLM need the table as well",
        )
    if default is not None:
        return AllBut(default, plain, excluded, kept=_ROUTERS), described(default), []
    return Unquantised(plain), f"weights {plain.title}", []


def _mixture(table: Table) -> str:
    return "mixed precision: " + ", ".join(f"{count} {title}" for title, count in table.counts().items())


def section_of(fields: Fields) -> Fields:
    """The object that holds `quant_algo`: nested under `quantization`, or the whole."""
    return fields.object("quantization") or fields


def lacks_table(fields: Fields) -> bool:
    """Mixed precision without its table: SGLang then turns to hf_quant_config.json (`get_quant_config`)."""
    section = section_of(fields)
    return _algorithm(section) == MIXED and not any(section.data.get(key) for key in _TABLES)


def says_nothing(fields: Fields) -> bool:
    """Neither weights nor KV cache: the file of an export that quantised nothing."""
    section = section_of(fields)
    keys = (*_TABLES, "kv_cache_quant_algo", "kv_cache_scheme")
    return not _algorithm(section) and not any(section.data.get(key) for key in keys)


def require_statement(fields: Fields) -> None:
    """Raises ConfigError for a file that does not even say that nothing was quantised: no part of it can be used."""
    section = section_of(fields)
    if "quant_algo" not in section.data and not any(section.data.get(key) for key in _TABLES):
        held = ", ".join(list(section.data)[:4]) or "nothing"
        raise fields.error(
            f"it says of no module how it is stored (it holds {held})",
            "the file as the release has it, with quant_algo; or no such file, for a checkpoint that is not quantised",
        )


def _algorithm(section: Fields) -> str:
    name = section.text("quant_algo").strip().upper()
    return "" if name in ("NONE", "NULL") else name


def _layers(section: Fields) -> tuple[dict[str, Format], list[Template]]:
    named: dict[str, Format] = {}
    table = section.object("quantized_layers")
    made: dict[tuple[str, int], Format] = {}
    for module in table.data if table else ():
        entry = table.object(module) if table else None
        if entry is None:
            raise section.error(f"quantized_layers has nothing for {module}", "a quant_algo for each module it names")
        named[module] = _entry_format(entry, made)
    templates = []
    for item in section.list("quantized_layers_compressed") or []:
        if not isinstance(item, dict):
            raise section.error(
                "quantized_layers_compressed holds something that is no object", "pattern and value in each"
            )
        entry = Fields(item, f"{section.name} (quantized_layers_compressed)")
        value = entry.object("value")
        if value is None:
            raise entry.error(f"pattern {entry.text('pattern')!r} has no value", "a value with quant_algo")
        templates.append(read_template(entry, _entry_format(value, made)))
    return named, templates


def _entry_format(entry: Fields, made: dict[tuple[str, int], Format]) -> Format:
    key = (_algorithm(entry), entry.size("group_size", default=0, least=0))
    if key not in made:
        made[key] = algorithm_format(*key, entry)
    return made[key]


def _config_groups(section: Fields) -> tuple[Format | None, dict[str, Format]]:
    """(format of every Linear, module -> format) of `config_groups`; (None, {}) when there are none.

    The AWQ and SVD algorithms write groups that say less than the algorithm; those that mean no format are passed
    over.
    """
    default: Format | None = None
    named: dict[str, Format] = {}
    groups = section.object("config_groups")
    for key in groups.data if groups else ():
        group = groups.object(key) if groups else None
        weights = group.object("weights") if group else None
        if group is None or weights is None:
            continue
        inputs = group.object("input_activations")
        try:
            format = format_of_group(read_arguments(weights), read_arguments(inputs) if inputs else None, group)
        except ConfigError:
            if _algorithm(section):
                continue
            raise
        for target in group.names("targets") or []:
            if target == "Linear":
                default = format
            else:
                named[target] = format
    return default, named


def _groups_differ(section: Fields, difference: str) -> Finding:
    text = f"{section.name} says {difference}; counted as the former, which vLLM, SGLang and TensorRT-LLM read"
    return Finding("warn", "quantisation", text)


def _notes(algorithm: str) -> list[Finding]:
    if "AWQ" in algorithm:
        text = f"{algorithm} keeps a pre_quant_scale of two bytes per input channel, which is not counted"
        return [Finding("info", "quantisation", text)]
    if algorithm == "W8A8_SQ_PER_CHANNEL":
        return [Finding("info", "quantisation", "INT8 activations: products are counted at the FP8 rate")]
    return []

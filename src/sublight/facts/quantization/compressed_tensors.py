"""`quant_method: compressed-tensors`, as llm-compressor writes it: groups of targets, and what to leave alone.

Names are matched as the library does (compressed-tensors 0.20.1, `utils/match.py`): equal, or `re:` and an expression
matched from the front, or the name of the module's class. A name never covers the modules below it: llm-compressor
lists parents such as `mlp.experts.0` among the ignored without meaning their children. Of several groups the target
decides that is equal to the name, then an expression, then a class, each kind in alphabetical order
(`match_targets`). vLLM and SGLang take expressions in the file's order instead, and names and expressions as one; it
shows only where two expressions of different groups match the same module.
"""

from collections.abc import Callable

import msgspec

from sublight.facts.fields import Fields
from sublight.facts.formats import Format
from sublight.facts.quantization.arguments import Arguments, format_of_group, kv_cache_format, read_arguments
from sublight.facts.quantization.base import Finding, Quantization
from sublight.facts.quantization.summary import described, summary
from sublight.facts.quantization.targets import Targeted, Targets


class Group(msgspec.Struct, frozen=True):
    """One entry of `config_groups` that quantises weights."""

    name: str
    targets: tuple[str, ...]
    weights: Arguments
    activations: Arguments | None
    format: Format


def read(fields: Fields, plain: Format) -> Quantization:
    """A scheme from `quantization_config`. Raises ConfigError for groups that contradict the file's `format`."""
    sparsity = fields.object("sparsity_config")
    if sparsity is not None and sparsity.text("format", "dense").lower() != "dense":
        raise sparsity.error(
            f"format is {sparsity.text('format')!r}", "a checkpoint without sparsity, which is not counted"
        )
    groups = _groups(fields)
    ignored = Targets(fields.names("ignore") or [], fields)
    kv_cache = kv_cache_format(fields, "kv_cache_scheme")
    by_target = {target: group.format for group in groups for target in group.targets}
    scheme = Targeted(Targets(by_target, fields), by_target, ignored, plain)
    return Quantization(
        method="compressed-tensors",
        source="",
        summary=summary(_what(groups, plain), kv_cache, len(ignored.patterns)),
        kv_cache=kv_cache,
        scheme=scheme,
        findings=tuple(_findings(fields, groups)),
    )


def _groups(fields: Fields) -> list[Group]:
    table = fields.object("config_groups")
    groups = []
    for name in table.data if table else ():
        entry = table.object(name) if table else None
        weights = entry.object("weights") if entry else None
        if entry is None or weights is None:
            continue  # a group of activations or attention only: nothing is stored otherwise
        inputs = entry.object("input_activations")
        targets = entry.names("targets")
        if not targets:
            raise entry.error("it has no targets", 'targets such as ["Linear"], names, or "re:" expressions')
        stored = read_arguments(weights)
        activations = read_arguments(inputs) if inputs else None
        format = format_of_group(stored, activations, entry)
        _check_stored_as(entry.text("format") or fields.text("format"), stored, entry)
        groups.append(Group(name, tuple(targets), stored, activations, format))
    if not groups and "kv_cache_scheme" not in fields:
        raise fields.error("config_groups has no group with weights", "config_groups as llm-compressor writes them")
    return groups


# What the weights of each compression format are (`can_compress` of its compressor); the rest accept any.
_STORED_AS: dict[str, Callable[[Arguments], bool]] = {
    "nvfp4-pack-quantized": lambda w: (w.kind, w.bits, w.group) == ("float", 4, 16),
    "mxfp4-pack-quantized": lambda w: (w.kind, w.bits, w.group) == ("float", 4, 32),
    "mxfp8-quantized": lambda w: (w.kind, w.bits, w.group) == ("float", 8, 32),
    "float-quantized": lambda w: w.kind == "float",
    "pack-quantized": lambda w: w.kind == "int",
    "int-quantized": lambda w: w.kind == "int",
}
_ANY_FORMAT = ("", "mixed-precision", "naive-quantized")


def _check_stored_as(name: str, weights: Arguments, entry: Fields) -> None:
    if name in _ANY_FORMAT:
        return
    if name not in _STORED_AS:
        raise entry.error(f"format is {name!r}, which is not known here", " or ".join(_STORED_AS))
    if not _STORED_AS[name](weights):
        raise entry.error(
            f"format is {name!r} and the weights are {weights.bits}-bit {weights.kind} in groups of {weights.group}",
            "the file as the checkpoint's release has it; its two statements exclude each other",
        )


def _what(groups: list[Group], plain: Format) -> str:
    formats = list(dict.fromkeys(described(group.format) for group in groups))
    return " + ".join(formats) if formats else f"weights {plain.title}"


def _findings(fields: Fields, groups: list[Group]) -> list[Finding]:
    findings = []
    status = fields.text("quantization_status", "compressed").lower()
    if status != "compressed":
        text = f"quantization_status is {status!r}: the weights may still be stored unquantised; the headers would tell"
        findings.append(Finding("warn", "quantisation", text))
    if any(group.activations and group.activations.kind == "int" for group in groups):
        text = "INT8 activations: products are counted at the FP8 rate"
        findings.append(Finding("info", "quantisation", text))
    return findings

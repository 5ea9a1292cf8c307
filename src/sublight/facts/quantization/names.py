"""Module names as checkpoints, schemes and engines spell them.

One matrix goes by several names. A checkpoint stores `q_proj`, `k_proj` and `v_proj`; an engine runs them as
`qkv_proj`, and some schemes are written in the engine's words. A multimodal wrapper puts `language_model.` before the
decoder or inside its name. Experts lie one by one or stacked. The pairs here are those of the engines' own tables:
`packed_modules_mapping` of the models in vLLM and SGLang (sglang 0.5.23, `models/*.py`), and the wrapper prefixes
that `_quantized_layer_prefix_candidates` tries in both (vllm `quantization/modelopt.py`, sglang `modelopt_quant.py`).
"""

FUSIONS: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "w13": ("w1", "w3"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
_FUSED_BY_PART = {part: fused for fused, parts in FUSIONS.items() for part in parts}

_WRAPPER = "language_model."


def tail(module: str) -> str:
    """The last component: "q_proj" of "model.layers.0.self_attn.q_proj"."""
    return module.rpartition(".")[2]


def is_alias(pattern: str) -> bool:
    """Whether a name in a scheme may mean modules that are spelled otherwise in the checkpoint."""
    last = tail(pattern.rstrip("*."))
    return _WRAPPER in pattern or ".experts." in pattern or last in FUSIONS


def has_other_spelling(module: str) -> bool:
    """Whether the module itself is spelled in one of the ways that schemes vary."""
    return tail(module) in FUSIONS or _WRAPPER in module


def spellings(module: str) -> list[tuple[str, ...]]:
    """Other names for the same weights, nearest first. A tuple of several names means: these together are it.

    The fused module above a part (`qkv_proj` for `q_proj`), the parts of a fused one, either way with the multimodal
    wrapper moved or taken off, and a stack of experts as its first expert.
    """
    others: list[tuple[str, ...]] = []
    for name in _unwrapped(module):
        for form in (name, *_first_expert(name)):
            if form != module:
                others.append((form,))
            parent, dot, last = form.rpartition(".")
            if last in FUSIONS:
                others.append(tuple(parent + dot + part for part in FUSIONS[last]))
            elif last in _FUSED_BY_PART:
                others.append((parent + dot + _FUSED_BY_PART[last],))
    return list(dict.fromkeys(others))


def _unwrapped(module: str) -> list[str]:
    """The module, and the decoder's name without, before and behind the wrapper."""
    names = [module]
    if module.startswith(_WRAPPER + "model."):
        names.append("model." + _WRAPPER + module.removeprefix(_WRAPPER + "model."))
    elif module.startswith("model." + _WRAPPER):
        names.append(_WRAPPER + "model." + module.removeprefix("model." + _WRAPPER))
    if _WRAPPER in module:
        names.append(module.replace(_WRAPPER, "", 1))
    elif module.startswith("model."):
        names += [_WRAPPER + module, "model." + _WRAPPER + module.removeprefix("model.")]
    else:
        names.append(_WRAPPER + module)
    return names


def _first_expert(module: str) -> list[str]:
    """`experts.gate_up_proj` as `experts.0.gate_up_proj`: a stack of experts is quantised like its members."""
    before, experts, after = module.partition(".experts.")
    if experts and after and not after[0].isdigit():
        return [f"{before}.experts.0.{after}"]
    return []


def is_number(part: str) -> bool:
    """A component that counts layers or experts: plain digits, and no more of them than any model could need."""
    return part.isascii() and part.isdecimal() and len(part) <= 9


def expert_place(name: str) -> tuple[str, int, str] | None:
    """(name of the expert set, number of the expert, rest) of a tensor or module inside one; None outside."""
    before, experts, after = name.partition(".experts.")
    number, _, rest = after.partition(".")
    if not experts or not is_number(number):
        return None
    return f"{before}.experts", int(number), rest


def with_any_expert(name: str) -> str:
    """The name with the number of its expert taken out."""
    place = expert_place(name)
    return name if place is None else f"{place[0]}.#.{place[2]}"


def layer_number(name: str) -> int | None:
    """The number behind `layers` (or `blocks`, `h`): the first component that is one."""
    return next((int(part) for part in name.split(".") if is_number(part)), None)


def shortened(names: list[str], at_most: int = 4) -> str:
    """A list for a sentence: the first few, and how many more."""
    shown = ", ".join(names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"

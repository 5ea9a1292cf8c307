"""What vLLM calls things that a target names: formats of experts by oracle and keys, attention by model type."""

import msgspec

from sublight.audit.target import Target


class Scheme(msgspec.Struct, frozen=True):
    """How vLLM calls a format: module of its oracle, key of weights, key of the activations a checkpoint asks for.

    `dynamic` is the other key of a format that comes with static or with dynamic activation scales.
    """

    oracle: str
    weights: str
    activations: str = ""
    dynamic: str = ""


_SCHEMES: dict[str, Scheme] = {
    "nvfp4": Scheme("nvfp4", "kNvfp4Static", "kNvfp4Dynamic"),
    "nvfp4 (w4a16)": Scheme("nvfp4", "kNvfp4Static"),
    "mxfp4": Scheme("mxfp4", "kMxfp4Static"),
    "mxfp8": Scheme("mxfp8", "kMxfp8Static", "kMxfp8Dynamic"),
    "fp8 block": Scheme("fp8", "kFp8Static128BlockSym", "kFp8Dynamic128Sym"),
    "fp8 per channel": Scheme("fp8", "kFp8StaticChannelSym", "kFp8DynamicTokenSym"),
    "fp8": Scheme("fp8", "kFp8StaticTensorSym", "kFp8StaticTensorSym", "kFp8DynamicTensorSym"),
    "bf16": Scheme("unquantized", ""),
    "fp16": Scheme("unquantized", ""),
    "int4": Scheme("int_wna16", "kInt4Static"),
    "int8": Scheme("int8", "kInt8StaticChannelSym", "kInt8DynamicTokenSym"),
}
SIXTEEN_BITS = ("BF16", "FP16")


def schemes_of(target: Target) -> tuple[Scheme, ...]:
    """What the target's experts may be to vLLM: two where it does not say how activations get their scales."""
    found = scheme_of(target)
    if found is None:
        return ()
    if target.method == "modelopt":  # always with static scales
        return (found,)
    return (found, msgspec.structs.replace(found, activations=found.dynamic)) if found.dynamic else (found,)


def scheme_of(target: Target) -> Scheme | None:
    """The first of them, None for a format that no oracle is known for."""
    asked = target.expert_format.lower()
    found = _SCHEMES.get(asked) or _SCHEMES.get(asked.partition(" ")[0])
    if found and found.activations and target.activation_format in SIXTEEN_BITS:
        return msgspec.structs.replace(found, activations="", dynamic="")
    return found


def activation_of(target: Target) -> str:
    """What vLLM's model calls the experts' activation: gpt-oss's names its clamped SwiGLU itself ("silu" in files)."""
    return "swigluoai" if target.model_type == "gpt_oss" and target.swiglu_limit else target.activation


# Model types whose attention is latent, and those of them with an indexer: how many keys it picks, as released
# configurations have it.
LATENT = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2", "glm4_moe_lite", "longcat_flash")
# Of all of these: the compressed keys and values of a token, and the part of a key that holds its position.
LATENT_WIDTHS = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
# The part of a key that does not hold its position.
UNPOSITIONED = {"deepseek_v2": 128, "deepseek_v3": 128, "deepseek_v32": 128, "glm_moe_dsa": 192, "kimi_k2": 128}
SPARSE = {"deepseek_v32": 2048, "glm_moe_dsa": 2048}

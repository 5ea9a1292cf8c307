"""What SGLang finds in a checkpoint's configuration, as far as the target says it.

Only what the target knows is set. The model's configuration is taken to hold nothing beyond it, because kernels are
hardly ever chosen by the rest; its attributes that nobody set answer as absent.
"""

import re
from typing import Any

from sublight.audit.source.values import Instance, Unknown
from sublight.audit.target import Target

# Model types whose configuration has an indexer for sparse attention, by which engines choose its backend.
_SPARSE = ("_dsa", "deepseek_v32")


def is_sparse(target: Target) -> bool:
    """Whether the model has an indexer that picks the tokens attention looks at."""
    return target.model_type.endswith(_SPARSE)


def quantization(target: Target) -> str | None:
    """The name under which SGLang's registry knows the checkpoint's quantisation; None for an unquantised one."""
    if target.method == "none":
        return None
    if target.method == "modelopt":
        return "modelopt_fp8" if target.expert_format.upper().startswith("FP8") else "modelopt_fp4"
    return target.method


def configuration(target: Target) -> dict[str, Any] | None:
    """`quantization_config` of the checkpoint, as its writer leaves it for these formats."""
    method = quantization(target)
    if method is None:
        return None
    if method == "modelopt_fp4":
        group = {"weights": {"type": "float", "num_bits": 4, "group_size": 16}, "targets": ["Linear"]}
        return {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": [],
                "config_groups": {"group_0": group}}  # fmt: skip
    if method == "modelopt_fp8":
        return {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []}
    if method == "fp8":
        block = [128, 128] if "block" in target.expert_format.lower() else None
        return {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": block, "fmt": "e4m3"}
    if method == "mxfp4":
        return {"quant_method": "mxfp4", "modules_to_not_convert": []}
    if method == "compressed-tensors":
        return _compressed(target)
    return {"quant_method": method, "bits": _bits(target), "group_size": _group_size(target), "zero_point": True,
            "desc_act": False, "sym": True}  # fmt: skip


def _compressed(target: Target) -> dict[str, Any]:
    text = target.expert_format.upper()
    if text.startswith("NVFP4"):
        weights = _tensors(4, "tensor_group", group_size=16)
        inputs = (
            None if target.activation_format == "BF16" else _tensors(4, "tensor_group", group_size=16, dynamic="local")
        )
        form = "nvfp4-pack-quantized"
    elif text.startswith("FP8"):
        strategy = "block" if "BLOCK" in text else "channel"
        weights = _tensors(8, strategy, block_structure=[128, 128] if strategy == "block" else None)
        inputs = _tensors(8, "group" if strategy == "block" else "token", dynamic=True, group_size=128)
        form = "float-quantized"
    else:
        weights = _tensors(_bits(target), "group", kind="int", group_size=_group_size(target))
        inputs, form = None, "pack-quantized"
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None,
             "format": form}  # fmt: skip
    return {"quant_method": "compressed-tensors", "format": form, "ignore": [], "config_groups": {"group_0": group},
            "quantization_status": "compressed", "kv_cache_scheme": None}  # fmt: skip


def _bits(target: Target) -> int:
    """Of a format of whole numbers, as its title has them: "INT4 group 32"."""
    found = re.match(r"[A-Z]+(\d+)", target.expert_format.upper())
    return int(found[1]) if found else 4


def _group_size(target: Target) -> int:
    found = re.search(r"group (\d+)", target.expert_format.lower())
    return int(found[1]) if found else 128


def _tensors(bits: int, strategy: str, kind: str = "float", **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False,
            "group_size": None, "block_structure": None, "actorder": None} | more  # fmt: skip


def model_config(target: Target) -> Instance:
    """The engine's own model configuration with, inside it, the one of the checkpoint."""
    shape = target.shape
    inner: dict[str, Any] = {
        "architectures": [target.architecture] if target.architecture else [],
        "model_type": target.model_type,
    }
    if target.method != "none":
        inner["quantization_config"] = configuration(target)
    if is_sparse(target):
        inner |= {"index_topk": Unknown("how many tokens attention looks at", solid=True)}
    if shape is not None:
        inner |= {"hidden_size": shape.hidden, "num_experts_per_tok": shape.top_k, "hidden_act": target.activation}
    if target.heads is not None:
        inner["num_attention_heads"] = target.heads
    hf_config = Instance(None, inner)
    known = {
        "hf_config": hf_config,
        "hf_text_config": hf_config,
        "quantization": quantization(target),
        "is_multimodal": False,
        "is_generation": True,
        "is_hybrid_swa": False,
        "nvfp4_moe_meta": None,
        "decision_config": None,  # of a file beside the weights of classifiers
        "is_fp4_experts": False,
        "dtype": Unknown("the type of activations", solid=True),
    }
    return Instance(None, known, open_=True)

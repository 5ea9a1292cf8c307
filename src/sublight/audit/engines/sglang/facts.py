"""Facts about the machine and the launch that a walk through SGLang is given."""

import re
from collections.abc import Set as AbstractSet
from typing import Any

from sublight.audit.engines.sglang import compressed
from sublight.audit.source.facts import Facts
from sublight.audit.source.mentions import Mentions
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import MISSING, External, Function, Instance, Unknown
from sublight.audit.target import Target

# The driver and PyTorch are taken to be new enough for the card: checks of CUDA's version pass.
CUDA = "13.0"
PATH = "/checkpoint"
# Decorators of SGLang that put something into a registry when a module is loaded.
REGISTERS = frozenset(
    ("register_fused_func", "register_pre_permute", "register_post_permute", "register_attention_backend",
     "register_model_override", "register_model_override_predicate", "_register_for", "register_post_process")
)  # fmt: skip
# These decide nothing: one checks what plugins declared, one marks parameters, one compiles a kernel.
_OPAQUE = frozenset(("validate_declarations", "set_weight_attrs", "load_jit"))
_MARK = re.compile(r"^\s*(?:self|server_args)\._[a-z]\w* = ", re.MULTILINE)
_GROUPS = ("get_tp_group", "get_moe_ep_group", "get_moe_tp_group", "get_attention_tp_group", "get_world_group",
           "get_pp_group", "get_attn_tp_group")  # fmt: skip


def facts(
    sources: Sources, target: Target, options: frozenset[str], model: Instance, left_out: AbstractSet[str] = frozenset()
) -> Facts:
    """What is known before the walk: the card, the layout, the checkpoint.

    Args:
        options: those the walk is about.
        left_out: further steps that are skipped, by dotted name; asked each time.
    """
    hf_config = model.attributes["hf_config"]
    mentions = Mentions(sources, options)

    def skips(function: Function) -> bool:
        if function.dotted in left_out:
            return True
        if not _is_handler(function) or _leaves_a_mark(function):
            return False
        return not mentions.may(function.module.module, function.node.name)  # type: ignore[union-attr]

    return Facts(
        follow=("sglang",),
        calls=_machine(target) | _layout(target) | compressed.calls() | {
            "ModelConfig.from_server_args": model,
            "get_config": hf_config,
            "get_hf_text_config": hf_config,
        },
        values={"torch.version.cuda": CUDA, "torch.version.hip": None, "torch.version.musa": None,
                "torch.version.xpu": None, "torch.npu": MISSING} | compressed.values(),
        opaque=_OPAQUE,
        skips=skips,
        registers=REGISTERS,
    )  # fmt: skip


def _machine(target: Target) -> dict[str, Any]:
    major, minor = target.compute_capability
    return {
        "torch.cuda.is_available": True,
        "torch.cuda.get_device_capability": (major, minor),
        "torch.cuda.device_count": target.gpus,
        "torch.get_device_module": External("torch.cuda"),
        "torch.xpu.is_available": False,
        "torch.hpu.is_available": False,
        "torch.backends.mps.is_available": False,
        "torch.mps.is_available": False,
        "torch.npu.is_available": False,
        "platform.machine": "x86_64",
        "get_device_capability": (major, minor),
        "get_device_sm": major * 10 + minor,
        "get_device": "cuda",
        "get_device_name": target.gpu,
        "get_device_memory_capacity": Unknown("the memory of the card"),
        "cpu_has_amx_support": False,
        "importlib.metadata.entry_points": [],  # no plugin brings a platform, a backend or a hook of its own
        "_is_sail_available": False,
        "use_mlx": False,
        "is_in_ci": False,
        "get_is_extend_in_batch": False,  # what is judged is a step of decoding
        "os.path.exists": True,
        "os.path.isdir": True,
        "os.path.isfile": False,
    }


def _layout(target: Target) -> dict[str, Any]:
    layout = target.layout
    sizes: dict[str, Any] = {
        "get_tensor_model_parallel_world_size": layout.tp,
        "get_tensor_model_parallel_rank": 0,
        "get_moe_expert_parallel_world_size": layout.ep,
        "get_moe_expert_parallel_rank": 0,
        "get_moe_tensor_parallel_world_size": layout.expert_tp,
        "get_moe_tensor_parallel_rank": 0,
        "get_attention_tp_size": layout.attention_tp,
        "get_attention_tp_rank": 0,
        "get_attention_dp_size": layout.dp,
        "is_dp_attention_enabled": layout.dp > 1,
    }
    return sizes | {name: Unknown("a group of ranks", solid=True) for name in _GROUPS}


def _is_handler(function: Function) -> bool:
    """Whether a function is one of the many steps that go over the server's arguments one after the other."""
    name = function.qualified.rpartition(".")[2]
    if not name.lstrip("_").startswith(("handle", "validate", "apply", "check", "default_", "disable_", "finalize")):
        return False
    spec = function.node.args
    parameters = [each.arg for each in spec.posonlyargs + spec.args]
    return parameters == ["server_args"] or (parameters == ["self"] and function.qualified.startswith("ServerArgs."))


def _leaves_a_mark(function: Function) -> bool:
    """Whether a step writes a private attribute of the arguments: later steps decide by it without naming this one."""
    node = function.node
    return bool(_MARK.search("\n".join(function.module.module.lines[node.lineno - 1 : node.end_lineno])))

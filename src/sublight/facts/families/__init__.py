"""One file per family of architectures: what its layers hold, in terms of the common parts.

A family is a function `(fields, inventory) -> None`. `fields` is the text part of the configuration; the function reads
what it needs, adds tensors and caches, and sets the inventory's summary. It types in no size: every number it uses is
read from the configuration or follows from one.
"""

from sublight.registry import Registry

_HERE = "sublight.facts.families"

FAMILIES = Registry(
    "model_type",
    "sublight.families",
    {
        "deepseek_v2": f"{_HERE}.mla:deepseek",
        "deepseek_v3": f"{_HERE}.mla:deepseek",
        "deepseek_v32": f"{_HERE}.mla:deepseek",
        "gemma4_text": f"{_HERE}.gemma4:gemma4",
        "glm4_moe": f"{_HERE}.glm4:glm4_moe",
        "glm4_moe_lite": f"{_HERE}.mla:deepseek",
        "glm_moe_dsa": f"{_HERE}.mla:deepseek",
        "gpt_oss": f"{_HERE}.gpt_oss:gpt_oss",
        "kimi_k2": f"{_HERE}.mla:deepseek",
        "llama": f"{_HERE}.llama:llama",
        "llama4_text": f"{_HERE}.llama4:llama4",
        "minimax_m2": f"{_HERE}.minimax:minimax_m2",
        "mistral": f"{_HERE}.llama:mistral",
        "mixtral": f"{_HERE}.mixtral:mixtral",
        "nemotron_h": f"{_HERE}.nemotron_h:nemotron_h",
        "qwen2": f"{_HERE}.llama:qwen2",
        "qwen3": f"{_HERE}.qwen3:qwen3",
        "qwen3_5_moe_text": f"{_HERE}.qwen_hybrid:qwen3_5_moe",
        "qwen3_5_text": f"{_HERE}.qwen_hybrid:qwen3_5",
        "qwen3_moe": f"{_HERE}.qwen3:qwen3_moe",
        "qwen3_next": f"{_HERE}.qwen_hybrid:qwen3_next",
        "qwen3_vl_moe_text": f"{_HERE}.qwen3:qwen3_vl_moe",
    },
    hint=(
        "a family that Sublight has; `sublight limit --list` names the models, and CONTRIBUTING.md says how to add one"
    ),
)

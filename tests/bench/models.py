"""A mixture of experts small enough for a CPU, with NVFP4 experts in the form that ModelOpt writes."""

import json
from pathlib import Path

TINY = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "vocab_size": 1024,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": ["lm_head", "*self_attn*", "*mlp.gate"],
    },
}


def write_tiny(folder: Path) -> Path:
    """The folder of the model, which is named "tiny"."""
    place = folder / "tiny"
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(TINY))
    return place

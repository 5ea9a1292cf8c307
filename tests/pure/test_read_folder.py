"""A checkpoint folder: configuration, safetensors headers, and what they say of each other."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sublight.errors import InputFileError
from sublight.facts.model import Model, read_model

from .test_checkpoint import Spec, scalar, write_safetensors

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "vocab_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "torch_dtype": "bfloat16",
}
QUANT = {
    "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*", "*.gate"]}
}
ATTENTION = {"q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64)}
EXPERT = {"gate_proj": (32, 64), "up_proj": (32, 64), "down_proj": (64, 32)}


def tensors(input_scale: float = 0.01) -> dict[str, Spec]:
    """Every tensor of the model, as ModelOpt stores it."""
    found: dict[str, Spec] = {
        "model.embed_tokens.weight": ("BF16", (128, 64)),
        "lm_head.weight": ("BF16", (128, 64)),
        "model.norm.weight": ("BF16", (64,)),
        "model.layers.0.input_layernorm.weight": ("BF16", (64,)),
        "model.layers.0.post_attention_layernorm.weight": ("BF16", (64,)),
        "model.layers.0.self_attn.q_norm.weight": ("BF16", (32,)),
        "model.layers.0.self_attn.k_norm.weight": ("BF16", (32,)),
        "model.layers.0.mlp.gate.weight": ("BF16", (4, 64)),
    }
    found |= {f"model.layers.0.self_attn.{name}.weight": ("BF16", shape) for name, shape in ATTENTION.items()}
    for expert in range(4):
        for name, (rows, columns) in EXPERT.items():
            module = f"model.layers.0.mlp.experts.{expert}.{name}"
            found[f"{module}.weight"] = ("U8", (rows, columns // 2))
            found[f"{module}.weight_scale"] = ("F8_E4M3", (rows, columns // 16))
            found[f"{module}.weight_scale_2"] = scalar(2.79e-4)
            found[f"{module}.input_scale"] = scalar(input_scale)
    return found


def read(folder: Path, stored: dict[str, Spec], quant: object = QUANT) -> Model:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "hf_quant_config.json").write_text(json.dumps(quant))
    write_safetensors(folder / "model.safetensors", stored)
    return read_model(folder)


def said(model: Model, level: str) -> str:
    return " | ".join(f"{f.subject}: {f.text}" for f in model.findings if f.level == level)


def formats(model: Model, row: str) -> set[str]:
    return {t.format.name for t in model.tensors if t.row == row and t.is_matrix}


def test_a_sound_checkpoint_has_nothing_to_report(tmp_path: Path) -> None:
    model = read(tmp_path, tensors())
    assert [f for f in model.findings if f.level != "info"] == []
    assert formats(model, "moe.experts") == {"nvfp4"}
    assert formats(model, "attn.o") == {"bf16"}
    assert model.name == tmp_path.name
    stored = sum(p.stat().st_size for p in tmp_path.glob("*.safetensors"))
    header = int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little") + 8
    assert model.checkpoint_bytes(None) == stored - header


def test_headers_win_over_the_configuration(tmp_path: Path) -> None:
    """The list calls nothing but lm_head excluded; attention is stored in BF16 all the same."""
    quant = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}
    model = read(tmp_path, tensors(), quant)
    assert formats(model, "attn.o") == {"bf16"}
    assert "stored as BF16 where the configuration says NVFP4" in said(model, "warn")


def test_an_excluded_head_that_carries_scales(tmp_path: Path) -> None:
    model = read(tmp_path, tensors() | {"lm_head.weight_scale": ("F8_E4M3", (128, 4))})
    assert formats(model, "head") == {"bf16"}
    assert "excluded but lm_head.weight_scale present: counted BF16, verify" in said(model, "warn")


@pytest.mark.parametrize(("value", "word"), [(0.0, "zero"), (math.inf, "inf"), (math.nan, "nan"), (1e-42, "denormal")])
def test_scales_that_no_kernel_can_use(tmp_path: Path, value: float, word: str) -> None:
    stored = tensors()
    stored["model.layers.0.mlp.experts.2.gate_proj.input_scale"] = scalar(value)
    errors = said(read(tmp_path, stored), "error").lower()
    assert "layer 0 expert 2" in errors and word in errors


def test_an_expert_that_calibration_never_hit(tmp_path: Path) -> None:
    stored = tensors()
    for name in EXPERT:
        del stored[f"model.layers.0.mlp.experts.3.{name}.input_scale"]
    errors = said(read(tmp_path, stored), "error")
    assert "layer 0 expert 3: input_scale missing" in errors


def test_bytes_that_belong_to_nothing_counted(tmp_path: Path) -> None:
    model = read(tmp_path, tensors() | {"vision_tower.weight": ("BF16", (1000, 100))})
    assert "the shards hold" in said(model, "info")


def test_a_truncated_shard_is_one_clear_error(tmp_path: Path) -> None:
    read(tmp_path, tensors())
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputFileError):
        read_model(tmp_path)

"""Formats from stored tensors, and what is told where the configuration had them otherwise."""

from pathlib import Path

import pytest

from sublight.facts.checkpoint import HeaderScheme, from_headers, read_checkpoint
from sublight.facts.fields import Fields
from sublight.facts.formats import BF16
from sublight.facts.quantization.base import Quantization, Site, Unquantised
from sublight.facts.quantization.read import read_quantization

from .test_checkpoint import Spec, scalar, write_index, write_safetensors

OUT, IN = 64, 256
PLAIN = Quantization("none", "config.json", "BF16", "", Unquantised(BF16))


def nvfp4(module: str, *, calibrated: bool = True) -> dict[str, Spec]:
    tensors: dict[str, Spec] = {
        f"{module}.weight": ("U8", (OUT, IN // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (OUT, IN // 16)),
        f"{module}.weight_scale_2": scalar(2.79e-4),
    }
    return tensors | ({f"{module}.input_scale": scalar(0.01)} if calibrated else {})


def packed(module: str, *, calibrated: bool = True) -> dict[str, Spec]:
    tensors: dict[str, Spec] = {
        f"{module}.weight_packed": ("U8", (OUT, IN // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (OUT, IN // 16)),
        f"{module}.weight_global_scale": ("F32", (1,)),
    }
    return tensors | ({f"{module}.input_global_scale": ("F32", (1,))} if calibrated else {})


def fp8(module: str, scale: str, *shape: int) -> dict[str, Spec]:
    return {f"{module}.weight": ("F8_E4M3", (OUT, IN)), f"{module}.{scale}": ("F32", shape)}


STORED: list[tuple[str, dict[str, Spec]]] = [
    ("bf16", {"m.weight": ("BF16", (OUT, IN))}),
    ("fp16", {"m.weight": ("F16", (OUT, IN))}),
    ("fp32", {"m.weight": ("F32", (OUT, IN))}),
    ("bf16", {"m": ("BF16", (8, OUT, IN))}),
    ("nvfp4", nvfp4("m")),
    ("nvfp4-w4a16", nvfp4("m", calibrated=False)),
    ("nvfp4", packed("m")),
    ("nvfp4-w4a16", packed("m", calibrated=False)),
    ("fp8", fp8("m", "weight_scale")),
    ("fp8", fp8("m", "weight_scale", 1)),
    ("fp8", {"m.weight": ("F8_E4M3", (OUT, IN))}),
    ("fp8-channel", fp8("m", "weight_scale", OUT)),
    ("fp8-channel", fp8("m", "weight_scale", OUT, 1)),
    ("fp8-block", fp8("m", "weight_scale_inv", 1, 2)),
    ("fp8-block", fp8("m", "weight_scale", 1, 1, 2, 1)),
    ("fp8-block-32x64", fp8("m", "weight_scale_inv", 2, 4)),
    ("mxfp8", {"m.weight": ("F8_E4M3", (OUT, IN)), "m.weight_scale": ("U8", (OUT, IN // 32))}),
    ("mxfp4", {"m_blocks": ("U8", (4, OUT, IN // 32, 16)), "m_scales": ("U8", (4, OUT, IN // 32))}),
    ("mxfp4", {"m.weight_packed": ("U8", (OUT, IN // 2)), "m.weight_scale": ("U8", (OUT, IN // 32))}),
    ("mxfp4", {"m.weight": ("I8", (OUT, IN // 2)), "m.scale": ("F8_E8M0", (OUT, IN // 32))}),
    ("int8-channel", {"m.weight": ("I8", (OUT, IN)), "m.weight_scale": ("F32", (OUT, 1))}),
    ("int4-g32", {"m.weight_packed": ("I32", (OUT, IN // 8)), "m.weight_scale": ("BF16", (OUT, IN // 32))}),
    ("int8-g128", {"m.weight_packed": ("I32", (OUT, IN // 4)), "m.weight_scale": ("BF16", (OUT, IN // 128))}),
    ("int4-channel", {"m.weight_packed": ("I32", (OUT, IN // 8)), "m.weight_scale": ("BF16", (OUT, 1))}),
    (
        "int4-g128-zp",  # GPTQ packs along the input
        {"m.qweight": ("I32", (IN // 8, OUT)), "m.scales": ("F16", (2, OUT)), "m.qzeros": ("I32", (2, OUT // 8))},
    ),
    (
        "int4-g64-zp",  # AWQ packs along the output
        {"m.qweight": ("I32", (IN, OUT // 8)), "m.scales": ("F16", (4, OUT)), "m.qzeros": ("I32", (4, OUT // 8))},
    ),
    ("int8-g128", {"m.qweight": ("I32", (IN // 4, OUT)), "m.scales": ("F16", (2, OUT))}),
]


@pytest.mark.parametrize(("name", "tensors"), STORED, ids=lambda v: v if isinstance(v, str) else "")
def test_formats_by_stored_tensors(tmp_path: Path, name: str, tensors: dict[str, Spec]):
    write_safetensors(tmp_path / "model.safetensors", tensors)
    scheme = HeaderScheme(read_checkpoint(tmp_path), PLAIN)
    assert scheme.format_of(Site("m", "Linear", (OUT, IN))).name == name
    assert scheme.absent == ()
    assert len(scheme.noticed()) == (name != "bf16")


def modelopt(**quantization: object) -> Quantization:
    base = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*.self_attn.*"]}
    config = Fields({"dtype": "bfloat16"}, "config.json")
    return read_quantization(config, config, Fields({"quantization": base | quantization}, "hf_quant_config.json"))


def ask(scheme: HeaderScheme, *modules: str) -> list[str]:
    return [scheme.format_of(Site(m, "Linear", (OUT, IN), ".experts." in m)).name for m in modules]


def test_headers_that_agree_say_nothing(tmp_path: Path):
    tensors = nvfp4("model.layers.0.mlp.up_proj") | {"lm_head.weight": ("BF16", (OUT, IN))}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    q = from_headers(read_checkpoint(tmp_path), modelopt())
    assert ask(q.scheme, "model.layers.0.mlp.up_proj", "lm_head") == ["nvfp4", "bf16"]  # type: ignore[arg-type]
    assert q.all_findings() == ()
    assert q.source == "hf_quant_config.json (config.json silent); headers of 1 shard win"


def test_an_excluded_head_with_the_tensors_of_a_quantised_one(tmp_path: Path):
    tensors: dict[str, Spec] = {"lm_head.weight": ("BF16", (OUT, IN)), "lm_head.weight_scale": ("F8_E4M3", (OUT, 16))}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    q = from_headers(read_checkpoint(tmp_path), modelopt())
    assert ask(q.scheme, "lm_head") == ["bf16"]  # type: ignore[arg-type]
    (finding,) = q.all_findings()
    assert finding.level == "warn"
    assert "excluded but lm_head.weight_scale present: counted BF16, verify" in finding.text


def test_an_excluded_head_that_is_stored_quantised(tmp_path: Path):
    write_safetensors(tmp_path / "model.safetensors", nvfp4("lm_head"))
    q = from_headers(read_checkpoint(tmp_path), modelopt())
    assert ask(q.scheme, "lm_head", "lm_head") == ["nvfp4", "nvfp4"]  # type: ignore[arg-type]
    (finding,) = q.all_findings()
    assert "1 module stored as NVFP4 where the configuration says BF16 (lm_head): counted as stored" in finding.text
    assert "engines follow the configuration" in finding.text


def test_modules_without_a_tensor_are_counted_as_inferred_and_told(tmp_path: Path):
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a.weight": ("BF16", (OUT, IN))})
    write_index(
        tmp_path,
        {"a.weight": "model-00001-of-00002.safetensors", "b.up_proj.weight": "model-00002-of-00002.safetensors"},
    )
    q = from_headers(read_checkpoint(tmp_path), modelopt(exclude_modules=["a"]))
    assert ask(q.scheme, "a", "b.up_proj") == ["bf16", "nvfp4"]  # type: ignore[arg-type]
    assert q.scheme.absent == ("b.up_proj",)  # type: ignore[attr-defined]
    shards, absent = q.all_findings()
    assert (shards.level, "1 shard missing (model-00002-of-00002.safetensors)" in shards.text) == ("warn", True)
    assert absent.text == "1 of 2 modules has no stored tensor (b.up_proj): counted as the configuration says"


def test_the_layout_does_not_tell_the_rate(tmp_path: Path):
    stored: dict[str, Spec] = {"m.qweight": ("I32", (IN // 8, OUT)), "m.scales": ("F16", (2, OUT))}
    stored |= {"m.qzeros": ("I32", (2, OUT // 8)), "m.g_idx": ("I32", (IN,))}
    write_safetensors(tmp_path / "model.safetensors", stored)
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    config = Fields({"dtype": "float16", "quantization_config": gptq}, "config.json")
    scheme = HeaderScheme(read_checkpoint(tmp_path), read_quantization(config, config, None))
    assert ask(scheme, "m") == ["int4-g128"]  # helper tensors are stored, and kernels do not read them
    assert scheme.noticed() == ()


def test_one_uncalibrated_expert_is_no_other_format(tmp_path: Path):
    stack = "model.layers.3.mlp.experts"
    tensors = nvfp4(f"{stack}.0.up_proj", calibrated=False) | nvfp4(f"{stack}.1.up_proj")
    write_safetensors(tmp_path / "model.safetensors", tensors)
    scheme = HeaderScheme(read_checkpoint(tmp_path), modelopt())
    assert ask(scheme, f"{stack}.0.up_proj", f"{stack}.1.up_proj") == ["nvfp4", "nvfp4"]
    assert not scheme.names_experts


def test_experts_that_are_stored_differently_are_each_asked(tmp_path: Path):
    stack = "model.layers.3.mlp.experts"
    tensors = nvfp4(f"{stack}.0.up_proj") | {f"{stack}.1.up_proj.weight": ("BF16", (OUT, IN))}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    scheme = HeaderScheme(read_checkpoint(tmp_path), modelopt())
    assert scheme.names_experts
    assert ask(scheme, f"{stack}.0.up_proj", f"{stack}.1.up_proj") == ["nvfp4", "bf16"]


def test_fused_and_stacked_tensors_answer_for_their_parts(tmp_path: Path):
    stack = "model.layers.0.mlp.experts"
    tensors: dict[str, Spec] = {
        f"{stack}.gate_up_proj_blocks": ("U8", (4, OUT, IN // 32, 16)),
        f"{stack}.gate_up_proj_scales": ("U8", (4, OUT, IN // 32)),
        "model.layers.0.self_attn.qkv_proj.weight": ("F16", (OUT, IN)),
        "model.layers.0.mlp.gate_proj.weight": ("F16", (OUT, IN)),
        "model.layers.0.mlp.up_proj.weight": ("F16", (OUT, IN)),
    }
    write_safetensors(tmp_path / "model.safetensors", tensors)
    scheme = HeaderScheme(read_checkpoint(tmp_path), PLAIN)
    assert ask(scheme, f"{stack}.gate_up_proj", f"{stack}.7.gate_proj") == ["mxfp4", "mxfp4"]
    assert ask(scheme, "model.layers.0.self_attn.k_proj", "model.layers.0.mlp.gate_up_proj") == ["fp16", "fp16"]
    assert scheme.absent == ()


def test_a_question_about_no_module_is_about_the_default(tmp_path: Path):
    write_safetensors(tmp_path / "model.safetensors", {"a.weight": ("F32", (2,))})
    scheme = HeaderScheme(read_checkpoint(tmp_path), PLAIN)
    assert scheme.format_of(Site("", "Norm", (1,))).name == "bf16"
    assert (scheme.absent, scheme.noticed(), scheme.unmatched()) == ((), (), [])

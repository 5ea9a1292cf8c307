"""compressed-tensors, fp8, mxfp4, AWQ, GPTQ; the dtype of the rest; and methods that are refused."""

import subprocess
import sys
from typing import Any

import pytest

from sublight.errors import ConfigError
from sublight.facts.fields import Fields
from sublight.facts.quantization.base import Quantization, Site
from sublight.facts.quantization.read import METHODS, read_quantization


def read(quantization_config: dict[str, Any] | None, **config: Any) -> Quantization:
    data = {"dtype": "bfloat16", **config}
    if quantization_config is not None:
        data["quantization_config"] = quantization_config
    top = Fields(data, "config.json")
    return read_quantization(top, top.object("text_config") or top, None)


def format_of(quantization: Quantization, module: str, kind: str = "Linear", **site: Any) -> str:
    shape = (2048, 6144)
    return quantization.scheme.format_of(Site(module, kind, shape, ".experts." in module, **site)).name  # type: ignore[arg-type]


def group(weights: dict[str, Any], inputs: dict[str, Any] | None = None, *targets: str) -> dict[str, Any]:
    return {"weights": weights, "input_activations": inputs, "targets": list(targets or ("Linear",))}


def tensors(*groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    table = {f"group_{i}": g for i, g in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": table, "ignore": ["lm_head"], **fields}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
FP8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
TOKEN8 = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}


@pytest.mark.parametrize(
    ("weights", "inputs", "name"),
    [
        (NVFP4, NVFP4, "nvfp4"),
        (NVFP4, None, "nvfp4-w4a16"),
        (NVFP4, FP8, "nvfp4-a8"),
        (FP8, FP8, "fp8"),
        (FP8, None, "fp8-a16"),
        (FP8 | {"strategy": "channel"}, TOKEN8, "fp8-channel"),
        (FP8 | {"strategy": "block", "block_structure": [128, 128]}, TOKEN8, "fp8-block"),
        (FP8 | {"strategy": "block", "block_structure": "64x128"}, TOKEN8, "fp8-block-64x128"),
        (FP8 | {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}, TOKEN8, "mxfp8"),
        (INT4, None, "int4-g32"),
        (INT4 | {"symmetric": False, "group_size": 128}, None, "int4-g128-zp"),
        (INT4 | {"actorder": "group"}, None, "int4-g32-idx"),
        (INT4 | {"group_size": -1, "strategy": "channel"}, None, "int4-channel"),
        (INT4, TOKEN8, "int4-g32-a8"),
        (INT4 | {"num_bits": 8, "group_size": 128}, None, "int8-g128"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8, "type": "int"}, "int8-channel-a8"),
        (NVFP4 | {"group_size": 32, "strategy": "group"}, None, "mxfp4"),
        (NVFP4 | {"group_size": 32}, NVFP4 | {"group_size": 32}, "mxfp4-a4"),
    ],
)
def test_compressed_tensors_formats(weights: dict[str, Any], inputs: dict[str, Any] | None, name: str):
    q = read(tensors(group(weights, inputs)))
    assert format_of(q, "model.layers.0.mlp.up_proj") == name
    assert format_of(q, "lm_head") == "bf16"
    assert format_of(q, "model.layers.0.mlp.up_proj", fixed=True) == "bf16"


def test_kimi_k25_experts_in_int4():
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    declared = tensors(group(INT4), format="pack-quantized", ignore=ignore, quantization_status="compressed")
    q = read(None, text_config={"dtype": "bfloat16", "quantization_config": declared})
    assert q.source == "config.json (text_config.quantization_config)"
    assert q.summary == "INT4 group 32, 4 exclusions"
    assert q.findings == ()
    prefix = "language_model.model.layers."
    assert format_of(q, f"{prefix}1.mlp.experts.0.gate_proj") == "int4-g32"
    assert format_of(q, f"{prefix}0.mlp.gate_proj") == "bf16"
    assert format_of(q, f"{prefix}1.mlp.shared_experts.gate_proj") == "bf16"
    assert format_of(q, f"{prefix}1.self_attn.o_proj") == "bf16"
    assert format_of(q, f"{prefix}1.mlp.gate", "Gate") == "bf16"
    assert format_of(q, "language_model.lm_head") == "bf16"
    assert q.scheme.unmatched() == []


def test_the_most_specific_target_decides():
    declared = tensors(
        group(INT4),
        group(FP8, FP8, "re:.*self_attn.*", "re:.*experts.*"),
        group(NVFP4, NVFP4, "model.layers.0.self_attn.o_proj", "re:.*down_proj"),
    )
    q = read(declared)
    assert q.summary == "INT4 group 32 + FP8 + NVFP4, group 16, 1 exclusion"
    assert format_of(q, "model.layers.0.self_attn.o_proj") == "nvfp4"  # its own name
    assert format_of(q, "model.layers.1.self_attn.o_proj") == "fp8"  # an expression
    assert format_of(q, "model.layers.1.mlp.up_proj") == "int4-g32"  # its class
    # Two expressions match: the library takes them in alphabetical order, "re:.*down_proj" before "re:.*experts.*".
    assert format_of(q, "model.layers.1.mlp.experts.0.down_proj") == "nvfp4"
    assert format_of(q, "model.layers.1.self_attn.qkv_proj") == "fp8"
    assert format_of(q, "model.embed_tokens", "Embedding") == "bf16"


def test_named_targets_leave_the_rest_alone():
    q = read(tensors(group(INT4, None, "model.layers.0.self_attn.q_proj", "Embedding")))
    assert format_of(q, "model.layers.0.self_attn.q_proj") == "int4-g32"
    assert format_of(q, "model.layers.0.self_attn.o_proj") == "bf16"
    assert format_of(q, "model.embed_tokens", "Embedding") == "int4-g32"
    assert format_of(q, "model.embed_tokens", "Embedding", fixed=True) == "bf16"


def test_classes_can_be_ignored_and_kv_caches_declared():
    q = read(tensors(group(INT4), ignore=["Linear"], kv_cache_scheme={"num_bits": 8, "type": "float"}))
    assert format_of(q, "model.layers.0.self_attn.q_proj") == "bf16"
    assert (q.kv_cache, q.summary) == ("fp8", "INT4 group 32, KV FP8, 1 exclusion")
    only_kv = tensors(kv_cache_scheme={"num_bits": 8, "type": "float"})
    assert read(only_kv).summary == "weights BF16, KV FP8, 1 exclusion"


def test_weights_that_are_not_compressed_yet_are_told():
    q = read(tensors(group(INT4), quantization_status="frozen"))
    assert q.findings[0].level == "warn"
    assert "'frozen'" in q.findings[0].text


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (tensors(group(NVFP4), format="pack-quantized"), "format is 'pack-quantized' and the weights are 4-bit float"),
        (tensors(group(INT4), format="packed"), "format is 'packed'"),
        (tensors(group(NVFP4 | {"group_size": 64})), "4-bit float weights in groups of 64"),
        (tensors(group(FP8 | {"num_bits": 6})), "6-bit float weights"),
        (tensors(group(INT4 | {"type": "complex"})), "type is 'complex'"),
        (tensors(group(INT4 | {"group_size": 0})), "group_size is 0"),
        (tensors(group(FP8 | {"block_structure": [128]})), "block_structure is [128]"),
        (tensors(group(NVFP4, {"num_bits": 2, "type": "int"})), "2-bit int activations"),
        (tensors(), "no group with weights"),
        (tensors({"weights": INT4}), "no targets"),
        (tensors(group(INT4), sparsity_config={"format": "sparse-24-bitmask"}), "sparse-24-bitmask"),
        (tensors(group(INT4), ignore=["re:*"]), "'re:*' is no regular expression"),
    ],
)
def test_compressed_tensors_that_cannot_be_read(declared: dict[str, Any], said: str):
    with pytest.raises(ConfigError) as error:
        read(declared)
    assert said in error.value.found
    assert error.value.hint


FP8_RELEASE = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def test_fp8_without_a_list_keeps_what_deepseek_keeps():
    q = read(FP8_RELEASE | {"scale_fmt": "ue8m0"})
    assert q.method == "fp8"
    assert q.summary == "FP8 block 128x128, heads and gates excluded (no list)"
    prefix = "model.layers.61."
    plain = ["lm_head", f"{prefix}mlp.gate", f"{prefix}eh_proj", f"{prefix}shared_head.head"]
    plain += [f"{prefix}self_attn.indexer.weights_proj"]
    assert {format_of(q, name) for name in plain} == {"bf16"}
    quantised = ["mlp.gate_proj", "self_attn.o_proj", "self_attn.kv_b_proj", "mlp.experts.3.up_proj"]
    quantised += ["self_attn.indexer.wk"]
    assert {format_of(q, prefix + name) for name in quantised} == {"fp8-block"}
    assert format_of(q, "model.embed_tokens", "Embedding") == "bf16"


def test_fp8_with_a_list_follows_it():
    q = read(FP8_RELEASE | {"modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]})
    assert q.summary == "FP8 block 128x128, 3 exclusions"
    assert format_of(q, "model.layers.3.block_sparse_moe.gate") == "bf16"
    assert format_of(q, "model.layers.3.mlp.gate_proj") == "fp8-block"
    assert format_of(q, "model.layers.3.eh_proj") == "fp8-block"  # the list is there and does not name it
    assert q.scheme.unmatched() == ["lm_head"]  # never asked here; a bias is no module


def test_a_name_that_lost_its_weight_is_read_as_meant():
    listed = ["lm_head", "model.layers.0.self_attn.indexers_proj", "model.layers.3.mlp.gate.e_score_correction_bias"]
    q = read(FP8_RELEASE | {"modules_to_not_convert": listed})
    assert format_of(q, "model.layers.0.self_attn.indexer.weights_proj") == "bf16"
    assert format_of(q, "model.layers.0.self_attn.indexer.wk") == "fp8-block"
    format_of(q, "lm_head")
    assert q.scheme.unmatched() == []


def test_fp8_of_other_tiles_tensors_and_experts():
    assert format_of(read(FP8_RELEASE | {"weight_block_size": [64, 32]}), "a.up_proj") == "fp8-block-64x32"
    assert format_of(read({"quant_method": "fp8", "activation_scheme": "static"}), "a.up_proj") == "fp8"
    assert format_of(read({"quant_method": "mxfp8", "weight_block_size": [1, 32]}), "a.up_proj") == "mxfp8"
    q = read(FP8_RELEASE, expert_dtype="fp4")
    assert q.summary.startswith("FP8 block 128x128, experts MXFP4 (A8), group 32")
    assert format_of(q, "layers.3.ffn.experts.0.w1") == "mxfp4-a8"
    assert format_of(q, "layers.3.ffn.shared_experts.w1") == "fp8-block"


def test_two_lists_that_differ():
    q = read(FP8_RELEASE | {"ignored_layers": ["lm_head"], "modules_to_not_convert": ["lm_head", "gate"]})
    assert format_of(q, "model.layers.3.mlp.gate") == "fp8-block"
    assert "ignored_layers names 1 module and modules_to_not_convert 2" in q.findings[0].text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fmt": "e3m4"}, "fmt is 'e3m4'"),
        ({"weight_block_size": [128]}, "1 entry"),
        ({"weight_block_size": [128, 0]}, "[128, 0]"),
        ({"weight_block_size": "128"}, "not a list"),
        ({"modules_to_not_convert": {"gate": 1}}, "not a list"),
        ({"expert_dtype": "fp3"}, "'fp3'"),
    ],
)
def test_fp8_that_cannot_be_read(change: dict[str, Any], said: str):
    with pytest.raises(ConfigError) as error:
        read(FP8_RELEASE | change)
    assert said in error.value.found


def test_gpt_oss_quantises_experts_only():
    listed = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    q = read({"quant_method": "mxfp4", "modules_to_not_convert": listed})
    assert q.summary == "MXFP4, group 32, experts only, 4 exclusions"
    assert format_of(q, "model.layers.3.mlp.experts.gate_up_proj", "Parameter") == "mxfp4"
    assert format_of(q, "model.layers.3.mlp.experts.0.down_proj") == "mxfp4"
    assert format_of(q, "model.layers.3.self_attn.q_proj") == "bf16"
    assert format_of(q, "model.layers.3.mlp.up_proj") == "bf16"  # linear, not listed, and still not quantised
    format_of(q, "model.layers.3.mlp.router", "Gate")
    assert q.scheme.unmatched() == ["model.embed_tokens", "lm_head"]


def test_awq():
    declared = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
    q = read(declared | {"modules_to_not_convert": ["gate", "self_attn"]})
    assert q.summary == "INT4 group 128, 2 exclusions"
    assert format_of(q, "model.layers.1.mlp.experts.0.gate_proj") == "int4-g128-zp"
    assert format_of(q, "model.layers.1.mlp.gate") == "bf16"
    assert format_of(q, "model.layers.1.self_attn.q_proj") == "bf16"
    assert format_of(q, "lm_head") == "bf16"
    old = {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}
    assert format_of(read(old), "model.layers.1.mlp.up_proj") == "int4-g64"
    assert format_of(read(declared | {"lm_head": True}), "lm_head") == "int4-g128-zp"
    with pytest.raises(ConfigError, match="bits is 5"):
        read(declared | {"bits": 5})


def test_gptq():
    declared = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    q = read(declared)
    assert q.summary == "INT4 group 128, no exclusions"
    assert format_of(q, "model.layers.1.mlp.experts.0.gate_proj") == "int4-g128"
    assert format_of(q, "model.layers.1.mlp.gate") == "bf16"
    assert format_of(q, "lm_head") == "bf16"
    assert format_of(read(declared | {"sym": False}), "a.up_proj") == "int4-g128-zp"
    q = read(declared | {"desc_act": True})
    assert format_of(q, "a.up_proj") == "int4-g128-idx"
    assert q.summary == "INT4 group 128, in activation order, no exclusions"
    assert format_of(read(declared | {"group_size": -1, "desc_act": True}), "a.up_proj") == "int4-channel"
    assert format_of(read(declared | {"bits": 8}), "a.up_proj") == "int8-g128"


def test_gptq_overrides_by_expression():
    dynamic = {
        r"+:.*\.18\..*gate.*": {"bits": 8, "group_size": 64},
        r".*\.19\..*gate.*": {"bits": 8},
        r"-:.*\.20\..*": {},
    }
    q = read({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic})
    assert q.summary == "INT4 group 128, 1 exclusion"
    assert format_of(q, "model.layers.18.mlp.gate_proj") == "int8-g64"
    assert format_of(q, "model.layers.19.mlp.gate_proj") == "int8-g128"
    assert format_of(q, "model.layers.20.mlp.gate_proj") == "bf16"
    assert format_of(q, "model.layers.21.mlp.gate_proj") == "int4-g128"
    assert q.scheme.unmatched() == []
    with pytest.raises(ConfigError, match="no regular expression"):
        read({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:*": {}}})


def test_gptq_with_a_list_of_what_was_quantised():
    listed = [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp.down_proj"]]
    q = read({"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": listed})
    assert format_of(q, "model.layers.0.self_attn.q_proj") == "int4-g128"
    assert format_of(q, "model.layers.0.mlp.down_proj") == "int4-g128"
    assert format_of(q, "model.layers.0.mlp.up_proj") == "bf16"
    with pytest.raises(ConfigError, match="no name"):
        read({"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [[1]]})


@pytest.mark.parametrize(
    ("declared", "said", "try_"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "'bitsandbytes'", "compressed-tensors"),
        ({"quant_method": "compressed_tensors"}, "'compressed_tensors'", "compressed-tensors"),
        ({"quant_method": "mxfp5"}, "'mxfp5'", "mxfp4"),
        ({"quant_method": 4}, "quant_method is 4", "string"),
        ({"bits": 4}, "no quant_method", "gptq"),
    ],
)
def test_unknown_methods_are_refused_with_near_misses(declared: dict[str, Any], said: str, try_: str):
    with pytest.raises(ConfigError) as error:
        read(declared)
    assert said in error.value.found
    assert try_ in error.value.hint


def test_an_unquantised_model():
    q = read(None)
    assert (q.method, q.summary, q.kv_cache) == ("none", "BF16, not quantised", "")
    assert q.source == "config.json (no quantization_config, no hf_quant_config.json)"
    assert format_of(q, "model.layers.0.mlp.up_proj") == "bf16"
    assert q.scheme.unmatched() == []


@pytest.mark.parametrize(
    ("config", "name", "findings"),
    [
        ({"dtype": "bfloat16"}, "bf16", 0),
        ({"torch_dtype": "float16"}, "fp16", 0),
        ({"torch_dtype": "torch.float32"}, "fp32", 0),
        ({"dtype": "float32", "torch_dtype": "float16"}, "fp32", 0),
        ({"text_config": {"dtype": "float16"}, "dtype": "bfloat16"}, "fp16", 0),
        ({"text_config": {}, "torch_dtype": "float16"}, "fp16", 0),
        ({}, "bf16", 1),
        ({"dtype": "auto"}, "bf16", 1),
    ],
)
def test_dtype(config: dict[str, Any], name: str, findings: int):
    top = Fields(config, "config.json")
    q = read_quantization(top, top.object("text_config") or top, None)
    assert format_of(q, "model.layers.0.mlp.up_proj") == name
    assert [f.level for f in q.findings] == ["info"] * findings


def test_a_dtype_that_is_none():
    with pytest.raises(ConfigError, match="dtype is 'int3'"):
        read(None, dtype="int3")


def test_declarations_in_two_places_of_one_file():
    inner = {"quantization_config": {"quant_method": "mxfp4"}, "dtype": "bfloat16"}
    q = read(FP8_RELEASE, text_config=inner)
    assert q.method == "fp8"
    assert "quantization_config and text_config.quantization_config, and they differ" in q.findings[0].text
    assert read(FP8_RELEASE, text_config={"quantization_config": FP8_RELEASE}).findings == ()
    legacy = read_quantization(*[Fields({"dtype": "bfloat16", "compression_config": FP8_RELEASE}, "c")] * 2, None)
    assert legacy.source == "config.json (compression_config)"


def test_every_method_reads_or_refuses_an_empty_declaration():
    for name in METHODS.names():
        try:
            q = read({"quant_method": name})
        except ConfigError as error:
            assert error.hint
        else:
            assert q.method in name or name in ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed")


def test_expressions_are_not_compiled_for_schemes_without_any():
    code = (
        "import sys; from sublight.facts.fields import Fields; from sublight.facts.quantization import read; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; "
        "gone = [m for m in sys.modules if m.startswith('sublight.facts.quantization.')]; "
        "assert 'sublight.facts.quantization.gptq' not in gone; print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ok", done.stderr

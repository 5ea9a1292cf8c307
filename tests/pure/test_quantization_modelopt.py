"""ModelOpt in its two files: exclusions, tables, and what happens when the two files part ways."""

from typing import Any

import pytest

from sublight.errors import ConfigError
from sublight.facts.fields import Fields
from sublight.facts.quantization.base import Quantization, Site
from sublight.facts.quantization.read import read_quantization

NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_a_layernorm", "self_attn.kv_a_layernorm")
ATTENTION = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")


def read(config: dict[str, Any] | None = None, hf_quant: dict[str, Any] | None = None) -> Quantization:
    top = Fields({"dtype": "bfloat16", **(config or {})}, "config.json")
    text = top.object("text_config") or top
    side = Fields(hf_quant, "hf_quant_config.json") if hf_quant is not None else None
    return read_quantization(top, text, side)


def side_file(**quantization: Any) -> dict[str, Any]:
    base = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
    return {"producer": {"name": "modelopt", "version": "0.42"}, "quantization": base | quantization}


def flat(**fields: Any) -> dict[str, Any]:
    numbers = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    base = {
        "config_groups": {"group_0": {"input_activations": numbers, "weights": numbers, "targets": ["Linear"]}},
        "ignore": ["lm_head"],
        "quant_algo": "NVFP4",
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "quant_method": "modelopt",
    }
    return {"quantization_config": base | fields}


def format_of(quantization: Quantization, module: str, **site: Any) -> str:
    expert = ".experts." in module
    kind = site.pop("module_class", "Linear")
    return quantization.scheme.format_of(Site(module, kind, (2048, 6144), expert, **site)).name


def glm5_exclusions() -> list[str]:
    """The 471 entries of nvidia/GLM-5-NVFP4."""
    entries = ["lm_head"]
    for layer in range(78):
        attention = f"model.layers.{layer}.self_attn."
        entries += [attention + name for name in ("indexer*", *ATTENTION, "o_proj")]
    return [*entries, "model.layers.78*", "model.layers.78.self_attn.o_proj"]


def glm5_sites() -> list[Site]:
    sites = [Site("lm_head", "Linear", (154880, 6144)), Site("model.embed_tokens", "Embedding", (154880, 6144))]
    for layer in range(79):
        prefix = f"model.layers.{layer}."
        linear = [f"self_attn.{name}" for name in (*ATTENTION, "o_proj", "indexer.wq_b", "indexer.wk")]
        mlp = ["mlp"] if layer < 3 else ["mlp.shared_experts", "mlp.experts.0", "mlp.experts.1"]
        linear += [f"{part}.{name}" for part in mlp for name in ("gate_proj", "up_proj", "down_proj")]
        sites += [Site(prefix + name, "Linear", (2048, 6144), ".experts." in name) for name in linear]
        sites += [Site(f"{prefix}{name}", "Norm", (6144,)) for name in NORMS]
        sites += [Site(f"{prefix}mlp.gate", "Gate", (256, 6144))] if layer >= 3 else []
    return sites


def test_glm5_from_the_side_file_alone():
    q = read(None, side_file(exclude_modules=glm5_exclusions()))
    assert len(glm5_exclusions()) == 471
    assert q.method == "modelopt"
    assert q.source == "hf_quant_config.json (config.json silent)"
    assert q.summary == "NVFP4, group 16, KV FP8, 471 exclusions"
    assert q.kv_cache == "fp8"
    assert q.findings == ()
    for name in (*ATTENTION, "o_proj", "indexer.wq_b", "indexer.wk"):
        assert format_of(q, f"model.layers.40.self_attn.{name}") == "bf16"
    assert format_of(q, "lm_head") == "bf16"
    for part in ("mlp.experts.0", "mlp.experts.255", "mlp.shared_experts"):
        assert format_of(q, f"model.layers.77.{part}.gate_proj") == "nvfp4"
        assert format_of(q, f"model.layers.78.{part}.gate_proj") == "bf16"  # MTP
    assert format_of(q, "model.layers.2.mlp.down_proj") == "nvfp4"
    assert format_of(q, "model.layers.9.mlp.gate", module_class="Gate") == "bf16"
    assert format_of(q, "model.layers.9.mlp.up_proj", fixed=True) == "bf16"


def test_glm5_whole():
    sites = glm5_sites()
    scheme = read(None, side_file(exclude_modules=glm5_exclusions())).scheme
    found = [scheme.format_of(site).name for site in sites]
    assert found.count("nvfp4") == 3 * 3 + 75 * 3 * 3
    assert scheme.unmatched() == []


def test_deepseek_v32_keeps_o_proj_in_fp4():
    entries = ["lm_head", "model.layers.61*"]
    for layer in range(61):
        entries += [f"model.layers.{layer}.self_attn.{name}" for name in ("indexer*", *ATTENTION)]
    q = read(None, side_file(exclude_modules=entries))
    assert q.summary == "NVFP4, group 16, KV FP8, 307 exclusions"
    assert format_of(q, "model.layers.5.self_attn.o_proj") == "nvfp4"
    assert {format_of(q, f"model.layers.5.self_attn.{name}") for name in ATTENTION} == {"bf16"}
    assert format_of(q, "model.layers.61.self_attn.o_proj") == "bf16"
    assert format_of(q, "model.layers.6.mlp.experts.0.down_proj") == "nvfp4"  # 61* is not layer 6


def test_two_files_that_agree():
    entries = ["lm_head", "model.layers.0*", "model.layers.1.*", "model.layers.10.mlp.shared_experts*"]
    q = read(flat(ignore=entries), side_file(exclude_modules=entries))
    assert q.source == "config.json (quantization_config; hf_quant_config.json agrees)"
    assert q.findings == ()
    assert format_of(q, "model.layers.1.mlp.down_proj") == "bf16"
    assert format_of(q, "model.layers.10.mlp.experts.0.down_proj") == "nvfp4"
    assert format_of(q, "model.layers.10.mlp.shared_experts.down_proj") == "bf16"


def test_two_files_that_contradict_each_other_are_both_reported():
    q = read(
        flat(ignore=["lm_head", "model.layers.3*"], quant_algo="W4A16_NVFP4", config_groups={}),
        side_file(exclude_modules=["lm_head", "mtp*"], kv_cache_quant_algo="NVFP4"),
    )
    assert q.source == "config.json (quantization_config; hf_quant_config.json says otherwise)"
    assert [(f.level, f.subject) for f in q.findings] == [("warn", "quantisation"), ("warn", "KV cache")]
    weights, kv = (f.text for f in q.findings)
    assert "linear modules: config.json NVFP4 (W4A16), hf_quant_config.json NVFP4" in weights
    assert "exclusions only in config.json: 1 (model.layers.3*)" in weights
    assert "exclusions only in hf_quant_config.json: 1 (mtp*)" in weights
    assert "Counted as config.json says" in weights
    assert "TensorRT-LLM reads hf_quant_config.json" in weights
    assert "config.json says FP8, hf_quant_config.json NVFP4. Counted as FP8" in kv
    assert q.kv_cache == "fp8"
    assert format_of(q, "model.layers.3.mlp.up_proj") == "bf16"
    assert format_of(q, "model.layers.4.mlp.up_proj") == "nvfp4-w4a16"


def test_a_kv_format_that_only_one_file_names_is_taken_and_told():
    q = read(flat(kv_cache_scheme=None), side_file())
    assert q.kv_cache == "fp8"
    assert q.summary == "NVFP4, group 16, KV FP8, 1 exclusion"
    assert q.source == "config.json (quantization_config; hf_quant_config.json agrees but for the KV cache)"
    assert "config.json says nothing, hf_quant_config.json FP8" in q.findings[0].text


def test_another_method_in_config_json_is_compared_too():
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": weights}}
    config = {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": []}}
    q = read(config, side_file())
    assert q.method == "compressed-tensors"
    assert "config.json FP8 per channel, hf_quant_config.json NVFP4" in q.findings[0].text
    assert format_of(q, "model.layers.0.mlp.up_proj") == "fp8-channel"


def test_a_silent_side_file_is_no_contradiction():
    for quantization in ({"quant_algo": None, "kv_cache_quant_algo": None}, {"quant_algo": "none"}):
        q = read(None, {"quantization": {**quantization, "exclude_modules": []}})
        assert q.method == "none"
        assert q.summary == "BF16, not quantised"
    q = read(flat(), {"quantization": {"quant_algo": None}})
    assert q.source == "config.json (quantization_config)"


def test_kv_cache_alone():
    q = read(None, side_file(quant_algo=None, exclude_modules=[]))
    assert (q.kv_cache, q.summary) == ("fp8", "weights BF16, KV FP8, no exclusions")
    assert format_of(q, "model.layers.0.mlp.up_proj") == "bf16"
    assert read(None, side_file(kv_cache_quant_algo="none")).kv_cache == ""


TABLE = {
    "model.language_model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    "model.language_model.layers.0.linear_attn.in_proj_qkv": {"quant_algo": "FP8"},
    "model.language_model.layers.0.linear_attn.in_proj_z": {"quant_algo": "FP8"},
    "model.language_model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
    "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
}


def test_a_table_names_modules_and_whole_expert_sets():
    hf_quant = side_file(
        quant_algo="MIXED_PRECISION", group_size=None, quantized_layers=TABLE, exclude_modules=["mtp*"]
    )
    q = read(None, hf_quant)
    assert q.summary == "mixed precision: 2 NVFP4 (W4A16), 3 FP8, KV FP8, 1 exclusion"
    prefix = "model.language_model.layers."
    assert format_of(q, f"{prefix}0.mlp.experts.0.gate_proj") == "nvfp4-w4a16"
    assert format_of(q, f"{prefix}0.mlp.experts.255.down_proj") == "nvfp4-w4a16"
    assert format_of(q, f"{prefix}0.linear_attn.in_proj_qkv") == "fp8"
    assert format_of(q, f"{prefix}0.linear_attn.in_proj_qkvz") == "fp8"
    assert format_of(q, f"{prefix}0.linear_attn.in_proj_b") == "bf16"
    assert format_of(q, f"{prefix}0.mlp.shared_expert.up_proj") == "bf16"
    assert format_of(q, "lm_head") == "nvfp4-w4a16"
    assert format_of(q, "mtp.layers.0.mlp.up_proj") == "bf16"
    assert format_of(q, "language_model.model.layers.3.self_attn.q_proj") == "fp8"
    assert not q.scheme.names_experts  # type: ignore[attr-defined]


def test_a_fused_matrix_of_two_formats_is_refused():
    table = TABLE | {"model.language_model.layers.0.linear_attn.in_proj_z": {"quant_algo": "NVFP4"}}
    q = read(None, side_file(quant_algo="MIXED_PRECISION", quantized_layers=table))
    with pytest.raises(ConfigError) as error:
        format_of(q, "model.language_model.layers.0.linear_attn.in_proj_qkvz")
    assert "FP8" in error.value.found
    assert "NVFP4" in error.value.found


COMPRESSED = [
    {
        "pattern": "backbone.layers.{}.mixer.experts.{}.up_proj",
        "value": {"group_size": 16, "quant_algo": "W4A16_NVFP4"},
        "count": 384,
        "index_sets": [[1, 3, 6], "0..127"],
        "full_product": True,
    },
    {"pattern": "backbone.layers.{}.mixer.in_proj", "value": {"quant_algo": "FP8"}, "index_sets": [[0, 2]]},
    {"pattern": "lm_head", "value": {"quant_algo": "W4A16_NVFP4"}, "count": 1, "index_sets": []},
]


def compressed(*entries: dict[str, Any]) -> dict[str, Any]:
    return side_file(
        quant_algo="MIXED_PRECISION", group_size=None, quantized_layers_compressed=list(entries), exclude_modules=[]
    )


def test_a_compressed_table_means_the_same_as_the_long_one():
    long = {
        f"backbone.layers.{i}.mixer.experts.{e}.up_proj": COMPRESSED[0]["value"] for i in (1, 3, 6) for e in range(128)
    }
    long |= {f"backbone.layers.{i}.mixer.in_proj": {"quant_algo": "FP8"} for i in (0, 2)}
    long |= {"lm_head": {"quant_algo": "W4A16_NVFP4"}}
    short = read(None, compressed(*COMPRESSED))
    whole = read(None, side_file(quant_algo="MIXED_PRECISION", quantized_layers=long, exclude_modules=[]))
    assert short.summary == whole.summary == "mixed precision: 385 NVFP4 (W4A16), 2 FP8, KV FP8, no exclusions"
    assert short.scheme.rules() == whole.scheme.rules()  # type: ignore[attr-defined]
    for q in (short, whole):
        assert format_of(q, "backbone.layers.3.mixer.experts.127.up_proj") == "nvfp4-w4a16"
        assert format_of(q, "backbone.layers.3.mixer.experts.128.up_proj") == "bf16"
        assert format_of(q, "backbone.layers.2.mixer.experts.0.up_proj") == "bf16"
        assert format_of(q, "backbone.layers.2.mixer.in_proj") == "fp8"
        assert format_of(q, "backbone.layers.1.mixer.in_proj") == "bf16"
        assert format_of(q, "lm_head") == "nvfp4-w4a16"
        assert q.scheme.names_experts  # type: ignore[attr-defined]
    assert short.scheme.unmatched() == []


def test_a_number_written_out_in_a_pattern_stands_for_itself():
    entry = {"pattern": "layers.7.experts.{}.w1", "value": {"quant_algo": "FP8"}, "index_sets": ["0..3"], "count": 4}
    q = read(None, compressed(entry))
    assert format_of(q, "layers.7.experts.3.w1") == "fp8"
    assert format_of(q, "layers.8.experts.3.w1") == "bf16"
    assert format_of(q, "layers.7.experts.4.w1") == "bf16"
    assert "layers.7.experts.0.w1" in q.scheme.rules().named  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"full_product": False}, "stands for 384 modules"),
        ({"count": 383}, "stands for 383 modules and its index sets give 384"),
        ({"index_sets": [[1, 3, 6]]}, "has 2 holes for 1 index sets"),
        ({"index_sets": [[1, 3, 6], "0-127"]}, "'0-127'"),
        ({"index_sets": [[1, -3], "0..127"]}, "[1, -3]"),
        ({"pattern": "layers{}.experts.{}.up_proj"}, "has a hole inside a component"),
        ({"value": None}, "has no value"),
        ({"value": {"quant_algo": "NVFP5"}}, "quant_algo is 'NVFP5'"),
    ],
)
def test_a_garbled_compressed_table_is_refused(change: dict[str, Any], said: str):
    with pytest.raises(ConfigError) as error:
        read(None, compressed(COMPRESSED[0] | change))
    assert said in error.value.found
    assert error.value.hint


def test_table_and_groups_of_config_json_that_differ():
    four = {"num_bits": 4, "type": "float", "group_size": 16}
    groups = {"group_1": {"input_activations": four, "weights": four, "targets": ["lm_head"]}}
    q = read(flat(quant_algo="MIXED_PRECISION", quantized_layers=TABLE, config_groups=groups, ignore=[]))
    assert format_of(q, "lm_head") == "nvfp4-w4a16"
    assert "NVFP4 (W4A16) in quantized_layers and NVFP4 in config_groups, for 1 module (lm_head)" in q.findings[0].text


def test_groups_are_read_where_no_algorithm_is_named():
    q = read(flat(quant_algo=None))
    assert q.summary == "NVFP4, group 16, KV FP8, 1 exclusion"
    eight = {"num_bits": 8, "type": "float"}
    four = {"num_bits": 4, "type": "float", "group_size": 16}
    groups = {
        "group_0": {"weights": four, "targets": ["Linear"]},
        "group_1": {"weights": eight, "input_activations": eight, "targets": ["model.layers.0.self_attn.o_proj"]},
    }
    q = read(flat(quant_algo=None, config_groups=groups))
    assert format_of(q, "model.layers.0.self_attn.o_proj") == "fp8"
    assert format_of(q, "model.layers.1.self_attn.o_proj") == "nvfp4-w4a16"
    assert format_of(q, "lm_head") == "bf16"


def test_mixed_precision_without_its_table():
    bare = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}}
    with pytest.raises(ConfigError, match="no quantized_layers says which module"):
        read(bare)
    q = read(bare, side_file(quant_algo="MIXED_PRECISION", quantized_layers=TABLE))
    assert q.source == "hf_quant_config.json (config.json lacks the table of its mixed precision)"
    assert format_of(q, "lm_head") == "bf16"  # excluded, and exclusions come first


@pytest.mark.parametrize(
    ("algorithm", "name", "bytes_of_2048x6144"),
    [
        ("FP8", "fp8", 2048 * 6144 + 8),
        ("FP8_PER_CHANNEL_PER_TOKEN", "fp8-channel", 2048 * 6144 + 4 * 2048),
        ("fp8_pb_wo", "fp8-block", 2048 * 6144 + 4 * 16 * 48),
        ("NVFP4_AWQ", "nvfp4", 2048 * 6144 * 9 / 16 + 8),
        ("W4A8_NVFP4_FP8", "nvfp4-a8", 2048 * 6144 * 9 / 16 + 8),
        ("W4A8_MXFP4_FP8", "mxfp4-a8", 2048 * 6144 * 17 / 32),
        ("MXFP8", "mxfp8", 2048 * 6144 * 33 / 32),
        ("W8A16", "int8-channel", 2048 * 6144 + 2 * 2048),
    ],
)
def test_algorithms(algorithm: str, name: str, bytes_of_2048x6144: float):
    q = read(None, side_file(quant_algo=algorithm, group_size=None))
    site = Site("model.layers.0.mlp.up_proj", "Linear", (2048, 6144))
    found = q.scheme.format_of(site)
    assert found.name == name
    assert found.storage(site.shape).total_bytes == bytes_of_2048x6144


def test_int4_algorithms_take_their_group_from_the_file():
    q = read(None, side_file(quant_algo="W4A16_AWQ", group_size=64))
    assert format_of(q, "model.layers.0.mlp.up_proj") == "int4-g64"
    assert "pre_quant_scale" in q.findings[0].text


@pytest.mark.parametrize(
    ("fields", "said", "try_"),
    [
        ({"quant_algo": "NVFP5"}, "'NVFP5', which is not known here", "NVFP4"),
        ({"quant_algo": "NVFP4_SVD"}, "NVFP4_SVD", "MIXED_PRECISION"),
        ({"group_size": 32}, "group_size is 32 for NVFP4", "group_size 16"),
        ({"group_size": "16"}, "group_size is '16'", "whole number"),
        ({"exclude_modules": "lm_head"}, "exclude_modules is 'lm_head'", "list"),
        ({"exclude_modules": [1]}, "exclude_modules holds 1", "strings"),
        ({"kv_cache_quant_algo": "INT3"}, "kv_cache_quant_algo is 'INT3'", "FP8, NVFP4 or INT8"),
        ({"kv_cache_quant_algo": 8}, "kv_cache_quant_algo is 8", "FP8"),
        ({"quant_algo": ["NVFP4"]}, "quant_algo is ['NVFP4']", "string"),
        ({"quantized_layers": {"a": None}, "quant_algo": "MIXED_PRECISION"}, "nothing for a", "quant_algo"),
    ],
)
def test_garbled_fields_give_one_clear_error(fields: dict[str, Any], said: str, try_: str):
    with pytest.raises(ConfigError) as error:
        read(None, side_file(**fields))
    assert said in error.value.found
    assert try_ in error.value.hint
    assert "hf_quant_config.json" in error.value.asked


def test_routers_keep_their_precision_and_stacks_of_experts_do_not():
    q = read(None, side_file())
    assert format_of(q, "model.layers.0.mlp.gate") == "bf16"
    assert format_of(q, "model.layers.0.mlp.shared_expert_gate") == "bf16"
    assert format_of(q, "model.layers.0.mlp.experts.gate_up_proj", module_class="Parameter") == "nvfp4"
    assert format_of(q, "model.layers.0.mlp.e_score", module_class="Parameter") == "bf16"


def test_rules_that_match_nothing_are_named():
    q = read(None, side_file(exclude_modules=["lm_head", "vision_tower*", "model.layers.5.self_attn*"]))
    format_of(q, "lm_head")
    format_of(q, "model.layers.5.self_attn.o_proj")
    assert q.scheme.unmatched() == ["vision_tower*"]


def test_flat_shape_in_the_side_file_and_nested_shape_in_config_json():
    q = read(None, flat()["quantization_config"])
    assert q.source == "hf_quant_config.json (config.json silent)"
    assert format_of(q, "model.layers.0.mlp.up_proj") == "nvfp4"
    q = read({"quantization_config": side_file()})
    assert (q.method, q.kv_cache) == ("modelopt", "fp8")

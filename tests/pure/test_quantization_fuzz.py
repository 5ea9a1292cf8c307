"""Whatever a configuration holds, reading it ends in a scheme or in one clear error."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sublight.errors import ConfigError
from sublight.facts.fields import Fields
from sublight.facts.quantization.base import Site
from sublight.facts.quantization.read import METHODS, read_quantization

WORDS = ["Linear", "lm_head", "re:.*mlp.*", "re:(", "model.layers.0*", "mtp*", "*", "[", "", "NVFP4", "FP8", "none"]
WORDS += [
    "float",
    "int",
    "group",
    "block",
    "nvfp4-pack-quantized",
    "0..3",
    "MIXED_PRECISION",
    "a.{}.b",
    *METHODS.names(),
]
LISTS = ["exclude_modules", "ignore", "modules_to_not_convert", "ignored_layers", "targets", "index_sets"]
LISTS += ["weight_block_size", "block_structure", "modules_in_block_to_quantize", "quantized_layers_compressed"]
KEYS = [
    "quant_method",
    "quant_algo",
    "quantization",
    "config_groups",
    "group_0",
    "weights",
    "input_activations",
    "bits",
]
KEYS += [
    "num_bits",
    "type",
    "strategy",
    "symmetric",
    "group_size",
    "kv_cache_scheme",
    "kv_cache_quant_algo",
    "actorder",
]
KEYS += [
    "quantized_layers",
    "pattern",
    "value",
    "count",
    "full_product",
    "dynamic",
    "format",
    "fmt",
    "producer",
    "name",
]
KEYS += ["sym", "desc_act", "zero_point", "lm_head", "expert_dtype", "sparsity_config", *LISTS]

numbers = st.sampled_from([0, 1, 2, 3, 4, 8, 16, 32, 128, -1, 10**9, 0.5, float("nan"), float("inf")])
leaves = st.none() | st.booleans() | numbers | st.sampled_from(WORDS) | st.text(max_size=4)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS + WORDS), inner, max_size=5),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)
declared = st.builds(lambda method, rest: {**rest, "quant_method": method}, st.sampled_from(METHODS.names()), objects)

SITES = [
    Site("lm_head", "Linear", (8, 8)),
    Site("model.layers.0.mlp.gate_up_proj", "Linear", (8, 8)),
    Site("language_model.model.layers.1.mlp.experts.3.up_proj", "Linear", (8, 8), expert=True),
    Site("model.layers.1.mlp.experts", "Parameter", (4, 8, 8), expert=True),
    Site("model.embed_tokens", "Embedding", (8, 8)),
    Site("model.norm", "Norm", (8,)),
]


@settings(max_examples=120, deadline=None)
@given(st.none() | declared | objects, st.none() | objects)
@example({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {"quantization": {"quant_algo": "FP8"}})
def test_any_configuration_is_read_or_refused(inline: dict[str, Any] | None, side: dict[str, Any] | None):
    read_or_refuse(inline, side)


FOUR = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
EIGHT = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
GROUPS = {
    "group_0": {"weights": FOUR, "input_activations": FOUR, "targets": ["Linear"]},
    "group_1": {"weights": EIGHT, "input_activations": None, "targets": ["re:.*mlp.*", "lm_head"]},
}
TEMPLATE = {
    "pattern": "model.layers.{}.mlp.up_proj",
    "value": {"quant_algo": "FP8"},
    "index_sets": [[0, 1]],
    "count": 2,
}
WHOLE: list[dict[str, Any]] = [
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head", "*.mlp.*"]},
    {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"model.layers.0.mlp": {"quant_algo": "NVFP4", "group_size": 16}},
        "quantized_layers_compressed": [TEMPLATE],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    },
    {"quant_method": "modelopt", "config_groups": GROUPS, "ignore": ["lm_head"]},
    {"quant_method": "compressed-tensors", "config_groups": GROUPS, "ignore": ["re:.*gate.*"], "format": ""},
    {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["gate", "model.*.norm"]},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": ["gate"]},
    {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "sym": True,
        "dynamic": {"-:.*mlp.*": {}, "+:.*attn": {"bits": 8, "group_size": 32}},
        "modules_in_block_to_quantize": [["mlp.up_proj"]],
    },
]


def changed_somewhere(value: Any, data: st.DataObject) -> Any:
    """A copy with one value, at any depth, put in place of another."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 3)) == 0:
        return data.draw(values)
    if isinstance(value, dict):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: changed_somewhere(value[key], data)}
    at = data.draw(st.integers(0, len(value) - 1))
    return [*value[:at], changed_somewhere(value[at], data), *value[at + 1 :]]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_configuration_with_one_wrong_value_is_read_or_refused(data: st.DataObject):
    inline = changed_somewhere(data.draw(st.sampled_from(WHOLE)), data)
    side = {"quantization": data.draw(st.sampled_from(WHOLE[:3]))} if data.draw(st.booleans()) else None
    read_or_refuse(inline, side)


def read_or_refuse(inline: object, side: dict[str, Any] | None) -> None:
    config = Fields({"quantization_config": inline, "dtype": "bfloat16"}, "config.json")
    hf_quant = Fields(side, "hf_quant_config.json") if side is not None else None
    try:
        q = read_quantization(config, config, hf_quant)
        for site in SITES:
            assert q.scheme.format_of(site).storage(site.shape).total_bytes > 0
        names = q.scheme.unmatched()
    except ConfigError as error:
        assert error.asked
        assert error.found
        assert error.hint
    else:
        assert all(isinstance(name, str) for name in names)
        assert q.summary
        assert q.source
        assert all(finding.text for finding in q.all_findings())

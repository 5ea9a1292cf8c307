"""Lists of module names: each dialect against its own reference, and at the speed that GLM-5 needs."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.errors import ConfigError
from sublight.facts.fields import Fields
from sublight.facts.quantization.awq import Substrings
from sublight.facts.quantization.names import FUSIONS, expert_place, spellings
from sublight.facts.quantization.patterns import Globs, Paths
from sublight.facts.quantization.targets import Targets

FIELDS = Fields({}, "config.json")


def layers_covered(pattern: str, layers: int = 78) -> list[int]:
    globs = Globs([pattern])
    return [layer for layer in range(layers) if globs.covers(f"model.layers.{layer}.mlp.down_proj")]


def test_globs_mean_what_the_exporter_means():
    assert layers_covered("model.layers.1*") == [1, *range(10, 20)]
    assert layers_covered("model.layers.1.*") == [1]
    assert layers_covered("model.layers.0*") == [0]
    assert layers_covered("model.layers.0*", layers=8) == [0]
    assert layers_covered("model.layers.1") == [1]  # a bare name covers what lies below it, not layer 10
    assert layers_covered("*.mlp.*") == list(range(78))


def test_a_glob_of_the_mtp_layers_excludes_them():
    assert Globs(["mtp*"]).covers("mtp.layers.0.mlp.gate_proj")
    assert Globs(["mtp*"]).covers("mtp_block.fc")
    assert not Globs(["mtp*"]).covers("model.mtp.fc")


letters = st.text(alphabet="ab.*?[]!-1", max_size=8)


@given(st.lists(letters, max_size=6), st.text(alphabet="ab.1-", max_size=10))
def test_globs_are_fnmatch_exactly(patterns: list[str], module: str):
    def reference(pattern: str) -> bool:
        is_name = not set("*?[") & set(pattern)
        return fnmatchcase(module, pattern) or (is_name and module.startswith(pattern + "."))

    globs = Globs(patterns)
    assert globs.covers(module) == any(reference(pattern) for pattern in patterns)
    idle = [p for p in dict.fromkeys(patterns) if not reference(p)]
    assert globs.idle(list(globs.patterns), {module}) == idle


@given(st.lists(st.text(alphabet="ab.", max_size=6), max_size=5), st.text(alphabet="ab.", min_size=1, max_size=9))
def test_paths_are_whole_components(patterns: list[str], module: str):
    def reference(pattern: str) -> bool:  # SGLang's rule
        path = pattern.strip(".")
        return bool(path) and f".{path}." in f".{module}."

    paths = Paths(patterns)
    assert paths.covers_name(module) == any(reference(p) for p in patterns)
    assert [p for p in paths.patterns if reference(p)] == [
        p for p in paths.patterns if p not in paths.idle(list(paths.patterns), {module}) and p.strip(".")
    ]


def test_paths_take_the_spellings_that_occur():
    paths = Paths(["gate", "lm_head", "model.layers.0.", "model.layers.*.self_attn", "mlp.router."])
    assert paths.covers("model.layers.3.mlp.gate")
    assert not paths.covers("model.layers.3.mlp.gate_proj")
    assert paths.covers("model.layers.0.mlp.up_proj")
    assert not paths.covers("model.layers.10.mlp.up_proj")
    assert paths.covers("model.layers.7.self_attn.q_proj")
    assert paths.covers("model.layers.7.mlp.router")


def test_substrings_as_autoawq_and_the_engines_ask():
    entries = Substrings(["gate", "kv_a_proj"])
    assert entries.covers("model.layers.1.mlp.gate")
    assert not entries.covers("model.layers.1.mlp.experts.0.gate_proj")  # engines ask for "mlp.experts"
    assert not entries.covers("model.layers.1.mlp.gate_proj")  # up_proj does not match: no engine splits them
    assert entries.covers("model.layers.1.self_attn.kv_a_proj_with_mqa") is False  # q_a_proj does not match
    assert Substrings(["self_attn"]).covers("model.layers.1.self_attn.kv_a_proj_with_mqa")


def test_targets_are_exact_names_and_expressions():
    targets = Targets(["lm_head", "re:.*mlp\\.(gate|up|down)_proj.*", "model.layers.0.mlp.experts.0"], FIELDS)
    assert targets.covers("lm_head")
    assert targets.covers("language_model.lm_head")  # the multimodal wrapper is taken off, as engines do
    assert targets.covers("model.layers.0.mlp.up_proj")
    assert not targets.covers("model.layers.0.mlp.experts.0.up_proj")  # a parent in the list is not its children


def test_expressions_that_cannot_be_joined_are_tried_one_by_one():
    targets = Targets([r"re:(?P<x>q)_proj", r"re:(?P<x>k)_proj"], FIELDS)
    assert targets.covers("k_proj")
    assert targets.covers("q_proj")
    assert not targets.covers("v_proj")


def test_a_broken_expression_is_one_clear_error():
    with pytest.raises(ConfigError, match="no regular expression") as error:
        Targets(["re:mlp.(gate"], FIELDS)
    assert "re:mlp.(gate" in error.value.found
    assert error.value.hint


@pytest.mark.parametrize(("fused", "parts"), FUSIONS.items())
def test_fused_names_mean_their_parts_both_ways(fused: str, parts: tuple[str, ...]):
    above = Globs([f"model.layers.3.block.{fused}"])
    assert all(above.covers(f"model.layers.3.block.{part}") for part in parts)
    assert not above.covers(f"model.layers.4.block.{parts[0]}")
    below = Globs([f"model.layers.3.block.{part}" for part in parts])
    assert below.covers(f"model.layers.3.block.{fused}")


def test_a_fused_matrix_split_by_the_list_is_refused_as_the_engines_refuse_it():
    with pytest.raises(ConfigError) as error:
        Globs(["model.layers.3.mlp.gate_proj"]).covers("model.layers.3.mlp.gate_up_proj")
    assert "gate_proj and not model.layers.3.mlp.up_proj" in error.value.found
    assert "vLLM and SGLang refuse" in error.value.hint


def test_the_multimodal_wrapper_may_stand_elsewhere():
    globs = Globs(["model.language_model.layers.0*"])
    assert globs.covers("model.language_model.layers.0.mlp.up_proj")
    assert globs.covers("language_model.model.layers.0.mlp.up_proj")
    assert globs.covers("model.layers.0.mlp.up_proj")
    assert not globs.covers("model.layers.1.mlp.up_proj")


def test_a_stack_of_experts_is_as_its_first_expert():
    assert (("m.experts.0.gate_proj", "m.experts.0.up_proj")) in spellings("m.experts.gate_up_proj")
    assert Globs(["model.layers.0.mlp.experts.0.down_proj"]).covers("model.layers.0.mlp.experts.down_proj")


def test_lists_that_name_single_experts_say_so():
    assert Globs(["model.layers.0.mlp.experts.7.down_proj"]).names_experts
    assert Globs(["model.layers.0.mlp.experts.1?.down_proj"]).names_experts
    assert not Globs(["model.layers.0.mlp.experts", "model.layers.1.mlp.experts*", "*.experts.*"]).names_experts
    assert Targets([r"re:.*experts\.(3|9)\..*"], FIELDS).names_experts
    assert not Targets([r"re:.*experts\..*"], FIELDS).names_experts


def test_unmatched_rules_are_named_and_norms_are_not():
    globs = Globs(["lm_head", "vision_tower*", "model.layers.9.*", "model.norm", "x.experts.5.up_proj", "mtp*fc"])
    assert globs.unmatched(["lm_head", "model.layers.9.mlp.up_proj", "x.experts.0.up_proj"]) == [
        "vision_tower*",
        "mtp*fc",
    ]


def test_places_in_the_experts():
    assert expert_place("a.experts.12.w1.weight") == ("a.experts", 12, "w1.weight")
    assert expert_place("a.shared_experts.w1.weight") is None
    assert expert_place("a.experts.gate_up_proj") is None

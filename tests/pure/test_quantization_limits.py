"""Patterns of a configuration that would never be matched to an end are refused before they are tried."""

import re
from time import perf_counter

import pytest

from sublight.errors import ConfigError
from sublight.facts.fields import Fields
from sublight.facts.formats import BF16
from sublight.facts.quantization.expressions import MOST, compiled, ways_to_match
from sublight.facts.quantization.gptq import read as read_gptq
from sublight.facts.quantization.patterns import LONGEST, MOST_GLOBS, MOST_STARS, Globs, Paths
from sublight.facts.quantization.targets import Targets

FIELDS = Fields({}, "config.json")
NAME = "model.layers.17.mlp.experts.211.gate_up_proj.and.something.longer"


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        (r"^(.+)+x$", "repeats what itself repeats"),
        (r"(a+)+$", "repeats what itself repeats"),
        (r"((((a?){50}){50}){50}){50}", "repeats what itself repeats"),
        (r"(?:\w+\.?)*x", "repeats what itself repeats"),
        (r"(?=(.*)*x)", "repeats what itself repeats"),
        (r"(?:a|.)*x", "repeats"),
        (r"(?:ab|.b|a.)*x", "repeats alternatives"),
        (r".?" * 40 + "x", "side by side"),
        (r".*" * 8 + "x", "side by side"),
        (r"(.*)(.*)(.*)(.*)x", "side by side"),
        (r"x" * (LONGEST + 1), "characters"),
        (r"mlp.(gate", "no regular expression"),
        (r"(" * 480 + ")" * 480, "no regular expression"),
    ],
)
def test_expressions_that_might_not_end(expression: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word) as error:
        compiled(expression, FIELDS, "re:")
    assert len(error.value.found) < 300


@pytest.mark.parametrize(
    "expression",
    [
        r".*mlp\.gate$",
        r".*self_attn.*",
        r"^(?:model\.)?lm_head$",
        r"model\.layers\.(?:0|1|2)\..*",
        r".*\.layers\.\d+\.mlp\.experts\.\d+\.(gate|up|down)_proj$",
        r"(?!.*experts).*",
        r"[^.]+\.[^.]+\.[^.]+\.q_proj",
        r"(?:\d{1,3}\.){2}x",
        r".*a.*b.*c.*d.*",
    ],
)
def test_expressions_as_people_write_them(expression: str) -> None:
    pattern = compiled(expression, FIELDS)
    start = perf_counter()
    for _ in range(100):
        pattern.match(NAME)
    assert perf_counter() - start < 1
    assert pattern.pattern == re.compile(expression).pattern


def test_ways_add_up_over_a_list() -> None:
    assert ways_to_match("lm_head") == 1
    assert ways_to_match(r".*\.gate") == 8
    heavy = [f"re:.*a.*b.*c.*d.*{number}" for number in range(20)]
    with pytest.raises(ConfigError, match="20 regular expressions take up to"):
        Targets(heavy, FIELDS)
    assert len(Targets(heavy[:3], FIELDS).expressions) == 3


def test_lists_of_expressions_are_bounded() -> None:
    with pytest.raises(ConfigError, match="holds 513 regular expressions"):
        Targets([f"re:layer{number}" for number in range(MOST + 1)], FIELDS)
    with pytest.raises(ConfigError, match="repeats what itself repeats"):
        read_gptq(Fields({"bits": 4, "group_size": 128, "dynamic": {"-:(.+)+x": {}}}, "config.json"), BF16)


def test_lists_of_globs_are_bounded() -> None:
    with pytest.raises(ConfigError, match="holds 2,001 globs"):
        Globs(f"*a{number}*b" for number in range(MOST_GLOBS + 1))
    with pytest.raises(ConfigError, match="33 stars"):
        Paths(["*a" * (MOST_STARS + 1)])
    with pytest.raises(ConfigError, match="1,000,000 characters") as error:
        Globs(["x" * 10**6])
    assert len(error.value.found) < 200


def test_names_without_a_wildcard_inside_are_not_counted() -> None:
    names = [f"model.layers.{number}.mlp" for number in range(50_000)] + [f"m{number}*" for number in range(5_000)]
    listed = Globs(names)
    assert listed.covers("model.layers.49999.mlp.gate_proj")
    assert not listed.covers("model.layers.50000.mlp.gate_proj")

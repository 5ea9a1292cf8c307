"""The rules: each reads its own examples before any other does, in the order they are tried in."""

from pathlib import Path

import pytest

from sublight.audit.log.rules import Rule, built_in, read_rules
from sublight.errors import InputFileError

RULES = built_in()


@pytest.mark.parametrize("rule", list(RULES), ids=lambda rule: rule.id)
def test_no_rule_shadows_another(rule: Rule) -> None:
    for message in rule.example:
        assert RULES.read(message)[0].rule.id == rule.id


def test_ids_are_unique_and_every_engine_has_a_line_of_its_own() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    assert {rule.engine for rule in RULES if rule.telling} == {"vllm", "sglang"}


def test_one_line_can_say_two_things() -> None:
    line = "Load weight end. elapsed=1.0 s, type=M, quant=fp8, avail mem=1.00 GB, mem usage=29.15 GB."
    assert [(r.rule.id, r.fields) for r in RULES.read(line)] == [
        ("sglang.weights", {"method": "fp8"}),
        ("sglang.weights-memory", {"what": "weights", "value": "29.15 GB"}),
    ]


def test_what_no_rule_knows_says_nothing() -> None:
    assert RULES.read("Using a hammer") == []
    assert RULES.read("") == []


FORM = 'about = "x"\n[[rule]]\nid = "a"\nfact = "nccl"\nmatch = {match}\nexample = {example}\nseen = "here"\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FORM.format(match="'v(?P<version>1)'", example="['w1']"), "is read by no rule"),
        (FORM.format(match="'v(?P<version>1'", example="['v1']"), "missing \\)"),
        (FORM.format(match="'v(?P<colour>1)'", example="['v1']"), "a nccl has"),
        (FORM.format(match="'v(?P<version>1)'", example="[]"), "needs an example"),
        (FORM.format(match="'v(?P<version>1)'", example="['v1']").replace("nccl", "weather"), "Invalid enum value"),
        ('about = "x"\n' + 2 * FORM.format(match="'v(?P<version>1)'", example="['v1']")[11:], "two rules have one id"),
        ("about =", "."),
    ],
)
def test_a_file_that_is_no_rules_file(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(InputFileError, match=found):
        read_rules(tmp_path / "r.toml")


def test_a_rule_that_an_earlier_one_shadows_is_refused(tmp_path: Path) -> None:
    one = FORM.format(match="'v(?P<version>.)'", example="['v1']")
    other = FORM.format(match="'v(?P<version>2)'", example="['v2']")[11:].replace('"a"', '"b"')
    (tmp_path / "r.toml").write_text(one + other)
    with pytest.raises(InputFileError, match=r"the example 'v2' of 'r\.b' is read by rule 'r\.a'"):
        read_rules(tmp_path / "r.toml")

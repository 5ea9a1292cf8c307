"""Rules over kernel names: each knows its own examples, none hides another, and what none knows stays unknown."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.rows import ROWS
from sublight.trace.classify import UNKNOWN, Category, Kind, Rule, Rules, classify

RULES = Rules.load()
EXAMPLES = [(rule, name) for rule in RULES for name in rule.example]
COMMUNICATION = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send", "collective"}


@pytest.mark.parametrize(("rule", "name"), EXAMPLES, ids=[rule.id for rule, _ in EXAMPLES])
def test_an_example_is_decided_by_its_own_rule_and_none_before_it(rule: Rule, name: str) -> None:
    answer = RULES.classify(name)

    assert answer.rule == rule.id
    assert (answer.kind, answer.category, answer.row, answer.backend) == (
        rule.kind,
        rule.category,
        rule.row,
        rule.backend,
    )


def test_no_example_is_given_twice_and_no_id() -> None:
    assert [name for name, times in Counter(name for _, name in EXAMPLES).items() if times > 1] == []
    assert [name for name, times in Counter(rule.id for rule in RULES).items() if times > 1] == []


def test_rows_exist_and_categories_follow_from_kinds() -> None:
    for rule in RULES:
        assert rule.row == "" or rule.row in ROWS, rule.id
        assert rule.seen, rule.id
        assert rule.backend, rule.id
        assert (rule.category == "communication") == (rule.kind in COMMUNICATION), rule.id
        assert (rule.category == "memory") == (rule.kind in {"copy", "set"}), rule.id


def test_every_kind_but_unknown_is_used() -> None:
    assert {rule.kind for rule in RULES} == set(Kind) - {Kind.UNKNOWN}


def test_a_row_is_given_only_where_the_name_alone_decides() -> None:
    """GEMMs and all-reduces serve several rows, except a GEMM for routers only and a sum of experts over ranks."""
    several = {Kind.GEMM, Kind.ALL_REDUCE, Kind.ALL_TO_ALL, Kind.ELEMENTWISE, Kind.QUANTISE, Kind.ROPE, Kind.KV_WRITE}

    assert {rule.id: rule.row for rule in RULES if rule.kind in several and rule.row} == {
        "allreduce.trtllm-moe-fusion": "comm.mlp",
        "sglang.router-gemm": "moe.router",
    }


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "void",
        "kernel",
        "void my::own_kernel<int>(int)",
        "my_gemm_kernel",
        "attention",
        "all_reduce",
        "triton_kernel",
        "Memory",
        "gemm",
        "softmax_of_mine",
        "__nv_something<float>",
        "nvjetty",
        "ncclSomething",
    ],
)
def test_what_no_rule_knows_is_unknown(name: str) -> None:
    assert classify(name) is UNKNOWN
    assert (UNKNOWN.kind, UNKNOWN.category, UNKNOWN.row, UNKNOWN.backend, UNKNOWN.rule) == (
        Kind.UNKNOWN,
        Category.UNKNOWN,
        "",
        "",
        "",
    )


PIECES = [name for _, name in EXAMPLES] + [
    "<",
    ">",
    "(",
    ")",
    "::",
    "void ",
    "operator()",
    "_ZN7cutlass",
    "\n",
    "\0",
    "é",
]
TEXT = st.text() | st.lists(st.sampled_from(PIECES), max_size=4).map("".join)


@settings(deadline=None)
@given(TEXT)
def test_any_text_has_an_answer(text: str) -> None:
    answer = classify(text)

    assert (answer.rule == "") == (answer.kind is Kind.UNKNOWN)
    assert answer.category is answer.kind.category


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXT, max_size=8), st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_what_was_asked_before(texts: list[str], shuffle: random.Random) -> None:
    fresh = {text: Rules(RULES.rules).classify(text) for text in texts}
    shuffle.shuffle(texts)
    one = Rules(RULES.rules)

    assert {text: one.classify(text) for text in [*texts, *texts]} == fresh


def test_the_index_finds_what_trying_every_rule_finds() -> None:
    """A name is compared with the few rules its first characters allow; each rule alone must say the same."""
    alone = [Rules([rule]) for rule in RULES]
    for _, name in EXAMPLES:
        first = next(rules for rules in alone if rules.classify(name).rule)
        assert RULES.classify(name) == first.classify(name)


def test_deep_and_broken_brackets_end() -> None:
    for name in ("void f" + "<" * 4000, "void f<" + "(" * 4000, "f" + "<a" * 200 + ">" * 200, "f<" + "a<b>, (" * 600):
        assert classify(name) == UNKNOWN


def test_an_answer_is_kept() -> None:
    rules = Rules(RULES.rules)

    assert rules.classify("fused_moe_kernel") is rules.classify("fused_moe_kernel")

"""Strings that remember their questions: they behave as strings, and whoever answers alike is treated alike."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.audit.source import operators, parts
from sublight.audit.source.asked import Asked, answers_alike, exact
from sublight.audit.source.values import MISSING, identical, one_of

NAMES = ("", "triton", "trtllm", "flashinfer_trtllm", "flashinfer", "fa3", "TRITON")
# What may be done with a string, each giving something that does not carry the string along.
USES: dict[str, Callable[[Any], Any]] = {
    "equal": lambda name: name == "triton",
    "equal to the left": lambda name: "triton" == name,  # noqa: SIM300
    "not equal": lambda name: name != "trtllm",
    "true": bool,
    "long": len,
    "in a tuple": lambda name: name in ("triton", "fa3"),
    "in a list": lambda name: name in ["fa3"],
    "in a set": lambda name: name in {"triton", "fa3"},
    "a key": {"triton": 1, "fa3": 2}.get,
    "begins": lambda name: name.startswith(("flash", "fa")),
    "ends": lambda name: name.endswith("llm"),
    "has": lambda name: "infer" in name,
    "before": lambda name: name < "m",
    "after": lambda name: "m" < name,  # noqa: SIM300
    "joined to the left": lambda name: "x" + name,
    "joined to the right": lambda name: name + "x",
    "formatted": lambda name: f"[{name:>5}]",
    "percent": lambda name: "%s!" % name,  # noqa: UP031
    "as text": str,
    "as code": repr,
    "hashed": hash,
    "spelled": list,
    "first": lambda name: name[:1],
    "lower": lambda name: name.lower(),
    "parted": lambda name: name.partition("_"),
    "repeated": lambda name: name * 2,
    "sorted": lambda name: sorted([name, "m"]) == ["m", name],
    "read as a constant": lambda name: operators.known(name) and ",".join([exact(name)]),
    "contained": lambda name: operators.contains("a triton kernel", name),
    "contained in a set": lambda name: operators.contains({"triton", "fa3", None}, name),
    "contained in a dict": lambda name: operators.contains({"triton": 1, "fa3": MISSING}, name),
    "looked up": lambda name: parts.looked_up({"triton": 1, "fa3": 2}, name),
    "compared by the evaluator": lambda name: operators.equal(name, "triton"),
    "one with a string": lambda name: identical("triton", name),
    "merged": lambda name: one_of((name, "triton")) == "triton",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize("name", NAMES)
def test_it_is_used_as_a_string_is_and_who_answers_alike_gets_the_same(name: str, use: Callable[[Any], Any]) -> None:
    asked = Asked(name)
    answer = use(asked)
    assert answer == use(name)
    for other in NAMES:
        if answers_alike(other, asked.questions):
            assert use(other) == answer


def test_only_what_was_asked_tells_strings_apart() -> None:
    asked = Asked("triton")
    assert asked != "auto"
    assert asked not in ("fa3", "fa4")
    assert not asked.among({"fa5", "fa6"})
    assert not asked.startswith("lora_")
    assert [name for name in ("trtllm", "fa3", "auto", "lora_x") if answers_alike(name, asked.questions)] == ["trtllm"]
    assert exact(asked) == "triton"
    assert not answers_alike("trtllm", asked.questions)


_PLAIN = [name for name in dir(str) if name not in dir(object)]


@given(st.sampled_from(_PLAIN), st.text(max_size=4), st.text(max_size=4), st.lists(st.text(max_size=2), max_size=2))
def test_every_method_answers_as_that_of_a_string(method: str, name: str, other: str, given: list[str]) -> None:
    asked = Asked(name)

    def done(text: str) -> Any:
        try:
            found = getattr(text, method)(*given)
        except (TypeError, ValueError, LookupError) as error:
            return type(error)
        return list(found) if method == "__iter__" else found

    assert done(asked) == done(name)
    if answers_alike(other, asked.questions):
        assert done(other) == done(name)


def test_a_pattern_looks_at_all_of_it() -> None:
    asked = Asked("fa3")
    assert re.match("fa", exact(asked))
    assert not answers_alike("fa4", asked.questions)

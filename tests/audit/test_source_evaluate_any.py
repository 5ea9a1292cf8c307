"""Any small program: what the evaluator says is known is what Python computes."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.audit.source.evaluate import Evaluator
from sublight.audit.source.facts import Facts
from sublight.audit.source.values import Choice, Unknown, Value
from tests.audit.reading import written

NAMES = ("a", "b", "c")
atoms = st.sampled_from([*NAMES, "0", "1", "2", "-3"])
tests = st.builds(lambda x, op, y: f"{x} {op} {y}", atoms, st.sampled_from(["<", "==", "!=", ">="]), atoms)
sums = st.builds(lambda x, op, y: f"{x} {op} {y}", atoms, st.sampled_from(["+", "-", "*"]), atoms)
assigned = st.builds(lambda name, value: [f"{name} = {value}"], st.sampled_from(NAMES), sums)
returned = st.builds(lambda value: [f"return {value}"], sums)
raised = st.just(["raise ValueError(a)"])


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _compound(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    block = st.lists(inner, min_size=1, max_size=3).map(lambda parts: [line for part in parts for line in part])
    if_ = st.builds(
        lambda test, then, other: [f"if {test}:", *_indented(then), "else:", *_indented(other)], tests, block, block
    )
    for_ = st.builds(
        lambda name, body, leave: [f"for {name} in (1, 2, 3):", *_indented([*body, *leave])],
        st.sampled_from(NAMES),
        block,
        st.sampled_from([[], ["if a > 2:", "    break"], ["if b < 0:", "    continue", "c = c + 1"]]),
    )
    try_ = st.builds(
        lambda body, handler: ["try:", *_indented(body), "except ValueError:", *_indented(handler)], block, block
    )
    return st.one_of(if_, for_, try_)


statements = st.recursive(st.one_of(assigned, assigned, returned, raised), _compound, max_leaves=12)
bodies = st.lists(statements, min_size=1, max_size=5).map(lambda parts: [line for part in parts for line in part])
small = st.integers(-4, 4)


def program(body: list[str]) -> str:
    return "\n".join(["def f(a, b, c):", *_indented(body), "    return (a, b, c)", ""])


def python(text: str, arguments: list[int]) -> object:
    space: dict[str, object] = {}
    exec(text, space)  # a program of our own making
    try:
        return space["f"](*arguments)  # type: ignore[operator]
    except ValueError as error:
        return f"ValueError {error}"


def read(text: str, arguments: list[Value]) -> tuple[Value, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        walk = Evaluator(written(Path(folder), {"engine/m.py": text}), Facts(follow=("engine",)))
        outcome = walk.call_name("engine.m.f", arguments)
    if outcome.refusal is not None:
        return f"{outcome.refusal.kind} {outcome.refusal.message}", []
    perhaps = [f"ValueError {event.value.message}" for event in outcome.of("raise")]
    return outcome.value, perhaps


@settings(max_examples=150, deadline=None)
@given(bodies, small, small, small)
def test_known_arguments_give_what_python_gives(body: list[str], a: int, b: int, c: int) -> None:
    text = program(body)
    assert read(text, [a, b, c])[0] == python(text, [a, b, c])


def covers(value: Value, real: object) -> bool:
    """Whether a value that may be unknown in parts leaves room for the real one."""
    if isinstance(value, Choice):
        return any(covers(option, real) for option in value.options)
    if isinstance(value, Unknown):
        return True
    if isinstance(value, tuple) and isinstance(real, tuple):
        return len(value) == len(real) and all(covers(x, y) for x, y in zip(value, real, strict=True))
    return bool(value == real)


@settings(max_examples=150, deadline=None)
@given(bodies, small, small, small)
def test_an_unknown_argument_never_rules_out_what_happens(body: list[str], a: int, b: int, c: int) -> None:
    text = program(body)
    real = python(text, [a, b, c])
    value, perhaps = read(text, [a, Unknown("b"), c])
    if isinstance(real, str):  # it refuses: for certain, or as one of the ways
        assert isinstance(value, str) or perhaps
    else:
        assert covers(value, real)

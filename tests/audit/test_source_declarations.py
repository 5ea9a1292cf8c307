"""Declared values with their lines, in every way engines write them."""

from pathlib import Path

import pytest

from sublight.audit.source import declarations
from sublight.audit.source.declarations import Listed
from sublight.audit.source.tree import Sources
from tests.audit.reading import written

FILES = {
    "engine/names.py": """
        from enum import Enum, StrEnum
        from typing import Literal

        class Backend(Enum):
            AUTO = "auto"
            TRITON_KERNELS = "triton_kernel"

            def is_auto(self):
                return self == Backend.AUTO

        class Plain:
            X = "no member"

        Kind = Literal["one", "two"]
        """,
    "engine/choices.py": """
        from engine.names import Backend, Kind
        from engine import names as other

        BASE = ["auto", "cutlass"]
        ALL = BASE + ["marlin"]
        ALL.append("humming")
        ALL += ["late"]
        ALL.remove("cutlass")
        add_all = ALL.extend
        TABLE = {"fp8": 1, "awq": 2}
        METHODS = list(TABLE.keys())
        MEMBERS = [member.value for member in Backend]
        PICKED = (Backend.AUTO.value, *BASE)
        """,
    "engine/arguments.py": """
        from typing import Annotated, Optional

        from engine.choices import ALL
        from engine.names import Kind

        class Arguments:
            plain: Annotated[str, Arg(help="x", choices=ALL)] = "auto"
            kind: Optional[Kind] = None

        def add(parser):
            parser.add_argument("--plain", choices=ALL)
            parser.add_argument("--literal", type=str, choices=["a", "b"])
            parser.add_argument("--free", type=str)
        """,
    "engine/registry.py": """
        @register("none", "triton")
        @register("deepep", "triton")
        def fused(x):
            return x

        @register(NAME)
        def other(x):
            return x

        @elsewhere("none", "x")
        class Third:
            pass
        """,
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return written(tmp_path, FILES)


def values(found: list[Listed] | None) -> list[object]:
    assert found is not None
    return [each.value for each in found]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("names.Backend", ["auto", "triton_kernel"]),
        ("names.Kind", ["one", "two"]),
        ("choices.ALL", ["auto", "marlin", "humming", "late"]),
        ("choices.METHODS", ["fp8", "awq"]),
        ("choices.MEMBERS", ["auto", "triton_kernel"]),
        ("choices.PICKED", ["auto", "auto", "cutlass"]),
        ("choices.Kind", ["one", "two"]),
    ],
)
def test_values_are_found_through_names(sources: Sources, name: str, expected: list[str]) -> None:
    assert values(declarations.named(sources, f"engine.{name}")) == expected


@pytest.mark.parametrize("name", ["names.Plain", "names.gone", "gone.X", "choices.add_all"])
def test_what_lists_nothing_is_none(sources: Sources, name: str) -> None:
    assert declarations.named(sources, f"engine.{name}") is None


def test_a_value_stands_on_its_own_line(sources: Sources) -> None:
    found = declarations.named(sources, "engine.names.Backend") or []
    assert [(each.value, each.where, each.text) for each in found][1] == (
        "triton_kernel",
        "engine/names.py:7",
        'TRITON_KERNELS = "triton_kernel"',
    )


def test_options_of_the_command_line(sources: Sources) -> None:
    module = sources.module("engine.arguments")
    assert module is not None
    assert values(declarations.choices(sources, module, "--plain")) == ["auto", "marlin", "humming", "late"]
    assert values(declarations.choices(sources, module, "--literal")) == ["a", "b"]
    assert declarations.choices(sources, module, "--free") is None
    assert values(declarations.field_choices(sources, module, "plain")) == ["auto", "marlin", "humming", "late"]
    assert values(declarations.field_choices(sources, module, "kind")) == ["one", "two"]
    assert declarations.field_choices(sources, module, "gone") is None


def test_stacked_decorators_with_literals(sources: Sources) -> None:
    module = sources.module("engine.registry")
    assert module is not None
    found = [(arguments, node.name) for arguments, node in declarations.decorated(module, "register")]
    assert found == [(("none", "triton"), "fused"), (("deepep", "triton"), "fused")]

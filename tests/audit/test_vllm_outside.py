"""What vLLM asks of files and of methods outside, answered from sources."""

from pathlib import Path

import pytest

from sublight.audit.engines.vllm.outside import exists, signature
from sublight.audit.source.values import External, Instance, Unknown
from tests.audit.reading import written

FILES = {"lib/__init__.py": "from lib.core import Wrapper\n", "lib/core.py": """
    class Wrapper:
        def run(self, q, *, scale=None): ...
    def plain(a): ...
    """}  # fmt: skip


@pytest.mark.parametrize(
    ("dotted", "parameters"),
    [
        ("lib.Wrapper.run", {"self": "POSITIONAL_OR_KEYWORD", "q": "POSITIONAL_OR_KEYWORD", "scale": "KEYWORD_ONLY"}),
        ("lib.core.plain", {"a": "POSITIONAL_OR_KEYWORD"}),
    ],
)
def test_parameters_of_a_method(tmp_path: Path, dotted: str, parameters: dict[str, str]) -> None:
    told = signature(written(tmp_path, FILES))([External(dotted)], {})
    assert isinstance(told, Instance)
    found = {name: each.attributes["kind"].dotted for name, each in told.attributes["parameters"].items()}
    assert found == {name: f"inspect.Parameter.{kind}" for name, kind in parameters.items()}


@pytest.mark.parametrize("asked", ["lib.Absent.run", "elsewhere.run"])
def test_a_method_that_is_not_there_has_no_known_parameters(tmp_path: Path, asked: str) -> None:
    assert isinstance(signature(written(tmp_path, FILES))([External(asked)], {}), Unknown)


def test_files_below_a_package(tmp_path: Path) -> None:
    ask = exists(written(tmp_path, FILES))
    assert (ask(["lib/core.py"], {}), ask(["lib/other.py"], {})) == (True, False)
    assert isinstance(ask(["/etc/passwd"], {}), Unknown)

"""A model that nobody knows is named before anything that is missing or wrong beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused

Sublight = Callable[..., Run]


@pytest.mark.parametrize(
    "arguments",
    [
        ("limit", "glm5"),
        ("limit", "glm5", "--gpus", "8xnothing"),
        ("gap", "glm5"),
        ("gap", "glm5", "--campaign", "none"),
        ("gap", "glm5", "--measured", "12ms"),
        ("gap", "glm5", "--trace", "none.json"),
        ("trace", "none.json", "--model", "glm5"),
    ],
)
def test_the_wrong_name_is_said_first(sublight: Sublight, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = sublight(*arguments)
    refused(done, "model 'glm5'", "glm-5")
    assert list(tmp_path.iterdir()) == []


def test_with_a_right_name_the_missing_option_is_asked_for(sublight: Sublight) -> None:
    refused(sublight("limit", "glm-5"), "no GPU was named")
    refused(sublight("gap", "glm-5"), "no measured step was given")

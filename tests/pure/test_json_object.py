"""Names that a JSON file gives two values: found whatever stands in its text, and never where there are none."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sublight.facts.json_object import read_object
from sublight.facts.model import read_model

from .test_read_folder import CONFIG

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(['"a": 1', 'a": ', '":', "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab":\\ ', max_size=3), inner, max_size=3),
    max_leaves=8,
)


def twice(folder: Path, text: str) -> tuple[str, ...]:
    file = folder / "object.json"
    file.write_text(text)
    return read_object(file)[1]


@given(st.dictionaries(st.text('ab":\\ ', min_size=1, max_size=3), VALUES, min_size=1, max_size=4))
def test_only_what_is_there_twice(tmp_path_factory: Any, value: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("objects")
    text = json.dumps(value)
    assert twice(folder, text) == ()
    name = next(iter(value))
    again = f"{text[:-1]}, {json.dumps(name)} : 0}}"
    assert twice(folder, again) == (name,)
    assert twice(folder, f'{{"outer": [{again}]}}') == (name,)


def test_a_model_says_which_field_it_took_the_last_of(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 96, ' + json.dumps(CONFIG)[1:])
    model = read_model(tmp_path / "config.json")
    assert model.hidden == 64
    assert ("warn", "config.json gives hidden_size twice in one object: the last one is used") in {
        (f.level, f.text) for f in model.findings
    }

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.report.visible import visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("flashinfer_cutedsl 內核 µs →", "flashinfer_cutedsl 內核 µs →"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\u200bb\u2028c\ufeff", "a\\u200bb\\u2028c\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("C:\\new", "C:\\new"),
        ("6.64\u00a0ms", "6.64\u00a0ms"),
    ],
)
def test_what_is_not_printable_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters()))
def test_showing_twice_changes_nothing_and_utf8_can_hold_it(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert shown.encode().decode() == shown
    assert "\n" not in shown and "\x1b" not in shown


def test_lines_of_code_break_only_at_line_feeds() -> None:
    assert visible_lines("a\r\n\tb\x0bc\u2028d") == ["a", "    b\\x0bc\\u2028d"]

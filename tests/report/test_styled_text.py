import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sublight.report.terminal.text import Text


def wrapped(text: str, width: int) -> list[str]:
    return [line.plain for line in Text(text).wrapped(width)]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 20, ["one two three"]),
        ("one two three", 8, ["one two", "three"]),
        ("one two three", 7, ["one two", "three"]),
        ("one   two   three", 9, ["one   two", "three"]),
        ("  one two", 6, ["  one", "two"]),
        ("abcdefgh ij", 3, ["abc", "def", "gh", "ij"]),
        ("ab cdefgh", 4, ["ab", "cdef", "gh"]),
        ("内核名称", 5, ["内核", "名称"]),
        ("takes 6.64\u00a0ms a step", 12, ["takes", "6.64\u00a0ms a", "step"]),
        ("名 \u0301", 2, ["名", "\u0301"]),
        ("", 5, [""]),
        ("        ", 5, [""]),
    ],
)
def test_wrapping(text: str, width: int, lines: list[str]) -> None:
    assert wrapped(text, width) == lines


@given(st.text(st.sampled_from("ab  é名\u0301\u00a0.")), st.integers(2, 12))
def test_wrapped_lines_fit_and_lose_only_spaces(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split(" ")) == "".join(text.split(" "))


def test_pieces_keep_their_style_when_broken() -> None:
    text = Text.of(Text("bold one", "bold"), " plain ", Text("red", "red"))
    first, second = text.wrapped(10)
    assert first.pieces == [("bold one", "bold")]
    assert second.pieces == [("plain ", ""), ("red", "red")]
    assert second.painted(colour=True) == "plain \x1b[31mred\x1b[0m"


def test_no_spaces_at_the_end_and_no_codes_without_colour() -> None:
    text = Text.of(Text("a", "bold yellow"), Text("  ", "dim"))
    assert text.painted(colour=True) == "\x1b[1;33ma\x1b[0m"
    assert text.painted(colour=False) == "a"
    assert text.width == 3

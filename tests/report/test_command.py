import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.report.blocks import Code, Document
from sublight.report.terminal.command import shell_pieces
from sublight.report.text import render_text

SERVE = "vllm serve zai-org/GLM-5 --tensor-parallel-size 8 --hf-overrides '{\"index topk\": 2048}' --port 8000"


def test_a_long_command_is_broken_at_spaces_with_backslashes() -> None:
    assert render_text(Document("t", (Code(SERVE),)), width=60, colour=False) == (
        "t\n━\n\n"
        "  vllm serve zai-org/GLM-5 --tensor-parallel-size 8 \\\n"
        "      --hf-overrides '{\"index topk\": 2048}' --port 8000\n"
    )


def test_a_command_that_fits_is_left_as_it_is() -> None:
    assert shell_pieces(SERVE, 120) == [SERVE]
    assert shell_pieces("  indented   words", 20) == ["  indented   words"]


@pytest.mark.parametrize(
    "line",
    [
        "# a comment that is too long for the screen and must not lose its end",
        "echo a word  # and a comment behind it that is too long for the screen",
        "python -c 'a quote that is opened here and closed on some other line",
        "x" * 60,
        "a line that goes on in the next one already, so it has a backslash \\",
    ],
)
def test_what_a_shell_would_not_join_again_stays_whole(line: str) -> None:
    assert shell_pieces(line, 40) == [line]


def test_a_here_document_stays_whole() -> None:
    code = "cat <<EOF\n" + "word " * 30 + "\nEOF"
    text = render_text(Document("t", (Code(code),)), width=40, colour=False)
    assert text.splitlines()[3:] == ["  cat <<EOF", "  " + ("word " * 30).rstrip(), "  EOF"]


words = st.one_of(
    st.text("ab-/=.$(){}:\\", min_size=1, max_size=12),
    st.text('ab "\\', max_size=12).map(shlex.quote),
    st.text("ab '", max_size=12).map(lambda text: '"' + text + '"'),
)


@given(st.lists(words, min_size=1, max_size=12).map(" ".join), st.integers(8, 40))
def test_a_shell_reads_the_pieces_as_the_same_command(line: str, width: int) -> None:
    pieces = shell_pieces(line, width)
    try:
        meant = shlex.split(line)
    except ValueError:  # a bare backslash at the end, which escapes the end
        assert pieces == [line]
        return
    # A shell takes out a backslash at the end of a line together with the line break; shlex does not do that part.
    assert shlex.split("\n".join(pieces).replace("\\\n", "")) == meant
    if not set("'\"\\") & set(line):
        for index, piece in enumerate(pieces):
            assert len(piece) + 4 * bool(index) <= width or " " not in piece.removesuffix(" \\")

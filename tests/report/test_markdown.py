import re

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sublight.report.blocks import (
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Column,
    Curve,
    Curves,
    Document,
    Facts,
    Heading,
    Headline,
    Listing,
    Mark,
    Note,
    Paragraph,
    Segment,
    Table,
)
from sublight.report.markdown import escape, render_markdown
from sublight.report.visible import visible

from .documents import texts
from .samples import PAGE, ROWS, row


def shown(*blocks: Block) -> str:
    text = render_markdown(Document("t", blocks))
    assert text.startswith("# t\n")
    return text[len("# t\n") :].removeprefix("\n")


def tokens(markdown: str) -> list[Token]:
    """Every token of a reader that lets HTML, tables and struck-out text through, inline ones included."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return [token for outer in reader.parse(markdown) for token in [outer, *(outer.children or [])]]


def test_a_table() -> None:
    table = Table(
        (Column("row"), Column("ms", "right")),
        (
            row("attention", "", kind="group"),
            row("q_b | kv_b", "0.42", tones=".s"),
            row("step", "6.64", kind="total"),
        ),
        "One rank.",
    )
    assert shown(table) == (
        "| row | ms |\n|---|---:|\n| **attention** |  |\n| q_b \\| kv_b | **0.42** |\n| **step** | **6.64** |\n\n"
        "One rank.\n"
    )


def test_words() -> None:
    text = shown(
        Headline((("floor", "6.64 ms", "a rank"), ("gap", "90 ms", "5x"))),
        Facts((("model", Cell("GLM-5")), ("gpus", Cell("8")))),
        Heading("Next", 2),
        Paragraph("Because."),
        Listing((Cell("first"), Cell("second", "strong")), ordered=True),
        Listing((Cell("-1 is fine"), Cell("- is not"))),
        Note("mind the gap", "warn"),
        Code("run --this\nand that"),
    )
    assert text == (
        "| floor | gap |\n|---|---|\n| **6.64 ms** | **90 ms** |\n| a rank | 5x |\n\n"
        "- **model**: GLM-5\n- **gpus**: 8\n\n"
        "## Next\n\nBecause.\n\n1. first\n2. **second**\n\n- -1 is fine\n- \\- is not\n\n"
        "> [!WARNING]\n> mind the gap\n\n"
        "```sh\nrun --this\nand that\n```\n"
    )


def test_bars_are_drawn_in_a_fenced_block_and_curves_are_a_table() -> None:
    bars = Bars("Sizes", ("a",), (Bar("x", (Segment("a", 2.0, ""),), "2"), Bar("y", (Segment("a", 1.0, ""),), "1")))
    curves = Curves("Time", "batch", "ms", (Curve("ours", ((1, 2.5), (4, 8))),), (Mark(2, "knee"),))
    assert shown(bars, curves) == (
        f"```text\nSizes\nx  {'█' * 64}  2\ny  {'█' * 32}{' ' * 32}  1\n```\n\n"
        "**Time**: ms over batch\n\n| batch | ours |\n|---:|---:|\n| 1 | 2.5 |\n| 4 | 8 |\n\nbatch 2: knee\n"
    )


def test_a_reader_finds_the_numbers_of_the_sample_page() -> None:
    found = tokens(render_markdown(PAGE))
    cells = [
        found[index + 1].content.replace("**", "")
        for index, token in enumerate(found)
        if token.type == "td_open" and found[index + 1].type == "inline"
    ]
    expected = [cell.text for line in ROWS.lines for cell in line.cells]
    start = cells.index(expected[0])
    assert cells[start : start + len(expected)] == expected
    code = next(token for token in found if token.type == "fence" and token.info == "sh")
    assert code.content == next(block.text for block in PAGE.blocks if isinstance(block, Code)) + "\n"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("flashinfer_cutedsl q_b", "flashinfer_cutedsl q_b"),
        ("_it_ *b* `c` ~s~ $x$", "\\_it\\_ \\*b\\* \\`c\\` \\~s\\~ \\$x\\$"),
        ("a | b", "a \\| b"),
        ("<img onerror=1> &lt; AT&T", "&lt;img onerror=1> &amp;lt; AT&amp;T"),
        ("[a](http://b)", "\\[a\\](http\\://b)"),
        ("www.a.b HTTPS://c", "www\\.a.b HTTPS\\://c"),
        ("@someone #12 me@host", "@\u200bsomeone \\#\u200b12 me@\u200bhost"),
        ("one\ntwo \x1b[0m", "one\\\\ntwo \\\\x1b\\[0m"),
    ],
)
def test_escaping(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@given(texts)
@settings(deadline=None)
def test_a_reader_sees_foreign_text_as_it_is_wherever_it_stands(text: str) -> None:
    want = "".join(visible(text).replace("\u200b", "").split())
    for block, places in (
        (Paragraph(text), 1),
        (Paragraph(text, "strong"), 1),
        (Note(text), 1),
        (Listing((Cell(text),)), 1),
        (Listing((Cell(text),), ordered=True), 1),
        (Heading(text), 1),
        (Facts(((text, Cell(text)),)), 2),
        (Table((Column("c"), Column(text)), (row(text, "x"),)), 2),
        (Headline(((text, text, text),)), 3),
    ):
        found = tokens(shown(block))
        kinds = {token.type for token in found}
        assert not kinds & {"html_block", "html_inline", "link_open", "image", "code_inline", "em_open", "s_open"}
        assert not kinds & {"code_block", "hr", "fence", "hardbreak"}
        assert sum(token.type in ("bullet_list_open", "ordered_list_open") for token in found) <= 1
        seen = "".join(token.content for token in found if token.type == "text")
        assert "".join(seen.replace("\u200b", "").split()).count(want) >= (places if want else 0)
        assert not re.search(r"(?i)https?:|www\.|ftp:|mailto:", re.sub(r"\\[:.]", "", shown(block)))


@given(texts, texts)
@settings(deadline=None)
def test_no_line_of_code_closes_its_block(first: str, second: str) -> None:
    found = tokens(shown(Code(f"{first}\n```\n{second}")))
    assert [token.type for token in found] == ["fence"]
    assert "```" in found[0].content.split("\n")


def test_the_title_and_footer_are_escaped_too() -> None:
    assert render_markdown(Document("<b>#1", (), "1. *x*")) == "# &lt;b>\\#\u200b1\n\n---\n\n1\\. \\*x\\*\n"

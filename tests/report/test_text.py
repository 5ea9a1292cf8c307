import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

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
    Step,
    Table,
    Waterfall,
)
from sublight.report.text import render_text

from .samples import PAGE, ROWS, row

ESCAPE = re.compile("\x1b\\[[0-9;]*m")


def shown(*blocks: Block, width: int = 80) -> str:
    """The blocks as text, without the title of the page around them."""
    text = render_text(Document("t", blocks), width=width, colour=False)
    assert text.startswith("t\n━\n\n")
    return text[len("t\n━\n\n") :]


SMALL = Table(
    (Column("row"), Column("calls", "right", 2), Column("floor", "right"), Column("bound by", "left", 1)),
    (
        row("attention projections of all layers", "", "", "", kind="group"),
        row("q_a + kv_a", "78", "1.62", "memory"),
        row("q_b", "78", "0.42", "memory"),
        row("step", "", "2.04", "", kind="total"),
    ),
    "One rank.",
)


def test_a_table_has_sections_right_aligned_numbers_and_a_ruled_total() -> None:
    assert shown(SMALL) == (
        "row           calls  floor  bound by\n"
        "────────────────────────────────────\n"
        "attention projections of all layers\n"
        "  q_a + kv_a     78   1.62  memory\n"
        "  q_b            78   0.42  memory\n"
        "────────────────────────────────────\n"
        "step                  2.04\n"
        "One rank.\n"
    )


def test_the_columns_that_matter_least_go_first_and_are_named() -> None:
    assert shown(SMALL, width=30) == (
        "row           floor  bound by\n"
        "─────────────────────────────\n"
        "attention projections of all\n"
        "layers\n"
        "  q_a + kv_a   1.62  memory\n"
        "  q_b          0.42  memory\n"
        "─────────────────────────────\n"
        "step           2.04\n"
        "No room at this width for:\n"
        "calls\n"
        "One rank.\n"
    )
    assert shown(SMALL, width=20).splitlines()[0] == "row           floor"


def test_numbers_stay_whole_while_text_columns_wrap() -> None:
    reason = "the kernel asserts SM100 or SM103 and this card is SM120"
    wide = Table((Column("backend"), Column("ms", "right"), Column("why")), (row("cutedsl", "1,234.56", reason),))
    assert shown(wide, width=50) == (
        "backend        ms  why\n"
        "──────────────────────────────────────────────────\n"
        "cutedsl  1,234.56  the kernel asserts SM100 or\n"
        "                   SM103 and this card is SM120\n"
    )


def test_a_table_that_no_width_holds_becomes_a_list_of_its_cells() -> None:
    columns = (Column("engine"), *(Column(f"measured {i}", "right") for i in range(4)))
    table = Table(columns, (row("vllm", "1,000.0 ms", "2,000.0 ms", "", "4,000.0 ms"),))
    assert shown(table, width=32) == (
        "vllm\n  measured 0  1,000.0 ms\n  measured 1  2,000.0 ms\n  measured 3  4,000.0 ms\n"
    )


@pytest.mark.parametrize(
    ("width", "missing"), [(160, None), (80, "calls, format, bound by"), (60, "calls, format, bytes/step,")]
)
def test_the_rows_of_a_step_at_usual_widths(width: int, missing: str | None) -> None:
    text = shown(ROWS, width=width)
    said = re.search("^No room at this width for: (.*)$", text, re.MULTILINE)
    assert (said and said[1]) == missing
    assert re.search(r"^  routed experts .* 1\.03 .* 8\.02 +6\.99( |$)", text, re.MULTILINE)


def test_waterfall_steps_stand_where_the_one_before_ended() -> None:
    steps = (
        Step("floor", 8.0, "8.0 ms"),
        Step("idle", 12.0, "+12.0 ms"),
        Step("overlap", -4.0, "-4.0 ms"),
        Step("unknown", 16.0, "+16.0 ms", "unknown"),
        Step("measured", 32.0, "32.0 ms", "total"),
    )
    assert shown(Waterfall("Steps", steps, "In ms."), width=52) == (
        "Steps\n"
        "floor     ████████                            8.0 ms\n"
        "idle              ████████████              +12.0 ms\n"
        "overlap                   ████               -4.0 ms\n"
        "unknown                   ░░░░░░░░░░░░░░░░  +16.0 ms\n"
        "measured  ████████████████████████████████   32.0 ms\n"
        "In ms.\n"
    )


def test_waterfall_notes_are_shown_where_all_of_them_fit() -> None:
    steps = (Step("floor", 8.0, "8 ms"), Step("idle", 4.0, "+4 ms", note="no CUDA graph"))
    assert shown(Waterfall("", steps), width=120).splitlines()[1].endswith("+4 ms  no CUDA graph")
    assert shown(Waterfall("", steps), width=80).splitlines()[1].endswith("+4 ms")


def test_bars_end_on_an_eighth_of_a_column_and_share_one_scale() -> None:
    bars = Bars(
        "Sizes",
        ("a", "b"),
        (
            Bar("x", (Segment("a", 64.0, ""),), "64"),
            Bar("y", (Segment("a", 8.625, ""),), "8.6"),
            Bar("z", (Segment("a", 4.0, ""), Segment("b", 6.0, "")), "10"),
            Bar("tiny", (Segment("a", 0.001, ""),), "0"),
            Bar("none", (), ""),
        ),
    )
    lines = shown(bars, width=120).splitlines()
    assert lines[:2] == ["Sizes", "██ a   ▓▓ b"]
    assert [line.split()[1] for line in lines[2:6]] == ["█" * 64, "█" * 8 + "▋", "████▓▓▓▓▓▓", "▏"]
    assert lines[6] == "none"


def test_a_single_bar_says_the_size_of_its_parts_in_the_legend() -> None:
    bars = Bars("", ("busy", "idle"), (Bar("step", (Segment("busy", 3, "3 ms"), Segment("idle", 1, "1 ms")), "4 ms"),))
    assert shown(bars).splitlines()[0] == "██ busy 3 ms   ▓▓ idle 1 ms"


def test_curves_are_a_plot_and_the_table_of_their_points() -> None:
    curves = Curves(
        "Time", "batch", "ms", (Curve("ours", ((1, 2), (4, 8))), Curve("theirs", ((1, 3),))), (Mark(2, "knee"),)
    )
    lines = shown(curves).splitlines()
    assert lines[0] == "Time"
    assert lines[1] == "ms over batch"
    plot = lines[2:14]
    assert plot[0].startswith("8 ┤") and plot[-1].startswith("0 ┤")
    # The first curve ends in the upper right corner, the second is one point at the left, 3/8 of the way up.
    assert plot[0].endswith("A") and plot[0].index("A") == max(map(len, plot)) - 1
    assert [index for index, line in enumerate(plot) if "B" in line] == [7]
    assert lines[-6:] == [
        "┊ batch 2: knee",
        "",
        "batch  A ours  B theirs",
        "───────────────────────",
        "    1       2         3",
        "    4       8",
    ]


def test_headline_figures_stand_side_by_side_and_level() -> None:
    figures = (("floor", "6.64 ms", "a rank"), ("measured, at the median", "97.0 ms", "of 412"), ("gap", "90.4 ms", ""))
    assert shown(Headline(figures), width=74) == (
        "┃ floor                  ┃ measured, at the       ┃ gap\n"
        "┃                        ┃ median                 ┃\n"
        "┃ 6.64 ms                ┃ 97.0 ms                ┃ 90.4 ms\n"
        "┃ a rank                 ┃ of 412                 ┃\n"
    )


def test_words() -> None:
    text = shown(
        Heading("Part", 1),
        Facts((("model", Cell("GLM-5", note="not shown")), ("gpus", Cell("8")))),
        Heading("Why", 2),
        Paragraph("Because."),
        Heading("How", 3),
        Listing((Cell("first"), Cell("second")), ordered=True),
        Listing((Cell("point"),)),
        Note("mind the gap", "warn"),
    )
    assert text == (
        "Part\n━━━━\nmodel  GLM-5\ngpus   8\n\nWhy\n───\nBecause.\n\nHow\n1. first\n2. second\n\n• point\n\n"
        "▌ Warning: mind the gap\n"
    )


def test_colour_adds_escape_codes_and_changes_no_character() -> None:
    for width in (60, 80, 160):
        bare = render_text(PAGE, width=width, colour=False)
        coloured = render_text(PAGE, width=width, colour=True)
        assert "\x1b" not in bare
        assert "\x1b[1mstep" in coloured
        assert ESCAPE.sub("", coloured) == bare


def test_the_environment_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [render_text(PAGE, width=80, colour=colour) for colour in (False, True)]
    for name, value in {"NO_COLOR": "1", "COLUMNS": "20", "TERM": "dumb", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert [render_text(PAGE, width=80, colour=colour) for colour in (False, True)] == before


def test_foreign_text_is_inert() -> None:
    text = shown(
        Paragraph("\x1b[2Jwiped [bold]x[/bold] :smile: \u202eabc"),
        Table((Column("name"),), (row("a\nfloor 0.00 ms"), row("\x07bell"))),
    )
    assert text == (
        "\\x1b[2Jwiped [bold]x[/bold] :smile: \\u202eabc\n\nname\n────────────────\na\\nfloor 0.00 ms\n\\x07bell\n"
    )


def test_wide_characters_count_twice() -> None:
    table = Table((Column("名前"), Column("ms", "right")), (row("内核名称", "1.0"), row("kernel", "12.5")))
    lines = shown(table).splitlines()
    assert [cell_len(line) for line in lines] == [14, 14, 14, 14]
    assert lines[2:] == ["内核名称   1.0", "kernel    12.5"]


def test_a_title_that_ends_in_a_space_takes_no_column_for_it() -> None:
    table = Table(
        tuple(Column(title, "right") for title in ("12345678", "A ", "B", "4444")), (row("1", "2", "3", "4"),)
    )
    assert shown(table, width=20).splitlines()[0] == "12345678  A  B  4444"


def test_no_line_of_the_sample_page_is_too_long() -> None:
    for width in (20, 40, 60, 80, 120, 160):
        text = render_text(
            Document(PAGE.title, tuple(b for b in PAGE.blocks if not isinstance(b, Code))), width=width, colour=False
        )
        assert max(map(cell_len, text.splitlines())) <= width


def test_importing_the_renderer_does_not_import_rich() -> None:
    code = "import sys, sublight.report.text; print('rich' in sys.modules, 'jinja2' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False False\n"


def test_rendering_takes_nothing_from_rich_but_the_widths_of_characters() -> None:
    code = (
        "import sys; from sublight.report.blocks import *; from sublight.report.text import render_text\n"
        "render_text(Document('t', (Table((Column('a'),), ()),)), width=80, colour=True)\n"
        "print(sorted({'rich.cells', 'rich.console', 'rich.text', 'rich.table', 'jinja2'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "['rich.cells']\n"

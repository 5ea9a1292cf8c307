"""The page as a file: its numbers, its policy and its colours. What a browser makes of it is in test_browser."""

import base64
import hashlib
import re
from itertools import pairwise

import pytest

from sublight.report.blocks import (
    Bar,
    Bars,
    Cell,
    Code,
    Column,
    Curve,
    Curves,
    Document,
    Heading,
    Line,
    Segment,
    Step,
    Table,
    Waterfall,
)
from sublight.report.charts import COLOURS, plots, stack_rows, step_rows
from sublight.report.html import TEMPLATES, island, render_html

from . import dom
from .samples import BARS, CURVES, PAGE, ROWS, WATERFALL


def tree(*blocks: object) -> dom.Element:
    return dom.parse(render_html(Document("t", blocks))).one("main")  # type: ignore[arg-type]


def test_a_table_keeps_its_cells_sections_and_heads() -> None:
    table = tree(ROWS).one("table")
    assert [head.text for head in table.one("thead").all("th")] == [column.title for column in ROWS.columns]
    assert {head.attributes["scope"] for head in table.one("thead").all("th")} == {"col"}
    expected = [[cell.text for cell in line.cells] for line in ROWS.lines]
    for shown, line in zip(dom.table_texts(table)[1:], expected, strict=True):
        assert shown == (line if len(shown) > 1 else line[:1])
    assert len(table.all("tbody")) == 5
    assert [row.one("th").text for row in table.all("tr", "total")] == ["step"]
    titles = [row.one("th") for row in table.all("tr", "group")]
    assert {(title.attributes["scope"], title.attributes["colspan"]) for title in titles} == {("rowgroup", "9")}
    assert {row.one("th").attributes["scope"] for row in table.all("tr", "row")} == {"row"}
    keys = [cell.attributes.get("data-key") for row in table.all("tr", "row") for cell in row.all("td")[2:3]]
    assert keys[:3] == ["2520000000.0", "654000000.0", "286000000.0"] and keys[-1] is None


def test_a_note_is_a_title_and_is_listed_below() -> None:
    table = Table((Column("row"), Column("ms")), (Line((Cell("experts"), Cell("6.99", note="FP4 & not FP8"))),))
    shown = tree(table)
    assert shown.one("span", "noted").attributes["title"] == "FP4 & not FP8"
    assert [e.text for e in shown.one("dl", "notes").walk() if e.tag in ("dt", "dd")] == [
        "experts, ms",
        "FP4 & not FP8",
    ]


def test_stacked_bars_are_drawn_to_scale() -> None:
    bars = Bars(
        "b",
        ("x", "y"),
        (
            Bar("one", (Segment("x", 3.0, "3 ms"), Segment("y", 1.0, "1 ms")), "4 ms"),
            Bar("two", (Segment("y", 2, "2 ms"),), "2 ms"),
        ),
    )
    assert [[(p.x, p.width, p.series) for p in row.pieces] for row in stack_rows(bars)] == [
        [(0, 75, 0), (75, 25, 1)],
        [(0, 50, 1)],
    ]
    shown = tree(bars)
    rects = [(r.attributes["x"], r.attributes["width"], r.one("title").text) for r in shown.all("rect", "piece")]
    assert rects == [("0%", "75%", "one, x: 3 ms"), ("75%", "25%", "one, y: 1 ms"), ("0%", "50%", "two, y: 2 ms")]
    assert [svg.attributes["aria-label"] for svg in shown.all("svg")] == [
        "one: 4 ms (x 3 ms, y 1 ms)",
        "two: 2 ms (y 2 ms)",
    ]
    assert {svg.attributes["role"] for svg in shown.all("svg")} == {"img"}
    assert [item.text for item in shown.one("ul", "legend").all("li")] == ["x", "y"]


def test_more_series_than_colours_start_over_and_keep_their_numbers() -> None:
    names = tuple("abcdefghijklmn")
    bars = Bars("b", names, (Bar("all", tuple(Segment(name, 1.0, name) for name in names), ""),))
    (row,) = stack_rows(bars)
    assert [(piece.series, piece.colour) for piece in row.pieces][11:] == [(11, 11), (12, 0), (13, 1)]


def test_waterfall_steps_join_where_they_meet() -> None:
    steps = (
        Step("floor", 8.0, "8"),
        Step("idle", 12.0, "+12"),
        Step("overlap", -4.0, "-4"),
        Step("unknown", 16.0, "+16", "unknown"),
        Step("measured", 32.0, "32", "total"),
    )
    rows = step_rows(Waterfall("w", steps))
    assert [(row.x, row.width, row.kind) for row in rows] == [
        (0, 25, "more"),
        (25, 37.5, "more"),
        (50, 12.5, "less"),
        (50, 50, "unknown"),
        (0, 100, "total"),
    ]
    assert [row.joins for row in rows] == [(None, 25), (25, 62.5), (62.5, 50), (50, 100), (100, None)]


def test_a_step_that_is_next_to_nothing_leaves_a_trace_within_the_chart() -> None:
    last = step_rows(Waterfall("w", (Step("a", 1e6, ""), Step("b", 1e-6, ""))))[1]
    assert last.width == 0.4 and last.x + last.width == 100


def test_curves_lie_where_their_axes_say() -> None:
    curves = Curves("c", "batch", "ms", (Curve("one", ((1, 1), (10, 10), (100, 100))),), log_x=True, log_y=True)
    wide, narrow = plots(curves)
    assert (wide.size, wide.width, narrow.size, narrow.width) == ("wide", 820, "narrow", 340)
    for plot in (wide, narrow):
        (path,) = plot.paths
        middle = ((plot.left + plot.right) / 2, (plot.top + plot.bottom) / 2)
        assert [(point.x, point.y) for point in path.points] == [
            (plot.left, plot.bottom),
            pytest.approx(middle),
            pytest.approx((plot.right, plot.top)),
        ]
        assert {"1", "10", "100"} <= {tick.text for tick in plot.x_ticks}
        tick = next(tick for tick in plot.y_ticks if tick.text == "10")
        assert tick.place == pytest.approx(middle[1])
    assert [point.hint for point in wide.paths[0].points][1] == "one: 10 at batch 10"


def test_tick_labels_do_not_touch() -> None:
    for plot in plots(CURVES):
        ends = [(tick.place - 3.5 * len(tick.text), tick.place + 3.5 * len(tick.text)) for tick in plot.x_ticks]
        assert all(end < start for (_, end), (start, _) in pairwise(ends))
        assert len(ends) >= 3


def test_curves_come_with_their_points_as_a_table() -> None:
    shown = tree(CURVES)
    rows = dom.table_texts(shown.one("details").one("table"))
    assert rows[0] == ["context", "sparse attention (DSA)", "dense fallback"]
    assert rows[1] == ["1,024", "6.42", "6.46"] and rows[-1] == ["131,072", "8.96", "14.08"] and len(rows) == 9


def test_code_keeps_its_lines_and_nothing_else_that_is_no_character() -> None:
    assert tree(Code("a <b>\n\tc\x1b[0m\n")).one("pre").text == "a <b>\n    c\\x1b[0m"


def test_a_long_page_starts_with_links_to_its_parts() -> None:
    page = dom.parse(render_html(Document("t", tuple(Heading(f"Part {i}") for i in range(4)))))
    links = [(link.attributes["href"], link.text) for link in page.one("nav").all("a")]
    assert links == [(f"#part-{i}", f"Part {i}") for i in range(4)]
    assert [head.attributes["id"] for head in page.all("h2")] == [f"part-{i}" for i in range(4)]
    assert not dom.parse(render_html(Document("t", (Heading("one"),)))).all("nav")


def test_the_policy_allows_this_script_and_nothing_else() -> None:
    page = dom.parse(render_html(PAGE))
    policy = next(m for m in page.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy")
    script = page.all("script")[-1].text
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.attributes["content"] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # Nothing that is loaded may come before the policy.
    head = [child for child in page.one("head").children if isinstance(child, dom.Element)]
    assert [child.tag for child in head[:2]] == ["meta", "meta"] and head[1] is policy


def test_style_and_script_name_no_other_place() -> None:
    for file in TEMPLATES.iterdir():
        name, text = file.name, file.read_text(encoding="utf-8")
        assert not re.search(r"//\w|@import|@font-face|fetch\(|XMLHttpRequest|innerHTML|\| *safe|srcset", text), name
        assert set(re.findall(r"url\(([^)]*)\)", text)) <= {"#hatch"}


def test_the_island_cannot_be_left() -> None:
    text = island(Document("</script><!--", (), "\u2028&\u202e"))
    assert text == ('{"title":"\\u003c/script\\u003e\\u003c!--","blocks":[],"footer":"\\u2028\\u0026\\u202e"}')


def _variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def _luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_have_the_contrast_that_accessibility_asks_for() -> None:
    light, dark, _ = re.findall(r":root \{(.*?)\}", (TEMPLATES / "page.css").read_text(encoding="utf-8"), re.DOTALL)
    for scheme in (_variables(light), _variables(dark)):
        assert len(scheme) == 27
        for ground in ("page", "panel", "shade", "info-ground", "warn-ground", "bad-ground"):
            for ink in ("ink", "muted", "accent", "good", "warn", "bad"):
                assert _contrast(scheme[ink], scheme[ground]) >= 4.5, (ink, ground)
        for shape in (*(f"s{i}" for i in range(COLOURS)), "total", "hatch"):
            assert _contrast(scheme[shape], scheme["panel"]) >= 3, shape


def test_the_sample_page_is_small_enough_to_attach() -> None:
    assert len(render_html(PAGE).encode()) < 60_000
    assert {type(block) for block in (BARS, WATERFALL)} <= {type(block) for block in PAGE.blocks}

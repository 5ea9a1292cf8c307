"""The page in a real browser: numbers read back from what it built, hostile names that stay names, no request."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from sublight.report.blocks import (
    Band,
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Column,
    Curve,
    Curves,
    Document,
    EventRow,
    Events,
    Facts,
    Heading,
    Headline,
    Line,
    Listing,
    Mark,
    Note,
    Paragraph,
    Segment,
    Step,
    Table,
    Timeline,
    Waterfall,
)
from sublight.report.html import render_html
from sublight.report.visible import visible

from . import browser, dom
from .browser import ask, dump
from .samples import PAGE, ROWS

pytestmark = pytest.mark.browser


def everywhere(name: str) -> tuple[Block, ...]:
    """Every place of every block that holds text, holding `name`."""
    cell = Cell(name, note=name)
    return (
        Heading(name),
        Paragraph(name),
        Facts(((name, cell),)),
        Headline(((name, name, name),)),
        Table((Column(name), Column(name, "right")), (Line((cell, cell)), Line((cell, Cell("")), "group")), name),
        Listing((cell,)),
        Note(name, "error"),
        Code(name),
        Bars(name, (name, "other"), (Bar(name, (Segment(name, 1.0, name),), name),), name),
        Waterfall(name, (Step(name, 1.0, name, note=name),), name),
        Curves(name, name, name, (Curve(name, ((1.0, 1.0), (2.0, 2.0))),), (Mark(1.5, name),), caption=name),
        Timeline(
            name,
            name,
            2.0,
            (name,),
            (EventRow(name, name),),
            (name,),
            Events((0.5,), (1.0,), (0,), (0,), (0,)),
            (Band(0.0, 1.0, name),),
            (Mark(1.5, name),),
            name,
        ),
    )


def hostile(origin: str) -> list[str]:
    return [
        "</script><script>document.title='run'</script>",
        f"\"><img src='{origin}/img' onerror=\"document.title='run'\">",
        f"'><svg onload=document.title='run'><iframe src={origin}/frame></iframe>",
        f"</title></style></code></pre><link rel=stylesheet href={origin}/style><base href={origin}>",
        f'<meta http-equiv=refresh content="0;url={origin}/refresh"><!-- ',
        '" onmouseover="document.title=\'run\'" style="background:url(' + origin + "/background)",
        "]]></svg><math><mtext></p></mtext>",
        "{{ 111111 * 111111 }} {% include 'page.css' %} ${111111 * 111111}",
        "nul\x00 escape\x1b[31m \u202edesrever\u2066 \u2028 \ufeff \x85",
        "&lt;b&gt; &#x202e; &amp;",
    ]


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A web server on this machine, and the paths that were asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}", asked
    running.shutdown()
    running.server_close()
    thread.join()


def test_numbers_are_read_back_from_the_page_and_from_its_data(tmp_path: Path) -> None:
    page = dom.parse(dump(render_html(PAGE), tmp_path).replace("<!DOCTYPE html>", ""))
    values = [(value.text) for value in page.one("dl", "headline").all("dd", "value")]
    assert values == ["6.64 ms", "33.5 ms", "26.9 ms"]
    cells = {row[0]: row[1:] for row in dom.table_texts(page.all("table")[0])[1:]}
    for line in ROWS.lines:
        if line.kind != "group":
            assert cells[line.cells[0].text] == [cell.text for cell in line.cells[1:]]
    data = next(s for s in page.all("script") if s.attributes.get("id") == "document-data")
    assert msgspec.convert(json.loads(data.text), Document) == PAGE
    # The page's own script has run: its policy lets it.
    assert [button.text for button in page.one("div", "code").all("button")] == ["Copy"]


def test_hostile_names_stay_names_and_nothing_is_requested(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    origin, asked = server
    names = hostile(origin)
    document = Document("the title", tuple(block for name in names for block in everywhere(name)), names[0])
    page = dump(render_html(document), tmp_path)
    built = dom.parse(page.replace("<!DOCTYPE html>", ""))
    assert built.one("head").one("title").text == "the title"
    foreign = {"img", "iframe", "link", "base", "math", "object", "embed", "form", "input", "b", "mtext"}
    assert not foreign & {element.tag for element in built.walk()}
    assert len(built.all("script")) == 2 and len(built.all("style")) == 1 and len(built.all("meta")) == 5
    assert not [name for element in built.walk() for name in element.attributes if name.startswith("on")]
    assert [heading.text for heading in built.one("main").all("h2")] == [visible(name) for name in names]
    assert [code.text for code in built.one("main").all("code")] == [visible(name) for name in names]
    assert "12345654321" not in built.one("main").text
    assert not set("\x1b\x00\u202e\u2066\u2028") & set(page)
    assert asked == []


def test_the_server_would_have_noticed(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    origin, asked = server
    dump(f"<html><body>{hostile(origin)[1]}</body></html>", tmp_path)
    assert asked == ["/img"]


def test_the_policy_stops_what_would_get_past_the_escaping(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    origin, asked = server
    page = render_html(Document("the title", (Paragraph("HERE"),)))
    hole = f"<img src='{origin}/img' onerror=\"document.title='run'\"><script>document.title='run'</script>"
    built = dump(page.replace("HERE", hole), tmp_path)
    assert "<title>the title</title>" in built and "<img" in built
    assert asked == []


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_never_scrolls_sideways(tmp_path: Path, width: int) -> None:
    long = "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked" * 3
    page = render_html(Document(long, (*PAGE.blocks, *everywhere(long), *everywhere("word " * 40))))
    inner, scroll, table = ask(
        page,
        "const t = document.querySelector('.scroll');"
        "return [innerWidth, document.documentElement.scrollWidth, t.scrollWidth - t.clientWidth]",
        tmp_path,
        width,
    )
    assert inner == width
    assert scroll <= inner
    assert (table > 0) == (width == 375)


def test_only_one_layout_of_a_plot_is_shown(tmp_path: Path) -> None:
    script = """
    const plots = [...document.querySelectorAll(".plot")];
    return plots.map((plot) => [plot.classList[1], plot.getBoundingClientRect().width > 0]);
    """
    assert ask(render_html(PAGE), script, tmp_path) == [["wide", True], ["narrow", False]]
    assert ask(render_html(PAGE), script, tmp_path, 375) == [["wide", False], ["narrow", True]]


def test_columns_sort_by_their_numbers_within_each_section(tmp_path: Path) -> None:
    script = """
    const table = document.querySelector("table");
    const heads = [...table.querySelectorAll("thead th")];
    const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
    const seen = [];
    const bytes = heads[3].querySelector("button");
    for (let turn = 0; turn < 3; turn++) { bytes.click(); seen.push([heads[3].getAttribute("aria-sort"), names()]); }
    heads[0].querySelector("button").click();
    seen.push([heads[3].getAttribute("aria-sort"), names()]);
    return seen;
    """
    title, a, b, c, d = [line.cells[0].text for line in ROWS.lines[:5]]
    assert ask(render_html(PAGE), script, tmp_path) == [
        ["descending", [title, a, d, b, c]],  # 2.52 GB, 1.96 GB, 654 MB, 286 MB
        ["ascending", [title, c, b, d, a]],
        ["none", [title, a, b, c, d]],
        ["none", [title, c, b, a, d]],  # by name, last letter first
    ]


def test_pointing_at_a_series_dims_the_others(tmp_path: Path) -> None:
    script = """
    const chart = [...document.querySelectorAll("figure")].find((f) => f.querySelector(".piece"));
    chart.querySelectorAll(".legend li")[2].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    const bright = [...chart.querySelectorAll(".piece:not(.dim) title")].map((t) => t.textContent);
    chart.dispatchEvent(new PointerEvent("pointerleave"));
    return [bright, chart.querySelectorAll(".dim").length];
    """
    assert ask(render_html(PAGE), script, tmp_path) == [
        ["roofline, collectives: 1.72 ms", "practical, collectives: 1.72 ms"],
        0,
    ]


def test_the_page_follows_the_readers_colour_scheme(tmp_path: Path) -> None:
    script = "return getComputedStyle(document.body).backgroundColor"
    assert ask(render_html(PAGE), script, tmp_path) == "rgb(251, 251, 249)"
    assert ask(render_html(PAGE), script, tmp_path, dark=True) == "rgb(17, 20, 19)"


def test_bars_are_as_long_as_their_numbers(tmp_path: Path) -> None:
    script = "return [...document.querySelectorAll('.step')].map((r) => r.getBoundingClientRect().width)"
    widths = ask(render_html(PAGE), script, tmp_path)
    full = widths[-1]
    values = [6.64, 6.99, 6.46, 6.72, 4.92, 0.16, 1.93, 33.5]
    assert [width / full * 33.5 for width in widths] == pytest.approx(values, abs=0.02)


def test_a_missing_browser_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium on this machine"):
        browser.chromium()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Chromium on this machine"):
        browser.chromium()

"""A timeline in a real browser: what is painted on its canvas, and what stands there without."""

import re
from pathlib import Path

import pytest

from sublight.report.blocks import Document, EventRow, Events, Timeline
from sublight.report.html import render_html
from sublight.report.visible import visible

from . import browser, dom
from .steps import SMALL, STEP
from .test_browser import hostile
from .timeline_page import ask

pytestmark = pytest.mark.browser


def test_the_policy_lets_the_picture_be_painted_and_the_whole_step_is_shown(tmp_path: Path) -> None:
    page = dom.parse(browser.dump(render_html(Document("t", (STEP,))), tmp_path).replace("<!DOCTYPE html>", ""))
    figure = page.one("figure", "timeline")
    assert not figure.all("div", "still")
    canvas = figure.one("canvas", "lanes")
    assert canvas.attributes["role"] == "img" and canvas.attributes["tabindex"] == "0"
    assert canvas.attributes["aria-label"].startswith("One decode step, rank 0: 3,284 events over 88,351 us; stream 7")
    shown = {name: figure.attributes[f"data-{name}"] for name in ("from", "to", "shown", "drawn")}
    assert shown == {"from": "0", "to": "88351.1", "shown": "3284", "drawn": "shares"}
    assert figure.one("p", "where").text == "0 – 88,351 us: 3,284 events; columns are as high as the lane was busy"


@pytest.mark.parametrize("dark", [False, True])
def test_events_have_the_colour_of_their_group(tmp_path: Path, dark: bool) -> None:
    script = """
    const key = (name) => getComputedStyle(figure).getPropertyValue(name).trim();
    const colours = [0.2, 0.4, 0.55, 0.9].map((x) => pixel(x, LANE + 20));
    return [colours, [key("--s0"), key("--s0"), key("--s1"), key("--shade")]];
    """
    painted, wanted = ask(SMALL, script, tmp_path, dark=dark)
    assert painted == wanted


def test_columns_are_painted_as_high_as_the_lane_was_busy(tmp_path: Path) -> None:
    # Each hundredth is busy with one row for 40 of 100, then with another for 20.
    starts, durations, rows = [], [], []
    for index in range(1000):
        starts += [index * 10.0, index * 10 + 4.0]
        durations += [4.0, 2.0]
        rows += [0, 1]
    table = (EventRow("a", "a"), EventRow("b", "b"))
    zeros = (0,) * len(starts)
    events = Events(tuple(starts), tuple(durations), zeros, tuple(rows), zeros)
    block = Timeline("", "us", 10000.0, ("s",), table, ("k",), events)
    script = """
    const top = 24 + 20;
    const column = (x) => [...Array(66).keys()].map((y) => pixel(x, top + y));
    const key = (name) => getComputedStyle(figure).getPropertyValue(name).trim();
    const count = (x, colour) => column(x).filter((found) => found === key(colour)).length;
    const plain = [0.123, 0.77].map((x) => ["--s0", "--s1", "--shade"].map((colour) => count(x, colour)));
    figure.querySelectorAll(".keys button")[1].click();
    return [figure.dataset.drawn, plain, column(0.123)[65] === key("--s1"), count(0.123, "--s0")];
    """
    drawn, plain, on_the_ground, others = ask(block, script, tmp_path)
    assert drawn == "shares"
    for counts in plain:
        assert counts == pytest.approx([66 * 0.4, 66 * 0.2, 66 * 0.4], abs=2.5)
    assert on_the_ground and others == 0


def test_names_of_kernels_stay_names(tmp_path: Path) -> None:
    names = (*hostile("http://127.0.0.1:9"), "\ud800 \U000e0041 \u00ad \r\t 内核 µs", "plain")
    rows = tuple(EventRow(name, name) for name in names)
    count = len(names)
    indices = tuple(range(count))
    events = Events(tuple(map(float, indices)), (1.0,) * count, (0,) * count, indices, indices)
    block = Timeline("t", names[1], float(count), (names[0],), rows, names, events)
    script = f"""
    const before = document.querySelectorAll("*").length;
    const seen = [];
    for (let index = 0; index < {count}; index++) {{
      point("pointermove", (index + 0.5) / {count}, 80);
      seen.push([...tip.children].slice(0, 2).map((line) => line.textContent));
    }}
    return [seen, document.querySelectorAll("*").length - before, tip.querySelectorAll("*").length, document.title];
    """
    seen, more, inside, title = ask(block, script, tmp_path)
    assert seen == [[visible(name), visible(name)] for name in names]
    assert (more, inside, title) == (4, 4, "t")


def test_without_script_the_still_picture_stands_there(tmp_path: Path) -> None:
    page = re.sub(r"<script>.*?</script>", "", render_html(Document("t", (STEP,))), flags=re.DOTALL)
    script = """
    const boxes = [...document.querySelectorAll(".strip")].map((strip) => {
      const all = strip.getBoundingClientRect();
      return [...strip.querySelectorAll("rect")].map((rect) => {
        const box = rect.getBoundingClientRect();
        return [box.left - all.left, box.width, box.height, getComputedStyle(rect).fill].concat(all.width, all.height);
      });
    });
    return [boxes, document.querySelectorAll("canvas, button").length];
    """
    lanes, made = browser.ask(page, script, tmp_path)
    assert made == 0 and 100 < sum(map(len, lanes)) <= 600
    for boxes, busy in zip(lanes, (0.394, 0.036), strict=True):
        area = sum(width * height for _, width, height, *_ in boxes) / (boxes[0][4] * boxes[0][5])
        assert area == pytest.approx(busy, abs=0.001)
        assert all(left >= -0.01 and left + width <= whole + 0.01 for left, width, _, _, whole, _ in boxes)
    assert "rgb(80, 128, 44)" not in {fill for boxes in lanes for *_, fill, _, _ in boxes}
    assert {"rgb(79, 95, 208)", "rgb(46, 139, 69)"} <= {fill for boxes in lanes for *_, fill, _, _ in boxes}


@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_leaves_the_page_sideways(tmp_path: Path, width: int) -> None:
    script = """
    for (let i = 0; i < 9; i++) press("+");
    const out = [];
    for (const x of [0.02, 0.5, 0.98]) {
      point("pointermove", x, LANE);
      const box = tip.getBoundingClientRect();
      if (!tip.hidden) out.push(box.left >= 0 && box.right <= innerWidth);
    }
    for (const detail of document.querySelectorAll("details")) detail.open = true;
    const page = document.documentElement;
    return [innerWidth, page.scrollWidth, canvas.clientWidth, canvas.width / devicePixelRatio, out.every(Boolean)];
    """
    inner, scroll, shown, painted, inside = ask(STEP, script, tmp_path, width)
    assert inner == width and scroll <= width and shown == painted < width and inside


def test_a_timeline_without_events_breaks_nothing(tmp_path: Path) -> None:
    block = Timeline("nothing", "us", 1.0, (), (), (), Events((), (), (), (), ()))
    script = "press('+'); point('pointermove', 0.5, 20); return [where(), tip.hidden]"
    assert ask(block, script, tmp_path) == ["0.188 – 0.813 us: 0 events", True]

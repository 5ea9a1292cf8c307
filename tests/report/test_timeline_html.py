"""A timeline on a page as a file: the still picture, its legend and its words.

What the script makes of it is in test_timeline_painted and test_timeline_input.
"""

import pytest

from sublight.report.blocks import Document, Events, Timeline
from sublight.report.html import render_html
from sublight.report.lanes import busy, groups, stretches
from sublight.report.timeline import PIECES, decimals, longest, still

from . import dom
from .steps import SMALL, STEP


def test_the_still_picture_of_a_few_events_is_exact() -> None:
    lanes = still(SMALL).lanes
    assert [lane.text for lane in lanes] == ["busy 62.5 %", "busy 20.0 %"]
    assert [[(p.x, p.width, p.height, p.colour, p.hint) for p in lane.pieces] for lane in lanes] == [
        [(0, 250, 100, "c0", "q_b"), (250, 250, 100, "c0", "o_proj"), (500, 125, 100, "c1", "all-reduce")],
        [(300, 200, 100, "c1", "all-reduce")],
    ]


def test_the_still_picture_of_a_whole_step_is_coarse_and_keeps_to_the_busy_time() -> None:
    drawn = still(STEP)
    assert 100 < sum(len(lane.pieces) for lane in drawn.lanes) <= PIECES
    for index, lane in enumerate(drawn.lanes):
        area = sum(piece.width * piece.height for piece in lane.pieces) / 1000 / 100
        assert area == pytest.approx(busy(stretches(STEP, index)) / STEP.span, rel=1e-6)
        assert all(piece.x >= 0 and piece.x + piece.width <= 1000 + 1e-6 for piece in lane.pieces)
    # Each group of rows has about the area of its time.
    colours = {"c2": "attention projections", "c7": "routed experts", "c11": "collectives", "c4": "attention core"}
    for colour, name in colours.items():
        area = sum(p.width * p.height for lane in drawn.lanes for p in lane.pieces if p.colour == colour) / 1e5
        time = next(group.time for group in groups(STEP) if group.name == name)
        assert area * STEP.span == pytest.approx(time, rel=0.05)


def test_the_page_says_it_in_words_and_as_a_table() -> None:
    page = dom.parse(render_html(Document("t", (SMALL,)))).one("figure", "timeline")
    picture = page.one("div", "still")
    assert picture.attributes["role"] == "img"
    assert picture.attributes["aria-label"] == (
        "One step: 4 events over 40 us; stream 7 busy 62.5 %; stream 9 busy 20.0 %; projections 20 us; "
        "collectives 13 us"
    )
    assert dom.table_texts(page.one("details").one("table")) == [
        ["row", "duration, us", "start, us", "lane", "event"],
        ["q_b", "10", "0", "stream 7", "gemm_a"],
        ["o_proj", "10", "10", "stream 7", "gemm_b"],
        ["all-reduce", "8", "12", "stream 9", "nccl"],
        ["all-reduce", "5", "20", "stream 7", "nccl"],
    ]
    keys = [(item.one("span", "group").text, [row.text for row in item.all("span", "row")]) for item in legend(page)]
    assert keys == [("projections", ["q_b", "o_proj"]), ("collectives", ["all-reduce"])]
    assert [item.text for item in page.one("ul", "marks").all("li")] == ["20 us: a layer ends"]
    assert len(longest(STEP).lines) == 30
    durations = [float(line.cells[1].text) for line in longest(STEP).lines]
    assert durations == sorted(durations, reverse=True) and durations[0] == max(STEP.events.duration)


def legend(figure: dom.Element) -> list[dom.Element]:
    return [item for item in figure.one("ul", "keys").children if isinstance(item, dom.Element)]


def test_a_group_that_is_its_only_row_is_said_once_and_the_unknown_has_its_pattern() -> None:
    items = {item.one("span", "group").text: item for item in legend(dom.parse(render_html(Document("t", (STEP,)))))}
    assert items["router"].one("span", "group").attributes["data-row"] == "13" and not items["router"].all(
        "span", "row"
    )
    assert items["unknown"].classes == {"unknown"} and items["embedding"].classes == {"c0"}
    assert len({frozenset(item.classes) for item in items.values()}) == len(items) == 13


@pytest.mark.parametrize(
    ("time", "span", "digits"),
    [(3.0, 40.0, 0), (2.5, 40.0, 1), (1.234, 88351.1, 3), (1 / 3, 88351.1, 3), (1 / 3, 40.0, 6), (0.3, 9e8, 0)],
)
def test_times_have_the_digits_they_were_given_with(time: float, span: float, digits: int) -> None:
    events = Events((0.0,), (time,), (0,), (0,), (0,))
    assert decimals(Timeline("", "us", span, ("s",), SMALL.rows, ("k",), events)) == digits


def test_the_pages_of_steps_are_small_and_only_they_carry_the_script() -> None:
    page = render_html(Document("t", (STEP,)))
    assert len(STEP.events.start) > 3200
    assert len(page.encode()) < 220_000
    assert "TimelinePicture" in page and "TimelinePicture" not in render_html(Document("t", ()))


def test_a_timeline_without_anything_in_it_is_an_empty_picture() -> None:
    block = Timeline("nothing", "us", 1.0, (), (), (), Events((), (), (), (), ()))
    figure = dom.parse(render_html(Document("t", (block,)))).one("figure")
    assert not figure.all("rect") and not figure.all("details")

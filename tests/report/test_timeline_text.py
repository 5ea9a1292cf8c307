"""A timeline on a terminal and in Markdown."""

import re
from collections import Counter

import pytest
from rich.cells import cell_len

from sublight.report import render
from sublight.report.blocks import Document, Events, Timeline
from sublight.report.text import render_text

from .steps import SMALL, STEP


def text(block: Timeline, width: int = 60) -> list[str]:
    return render_text(Document("t", (block,)), width=width, colour=False).splitlines()[3:]


def test_a_lane_is_two_lines_of_blocks_and_letters() -> None:
    assert text(SMALL, 53) == [
        "One step",
        "█A projections 20 us   █B collectives 13 us",
        "stream 7     █████████████████████████",
        "busy 62.5 %  AAAAAAAAAAAAAAAAAAAABBBBB",
        "stream 9                 ████████",
        "busy 20.0 %              BBBBBBBB",
        "             ┬───────────────────┊───────────────────",
        "             0                  20                 40",
        "┊ 20 us: a layer ends",
        "A column is 1 us, as high as it was busy.",
        "Median.",
    ]


def test_columns_are_as_high_as_they_were_busy() -> None:
    events = Events((0.0, 4.0, 8.0, 12.5), (4.0, 2.0, 0.5, 0.01), (0,) * 4, (0, 0, 2, 2), (0,) * 4)
    lines = text(Timeline("", "us", 44.0, ("s",), SMALL.rows, ("k",), events), 24)
    assert lines[2:4] == ["s            █▄▁▁", "busy 14.8 %  AABB"]


def test_the_lanes_of_a_step_show_where_the_host_was_late() -> None:
    lines = text(STEP, 120)
    heights = next(line for line in lines if line.startswith("stream 7"))[26:]
    letters = next(line for line in lines if line.startswith("busy 39.4 %"))[26:]
    assert len(heights) == len(letters) == 94
    levels = [" ▁▂▃▄▅▆▇█".index(character) for character in heights]
    late = levels[43:54]
    assert max(late) < min(levels[:40]) + 1 and sum(late) / len(late) < 2 and sum(levels[:40]) / 40 > 3
    assert set(letters) <= set("ABCDEFGHIJKL?") and Counter(letters).most_common(1)[0][0] in "CHL"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 160, 300])
def test_no_line_is_longer_than_the_screen_and_lanes_fill_it(width: int) -> None:
    lines = text(STEP, width)
    assert max(map(cell_len, lines)) == width
    coloured = render_text(Document("t", (STEP,)), width=width, colour=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured).splitlines()[3:] == lines
    assert "\x1b[34m" in coloured


def test_markdown_holds_the_same_drawing_in_a_fence() -> None:
    shown = render(Document("t", (SMALL,)), "markdown").splitlines()
    assert shown[2] == "```text" and shown[-1] == "```"
    assert shown[3:-1] == text(SMALL, 88)


def test_a_timeline_without_anything_in_it_is_shown_all_the_same() -> None:
    assert text(Timeline("nothing", "us", 1.0, (), (), (), Events((), (), (), (), ())), 40)[0] == "nothing"


def test_of_many_lanes_the_busiest_are_drawn_and_the_others_counted() -> None:
    lanes = tuple(f"lane {number}" for number in range(11))
    durations = (5.0, 0.0, 9.0, 8.0, 7.0, 6.0, 1.0, 4.0, 3.0, 2.5, 2.0)
    columns = (0.0,) * 11, durations, tuple(range(11)), (0,) * 11, (0,) * 11
    lines = text(Timeline("", "us", 10.0, lanes, SMALL.rows, ("k",), Events(*columns)), 70)
    assert [line.split("  ")[0] for line in lines if line.startswith("lane ")] == [
        f"lane {number}" for number in (0, 2, 3, 4, 5, 7, 8, 9)
    ]
    assert " ".join(lines[-2:]).endswith("Not drawn: 3 more lanes, busy 20.0 % at most.")

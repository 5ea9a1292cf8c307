"""A timeline in a real browser: what keys, wheel, pointers and the legend do to it."""

from pathlib import Path

import pytest

from .steps import SMALL, STEP
from .timeline_page import ask

pytestmark = pytest.mark.browser


def test_keys_zoom_in_move_and_show_all_again(tmp_path: Path) -> None:
    script = """
    const seen = [];
    const note = (key, times = 1) => {
      for (let i = 0; i < times; i++) press(key);
      seen.push([...at(), Number(figure.dataset.shown), figure.dataset.drawn]);
    };
    note("+"); note("+", 7); note("ArrowRight"); note("ArrowLeft", 2); note("-"); note("End"); note("Home"); note("0");
    return seen;
    """
    seen = ask(STEP, script, tmp_path)
    span = STEP.span
    sizes = [to - start for start, to, *_ in seen]
    eighth = span / 1.6**8
    sizes_wanted = [span / 1.6, *[eighth] * 3, *[eighth * 1.6] * 3, span]
    assert sizes == pytest.approx(sizes_wanted)
    assert seen[1][0] == pytest.approx(span / 2 - eighth / 2)
    assert seen[2][0] - seen[1][0] == pytest.approx(eighth / 10)
    assert seen[3][0] - seen[2][0] == pytest.approx(-eighth / 5)
    assert seen[5][1] == pytest.approx(span) and seen[6][0] == 0
    for start, to, shown, _ in seen:
        events = zip(STEP.events.start, STEP.events.duration, strict=True)
        assert shown == sum(first <= to and first + duration >= start for first, duration in events)
    assert [drawn for *_, drawn in seen] == ["shares", *["events"] * 6, "shares"]


def test_there_is_an_end_to_zooming_and_no_way_out_of_the_step(tmp_path: Path) -> None:
    script = """
    for (let i = 0; i < 80; i++) press("+");
    const least = at();
    press("ArrowLeft", { shiftKey: true });
    for (let i = 0; i < 900; i++) press("ArrowLeft", { shiftKey: true });
    const first = at();
    press("+", { ctrlKey: true });
    return [least[1] - least[0], first, at()];
    """
    size, first, last = ask(SMALL, script, tmp_path)
    assert size == pytest.approx(0.4) and first == last == pytest.approx([0, 0.4])


def test_pointing_at_an_event_says_what_it_is(tmp_path: Path) -> None:
    script = """
    const read = () => (tip.hidden ? null : [...tip.children].map((line) => line.textContent));
    const seen = [];
    for (const [x, y] of [[0.1, LANE], [0.35, LANE], [0.4, LANE + 96], [0.8, LANE], [0.4, 10]]) {
      point("pointermove", x, y);
      seen.push(read());
    }
    return seen;
    """
    assert ask(SMALL, script, tmp_path) == [
        ["q_b", "gemm_a", "start 0 us, duration 10 us", "stream 7, layer 0"],
        ["o_proj", "gemm_b", "start 10 us, duration 10 us", "stream 7, layer 0"],
        ["all-reduce", "nccl", "start 12 us, duration 8 us", "stream 9, layer 0"],
        None,
        None,
    ]


def test_of_many_events_in_a_pixel_the_longest_is_said_and_zooming_tells_them_apart(tmp_path: Path) -> None:
    script = """
    point("pointermove", 0.5, LANE);
    const far = [...tip.children].map((line) => line.textContent);
    for (let i = 0; i < 12; i++) press("+");
    point("pointermove", 0.5, LANE);
    const gone = tip.hidden;
    const start = JSON.parse(document.getElementById("document-data").textContent).blocks[0].events.start;
    return [far, gone, at()];
    """
    far, _, (start, end) = ask(STEP, script, tmp_path)
    pixel = STEP.span / 1046
    near = [
        index
        for index, (first, duration, lane) in enumerate(
            zip(STEP.events.start, STEP.events.duration, STEP.events.lane, strict=True)
        )
        if lane == 0 and first <= STEP.span / 2 + 1.5 * pixel and first + duration >= STEP.span / 2 - 1.5 * pixel
    ]
    assert len(near) > 2
    assert far[1] in {STEP.names[STEP.events.name[index]] for index in near}
    assert far[3] == f"stream 7, layer 40; {len(near) - 1} more at this place"
    assert end - start == pytest.approx(STEP.span / 1.6**12)


def test_the_legend_lights_up_a_row_or_a_group_until_it_is_pressed_again(tmp_path: Path) -> None:
    script = """
    const names = [...figure.querySelectorAll(".keys button")];
    const seen = [names.map((name) => name.textContent)];
    const pressed = () => names.findIndex((name) => name.getAttribute("aria-pressed") === "true");
    const note = () => seen.push([where(), pressed(), pixel(0.2, LANE)]);
    names[2].click(); note();
    names[0].click(); note();
    names[3].dispatchEvent(new PointerEvent("pointerenter")); note();
    names[3].dispatchEvent(new PointerEvent("pointerleave")); note();
    names[0].click(); note();
    return seen;
    """
    names, *seen = ask(SMALL, script, tmp_path)
    assert names == ["projections", "q_b", "o_proj", "collectives", "all-reduce"]
    said = [line for line, *_ in seen]
    assert said == [
        "0 – 40 us: o_proj, 1 event, 10 us",
        "0 – 40 us: projections, 2 events, 20 us",
        "0 – 40 us: collectives, 2 events, 13 us",
        "0 – 40 us: projections, 2 events, 20 us",
        "0 – 40 us: 4 events",
    ]
    assert [pressed for _, pressed, _ in seen] == [2, 0, 0, 0, -1]
    first = seen[-1][2]
    assert [colour == first for *_, colour in seen] == [False, True, False, True, True]


def test_dragging_chooses_a_stretch_then_moves_it(tmp_path: Path) -> None:
    script = """
    const seen = [];
    const drag = (from, to, y, more) => {
      point("pointerdown", from, y, more); point("pointermove", to, y, more); point("pointerup", to, y, more);
      seen.push(at());
    };
    drag(0.25, 0.75, LANE); // nothing to move yet
    drag(0.5, 0.25, LANE);
    drag(0.5, 0.75, 5); // along the scale
    drag(0.5, 0.9, LANE, { button: 2 });
    point("pointerdown", 0.5, LANE); point("pointermove", 0.501, LANE); point("pointerup", 0.501, LANE);
    seen.push(at());
    return seen;
    """
    seen = ask(SMALL, script, tmp_path)
    assert seen == [pytest.approx(place, abs=0.05) for place in ([10, 30], [15, 35], [25, 30], [25, 30], [25, 30])]


def test_two_fingers_zoom_and_one_moves(tmp_path: Path) -> None:
    script = """
    const finger = (name, id, x) => point(name, x, LANE, { pointerId: id, pointerType: "touch" });
    finger("pointerdown", 1, 0.4); finger("pointerdown", 2, 0.6);
    finger("pointermove", 1, 0.3); finger("pointermove", 2, 0.7);
    const pinched = at();
    finger("pointerup", 2, 0.7); finger("pointermove", 1, 0.4); finger("pointerup", 1, 0.4);
    const moved = at();
    finger("pointerdown", 3, 0.3); finger("pointerup", 3, 0.3);
    return [pinched, moved, tip.hidden, tip.children[1].textContent, getComputedStyle(canvas).touchAction];
    """
    pinched, moved, hidden, name, touch = ask(SMALL, script, tmp_path, width=375)
    assert pinched == pytest.approx([10, 30], abs=0.3)
    assert moved == pytest.approx([8, 28], abs=0.3)
    assert (hidden, name, touch) == (False, "gemm_b", "pan-y")


def test_the_wheel_scrolls_the_page_until_it_is_asked_to_zoom(tmp_path: Path) -> None:
    script = """
    const box = canvas.getBoundingClientRect();
    const wheel = (more) => {
      const place = { clientX: box.left + box.width / 4, clientY: box.top + LANE, bubbles: true, cancelable: true };
      const event = new WheelEvent("wheel", { ...place, ...more });
      canvas.dispatchEvent(event);
      return [event.defaultPrevented, ...at()];
    };
    const seen = [wheel({ deltaY: -100 }), wheel({ deltaY: -100, ctrlKey: true }), wheel({ deltaX: 40 })];
    press("0");
    canvas.focus();
    return [...seen, wheel({ deltaY: -300 }), wheel({ deltaY: 9000 }), wheel({ deltaY: 100 })];
    """
    plain, zoomed, moved, focused, out, further = ask(SMALL, script, tmp_path)
    assert plain == [False, 0, 40] and further == [False, 0, 40]
    assert zoomed[0] and zoomed[2] - zoomed[1] == pytest.approx(40 * 2.718281828**-0.6)
    assert (10 - zoomed[1]) / (zoomed[2] - zoomed[1]) == pytest.approx(0.25, abs=0.01)
    assert moved[0] and moved[1] > zoomed[1] and moved[2] - moved[1] == pytest.approx(zoomed[2] - zoomed[1])
    assert focused[0] and focused[2] < 40 and out == [True, 0, 40]


def test_the_overview_and_the_buttons_move_the_window(tmp_path: Path) -> None:
    script = """
    const seen = [];
    const grip = (name, x) => { point(name, x, 10, { buttons: 1 }, overview); seen.push(at()); };
    grip("pointerdown", 0.5);
    grip("pointermove", 0.75);
    grip("pointerdown", 0.25);
    grip("pointermove", 0);
    const label = (name) => figure.querySelector(`.tools button[aria-label="${name}"]`);
    for (const name of ["Later", "Zoom out", "Show all", "Zoom in", "Earlier"]) {
      label(name).click();
      seen.push(at());
    }
    return seen;
    """
    seen = ask(SMALL, script, tmp_path)
    wanted = [
        [17.5, 22.5],
        [27.5, 32.5],
        [7.5, 12.5],
        [0, 5],
        [1.25, 6.25],
        [0, 8],
        [0, 40],
        [7.5, 32.5],
        [1.25, 26.25],
    ]
    assert seen == [pytest.approx(place, abs=0.2) for place in wanted]

"""The pages that people get, in a real browser: the bundled example, and a trace."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import MODEL, STEP, kineto
from tests.report import browser
from tests.report.timeline_page import TOOLS

Sublight = Callable[..., Run]
pytestmark = pytest.mark.browser
EXAMPLE = 3196  # kernels, copies and fills of the bundled step


@pytest.fixture(params=["gap", "trace"])
def page(request: pytest.FixtureRequest, sublight: Sublight, tmp_path: Path) -> tuple[str, int]:
    """A page, and how many events its timeline has."""
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "trace.json").write_text(json.dumps(kineto()))
    command, events = {
        "gap": (("gap",), EXAMPLE),
        "trace": (("trace", "trace.json", "--model", "./config.json"), len(STEP)),
    }[request.param]
    done = sublight(*command, "--html", "page.html")
    assert (done.code, done.err) == (0, "")
    return (tmp_path / "page.html").read_text(), events


def test_the_step_is_painted_and_keys_zoom_into_it(page: tuple[str, int], tmp_path: Path) -> None:
    text, events = page
    script = """
    const colours = () => {
      const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const seen = new Set();
      for (let i = 0; i < all.length; i += 4) if (all[i + 3]) seen.add(all[i] << 16 | all[i + 1] << 8 | all[i + 2]);
      return seen.size;
    };
    const whole = [at(), Number(figure.dataset.shown), canvas.toDataURL()];
    const painted = colours();
    for (let i = 0; i < 4; i++) press("+");
    const zoomed = [at(), Number(figure.dataset.shown), canvas.toDataURL()];
    return {
      canvases: document.querySelectorAll("canvas.lanes").length, painted, whole, zoomed,
      requests: performance.getEntriesByType("resource").length,
    };
    """
    said = browser.ask(text, TOOLS + script, tmp_path)
    assert said["canvases"] == 1 and said["painted"] >= 4 and said["requests"] == 0
    (start, end), shown, picture = said["whole"]
    (closer_start, closer_end), fewer, closer = said["zoomed"]
    assert start == 0 and shown == events
    assert start < closer_start < closer_end < end and closer_end - closer_start < (end - start) / 4
    assert fewer < shown and closer != picture


def test_the_console_stays_empty_and_the_policy_forbids_every_request(page: tuple[str, int], tmp_path: Path) -> None:
    assert browser.console(page[0], tmp_path) == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page[0])
    assert policy is not None and "default-src" in policy[1] and "none" in policy[1]
    assert not re.search(r'(?:src|href)="(?!#)', page[0])


def test_the_console_is_really_read(page: tuple[str, int], tmp_path: Path) -> None:
    broken = page[0].replace("</body>", '<img src="https://example.com/x.png"></body>')
    assert any("example.com" in line for line in browser.console(broken, tmp_path))


@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_leaves_the_page_sideways(page: tuple[str, int], tmp_path: Path, width: int) -> None:
    script = """
    for (const detail of document.querySelectorAll("details")) detail.open = true;
    return [innerWidth, document.documentElement.scrollWidth, canvas.clientWidth];
    """
    inner, scroll, shown = browser.ask(page[0], TOOLS + script, tmp_path, width)
    assert inner == width and scroll <= width and width / 2 < shown < width

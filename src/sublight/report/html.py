"""A document as one HTML file that opens offline and asks no network for anything.

The page works without script; with it, tables sort, code is copied with a click and a chart's series light up. Its
policy forbids every request and every script but the one written here, by hash. All text goes through the templates'
escaping, and `visible` is applied to every string a template prints, so that no template can forget it. The document
itself lies in the page as JSON, for tests and for people who want the numbers.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sublight.report.blocks import Bars, Block, Curves, Document, Heading, Table, Timeline, Waterfall
from sublight.report.charts import COLOURS, curves_spoken, plots, stack_rows, step_rows
from sublight.report.check import check
from sublight.report.legend import legend
from sublight.report.points import marks_in_words, points_table
from sublight.report.sections import notes, sections, shapes, sorting
from sublight.report.timeline import keys, longest, still
from sublight.report.visible import visible, visible_lines

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
POINTS = 200  # lines of the table that a page shows on demand below curves
CONTENTS = 4  # a page with this many headings starts with a list of them
TIMELINE = tuple(f"timeline{part}.js" for part in ("_text", "_events", "_brush", "_paint", "_pointer", ""))


class Part(msgspec.Struct, frozen=True):
    """A block with what its template macro, named `kind`, needs beside it."""

    kind: str
    block: Block
    anchor: str
    drawing: dict[str, Any]


def render_html(document: Document) -> str:
    """The document as one HTML file.

    Raises:
        ValueError: a chart's numbers are not what it claims (`check`).
    """
    check(document)
    parts = [_part(block, index) for index, block in enumerate(document.whole)]
    headings = [part for part in parts if isinstance(part.block, Heading) and part.block.level < 3]
    return _page(any(isinstance(block, Timeline) for block in document.whole)).render(
        title=document.title,
        footer=document.footer,
        parts=parts,
        contents=headings if len(headings) >= CONTENTS else [],
        data=_own(island(document)),
    )


@cache
def _page(timeline: bool) -> Template:
    """The page without a document; its style and script are part of it, those of a timeline if there is one."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = "".join(map(_asset, ("page.js", *TIMELINE) if timeline else ("page.js",)))
    style = "".join(map(_asset, ("page.css", "timeline.css") if timeline else ("page.css",)))
    environment.filters["code"] = _code
    environment.globals.update(
        colours=COLOURS,
        style=_own(style),
        script=_own(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
    )
    return environment.get_template("page.html.jinja")


def _own(text: str) -> Markup:
    """Text that needs no escaping: our own style and script, and JSON without a character that HTML knows."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704


def _finalize(value: Any) -> Any:
    """What a template prints, before it is escaped. Markup is what `_own` has made, or a macro has escaped already."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def _code(text: str) -> Markup:
    """Lines of code. The breaks between them are the page's own; any other one is shown as an escape."""
    return _own("\n").join(visible_lines(text.strip("\n")))


def island(document: Document) -> str:
    """The document as JSON that can stand inside a script element: ASCII only, and nothing that could end it."""
    text = json.dumps(msgspec.to_builtins(document), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(block: Block, index: int) -> Part:
    kind = str(type(block).__struct_config__.tag)
    return Part(kind, block, f"part-{index}", _drawing(block))


def _drawing(block: Block) -> dict[str, Any]:
    match block:
        case Table():
            return _sheet(block)
        case Bars():
            return {"rows": stack_rows(block), "legend": legend(block)}
        case Waterfall():
            return {"rows": step_rows(block)}
        case Curves():
            points = points_table(block, [curve.name for curve in block.curves], POINTS)
            return {
                "plots": plots(block),
                "legend": [(curve.name, "") for curve in block.curves],
                "spoken": curves_spoken(block),
                "marks": marks_in_words(block),
                "points": Part("table", points, "", _sheet(points)),
            }
        case Timeline():
            table = longest(block)
            return {"still": still(block), "legend": keys(block), "longest": Part("table", table, "", _sheet(table))}
        case _:
            return {}


def _sheet(table: Table) -> dict[str, Any]:
    return {
        "sections": sections(table),
        "notes": notes(table),
        "sorting": sorting(table),
        "shapes": shapes(table),
    }


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")

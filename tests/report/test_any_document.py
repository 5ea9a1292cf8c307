"""Whatever the text in it, a document renders in every form and nothing in it gets out."""

import json
import re

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sublight.report import render
from sublight.report.blocks import Code, Document
from sublight.report.visible import visible

from . import dom
from .documents import documents

ours = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

TAGS = set(
    re.findall(
        r"\w+",
        """
        html head meta title style body header nav main footer script h1 h2 h3 p a ul ol li dl dt dd div span small
        strong pre code table thead tbody tr th td details summary figure figcaption svg defs pattern rect line path
        circle g text
        """,
    )
)


@given(documents(), st.integers(1, 170))
@ours
def test_text_keeps_to_its_width_and_holds_no_control_character(document: Document, width: int) -> None:
    text = render(document, "text", width=width, colour=False)
    for line in text.removesuffix("\n").split("\n"):
        assert visible(line) == line
    # A command may be wider: see test_command.
    rest = msgspec.structs.replace(document, blocks=tuple(b for b in document.blocks if not isinstance(b, Code)))
    for line in render(rest, "text", width=width, colour=False).split("\n"):
        assert cell_len(line) <= max(width, 20)
    coloured = render(document, "text", width=width, colour=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == text


@given(documents())
@ours
def test_markdown_holds_no_control_character(document: Document) -> None:
    # Save for the spaces of no width that keep mentions from being made.
    for line in render(document, "markdown").replace("\u200b", "").split("\n"):
        assert visible(line) == line


@given(documents())
@ours
def test_a_page_has_only_the_elements_of_its_templates(document: Document) -> None:
    page = render(document, "html")
    assert page.encode()
    tree = dom.parse(page)
    assert {element.tag for element in tree.walk()} - {""} <= TAGS
    assert len(tree.all("script")) == 2
    for element in tree.walk():
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "style", "action", "formaction", "srcset", "xlink:href", "data", "background")
            assert name != "href" or re.fullmatch(r"#part-\d+", value)
    for text in (tree.one("h1", "title").text, tree.one("head").one("title").text):
        assert text == visible(document.title)


@given(documents())
@ours
def test_a_page_holds_the_document_itself(document: Document) -> None:
    page = render(document, "html")
    data = next(element for element in dom.parse(page).all("script") if element.attributes.get("id") == "document-data")
    assert data.text.isascii() and not set("<>&") & set(data.text)
    # JSON joins two halves of a surrogate pair that stand side by side; Python does not.
    meant = json.loads(json.dumps(msgspec.to_builtins(document)))
    assert msgspec.convert(json.loads(data.text), Document) == msgspec.convert(meant, Document)

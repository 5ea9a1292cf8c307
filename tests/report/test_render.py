import pytest

from sublight.errors import UnknownNameError
from sublight.report import RENDERERS, render
from sublight.report.html import render_html
from sublight.report.markdown import render_markdown
from sublight.report.text import render_text

from .samples import PAGE


def test_every_form_comes_through_one_door() -> None:
    assert {"text", "markdown", "html"} <= set(RENDERERS.names())
    assert render(PAGE, "text", width=70, colour=True) == render_text(PAGE, width=70, colour=True)
    assert render(PAGE, "markdown") == render_markdown(PAGE)
    assert render(PAGE, "html") == render_html(PAGE)


def test_an_unknown_form_names_the_near_miss() -> None:
    with pytest.raises(UnknownNameError, match=r"report form 'markdwn'.*Try: markdown"):
        render(PAGE, "markdwn")


def test_an_option_of_another_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="width"):
        render(PAGE, "html", width=80)

"""From a record to something a person reads: views make a document, renderers show it.

`render` is the door to every form. A form is a function from a document, and what only that form needs, to a string;
adding one is a file and a line here, or an entry point of another package.
"""

from typing import TYPE_CHECKING, Any

from sublight.registry import Registry

if TYPE_CHECKING:
    from sublight.report.blocks import Document

RENDERERS = Registry(
    "report form",
    "sublight.report_forms",
    {
        "text": "sublight.report.text:render_text",
        "markdown": "sublight.report.markdown:render_markdown",
        "html": "sublight.report.html:render_html",
    },
)


def render(document: "Document", form: str, **options: Any) -> str:
    """The document in one form.

    Args:
        document: what to show.
        form: "text", "markdown", "html", or a name that another package has added.
        options: what this form takes besides: text needs `width` and `colour`, the others take nothing.

    Raises:
        UnknownNameError: no such form.
        ValueError: a chart's numbers are not what it claims.
    """
    rendered: str = RENDERERS.load(form)(document, **options)
    return rendered

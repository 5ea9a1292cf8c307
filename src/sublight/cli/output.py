"""Where a result goes: the options, what is refused before any work is done, and the writing itself."""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sublight.errors import UsageError
from sublight.files import write_target, write_together

if TYPE_CHECKING:
    from sublight.records import Record
    from sublight.report.blocks import Document

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OUTPUTS = {"save": "--save", "html": "--html", "out": "-o"}
# What is read of a folder that is given as a model.
_OF_A_MODEL = ("config.json", "hf_quant_config.json", "model.safetensors.index.json")


def output_options(function: _Function) -> _Function:
    """Where the result goes. Outputs that cannot be written or would replace an input are refused before the work."""

    @wraps(function)
    def checked(*arguments: Any, **values: Any) -> Any:
        _check(values)
        return function(*arguments, **values)

    for option in reversed(
        (
            click.option("--json", "as_json", is_flag=True, help="Print the record as JSON."),
            click.option("--markdown", is_flag=True, help="Print Markdown."),
            click.option("--html", metavar="FILE", help="Write one offline page."),
            click.option("--save", metavar="FILE", help="Write the record; `sublight show` prints it again."),
            click.option(
                "--width", type=click.IntRange(40, 1000), metavar="N", help="Columns [default: the terminal's]."
            ),
        )
    ):
        checked = option(checked)
    return checked  # type: ignore[return-value]


def _check(values: dict[str, Any]) -> None:
    if values["as_json"] and values["markdown"]:
        raise UsageError("--json and --markdown", "one of them is printed, not both", "one of the two")
    outputs = {flag: Path(values[name]) for name, flag in _OUTPUTS.items() if values.get(name)}
    inputs = list(_inputs(values)) if outputs else []
    taken: dict[Path, str] = {}
    for flag, path in outputs.items():
        target = write_target(path)
        if target in taken:
            raise UsageError(f"{taken[target]} and {flag}", f"both write {path}", "two different files")
        taken[target] = flag
        if any(_same(target, source) or _kept_in(target, source) for source in inputs):
            raise UsageError(f"{flag} {path}", "that is the file which is read", "the name of another file")


def _inputs(values: dict[str, Any]) -> Iterator[Path]:
    """Every file that an argument or option names, as itself or behind a count (8x./card.toml)."""
    for name, value in values.items():
        for text in value if isinstance(value, tuple) else (value,):
            if name not in _OUTPUTS and isinstance(text, str):
                for path in (Path(text), Path(text.partition("x")[2] or text)):
                    yield path
                    yield from (path / inner for inner in _OF_A_MODEL)


def _kept_in(target: Path, folder: Path) -> bool:
    """Whether `target` is a numbered record of a campaign's folder."""
    number = target.stem.rpartition("-")[2]
    return target.suffix == ".json" and number.isdecimal() and target.exists() and _same(target.parent, folder)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def emit(record: "Record", options: dict[str, Any]) -> None:
    """Print, write and save a record as the options say. Files are written together, before anything is printed."""
    from sublight import records
    from sublight.report import views

    document: Document | None = None
    contents: dict[Path, bytes] = {}
    if options["save"]:
        contents[Path(options["save"])] = records.encode(record)
    if options["html"] or not options["as_json"]:
        document = views.document(record)
    if options["html"] and document is not None:
        from sublight.report.html import render_html

        contents[Path(options["html"])] = render_html(document).encode("utf-8", "backslashreplace")
    printed = records.encode(record) if document is None or options["as_json"] else _printed(document, options)
    write_together(contents)
    if isinstance(printed, bytes):
        click.echo(printed, nl=False)
    else:
        click.echo(printed, color=_colour())


def _printed(document: "Document", options: dict[str, Any]) -> str:
    if options["markdown"]:
        from sublight.report.markdown import render_markdown

        return render_markdown(document)
    from sublight.report.text import render_text

    return render_text(document, width=options["width"] or _columns(), colour=_colour())


def _columns() -> int:
    from shutil import get_terminal_size

    return get_terminal_size((100, 24)).columns


def _colour() -> bool:
    """Whether escape codes are wanted and understood: https://no-color.org, and a terminal that says it is dumb."""
    import os
    import sys

    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def refuse_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A callback for every parameter that takes text: '' is a shell variable that was not set, not a choice."""
    from click.core import ParameterSource

    source = context.get_parameter_source(parameter.name or "")
    given = source not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    texts: Iterable[Any] = value if isinstance(value, tuple) else (value,)
    if given and any(isinstance(text, str) and not text.strip() for text in texts):
        name = next((n for n in reversed(parameter.opts) if n.startswith("-")), parameter.human_readable_name)
        raise UsageError(f"{name} ''", "nothing is given (a shell variable that is not set?)", f"{name} with a value")
    return value

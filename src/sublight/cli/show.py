"""`sublight show`: a saved record again."""

from pathlib import Path
from typing import Any

import click

from sublight.cli.output import emit, output_options
from sublight.errors import RecordError

# What a view or a renderer trips over when values do not belong together.
_INCONSISTENT = (KeyError, IndexError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


@click.command("show", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("record")
@output_options
def command(record: str, **options: Any) -> None:
    """Print a saved RECORD again, as text, HTML, Markdown or JSON."""
    from sublight import records
    from sublight.report.views import record_types

    loaded = records.load(Path(record), record_types())
    try:
        emit(loaded, options)
    except _INCONSISTENT as error:
        # A record of our own can be shown. One from a file may have been edited since.
        found = f"this record is not one that sublight wrote: {_what(error)}"
        raise RecordError(f"showing {record}", found, "a file written with --save, unchanged") from error


def _what(error: Exception) -> str:
    return f"it names {error}, which nothing knows" if isinstance(error, KeyError) else str(error) or repr(error)

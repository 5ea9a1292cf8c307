"""`sublight show`: a saved record again."""

from pathlib import Path
from typing import Any

import click

from sublight.cli.options import emit, output_options


@click.command("show", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("record")
@output_options
def command(record: str, **options: Any) -> None:
    """Print a saved RECORD again, as text, HTML, Markdown or JSON."""
    from sublight import records
    from sublight.report.views import record_types

    emit(records.load(Path(record), record_types()), options)

"""`sublight report`: the findings of a campaign."""

from pathlib import Path
from typing import Any

import click

from sublight.cli.options import emit, output_options


@click.command("report", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", metavar="DIR")
@click.option("--title", default="", metavar="TEXT", help="Title of the page [default: the folder's name].")
@output_options
def command(folder: str, title: str, **options: Any) -> None:
    """The findings of the campaign in DIR: measured steps, what is closed, what did not help, the newest gap.

    The newest audit of each engine is told with what changed since the one before, and the newest records of
    `sublight host` and `sublight bench` with what they leave to do and what was attained. --campaign DIR of gap, audit
    and host keeps a record there; --save DIR/NAME.json does for the rest.
    """
    from sublight.campaign.findings import findings
    from sublight.campaign.folder import read_folder
    from sublight.report.views import record_types

    emit(findings(read_folder(Path(folder), record_types()), title), options)

"""`sublight note`: a remark or a negative result, kept with the measurements."""

from pathlib import Path

import click


@click.command("note", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", metavar="DIR")
@click.argument("text")
@click.option("--negative", is_flag=True, help="Something that was tried and did not help.")
@click.option("--closes", multiple=True, metavar="STEP", help="Id of a next step that this answers (trace, p2p, ...).")
def command(folder: str, text: str, negative: bool, closes: tuple[str, ...]) -> None:
    """Add TEXT to the campaign in DIR.

    \b
    sublight note campaign "flashinfer_cutedsl changes nothing under plain TP" --negative
    """
    from sublight.campaign.folder import add
    from sublight.campaign.note import Note

    click.echo(add(Path(folder), Note(text=text, kind="negative result" if negative else "remark", closes=closes)))

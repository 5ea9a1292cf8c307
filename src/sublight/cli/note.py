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

    if closes:
        _check(Path(folder), closes)
    click.echo(add(Path(folder), Note(text=text, kind="negative result" if negative else "remark", closes=closes)))


def _check(folder: Path, closes: tuple[str, ...]) -> None:
    """Raises UnknownNameError for a step that no gap of the campaign named: nothing would ever show the answer."""
    from sublight.campaign.closing import step_names
    from sublight.campaign.folder import read_folder
    from sublight.errors import UnknownNameError, UsageError
    from sublight.report.views import record_types

    known = step_names(read_folder(folder, record_types()))
    if not known:
        asked, found = f"--closes {closes[0]}", f"no gap in {folder} has named a next step"
        raise UsageError(asked, found, f"sublight gap MODEL ... --measured TIME --campaign {folder}, before the note")
    for step in closes:
        if step not in known:
            kind = "next step that a gap of this campaign named"
            raise UnknownNameError(kind, step, known, f"`sublight report {folder}`, which lists them with their ids")

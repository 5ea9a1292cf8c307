"""`--campaign`: the result as a numbered record of a folder, beside where it is shown."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sublight.cli.output import emit, refuse_empty

if TYPE_CHECKING:
    from sublight.records import Record

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _folder(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A folder that is there. What asks a machine for a minute does not find out afterwards."""
    refuse_empty(context, parameter, value)
    if value is not None:
        from sublight.campaign.folder import require

        require(Path(value))
    return value


def campaign_option(function: _Function) -> _Function:
    """The option, for commands that end in `keep`."""
    return click.option(
        "--campaign",
        metavar="DIR",
        callback=_folder,
        help="Keep the result there; `sublight report DIR` tells it with the rest.",
    )(function)


def keep(record: "Record", options: dict[str, Any]) -> None:
    """Save the record into the campaign, where one is named, and show it."""
    if options["campaign"] is None:
        emit(record, options)
        return
    from sublight.campaign.folder import add

    folder = Path(options["campaign"])
    name = add(folder, record)
    emit(record, options)
    click.echo(f"saved as {folder / name}", err=True)

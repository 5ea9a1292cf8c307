"""The front door: names of commands, exit codes, and how an error is printed.

Commands are imported only when one runs, so that `sublight --help` costs no more than click.
"""

import gc
import sys
from importlib import import_module

import click

from sublight import __version__
from sublight.errors import SublightError

# name -> (module of the command, one line of help)
COMMANDS = {
    "gap": ("sublight.cli.gap", "Floor against measured: how large is the gap, and what to measure next."),
    "limit": ("sublight.cli.limit", "The floor of a decode step, row by row, and what binds each row."),
    "trace": ("sublight.cli.trace", "Where the time of a decode step went, from a profiler trace."),
    "note": ("sublight.cli.note", "Add a remark or a negative result to a campaign."),
    "report": ("sublight.cli.report", "The findings of a whole campaign, negative results included."),
    "show": ("sublight.cli.show", "Print a saved record again, as text, HTML, Markdown or JSON."),
}


class _Lazy(click.Group):
    """Knows its commands by name; imports the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from sublight.errors import UnknownNameError

            raise UnknownNameError("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sublight")
def program() -> None:
    """How far below the speed of light does your model decode, and where does the time go?"""


def main(arguments: list[str] | None = None) -> None:
    """Run the program and leave with its exit code: 0, or 2 for anything the reader can put right."""
    # A command lives for a tenth of a second and makes few cycles. Looking for them while modules load, and once more
    # when the interpreter ends, takes a fifth of that time; work that makes garbage turns the collector on again.
    gc.disable()
    try:
        program.main(args=arguments, prog_name="sublight", standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except SublightError as error:
        _print_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone (`sublight limit ... | head`): nothing is left to say.
        sys.stderr.close()
        sys.exit(0)
    finally:
        gc.freeze()


def _print_error(error: SublightError) -> None:
    from sublight.report.visible import visible

    click.echo(f"sublight: {visible(error.asked)}", err=True)
    click.echo(f"  found: {visible(error.found)}", err=True)
    click.echo(f"  try:   {visible(error.hint)}", err=True)

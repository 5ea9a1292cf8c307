"""The front door: names of commands, exit codes, and how an error is printed.

Commands are imported only when one runs, so that `sublight --help` costs no more than click.
"""

import gc
import sys
from contextlib import suppress
from importlib import import_module

import click

from sublight import __version__
from sublight.errors import SublightError, UsageError

# name -> (module of the command, one line of help)
COMMANDS = {
    "gap": ("sublight.cli.gap", "Floor against measured: how large is the gap, and what to measure next."),
    "limit": ("sublight.cli.limit", "The floor of a decode step, row by row, and what binds each row."),
    "trace": ("sublight.cli.trace", "Where the time of a decode step went, from a profiler trace."),
    "audit": ("sublight.cli.audit", "Which kernel backends of an installed engine really work here, with proof."),
    "host": ("sublight.cli.host", "Is this machine set up for it? What each knob was found at, and what it can cost."),
    "bench": ("sublight.cli.bench", "How fast kernels, the other rows of a step and collectives are on this machine."),
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
        from sublight.cli.output import refuse_empty

        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        for parameter in command.params:
            if parameter.type is click.STRING and parameter.callback is None:
                parameter.callback = refuse_empty
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
        _run(arguments)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _print_error(_in_our_words(error))
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except SublightError as error:
        _print_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone (`sublight limit ... | head`): nothing is left to say.
        _let_go_of_output()
        sys.exit(0)
    except OSError as error:
        # Readers and writers name their file and what to try; what is left is the output, and names no system takes.
        _let_go_of_output()
        where = f"using {error.filename}" if error.filename else "writing to standard output"
        _print_error(UsageError(where, error.strerror or str(error), "another place or name"))
        sys.exit(2)
    finally:
        gc.freeze()


def _run(arguments: list[str] | None) -> None:
    if sys.stdout is None:
        raise UsageError("writing to standard output", "it is closed", "> FILE, or > /dev/null with --save FILE")
    from sublight.cli.glyphs import make_printable

    make_printable(sys.stdout)
    make_printable(sys.stderr)
    program.main(args=arguments, prog_name="sublight", standalone_mode=False)
    sys.stdout.flush()


def _let_go_of_output() -> None:
    """What is still buffered can not be written; the interpreter would try once more at its end, and complain."""
    import os

    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_our_words(error: click.ClickException) -> UsageError:
    """An error of click's as asked, found, try."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "sublight"
    near = getattr(error, "possibilities", None)
    found = error.format_message().strip().rstrip(".").replace("\n", " ")
    if isinstance(error, click.NoSuchOption):
        found = f"there is no option {error.option_name}"
    elif isinstance(error, click.BadParameter) and error.param is not None and not near:
        option = next((text for text in reversed(error.param.opts) if text.startswith("-")), "")
        name = f"{name} {option}".rstrip()
        found = error.message.strip().rstrip(".") or found
    hint = " or ".join(near) if near else f"{context.command_path if context is not None else 'sublight'} --help"
    return UsageError(name, found[:1].lower() + found[1:], hint)


def _print_error(error: SublightError) -> None:
    from sublight.report.visible import visible

    with suppress(OSError):  # where errors cannot be written, the exit code has to say it
        click.echo(f"sublight: {_short(visible(error.asked))}", err=True)
        click.echo(f"  found: {_short(visible(error.found))}", err=True)
        click.echo(f"  try:   {_short(visible(error.hint))}", err=True)


def _short(text: str) -> str:
    """A line of an error repeats what was given, which can be a megabyte."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


_LONGEST = 800

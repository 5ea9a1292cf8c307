"""`sublight limit`: the floor of a decode step."""

from typing import Any

import click

from sublight.cli.options import emit, inputs_from, output_options, workload_options
from sublight.errors import UsageError


@click.command("limit", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", required=False)
@workload_options
@click.option("--sweep", is_flag=True, help="The totals over batch sizes up to 1024 as well; --html draws them always.")
@click.option(
    "--list",
    "listing",
    is_flag=True,
    help="Name the models, cards and links built in; with a name, say all that is stated of it.",
)
@output_options
def command(model: str | None, sweep: bool, listing: bool, **options: Any) -> None:
    """The floor of a decode step of MODEL, row by row, and what binds each row.

    MODEL is a catalogue name (glm-5-nvfp4), a checkpoint folder, or a config.json. Nothing is run and no GPU is needed.

    \b
    sublight limit glm-5-nvfp4 --gpus 8xrtx-pro-6000-workstation
    sublight limit ./config.json --gpus 8xb200 --ep 8 --batch 64 --context 32k --sweep
    sublight limit --list h200
    """
    if listing:
        from sublight.cli.listing import list_names, list_one

        _only_printed(options)
        list_names(options["as_json"]) if model is None else list_one(model, options["as_json"])
        return
    if model is None:
        raise UsageError("a limit", "no model was named", "sublight limit glm-5-nvfp4 --gpus 8xb200, or --list")
    asked, gpu, workload, link, call_s = inputs_from(model, options)
    if sweep or options["html"]:
        from sublight.limits import sweep as sweeps

        emit(sweeps.sweep(asked, gpu, workload, link, call_s), options)
        return
    from sublight.limits.decode import decode_limit

    emit(decode_limit(asked, gpu, workload, link, call_s), options)


def _only_printed(options: dict[str, Any]) -> None:
    """Refuse outputs that a list has no form for."""
    for name, flag in (("markdown", "--markdown"), ("html", "--html"), ("save", "--save")):
        if options[name]:
            raise UsageError(
                f"--list with {flag}", "a list of what is built in is no record", "--list, or --list --json"
            )

"""`sublight trace`: where the time of a decode step went."""

from typing import Any

import click

from sublight.cli.options import emit, output_options
from sublight.errors import UsageError


@click.command("trace", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--model", metavar="MODEL", help="Catalogue name, folder or config.json: tells GEMMs of one name apart.")
@click.option("--tp", type=int, default=1, metavar="N", help="Tensor-parallel ranks the model was cut over.")
@click.option("--ep", type=int, default=1, metavar="N", help="Expert-parallel degree inside them.")
@click.option("--dp", type=int, default=1, metavar="N", help="Data-parallel attention groups inside them.")
@click.option("--step", type=int, metavar="N", help="Take this step apart instead of the median one.")
@click.option("--device", type=int, metavar="N", help="Which GPU, where the trace holds several.")
@output_options
def command(files: tuple[str, ...], model: str | None, step: int | None, device: int | None, **options: Any) -> None:
    """Where the time of a decode step went, to the nanosecond, from a profiler trace.

    FILE is a torch profiler (Kineto) JSON, plain, gzip or zstd, an Nsight Systems sqlite export, or - for stdin.

    \b
    sublight trace rank0.json.gz --model glm-5-nvfp4 --tp 8
    """
    # Reading makes garbage by the gigabyte.
    import gc

    gc.enable()
    from sublight.trace.analysis import analyse
    from sublight.trace.read import read_trace

    if len(files) > 1:
        raise UsageError("several traces", f"{len(files)} files were given", "one file")
    emit(analyse(read_trace(files[0]), plan_for(model, options), step=step, device=device), options)


def plan_for(model: str | None, options: dict[str, Any]) -> Any:
    """The products of the model's layers on one rank, or None without a model."""
    if model is None:
        return None
    from sublight.facts.model import read_model
    from sublight.facts.workload import Layout, Workload, check_fit
    from sublight.gap.plan import step_plan

    layout = Layout(tp=options["tp"], ep=options["ep"], dp=options["dp"])
    read = read_model(model)
    check_fit(read, Workload(layout=layout))
    return step_plan(read, layout)

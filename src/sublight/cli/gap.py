"""`sublight gap`: the main job."""

from pathlib import Path
from typing import Any

import click

from sublight.cli.options import emit, inputs_from, output_options, workload_options
from sublight.errors import UsageError


@click.command("gap", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", required=False)
@workload_options
@click.option("--measured", metavar="TIME", help='The measured step: "97ms", "10.36 tok/s", or a saved record.')
@click.option("--trace", "trace_file", metavar="FILE", help="A profiler trace of one rank: measured row by row.")
@click.option(
    "--bench",
    multiple=True,
    metavar="FILE",
    help="What rows can reach on this card: records of `sublight bench`, or a JSON of kernel times.",
)
@click.option("--claimed-floor", metavar="TIME", help='A floor that somebody states: "3.2ms", "309 tok/s".')
@click.option("--claimed-part", "claimed_parts", multiple=True, metavar="ROWS=TIME", help='"bf16+allreduce=8.9ms".')
@click.option("--campaign", metavar="DIR", help="Keep the result there, and say which next steps its records close.")
@output_options
@click.pass_context
def command(
    called: click.Context,
    /,
    model: str | None,
    measured: str | None,
    trace_file: str | None,
    bench: tuple[str, ...],
    claimed_floor: str | None,
    claimed_parts: tuple[str, ...],
    campaign: str | None,
    **options: Any,
) -> None:
    """The floor of a decode step of MODEL against a measured one: how large is the gap, where it is, what to do next.

    Without arguments: GLM-5-NVFP4 on eight RTX PRO 6000, as one campaign measured it and what it claimed.

    \b
    sublight gap
    sublight gap glm-5-nvfp4 --gpus 8xrtx-pro-6000-server --measured 21ms --context 32k
    sublight gap glm-5-nvfp4 --gpus 8xh200 --trace rank0.json.gz
    """
    if model is None:
        if campaign is not None:
            raise UsageError(
                f"--campaign {campaign} without a model",
                "no model was named, and the bundled measurement belongs to no campaign of yours",
                f"sublight gap glm-5-nvfp4 --gpus 8xb200 --measured 12ms --campaign {campaign}",
            )
        _only_the_example(called)
        gap = _example(claimed_floor, claimed_parts, options)
    else:
        if measured is None and trace_file is None:
            from sublight.facts.model import read_model

            read_model(model)  # a wrong name is said before what is missing beside it
            if campaign is not None:
                measured = _newest(Path(campaign))
        claims: dict[str, Any] = {"floor_claim": claimed_floor, "part_claims": claimed_parts}
        gap = _compared(model, measured, trace_file, options, bench=bench, **claims)
    if campaign is not None:
        _keep(Path(campaign), gap, options)
        return
    emit(gap, options)


# What changes how the bundled case is said and shown, and not which step it is.
_OF_ANY_CASE = {"claimed_floor", "claimed_parts", "as_json", "markdown", "html", "save", "width"}


def _only_the_example(called: click.Context) -> None:
    """Refuse options that say which step is meant, where no model is named: the bundled measurement is of its own."""
    given = [
        parameter.opts[0]
        for parameter in called.command.params
        if parameter.name not in _OF_ANY_CASE
        and called.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        from sublight.gap.example import bundled_example

        example = bundled_example()
        raise UsageError(
            f"{' '.join(given)} without a model",
            f"no model was named, and the bundled measurement is of one step only: {example.model} on {example.gpus}, "
            f"batch 1, context {example.context:,}",
            "sublight gap glm-5-nvfp4 --gpus 8xb200 --measured 12ms, with those options",
        )


def _compared(
    model: str,
    measured: str | None,
    trace_file: str | None,
    options: dict[str, Any],
    bundled: bool = False,
    bench: tuple[str, ...] = (),
    **words: Any,
) -> Any:
    """The gap of one model, card and workload. `words` are what `compare` takes besides."""
    from sublight.gap.compare import compare
    from sublight.limits.decode import decode_limit
    from sublight.limits.sweep import sweep

    if measured is None and trace_file is None:
        raise UsageError(
            "a gap",
            "no measured step was given",
            "--measured 97ms, or --trace FILE; `sublight limit` prints the floor alone",
        )
    inputs = inputs_from(model, options)
    limit = decode_limit(*inputs)
    trace = None if trace_file is None else _analysed(trace_file, inputs)
    if bench and trace is None:
        raise UsageError(
            "--bench without --trace", "there are no measured rows to set it beside", "--trace FILE with it"
        )
    step, text = _measured(measured, trace, limit, bundled)
    points = sweep(*inputs).points
    return compare(limit, step, text, points=points, trace=trace, attainable=_attainable(bench, limit), **words)


def _example(floor_claim: str | None, part_claims: tuple[str, ...], options: dict[str, Any]) -> Any:
    """The bundled case: a campaign with its claims, and beside it the same model where a trace was taken."""
    from sublight.gap.compare import with_beside
    from sublight.gap.example import bundled_example

    example = bundled_example()
    traced = example.traced
    asked = options | {"gpus": traced.gpus, "bandwidth": traced.bandwidth, "context": str(traced.context)}
    beside = _compared(
        example.model, traced.measured, str(traced.path), asked, bundled=True, title=traced.title, source=traced.source
    )
    gap = _compared(
        example.model,
        example.measured,
        None,
        options | {"gpus": example.gpus, "context": str(example.context)},
        bundled=True,
        floor_claim=floor_claim or example.claimed_floor,
        part_claims=part_claims or example.claimed_parts,
        title=example.title,
        source=example.source,
    )
    return with_beside(gap, beside)


def _newest(folder: Path) -> str | None:
    """The newest measured step of a campaign, as a path that --measured takes."""
    from sublight.campaign.folder import read_folder
    from sublight.report.views import record_types

    gaps = read_folder(folder, record_types()).of("gap")
    return str(folder / gaps[-1].file) if gaps else None


def _keep(folder: Path, gap: Any, options: dict[str, Any]) -> None:
    """Save the gap into the campaign, and print it with what the folder's records have closed."""
    from sublight.campaign.closing import close_steps, subject_of
    from sublight.campaign.folder import add, read_folder
    from sublight.gap.compare import with_closed
    from sublight.report.views import record_types

    types = record_types()
    read_folder(folder, types)
    name = add(folder, gap)
    closed, _ = close_steps(read_folder(folder, types))
    emit(
        with_closed(gap, {c.step: f"{c.evidence} ({c.file})" for c in closed if c.of == subject_of(gap.limit)}), options
    )
    click.echo(f"saved as {folder / name}", err=True)


def _analysed(path: str, inputs: tuple[Any, ...]) -> Any:
    """The trace of one rank, its kernels told apart by the model it ran."""
    import gc

    from sublight.gap.plan import step_plan
    from sublight.trace.analysis import analyse
    from sublight.trace.read import read_trace

    gc.enable()
    model, _, workload, *_ = inputs
    return analyse(
        read_trace(path, operators=False),
        step_plan(model, workload.layout, workload.sequences_per_rank * workload.width),
    )


def _attainable(files: tuple[str, ...], limit: Any) -> Any:
    """What the files say that rows can reach."""
    if not files:
        return None
    from sublight.gap.attainable import merged, refuse_twice

    refuse_twice([Path(file) for file in files])
    return merged({file: _one_bench(Path(file), limit) for file in files})


def _one_bench(path: Path, limit: Any) -> Any:
    """A record of `sublight bench`, or the small JSON of times that a benchmark of one's own may write."""
    from sublight.gap.attainable import Attainable, is_record, read_bench

    if not is_record(path):
        return read_bench(path, limit)
    from sublight.bench.join import BENCH_TYPES, joined
    from sublight.records import load

    found: Any = joined(load(path, BENCH_TYPES), limit, path.name)  # type: ignore[arg-type]  # of the types asked for
    return Attainable(found.rows, found.source, found.missing, found.under, eager=found.eager)


def _measured(text: str | None, trace: Any, limit: Any, bundled: bool) -> Any:
    """A figure and how it was given: a time, a rate of one request, a saved gap, or the median step of the trace."""
    from sublight.gap.compare import measured_from_record, measured_from_text, measured_from_trace

    if text is None:
        return measured_from_trace(trace)
    if bundled:
        from sublight.gap.example import MEASURED_IN
        from sublight.records import Evidence

        return measured_from_text(text, limit, Evidence.PUBLISHED, MEASURED_IN)
    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return measured_from_record(path, limit)
    return measured_from_text(text, limit)

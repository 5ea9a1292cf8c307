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
@click.option("--claimed-floor", metavar="TIME", help='A floor that somebody states: "3.2ms", "309 tok/s".')
@click.option("--claimed-part", "claimed_parts", multiple=True, metavar="ROWS=TIME", help='"bf16+allreduce=8.9ms".')
@click.option("--campaign", metavar="DIR", help="Keep the result there, and say which next steps its records close.")
@output_options
def command(
    model: str | None,
    measured: str | None,
    trace_file: str | None,
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
        if measured is not None or trace_file is not None or options["gpus"]:
            raise UsageError("a gap", "no model was named", "sublight gap glm-5-nvfp4 --gpus 8xb200 --measured 12ms")
        gap = _example(claimed_floor, claimed_parts, options)
    else:
        if measured is None and trace_file is None and campaign is not None:
            measured = _newest(Path(campaign))
        gap = _compared(model, measured, trace_file, options, floor_claim=claimed_floor, part_claims=claimed_parts)
    if campaign is not None:
        _keep(Path(campaign), gap, options)
        return
    emit(gap, options)


def _compared(model: str, measured: str | None, trace_file: str | None, options: dict[str, Any], **words: Any) -> Any:
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
    step, text = _measured(measured, trace, limit)
    return compare(limit, step, text, points=sweep(*inputs).points, trace=trace, **words)


def _example(floor_claim: str | None, part_claims: tuple[str, ...], options: dict[str, Any]) -> Any:
    """The bundled case: a campaign with its claims, and beside it the same model where a trace was taken."""
    from sublight.gap.compare import with_beside
    from sublight.gap.example import bundled_example

    example = bundled_example()
    traced = example.traced
    asked = options | {"gpus": traced.gpus, "bandwidth": traced.bandwidth, "context": str(traced.context)}
    beside = _compared(
        example.model, traced.measured, str(traced.path), asked, title=traced.title, source=traced.source
    )
    gap = _compared(
        example.model,
        example.measured,
        None,
        options | {"gpus": example.gpus, "context": str(example.context)},
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
    from sublight.campaign.findings import close_steps
    from sublight.campaign.folder import add, read_folder
    from sublight.gap.compare import with_closed
    from sublight.report.views import record_types

    types = record_types()
    read_folder(folder, types)
    name = add(folder, gap)
    closed, _ = close_steps(read_folder(folder, types))
    emit(with_closed(gap, {c.step: f"{c.evidence} ({c.file})" for c in closed}), options)
    click.echo(f"saved as {folder / name}", err=True)


def _analysed(path: str, inputs: tuple[Any, ...]) -> Any:
    """The trace of one rank, its kernels told apart by the model it ran."""
    import gc

    from sublight.gap.plan import step_plan
    from sublight.trace.analysis import analyse
    from sublight.trace.read import read_trace

    gc.enable()
    model, _, workload, *_ = inputs
    return analyse(read_trace(path), step_plan(model, workload.layout))


def _measured(text: str | None, trace: Any, limit: Any) -> Any:
    """A figure and how it was given: a time, a rate of one request, a saved gap, or the median step of the trace."""
    from sublight.gap.compare import measured_from_record, measured_from_text, measured_from_trace

    if text is None:
        return measured_from_trace(trace)
    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return measured_from_record(path, limit)
    return measured_from_text(text, limit)

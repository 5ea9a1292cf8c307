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
@click.option("--claimed-floor", metavar="TIME", help='A floor that somebody states: "3.2ms", "309 tok/s".')
@click.option("--claimed-part", "claimed_parts", multiple=True, metavar="ROWS=TIME", help='"bf16+allreduce=8.9ms".')
@output_options
def command(
    model: str | None, measured: str | None, claimed_floor: str | None, claimed_parts: tuple[str, ...], **options: Any
) -> None:
    """The floor of a decode step of MODEL against a measured one: how large is the gap, and what to measure next.

    Without arguments: GLM-5-NVFP4 on eight RTX PRO 6000, as one campaign measured it and what it claimed.

    \b
    sublight gap
    sublight gap glm-5-nvfp4 --gpus 8xrtx-pro-6000-server --measured 21ms --context 32k
    """
    from sublight.gap.compare import compare

    title = source = ""
    if model is None:
        if measured is not None or options["gpus"]:
            raise UsageError("a gap", "no model was named", "sublight gap glm-5-nvfp4 --gpus 8xb200 --measured 12ms")
        from sublight.gap.example import bundled_example

        example = bundled_example()
        model, measured, title, source = example.model, example.measured, example.title, example.source
        claimed_floor = claimed_floor or example.claimed_floor
        claimed_parts = claimed_parts or example.claimed_parts
        options |= {"gpus": example.gpus, "context": str(example.context)}
    if measured is None:
        raise UsageError(
            "a gap", "no measured step was given", "--measured 97ms; `sublight limit` prints the floor alone"
        )
    from sublight.limits.decode import decode_limit
    from sublight.limits.sweep import sweep

    inputs = inputs_from(model, options)
    limit = decode_limit(*inputs)
    step, text = _measured(measured, limit)
    emit(
        compare(
            limit,
            step,
            text,
            floor_claim=claimed_floor,
            part_claims=claimed_parts,
            points=sweep(*inputs).points,
            title=title,
            source=source,
        ),
        options,
    )


def _measured(text: str, limit: Any) -> Any:
    """A figure and how it was given: a time, a rate of one request, or the measured step of a saved gap."""
    from sublight.gap.compare import measured_from_record, measured_from_text

    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return measured_from_record(path, limit)
    return measured_from_text(text, limit)

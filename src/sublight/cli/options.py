"""Options that several commands share, and what they turn into."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from sublight.errors import InputFileError, UnknownNameError, UsageError
from sublight.facts.gpu import Gpu, parse_gpus, with_bandwidth, with_measurements
from sublight.facts.interconnect import Interconnect, interconnect_for
from sublight.facts.model import Model, read_model
from sublight.facts.workload import KV_DTYPES, Layout, Routing, Speculation, Workload
from sublight.records import Record
from sublight.units import parse_bandwidth_bytes_per_s, parse_count

_Function = TypeVar("_Function", bound=Callable[..., Any])


def workload_options(function: _Function) -> _Function:
    """Everything that says which step is meant: cards, layout, batch, context, speculation, replaced values."""
    for option in reversed(
        (
            click.option("--gpus", metavar="NxNAME", help="Cards, e.g. 8xrtx-pro-6000-server or h200."),
            click.option(
                "--tp", type=int, metavar="N", help="Tensor-parallel ranks of a stage [default: GPUs / --pp]."
            ),
            click.option("--dp", type=int, default=1, metavar="N", help="Data-parallel attention groups inside them."),
            click.option("--ep", type=int, default=1, metavar="N", help="Expert-parallel degree inside them."),
            click.option("--pp", type=int, default=1, metavar="N", help="Pipeline stages."),
            click.option("--batch", default="1", metavar="N", help="Sequences decoded together [default: 1]."),
            click.option(
                "--context", default="1024", metavar="N", help="Tokens each attends to, e.g. 32k [default: 1024]."
            ),
            click.option("--kv-dtype", default="bf16", metavar="NAME", help=f"KV cache: {', '.join(KV_DTYPES)}."),
            click.option("--draft", type=int, metavar="N", help="Tokens drafted a step by the MTP layers."),
            click.option("--verify-width", type=int, metavar="N", help="Tokens verified a step [default: draft + 1]."),
            click.option("--accepted", type=float, metavar="X", help="Tokens a sequence gains a step, as measured."),
            click.option("--experts", "histogram", metavar="FILE", help="JSON list: how often each expert was chosen."),
            click.option(
                "--bandwidth", metavar="RATE", help="Memory bandwidth instead of the data sheet's, e.g. 1551GB/s."
            ),
            click.option("--measured-gpu", metavar="FILE", help="JSON of values measured on this card."),
            click.option("--interconnect", metavar="NAME", help="What connects the cards, if not what usually does."),
            click.option(
                "--allreduce-us", type=float, metavar="US", help="Time of one collective, instead of published ones."
            ),
        )
    ):
        function = option(function)
    return function


def output_options(function: _Function) -> _Function:
    """Where the result goes."""
    for option in reversed(
        (
            click.option("--json", "as_json", is_flag=True, help="Print the record as JSON."),
            click.option("--markdown", is_flag=True, help="Print Markdown."),
            click.option("--html", metavar="FILE", help="Write one offline page."),
            click.option("--save", metavar="FILE", help="Write the record; `sublight show` prints it again."),
            click.option(
                "--width", type=click.IntRange(40, 1000), metavar="N", help="Columns [default: the terminal's]."
            ),
        )
    ):
        function = option(function)
    return function


def inputs_from(
    model_name: str, options: dict[str, Any]
) -> tuple[Model, Gpu, Workload, Interconnect | None, float | None]:
    """Model, card, workload, link and collective time from the options' values. Raises SublightError."""
    if not options["gpus"]:
        raise UsageError("a limit", "no GPU was named", "--gpus 8xrtx-pro-6000-server (a count and a name)")
    count, gpu = parse_gpus(options["gpus"])
    gpu = _measured(gpu, options)
    workload = _workload(count, options)
    model = read_model(model_name)
    call_us = options["allreduce_us"]
    if call_us is not None and not 0 < call_us < 1e6:
        raise UsageError(f"--allreduce-us {call_us}", "a call takes between 0 and 1000000 us", "--allreduce-us 9.2")
    link = None
    if workload.layout.gpus > 1:
        link = interconnect_for(gpu, options["interconnect"])
    elif options["interconnect"]:
        raise UsageError(
            "--interconnect for one GPU", "nothing is sent between GPUs", "the same without --interconnect"
        )
    return model, gpu, workload, link, None if call_us is None else call_us * 1e-6


def _measured(gpu: Gpu, options: dict[str, Any]) -> Gpu:
    if options["measured_gpu"]:
        if options["bandwidth"]:
            raise UsageError("--bandwidth and --measured-gpu", "both give the bandwidth", "one of the two")
        return with_measurements(gpu, Path(options["measured_gpu"]))
    if options["bandwidth"]:
        return with_bandwidth(
            gpu, parse_bandwidth_bytes_per_s(options["bandwidth"], "--bandwidth"), source="--bandwidth"
        )
    return gpu


def _workload(count: int, options: dict[str, Any]) -> Workload:
    pp = options["pp"]
    tp = options["tp"]
    if tp is None:
        if pp < 1 or count % pp:
            raise UsageError(
                f"{count} GPUs in --pp {pp} stages", f"{count} does not divide by {pp}", "a --pp that divides"
            )
        tp = count // pp
    layout = Layout(tp=tp, dp=options["dp"], ep=options["ep"], pp=pp)
    if layout.gpus != count:
        raise UsageError(
            f"--gpus {options['gpus']} as {layout}",
            f"the layout takes {layout.gpus} GPUs, {count} are given",
            f"--gpus {layout.gpus}x..., or --tp and --pp that multiply to {count}",
        )
    if options["kv_dtype"] not in KV_DTYPES:
        raise UnknownNameError("KV cache format", options["kv_dtype"], KV_DTYPES)
    return Workload(
        batch=parse_count(options["batch"], "--batch"),
        context=parse_count(options["context"], "--context"),
        kv_dtype=options["kv_dtype"],
        layout=layout,
        speculation=_speculation(options),
        routing=_routing(options["histogram"]),
    )


def _speculation(options: dict[str, Any]) -> Speculation | None:
    draft = options["draft"]
    if draft is None:
        extra = [name for name in ("verify_width", "accepted") if options[name] is not None]
        if extra:
            flag = extra[0].replace("_", "-")
            raise UsageError(f"--{flag} without --draft", "nothing is drafted", "--draft 3 with it")
        return None
    return Speculation(
        draft_length=draft,
        verify_width=options["verify_width"] or draft + 1,
        tokens_per_step=options["accepted"],
    )


def _routing(path: str | None) -> Routing:
    if path is None:
        return Routing()
    asked, hint = f"reading {path} as an expert histogram", "a JSON list with one count an expert"
    try:
        counts = msgspec.json.decode(Path(path).read_bytes(), type=list[float])
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputFileError(asked, str(error), hint) from None
    if not counts or min(counts) < 0 or sum(counts) <= 0:
        raise InputFileError(asked, "counts have to be zero or more, with a sum above zero", hint)
    return Routing(tuple(counts), Path(path).name)


def emit(record: Record, options: dict[str, Any]) -> None:
    """Print, write and save a record as the options say. Files are written before anything is printed."""
    from sublight import records
    from sublight.report import views

    document = None
    if options["save"]:
        records.save(record, Path(options["save"]))
    if options["html"]:
        from sublight.report.html import render_html

        document = views.document(record)
        records.write_atomically(Path(options["html"]), render_html(document).encode())
    if options["as_json"]:
        click.echo(records.encode(record), nl=False)
        return
    document = document or views.document(record)
    if options["markdown"]:
        from sublight.report.markdown import render_markdown

        click.echo(render_markdown(document))
        return
    from sublight.report.text import render_text

    click.echo(render_text(document, width=options["width"] or _columns(), colour=_colour()), color=_colour())


def _columns() -> int:
    from shutil import get_terminal_size

    return get_terminal_size((100, 24)).columns


def _colour() -> bool:
    import os
    import sys

    return sys.stdout.isatty() and "NO_COLOR" not in os.environ

"""Options that several commands share, and what they turn into."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from sublight.cli.output import emit, output_options
from sublight.errors import InputFileError, UnknownNameError, UsageError
from sublight.facts.gpu import Gpu, parse_gpus, with_bandwidth, with_measurements
from sublight.facts.interconnect import Interconnect, interconnect_for
from sublight.facts.model import Model, read_model
from sublight.facts.workload import KV_DTYPES, Layout, Routing, Speculation, Workload
from sublight.files import read_small_file
from sublight.units import counted, parse_bandwidth_bytes_per_s, parse_count

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


def inputs_from(
    model_name: str, options: dict[str, Any]
) -> tuple[Model, Gpu, Workload, Interconnect | None, float | None]:
    """Model, card, workload, link and collective time from the options' values. Raises SublightError."""
    model = read_model(model_name)
    if not options["gpus"]:
        raise UsageError("a limit", "no GPU was named", "--gpus 8xrtx-pro-6000-server (a count and a name)")
    count, gpu = parse_gpus(options["gpus"])
    gpu = _measured(gpu, options)
    if gpu.bf16_flops_per_s.value is None:
        raise UsageError(
            f"a limit on {gpu.name}",
            f"its bf16_flops_per_s is not known ({gpu.bf16_flops_per_s.note})",
            "[bf16_flops_per_s] in the card's file, or --measured-gpu FILE with bf16_flops_per_s",
        )
    workload = _workload(count, options)
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
                f"{counted(count, 'GPU')} in --pp {counted(pp, 'stage')}",
                f"{count} does not divide by {pp}",
                "a --pp that divides",
            )
        tp = count // pp
    layout = Layout(tp=tp, dp=options["dp"], ep=options["ep"], pp=pp)
    if layout.gpus != count:
        raise UsageError(
            f"--gpus {options['gpus']} as {layout}",
            f"the layout takes {counted(layout.gpus, 'GPU')}, {count} {'is' if count == 1 else 'are'} given",
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
    data = read_small_file(Path(path), asked, hint)
    try:
        counts = msgspec.json.decode(data, type=list[float])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputFileError(asked, str(error), hint) from None
    if not counts:  # no counts mean uniform routing to `Routing`, and nobody who gives a file means that
        raise InputFileError(asked, "it holds no counts", hint)
    return Routing(tuple(counts), Path(path).name)


__all__ = ["emit", "inputs_from", "output_options", "workload_options"]

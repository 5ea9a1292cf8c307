"""`sublight bench`: how fast kernels, the other rows of a step, and collectives are on this machine."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from sublight.cli.output import emit, output_options, refuse_empty
from sublight.errors import UsageError

_Function = TypeVar("_Function", bound=Callable[..., Any])
_HELP = {"help_option_names": ["-h", "--help"]}
_NEEDS = """\
sublight bench kernels MODEL   layers of experts: our kernels and every peer installed, against the limit of memory
                               needs an NVIDIA GPU and torch built for CUDA; peers: humming-kernels, sglang, vllm
sublight bench ops MODEL       every other row of a decode step by the library that an engine calls
                               needs an NVIDIA GPU and torch built for CUDA
sublight bench comm MODEL      the collectives of a decode step
                               needs as many NVIDIA GPUs as processes, and torch with NCCL

--device cpu rehearses each of them without a GPU: the same protocol by a wall clock, marked as a rehearsal.
Records of ops, kernels and comm join `sublight gap MODEL --trace FILE --bench RECORD` as what rows can attain.
"""


@click.group("bench", context_settings=_HELP, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """How fast the kernels, the other rows of a step, and the collectives of a model are on this machine.

    Nothing is timed whose output was not compared first; see docs/measuring.md.
    """
    if context.invoked_subcommand is None:
        click.echo(_NEEDS, nl=False)


def _layout_options(function: _Function) -> _Function:
    for option in reversed(
        (
            click.option(
                "--tp", type=int, default=1, metavar="N", help="Tensor-parallel ranks; one of them is measured."
            ),
            click.option("--ep", type=int, default=1, metavar="N", help="Expert-parallel degree inside them."),
            click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", help="cpu is a rehearsal."),
            click.option(
                "--seed", type=int, default=0, metavar="N", help="Of weights, inputs and routings [default: 0]."
            ),
        )
    ):
        function = option(function)
    return function


_eager_option = click.option("--eager", is_flag=True, help="Time single launches by CUDA events, not a graph.")


@command.command("kernels", context_settings=_HELP)
@click.argument("model")
@_layout_options
@click.option("--tokens", default="1,2,3,4,5,8,16,64,128,1024", metavar="LIST", help="Tokens of a call.")
@click.option("--sweep", is_flag=True, help="Compare at 1 to 64 and 3*2^k tokens as well, without timing.")
@click.option("--peers", metavar="LIST", help="Only these kernels and peers, by name.")
@click.option("--experts", "histogram", metavar="FILE", help="JSON list: how often each expert was chosen.")
@_eager_option
@click.option("--time-limit", type=float, default=300.0, metavar="S", help="Silence after which a candidate hangs.")
@click.option("--budget", type=float, default=2.0, metavar="S", help="Of timing, a candidate and number of tokens.")
@output_options
def kernels(
    model: str,
    tp: int,
    ep: int,
    device: str,
    seed: int,
    tokens: str,
    sweep: bool,
    peers: str | None,
    histogram: str | None,
    eager: bool,
    time_limit: float,
    budget: float,
    **options: Any,
) -> None:
    """A layer of MODEL's experts on one rank: every kernel and every peer, agreement first, then time.

    \b
    sublight bench kernels glm-5-nvfp4 --tp 8 --save kernels.json
    sublight bench kernels qwen3-30b-a3b --tokens 1,8,64 --peers decode,humming
    """
    from sublight.bench.kernels.run import bench_kernels
    from sublight.cli.options import _routing
    from sublight.facts.model import read_model
    from sublight.facts.workload import Layout

    if not 0 < time_limit <= 86400 or not 0 < budget <= 3600:
        raise UsageError("--time-limit and --budget", f"{time_limit:g} s and {budget:g} s", "seconds above zero")
    counted = _counts(tokens, "--tokens")
    found = bench_kernels(
        read_model(model),
        Layout(tp=tp, ep=ep),
        counted,
        device=device,
        candidates=_names(peers),
        sweep=_sweep(max(counted)) if sweep else (),
        routing=_routing(histogram),
        eager=eager,
        seed=seed,
        limit_s=time_limit,
        budget_s=budget,
        progress=_progress(),
    )
    emit(found, options)


@command.command("ops", context_settings=_HELP)
@click.argument("model")
@_layout_options
@click.option("--dp", type=int, default=1, metavar="N", help="Data-parallel attention groups inside them.")
@click.option("--batch", default="1", metavar="N", help="Sequences decoded together [default: 1].")
@click.option("--context", default="1024", metavar="N", help="Tokens each attends to [default: 1024].")
@click.option("--kv-dtype", default="bf16", metavar="NAME", help="Format of the KV cache.")
@_eager_option
@click.option("--time-limit", type=float, default=120.0, metavar="S", help="Silence after which a launch hangs.")
@output_options
def ops(
    model: str,
    tp: int,
    ep: int,
    device: str,
    seed: int,
    dp: int,
    batch: str,
    context: str,
    kv_dtype: str,
    eager: bool,
    time_limit: float,
    **options: Any,
) -> None:
    """Every other row of a decode step of MODEL on one rank, by the library that an engine would call.

    \b
    sublight bench ops glm-5-nvfp4 --tp 8 --save ops.json
    sublight gap glm-5-nvfp4 --gpus 8xh200 --trace rank0.json.gz --bench ops.json
    """
    from sublight.bench.ops.run import bench_ops
    from sublight.bench.torchless import require_torch
    from sublight.facts.model import read_model

    if not 0 < time_limit <= 86400:
        raise UsageError("--time-limit", f"{time_limit:g} s", "seconds above zero")
    workload = _workload(tp, ep, dp, batch, context, kv_dtype)
    asked = read_model(model)
    require_torch("timing the rows of a step", device)
    found = bench_ops(asked, workload, device=device, seed=seed, eager=eager, limit_s=time_limit, progress=_progress())
    emit(found, options)


@command.command("comm", context_settings=_HELP)
@click.argument("model")
@_layout_options
@click.option("--processes", type=int, metavar="N", help="Ranks to start, one a GPU [default: --tp].")
@click.option("--batch", default="1", metavar="N", help="Sequences decoded together [default: 1].")
@click.option("--time-limit", type=float, default=120.0, metavar="S", help="Silence after which a way hangs.")
@output_options
def comm(
    model: str,
    tp: int,
    ep: int,
    device: str,
    seed: int,
    processes: int | None,
    batch: str,
    time_limit: float,
    **options: Any,
) -> None:
    """The collectives of a decode step of MODEL, at its payloads, between processes that torchrun starts here.

    \b
    sublight bench comm glm-5-nvfp4 --tp 8 --save comm.json
    sublight bench comm glm-5-nvfp4 --tp 8 --processes 2 --device cpu
    """
    from sublight.bench.comm.run import bench_comm
    from sublight.bench.torchless import require_torch
    from sublight.facts.model import read_model

    workload = _workload(tp, ep, 1, batch, "1024", "bf16")
    asked = read_model(model)
    require_torch("timing collectives", device)
    if not 0 < time_limit <= 86400:
        raise UsageError("--time-limit", f"{time_limit:g} s", "seconds above zero")
    found = bench_comm(
        asked,
        workload,
        processes=tp if processes is None else processes,
        device=device,
        seed=seed,
        limit_s=time_limit,
        progress=_progress(),
    )
    emit(found, options)


def _progress() -> Callable[[str], None] | None:
    """What is at work, on a terminal that nobody reads a result from."""
    import sys

    return (lambda text: click.echo(f"  {text}", err=True)) if sys.stderr.isatty() else None


def _workload(tp: int, ep: int, dp: int, batch: str, context: str, kv_dtype: str) -> Any:
    from sublight.errors import UnknownNameError
    from sublight.facts.workload import KV_DTYPES, Layout, Workload
    from sublight.units import parse_count

    if kv_dtype not in KV_DTYPES:
        raise UnknownNameError("KV cache format", kv_dtype, KV_DTYPES)
    return Workload(
        batch=parse_count(batch, "--batch"),
        context=parse_count(context, "--context"),
        kv_dtype=kv_dtype,  # type: ignore[arg-type]  # just looked up
        layout=Layout(tp=tp, ep=ep, dp=dp),
    )


def _counts(text: str, flag: str) -> tuple[int, ...]:
    from sublight.units import parse_count

    return tuple(parse_count(part, flag) for part in text.split(","))


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _sweep(most: int) -> tuple[int, ...]:
    """Every number to 64, then powers of two and three times each, up to the largest that is timed."""
    powers = {2**k for k in range(most.bit_length())}
    larger = {m for power in powers for m in (power, 3 * power) if m <= most}
    return tuple(sorted({*range(1, min(most, 64) + 1), *larger}))


for _command in (kernels, ops, comm):
    for _parameter in _command.params:
        if _parameter.type is click.STRING and _parameter.callback is None:
            _parameter.callback = refuse_empty

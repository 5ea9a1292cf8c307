"""`sublight trace`: where the time of a decode step went."""

from pathlib import Path
from typing import Any

import click

from sublight.cli.options import emit, output_options
from sublight.errors import UsageError

# What each job takes no notice of, and therefore refuses.
_OUTPUTS = ("as_json", "markdown", "html", "save", "width")
_NO_USE = {
    "--slice": ("step", "ranks", "model", "power", *_OUTPUTS),
    "the ranks of one run": ("step", "device", "model"),
    "two traces": ("step", "device", "power"),
}


@click.command("trace", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--model", metavar="MODEL", help="Catalogue name, folder or config.json: tells GEMMs of one name apart.")
@click.option("--tp", type=int, default=1, metavar="N", help="Tensor-parallel ranks the model was cut over.")
@click.option("--ep", type=int, default=1, metavar="N", help="Expert-parallel degree inside them.")
@click.option("--dp", type=int, default=1, metavar="N", help="Data-parallel attention groups inside them.")
@click.option("--step", type=int, metavar="N", help="Take this step apart instead of the median one.")
@click.option("--device", type=int, metavar="N", help="Which GPU, where the trace holds several.")
@click.option("--ranks", is_flag=True, help="The files are ranks of one run: who waits for whom.")
@click.option("--power", metavar="CSV", help="Log of nvidia-smi --query-gpu from the run: do busy cards work?")
@click.option("--slice", "slice_step", type=int, metavar="N", help="Write step N as a small trace (needs -o).")
@click.option("-o", "out", metavar="FILE", help="Where --slice writes to; compressed if it ends in .gz.")
@output_options
def command(
    files: tuple[str, ...],
    model: str | None,
    step: int | None,
    device: int | None,
    ranks: bool,
    power: str | None,
    slice_step: int | None,
    out: str | None,
    **options: Any,
) -> None:
    """Where the time of a decode step went, to the nanosecond, from a profiler trace.

    FILE is a torch profiler (Kineto) JSON, plain, gzip or zstd, an Nsight Systems sqlite export, or - for stdin. Two
    files are compared row by row; a folder, a pattern, or files with --ranks are the ranks of one run.

    \b
    sublight trace rank0.json.gz --model glm-5-nvfp4 --tp 8
    sublight trace before.json.gz after.json.gz --model glm-5-nvfp4 --tp 8
    sublight trace profiles/
    """
    # Reading makes garbage by the gigabyte.
    import gc

    gc.enable()
    if (slice_step is None) != (out is None):
        raise UsageError("--slice and -o", "one was given without the other", "--slice 3 -o step.json")
    _check_layout(options)
    given = {"model": model, "step": step, "device": device, "ranks": ranks, "power": power, **options}
    if slice_step is not None and out is not None:
        _check_use("--slice", given)
        _write_slice(files, slice_step, Path(out), device)
    elif ranks or Path(files[0]).is_dir() or any(c in files[0] for c in "*?["):
        _check_use("the ranks of one run", given)
        emit(_skew(files, power), options)
    elif len(files) == 2:
        _check_use("two traces", given)
        emit(_compared(files, plan_for(model, options)), options)
    elif len(files) == 1:
        emit(_analysed(files[0], plan_for(model, options), step, device, power, options["tp"]), options)
    else:
        raise UsageError("several traces", f"{len(files)} files were given", "two to compare them, or --ranks")


def _check_layout(options: dict[str, Any]) -> None:
    """Degrees count without a model too: an all-reduce is compared with that of as many ranks."""
    if (options["tp"], options["ep"], options["dp"]) != (1, 1, 1):
        from sublight.facts.workload import Layout

        Layout(tp=options["tp"], ep=options["ep"], dp=options["dp"])


def _check_use(job: str, given: dict[str, Any]) -> None:
    for name in _NO_USE[job]:
        if given[name] not in (None, False):
            flag = f"--{name.removeprefix('as_')}"
            raise UsageError(f"{flag} with {job}", "it has no use there", f"the same without {flag}")


def _analysed(path: str, plan: Any, step: int | None, device: int | None, power: str | None, tp: int) -> Any:
    from sublight.trace.analysis import analyse
    from sublight.trace.read import read_trace

    cards = _power_log(power)
    trace = read_trace(path, operators=False)
    published = _published(trace, tp if tp > 1 else 0)
    return analyse(trace, plan, step=step, device=device, power=cards, published=published)


def _published(trace: Any, ranks: int) -> Any:
    """What an all-reduce should take. The catalogue is not opened for a trace that has none."""
    if not any("reduce" in name.lower() for name in trace.gpu.names):
        return None
    from sublight.gap.healthy import healthy_all_reduce

    return healthy_all_reduce(trace, ranks)


def _power_log(path: str | None) -> Any:
    if path is None:
        return ()
    from sublight.trace.powerlog import read_power_log

    return read_power_log(path)


def _compared(files: tuple[str, ...], plan: Any) -> Any:
    from sublight.trace.analysis import compare_traces
    from sublight.trace.read import read_trace

    first, second = map(Path, files)
    if first == second or (first.exists() and second.exists() and first.samefile(second)):
        raise UsageError("comparing two traces", f"both are {second}", "two files: before and after")
    one, other = (read_trace(file, operators=False) for file in files)
    _say_cut(one)
    _say_cut(other)
    return compare_traces(one, other, plan)


def _skew(files: tuple[str, ...], power: str | None) -> Any:
    from sublight.trace.ranks import read_ranks
    from sublight.trace.skew import find_skew

    cards = _power_log(power)
    found = read_ranks(files[0] if len(files) == 1 else list(files))
    for left in found.left_out:
        click.echo(f"left out: {left.path}: {left.reason}", err=True)
    for rank in found.ranks:
        _say_cut(rank.trace)
    first = found.ranks[0].trace
    return find_skew(found, power=cards, published=_published(first, first.world_size or len(found.ranks)))


def _say_cut(trace: Any) -> None:
    """On standard error, that a file is not whole; the page of a single trace says so itself."""
    from sublight.trace.repairs import cut_words

    if cut := cut_words(trace.repairs):
        click.echo(f"warning: {trace.origin.path}: {cut}", err=True)


def _write_slice(files: tuple[str, ...], number: int, out: Path, device: int | None) -> None:
    from sublight.trace.read import read_trace
    from sublight.trace.repairs import cut_words
    from sublight.trace.slice import write_slice
    from sublight.trace.steps import find_steps

    if len(files) != 1:
        raise UsageError("--slice", f"{len(files)} files were given", "one file")
    trace = read_trace(files[0])
    steps = find_steps(trace, device).steps
    if not 0 <= number < len(steps):
        known = "--slice 0" + (f" to {len(steps) - 1}" if len(steps) > 1 else "")
        cut = cut_words(trace.repairs)
        found = f"whole steps in the trace: {len(steps)}{cut and f' ({cut})'}"
        raise UsageError(f"--slice {number}", found, known if steps else "a trace with decode steps")
    _say_cut(trace)
    write_slice(trace, steps[number], out)
    click.echo(f"{out}: step {number}, {steps[number].kernels:,} kernels")


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

"""`sublight audit`: which kernel backends really work here, with proof."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sublight.cli.keeping import campaign_option, keep
from sublight.cli.output import output_options
from sublight.errors import UsageError

if TYPE_CHECKING:
    from sublight.audit.auditor import Auditor
    from sublight.audit.doors import Door
    from sublight.audit.question import Question
    from sublight.audit.record import Audit

AREAS = ("moe", "fp4-gemm", "attention", "all-reduce")


@click.command("audit", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("engines", nargs=-1, metavar="[ENGINE]...")
@click.option("--model", metavar="MODEL", help="Catalogue name, checkpoint folder, or config.json.")
@click.option("--gpu", metavar="NAME", help="Card to judge for [default: the machine's own].")
@click.option("--tp", type=int, default=1, metavar="N", help="Tensor-parallel ranks.")
@click.option("--ep", type=int, default=1, metavar="N", help="Expert-parallel degree inside them.")
@click.option("--dp", type=int, default=1, metavar="N", help="Data-parallel attention groups inside them.")
@click.option(
    "--a2a", default="none", metavar="NAME", help="The engine's all-to-all backend for experts [default: none]."
)
@click.option("--draft", is_flag=True, help="Drafting layers run: engines choose kernels by that.")
@click.option("--area", "areas", multiple=True, type=click.Choice(AREAS), help="Backends of what [default: all].")
@click.option("--python", metavar="PATH", help="The interpreter that runs the engine [default: python3 on the PATH].")
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(1, 3600),
    default=30,
    metavar="S",
    help="Seconds within which the interpreter has to answer at first [default: 30].",
)
@click.option("--host", "destination", metavar="USER@BOX", help="Another machine, through the system's ssh.")
@click.option("--path", "folders", multiple=True, metavar="DIR", help="A folder of packages, without an interpreter.")
@click.option("--snapshot", metavar="FILE", help="A machine as an earlier audit saved it.")
@click.option("--log", metavar="FILE", help="What the engine logged: proof of what ran, and of what it fell back to.")
@click.option("--trace", metavar="FILE", help="A profile of the engine: kernel names tell what ran.")
@click.option("--symbol", "symbols", multiple=True, metavar="NAME", help="Ask for a dotted name instead of an engine.")
@click.option("--no-import", is_flag=True, help="Read only: import nothing, not even in a process of its own.")
@click.option(
    "--try/--no-try",
    "tries",
    default=False,
    help="Call backends on this machine's GPU, each in a process of its own: a layer of the model's experts, compared "
    "and timed [default: --no-try].",
)
@click.option(
    "--try-limit",
    type=click.IntRange(1, 3600),
    default=300.0,
    metavar="SECONDS",
    help="For each of them, compiling included [default: 300].",
)
@click.option("--no-cache", is_flag=True, help="Neither use nor keep what was read.")
@campaign_option
@output_options
def command(**options: Any) -> None:
    """Which kernel backends of an installed ENGINE work for MODEL on this card: eight rungs each, with proof.

    ENGINE is sglang, vllm or flashinfer; without one, every engine that is found (flashinfer beside another only
    when it is named). The engine never runs in this process, and a backend that hangs or crashes when it is imported
    is a finding. Nothing is changed on any machine, and nothing runs on a GPU unless --try asks for it; what does not
    fit into its free memory is not tried.

    \b
    sublight audit --model glm-5-nvfp4 --gpu rtx-pro-6000-server --tp 8
    sublight audit vllm --model ./config.json --python /opt/vllm/bin/python --log server.log
    sublight audit sglang --model glm-5-nvfp4 --tp 8 --try
    sublight audit --symbol flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked
    """
    _check(options)
    keep(_audited(options), options)


def _check(options: dict[str, Any]) -> None:
    """Options that do not fit together, before anything is asked."""
    ways = {"--python": options["python"], "--path": options["folders"], "--snapshot": options["snapshot"]}
    given = [flag for flag, value in ways.items() if value]
    if options["destination"]:
        given += ["--host"] if options["folders"] or options["snapshot"] else []
    if len(given) > 1:
        raise UsageError(" and ".join(given), "each of them says where the packages are", "one of them")
    if options["tries"]:
        _check_trying(options)
    if options["symbols"] and options["engines"]:
        raise UsageError("--symbol with an engine", "a symbol is asked for without one", "one of the two")
    for symbol in options["symbols"]:
        if not all(part.isidentifier() for part in symbol.split(".")):
            raise UsageError(
                f"--symbol {symbol!r}", "it is no dotted name", "--symbol package.module.function, as Python imports it"
            )
    if not options["symbols"] and options["model"] is None:
        raise UsageError(
            "an audit", "no model was named", "--model glm-5-nvfp4; a backend works for a checkpoint, or not"
        )
    if options["snapshot"] and options["save"]:
        raise UsageError("--save with --snapshot", "a snapshot of a snapshot would lack the machine", "--json > FILE")


def _check_trying(options: dict[str, Any]) -> None:
    """What cannot be asked for together with calling kernels on this machine."""
    apart = {
        "--host": (
            "kernels are called on this machine alone",
            "the same on that machine, with Sublight installed there",
        ),
        "--snapshot": ("a recorded machine runs nothing", "the same on the machine itself"),
        "--path": ("a folder has no interpreter to call them in", "--python with the interpreter that runs the engine"),
        "--symbol": ("a name is no backend", "an engine instead"),
        "--no-import": ("a call imports the engine", "one of the two"),
    }
    given = {
        "--host": options["destination"],
        "--snapshot": options["snapshot"],
        "--path": options["folders"],
        "--symbol": options["symbols"],
        "--no-import": options["no_import"],
    }
    for flag, value in given.items():
        if value:
            raise UsageError(f"--try with {flag}", *apart[flag])


def _audited(options: dict[str, Any]) -> "Audit":
    from sublight.audit.doors import FolderDoor, InterpreterDoor

    if options["destination"]:
        from sublight.hosts.ssh import SshHost

        with SshHost(options["destination"]) as host:
            return _through(
                InterpreterDoor(host, options["python"] or "python3", False, options["wait_s"]), options, host
            )
    if options["snapshot"]:
        return _through(_recorded(Path(options["snapshot"])), options)
    if options["folders"]:
        return _through(FolderDoor([_folder(name) for name in options["folders"]]), options)
    from sublight.hosts.local import LocalHost

    local = LocalHost()
    return _through(InterpreterDoor(local, _interpreter(options["python"]), True, options["wait_s"]), options, local)


def _folder(name: str) -> Path:
    folder = Path(name)
    if not folder.is_dir():
        raise UsageError(f"--path {name}", "there is no such folder", "a site-packages folder, or an unpacked wheel")
    return folder


def _interpreter(named: str | None) -> str:
    """A path as it is; a bare name, and no name at all, is looked for on the PATH."""
    import shutil

    found = shutil.which(named or "python3")
    if found is None:
        raise UsageError(
            f"--python {named or 'python3'}", "there is no such program", "--python with the path of an interpreter"
        )
    return found


def _recorded(path: Path) -> "Door":
    from sublight.audit.record import Audit
    from sublight.audit.snapshot import SnapshotDoor
    from sublight.errors import RecordError
    from sublight.records import load

    record = load(path, {Audit.schema: Audit})
    recording = record.recording if isinstance(record, Audit) else None
    door = SnapshotDoor(recording) if recording is not None else None
    if door is None or door.empty:
        raise RecordError(
            f"reading {path} as a snapshot", "it holds no answers of a machine", "a file of `sublight audit --save`"
        )
    return door


def _through(door: "Door", options: dict[str, Any], host: Any = None) -> "Audit":
    """The audit through one door; with --save everything asked is kept, and nothing is taken from the cache."""
    from sublight.audit.auditor import Auditor
    from sublight.audit.auditor import Options as What
    from sublight.audit.cache import Cache, default_folder
    from sublight.audit.snapshot import KeepingDoor

    saving = bool(options["save"])
    cache = Cache(None if saving or options["no_cache"] or options["snapshot"] else default_folder())
    what = What(
        engines=tuple(dict.fromkeys(options["engines"])),
        areas=options["areas"],
        imports=not options["no_import"],
        tries=options["tries"],
        try_limit_s=options["try_limit"],
        log=options["log"] or "",
        trace=options["trace"] or "",
    )
    tops = tuple(dict.fromkeys(symbol.partition(".")[0] for symbol in options["symbols"]))
    auditor = Auditor(KeepingDoor(door) if saving else door, what, cache, tops, _say)
    made = _of_symbols(auditor, options) if options["symbols"] else _of_engines(auditor, options)
    return _with_host(made, host) if saving and host is not None else made


def _say(text: str) -> None:
    """What takes long, on a terminal; a pipe gets the answer alone."""
    import sys

    if sys.stderr.isatty():
        click.echo(f"{text} ...", err=True)


def _of_symbols(auditor: "Auditor", options: dict[str, Any]) -> "Audit":
    from sublight.audit import summary
    from sublight.facts.gpu import parse_gpus

    if options["gpu"] is None:
        return summary.audit_symbols(auditor, options["symbols"])
    count, gpu = parse_gpus(options["gpu"])
    if count != 1:
        raise UsageError(
            f"--symbol with --gpu {options['gpu']}",
            f"it names {count} cards, and a name is asked for one",
            f"--gpu {gpu.name}",
        )
    return summary.audit_symbols(auditor, options["symbols"], gpu)


def _of_engines(auditor: "Auditor", options: dict[str, Any]) -> "Audit":
    from sublight.audit import summary

    return summary.audit(auditor, _question(auditor, options))


def _question(auditor: "Auditor", options: dict[str, Any]) -> "Question":
    from sublight.audit import question
    from sublight.facts.workload import Layout

    judged = question.card(options["gpu"], auditor.installation.cards)
    layout = Layout(tp=options["tp"], ep=options["ep"], dp=options["dp"])
    if options["gpu"] and judged.count not in (1, layout.gpus):  # a count beside another --tp would be dropped
        raise UsageError(
            f"--gpu {options['gpu']} as {layout}",
            f"it names {judged.count} cards, the layout takes {layout.gpus}",
            f"--gpu {judged.gpu.name} --tp {judged.count}",
        )
    return question.ask(options["model"], judged, layout, a2a=options["a2a"], speculative=options["draft"])


def _with_host(made: "Audit", host: Any) -> "Audit":
    """The record also keeps what `sublight host` asks, so that one file stands for the machine."""
    import msgspec

    from sublight.hosts.naming import name_kept
    from sublight.hosts.recorder import RecordingHost
    from sublight.hosts.recording import Recording
    from sublight.tuning.clean import clean
    from sublight.tuning.readings import collect

    recorder = RecordingHost(host, clean)
    collect(recorder)
    kept = made.recording or Recording(name_kept(host.name))
    return msgspec.structs.replace(made, recording=Recording(kept.name, kept.answers + recorder.recording().answers))

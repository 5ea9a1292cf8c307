"""Tuned kernel configurations: the one that was looked for, the nearest there is, and what a short one does."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, Fact, FactKind
from sublight.errors import InputFileError
from sublight.files import read_small_file

_FIELD = re.compile(r"(?:^|,)([A-Za-z_]\w*)=(\[[^\]]*\]|[^,\]]*)")
_MEANS = {"E": "experts of a rank", "N": "width of a rank", "device_name": "card", "K": "input width"}
_PREFILL_TOKENS = 4096
_MOST_FILES = 100_000
_CONFIGS = "the engine's configs folder"


def tuning_findings(log: EngineLog, known: Known) -> Iterator[LogFinding]:
    for fact in log.of(FactKind.NO_CONFIG):
        yield _missing(log, fact, known)
    for fact in log.of(FactKind.OTHER_CONFIG):
        yield _other(log, fact)
    for fact in log.of(FactKind.TUNED_CONFIG):
        yield from _short(log, fact, known)


def _missing(log: EngineLog, fact: Fact, known: Known) -> LogFinding:
    wanted, kernel, instead = fact.get("file"), fact.get("kernel"), fact.get("instead") or "its default tiles"
    idle = _marlin(log) if kernel.startswith("Triton MoE") else None
    if idle is not None:
        return LogFinding(
            id="no-tuned-config",
            level="info",
            subject=kernel,
            text=f"{wanted} was not found. The experts run on {idle.get('backend')}, which takes no such file: the "
            "warning does not concern this run.",
            proofs=(log.proof(fact), log.proof(idle)),
        )
    return LogFinding(
        id="no-tuned-config",
        level="warn",
        subject=kernel,
        text=f"wanted {wanted}: not found, so {kernel} runs with {instead}. {_nearest(wanted, known.configs)} "
        "What that costs has to be measured: it may be nothing.",
        proofs=(log.proof(fact),),
        advice="time the default against a tuned file in service, at decode and prefill sizes, before keeping it",
    )


def _marlin(log: EngineLog) -> Fact | None:
    chosen = log.of(FactKind.MOE_BACKEND)
    weight_only = [f for f in chosen if "MARLIN" in f.get("backend").upper()]
    return weight_only[0] if chosen and len(weight_only) == len(chosen) else None


def name_fields(file: str) -> dict[str, str]:
    """What the name of a tuned file says: E=128,N=352,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json"""
    stem = file.removesuffix(".json")
    suffix = "_down" if stem.endswith("_down") else ""
    found = {name: value.replace(" ", "") for name, value in _FIELD.findall(stem.removesuffix("_down"))}
    return found | ({"projection": "down"} if suffix else {})


def _nearest(wanted: str, folder: Path | None) -> str:
    """The present file that differs least, and in what; told only where the folder is given."""
    if folder is None:
        return "Which files there are is not known: the folder was not given."
    present = _files(folder)
    if not present:
        return f"{folder.name} has no such files at all."
    aim = name_fields(wanted)
    apart = {file: _differences(aim, name_fields(file)) for file in present}
    nearest = min(present, key=lambda file: (len(apart[file]), "device_name" in apart[file], file))
    differ = apart[nearest]
    if not differ:
        return f"{nearest} is there now."
    said = (
        ", ".join(
            f"{name}={name_fields(nearest).get(name, 'none')}"
            + (f" (another {_MEANS[name]})" if name in _MEANS else "")
            for name in differ
            if name != "projection"
        )
        or "the other projection"
    )
    tensor_parallel = " The width is of another tensor-parallel size." if differ == ["N"] else ""
    return f"Nearest present: {nearest}, which has {said}.{tensor_parallel}"


def _files(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise InputFileError(f"looking for tuned configurations in {folder}", "there is no such folder", _CONFIGS)
    try:
        found = [path.name for path, _ in zip(folder.rglob("*.json"), range(_MOST_FILES), strict=False)]
    except OSError as error:
        raise InputFileError(
            f"looking for tuned configurations in {folder}", error.strerror or str(error), _CONFIGS
        ) from None
    return sorted({name for name in found if name_fields(name)})


def _differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def _other(log: EngineLog, fact: Fact) -> LogFinding:
    return LogFinding(
        id="other-tuned-config",
        level="info",
        subject=fact.get("kernel"),
        text=f"no {fact.get('file')} for this version of Triton; the one of {fact.get('reason')} is used.",
        proofs=(log.proof(fact),),
        advice="tune again with the installed Triton, and keep the file only if service gets faster",
    )


def _short(log: EngineLog, fact: Fact, known: Known) -> Iterator[LogFinding]:
    """A used file is looked at where the folder is given: a lookup takes the nearest key, however far it is."""
    if known.configs is None:
        return
    path = next(iter(sorted(known.configs.rglob(_escaped(fact.get("file"))))), None)
    if path is None:
        return
    sentence = short_table(tuned_rows(path))
    if sentence:
        yield LogFinding(
            id="short-tuned-config",
            level="warn",
            subject=fact.get("kernel"),
            text=f"{path.name} has {sentence}",
            proofs=(log.proof(fact),),
            advice=f"add rows up to {_PREFILL_TOKENS}, or take the file away; compare prefill as well as decode",
        )


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "[*?" else c for c in name)


def tuned_rows(path: Path) -> tuple[int, ...]:
    """The batch sizes that a tuned file has rows for, ascending. Raises InputFileError."""
    asked, hint = (
        f"reading {path} as a tuned kernel configuration",
        'a JSON object with a row a batch size: {"1": {...}}',
    )
    data = read_small_file(path, asked, hint)
    try:
        rows = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputFileError(asked, str(error), hint) from None
    return tuple(sorted(int(key) for key in rows if key.isascii() and key.isdecimal() and len(key) < 10))


def short_table(rows: tuple[int, ...]) -> str:
    """What is wrong with a table of these rows, "" if it reaches the batches of prefill."""
    if not rows or rows[-1] >= _PREFILL_TOKENS // 2:
        return ""
    listed = ", ".join(map(str, rows))
    return (
        f"rows for {listed} only: the nearest is taken, so every M >= {2 * rows[-1]} uses the row of {rows[-1]}, "
        "prefill of thousands of tokens included."
    )

"""Tuned kernel configurations: the one that was looked for, the nearest there is, and what a short one does."""

import math
import re
from collections.abc import Iterator

import msgspec

from sublight.audit.log.findings.finding import Known, LogFinding, Tuned
from sublight.audit.log.record import EngineLog, Fact, FactKind

_FIELD = re.compile(r"(?:^|,)([A-Za-z_]\w*)=(\[[^\]]*\]|[^,\]]*)")
_MEANS = {"E": "number of experts of a rank", "N": "width of a rank", "device_name": "card", "K": "input width"}
_PREFILL_TOKENS = 4096


def tuning_findings(log: EngineLog, known: Known) -> Iterator[LogFinding]:
    for fact in log.of(FactKind.NO_CONFIG):
        yield _missing(log, fact, known)
    for fact in log.of(FactKind.OTHER_CONFIG):
        yield _other(log, fact)
    for fact in log.of(FactKind.TUNED_CONFIG, FactKind.OTHER_CONFIG):
        yield from _table(log, fact, known.tuned)


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
        text=f"wanted {wanted}: not found, so {kernel} runs with {instead}. {_nearest(wanted, fact, known.tuned)} "
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
    stem = file.rpartition("/")[2].removesuffix(".json")
    suffix = "_down" if stem.endswith("_down") else ""
    found = {name: value.replace(" ", "") for name, value in _FIELD.findall(stem.removesuffix("_down"))}
    return found | ({"projection": "down"} if suffix else {})


def _nearest(wanted: str, fact: Fact, tuned: Tuned) -> str:
    """The present file that differs least, and in what; told only where the installation's folder was looked into."""
    folder = tuned.folders.get(fact.get("folder"))
    if folder is None:
        return f"Which files there are is not known: {tuned.unread}."
    aim = name_fields(wanted)
    apart = {file: _differences(aim, fields) for file in folder.files if (fields := name_fields(file))}
    if not apart:
        return f"{folder.place} has no such files at all."
    own = fact.get("folder").rpartition("/")[2]
    nearest = min(apart, key=lambda file: (len(apart[file]), "device_name" in apart[file], _far(aim, file, own), file))
    differ = apart[nearest]
    if not differ:
        return f"{nearest} is there now, in {folder.place}."
    fields = name_fields(nearest)
    said = (
        ", ".join(
            (f"{name}={fields[name]}" if name in fields else f"no {name}")
            + (f" (another {_MEANS[name]})" if name in _MEANS else "")
            for name in differ
            if name != "projection"
        )
        or "the other projection"
    )
    tensor_parallel = " The width is of another tensor-parallel size." if differ == ["N"] else ""
    number = len(apart)
    return f"Nearest of the {number:,} in {folder.place}: {nearest}, which has {said}.{tensor_parallel}"


def _far(aim: dict[str, str], file: str, own: str) -> tuple[float, bool, list[int]]:
    """How far the sizes are from those wanted, by factors; then the own version of Triton, and the newest first."""
    fields = name_fields(file)
    pairs = [(aim.get(name, ""), fields.get(name, "")) for name in _MEANS]
    sizes = [(int(a), int(b)) for a, b in pairs if a.isdecimal() and b.isdecimal() and int(a) and int(b)]
    folder = file.rpartition("/")[0]
    return (
        sum(abs(math.log2(a / b)) for a, b in sizes),
        folder != own,
        [-int(n) for n in re.findall(r"\d{1,9}", folder)],
    )


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


def _table(log: EngineLog, fact: Fact, tuned: Tuned) -> Iterator[LogFinding]:
    """A file that is used: a lookup takes the nearest key, however far it is."""
    name = fact.get("used") or fact.get("file")
    if name not in tuned.tables:
        return
    try:
        sentence = short_table(tuned_rows(tuned.tables[name]))
    except ValueError as error:
        yield LogFinding(
            id="damaged-tuned-config",
            level="error",
            subject=fact.get("kernel"),
            text=f"{name} is there and is no table of batch sizes: {error}",
            proofs=(log.proof(fact),),
            advice="take the file away, or tune again",
        )
        return
    if sentence:
        yield LogFinding(
            id="short-tuned-config",
            level="warn",
            subject=fact.get("kernel"),
            text=f"{name} has {sentence}",
            proofs=(log.proof(fact),),
            advice=f"add rows up to {_PREFILL_TOKENS}, or take the file away; compare prefill as well as decode",
        )


def tuned_rows(data: bytes) -> tuple[int, ...]:
    """The batch sizes that a tuned file has rows for, ascending. Raises ValueError for what is no such file."""
    try:
        rows = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
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

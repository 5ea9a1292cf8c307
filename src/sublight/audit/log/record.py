"""EngineLog: what one start of an engine said about itself, as facts that each name the line they stand on."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from sublight.audit.ladder import Proof
from sublight.records import Record, repeated

EVIDENCE_CHARACTERS = 240


class FactKind(StrEnum):
    """What a line of a log can say. The fields of each kind are in `FIELDS`."""

    ENGINE = "engine"
    ARGUMENTS = "arguments"  # as the engine echoes what it was started with
    CONFIG = "config"  # as the engine echoes what it made of it
    ARCHITECTURE = "architecture"
    RANK = "rank"
    MOE_BACKEND = "moe-backend"  # the engine names the kernels it chose for experts
    MOE_REFUSED = "moe-refused"
    MOE_RUNNER = "moe-runner"  # a server-wide setting; layers may still run something else
    MOE_METHOD = "moe-method"  # class that holds the experts of a layer
    MOE_KERNEL = "moe-kernel"  # a line that only the code of this backend prints
    ATTENTION = "attention"
    LINEAR_KERNEL = "linear-kernel"
    SAMPLER = "sampler"
    ALL_REDUCE = "all-reduce"
    NCCL = "nccl"
    FUSIONS = "fusions"
    GRAPH_PLAN = "graph-plan"
    GRAPH_OFF = "graph-off"
    MOST_RUNNING = "most-running"
    DECODE = "decode"
    QUANTIZATION = "quantization"  # the method that loaded the weights
    CHECKPOINT = "checkpoint"  # a format the engine detected
    WEIGHT_ONLY = "weight-only"
    UNKNOWN_VARIABLE = "unknown-variable"
    NO_CONFIG = "no-config"  # a tuned kernel configuration that was looked for and not found
    OTHER_CONFIG = "other-config"  # another one was used in its place
    TUNED_CONFIG = "tuned-config"
    OVERRIDE = "override"  # asked for one thing, used another
    PADDING = "padding"
    SUGGESTION = "suggestion"  # the engine itself names something to try
    MEMORY = "memory"
    UNAVAILABLE = "unavailable"
    IMPORT_ERROR = "import-error"
    LOADER = "loader"  # what a kernel package's loader says of the card
    FAILURE = "failure"


# Kind -> (fields it must have, fields it may have).
FIELDS: dict[FactKind, tuple[frozenset[str], frozenset[str]]] = {
    kind: (frozenset(must.split()), frozenset(may.split()))
    for kind, must, may in (
        (FactKind.ENGINE, "", "version model"),
        (FactKind.ARGUMENTS, "text", ""),
        (FactKind.CONFIG, "text", "version"),
        (FactKind.ARCHITECTURE, "name", ""),
        (FactKind.RANK, "rank", "world tp dp pp ep"),
        (FactKind.MOE_BACKEND, "backend", "format candidates"),
        (FactKind.MOE_REFUSED, "backend", "format reason"),
        (FactKind.MOE_RUNNER, "backend", "reason"),
        (FactKind.MOE_METHOD, "method", ""),
        (FactKind.MOE_KERNEL, "backend", "detail"),
        (FactKind.ATTENTION, "backend", "phase candidates reason"),
        (FactKind.LINEAR_KERNEL, "kernel format", ""),
        (FactKind.SAMPLER, "backend", ""),
        (FactKind.ALL_REDUCE, "method state", "reason cause"),
        (FactKind.NCCL, "version", ""),
        (FactKind.FUSIONS, "names", ""),
        (FactKind.GRAPH_PLAN, "", "phase mode sizes full full_largest piecewise piecewise_largest tokens_per_request"),
        (FactKind.GRAPH_OFF, "reason", "phase"),
        (FactKind.MOST_RUNNING, "requests", ""),
        (FactKind.DECODE, "batch graph", ""),
        (FactKind.QUANTIZATION, "method", "algorithm"),
        (FactKind.CHECKPOINT, "format", ""),
        (FactKind.WEIGHT_ONLY, "format kernel", ""),
        (FactKind.UNKNOWN_VARIABLE, "name", "value"),
        (FactKind.NO_CONFIG, "kernel file", "folder instead"),
        (FactKind.OTHER_CONFIG, "kernel file", "folder used used_folder reason"),
        (FactKind.TUNED_CONFIG, "kernel file", "folder"),
        (FactKind.OVERRIDE, "what", "asked used reason"),
        (FactKind.PADDING, "what given padded kernel", ""),
        (FactKind.SUGGESTION, "variable about", ""),
        (FactKind.MEMORY, "what value", ""),
        (FactKind.UNAVAILABLE, "what reason", "cause"),
        (FactKind.IMPORT_ERROR, "error", "module cause"),
        (FactKind.LOADER, "what value", ""),
        (FactKind.FAILURE, "error", ""),
    )
}


class Sighting(msgspec.Struct, frozen=True):
    """A line of the log: its number, counted from 1, and its text without colours, shortened."""

    line: int
    text: str


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the log says, however often and by however many ranks.

    Attributes:
        kind: what it is about.
        rule: which rule read it: "vllm.moe-backend".
        fields: what the line says; a field that the line does not have is absent.
        first: where it is said first.
        times: how many lines say it.
        ranks: who said it, as the log labels them ("TP3"); empty where lines carry no rank.
    """

    kind: FactKind
    rule: str
    fields: dict[str, str]
    first: Sighting
    times: int = 1
    ranks: tuple[str, ...] = ()

    def get(self, field: str) -> str:
        """The field, "" where the line does not have it."""
        return self.fields.get(field, "")


class Argument(msgspec.Struct, frozen=True):
    """One argument as the engine prints it; `text` is its source text, quotes and brackets included."""

    name: str
    text: str

    @property
    def value(self) -> str:
        """The text without the quotes of a string."""
        text = self.text
        return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


class Echo(msgspec.Struct, frozen=True):
    """Arguments that one line lists, and the line."""

    arguments: tuple[Argument, ...] = ()
    at: Sighting | None = None

    def get(self, name: str) -> str:
        """The argument's value, "" where the line does not have it."""
        return next((a.value for a in self.arguments if a.name == name), "")

    def __contains__(self, name: str) -> bool:
        return any(a.name == name for a in self.arguments)


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that say different things where all should say the same: what each of two groups says, and where."""

    kind: FactKind
    one: str
    one_ranks: tuple[str, ...]
    one_at: Sighting
    other: str
    other_ranks: tuple[str, ...]
    other_at: Sighting


class EngineLog(Record, frozen=True, kw_only=True):
    """One start of an engine. A log of several starts gives the last; `starts` says where each began.

    Attributes:
        name: of the file.
        engine: "vllm" or "sglang".
        engine_version: as the engine prints it, "" where it does not (SGLang does not).
        lines: how many the file has.
        starts: line of each start.
        asked: the arguments the engine was started with, where it prints them.
        config: what it made of them.
        world: how many ranks there are, as the log says; None where it does not.
        facts: in the order of their first lines.
        disagreements: between ranks.
        damage: what had to be repaired or left out while reading.
    """

    schema = "engine-log"

    name: str
    engine: str
    engine_version: str
    lines: int
    starts: tuple[int, ...]
    asked: Echo
    config: Echo
    world: int | None
    facts: tuple[Fact, ...]
    disagreements: tuple[Disagreement, ...] = ()
    damage: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The engine as people spell it, and its version: "vLLM 0.33.0"."""
        return f"{ {'vllm': 'vLLM', 'sglang': 'SGLang'}.get(self.engine, self.engine) } {self.engine_version}".strip()

    def of(self, *kinds: FactKind) -> tuple[Fact, ...]:
        """The facts of these kinds, in the order of their first lines."""
        return tuple(fact for fact in self.facts if fact.kind in kinds)

    def setting(self, name: str, asked_name: str = "") -> str:
        """A setting as the engine resolved it, else as it was asked for; "" where the log has neither."""
        return self.config.get(name) or self.asked.get(asked_name or name)

    def proof(self, at: "Fact | Sighting") -> Proof:
        """A line as the ladder keeps it."""
        seen = at.first if isinstance(at, Fact) else at
        return Proof("log", f"{self.name}:{seen.line}", seen.text)

    def flaws(self) -> Iterator[str]:
        for fact in self.facts:
            if not 1 <= fact.first.line <= self.lines or fact.times < 1:
                yield f"{fact.rule} stands on line {fact.first.line} of {self.lines}, {fact.times} times"
        keys = [f"{f.kind} {sorted(f.fields.items())}" for f in self.facts]
        for key in repeated(keys):
            yield f"the fact {key} is there twice"

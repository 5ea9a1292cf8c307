"""What an engine's description has to answer, and the answers' forms. Nothing here runs or imports the engine."""

from typing import Protocol, runtime_checkable

import msgspec

from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target


class Declaration(msgspec.Struct, frozen=True):
    """A name of a backend and every place this version of the engine declares it.

    Attributes:
        area: "moe", "fp4-gemm", "attention", "all-reduce".
        name: the value, as the command line or the enum spells it.
        flag: what a user types to select it, "" when no option takes it.
        selectable: whether the command line accepts it; None when no list of choices was found.
        in_enum: whether the engine's own enumeration holds it; None when there is none.
        proofs: the lines that declare it.
        note: anything a reader should know: "only in the enum", "an alias that is rewritten to ...".
    """

    area: str
    name: str
    flag: str
    selectable: bool | None
    in_enum: bool | None
    proofs: tuple[Proof, ...]
    note: str = ""


class Need(msgspec.Struct, frozen=True):
    """A symbol of another package (or a compiled module of the engine's own) that a path to a kernel needs.

    Attributes:
        symbol: dotted: "flashinfer.fused_moe.cutlass_fused_moe".
        where: file:line of the import.
        how: "module level", "lazy", "guarded" (a failing import is swallowed), "string".
        on_failure: what the engine does then: "ImportError", "falls back to sgl_kernel.x", "name is None", ...
        only_if: the condition around it as text, "" when there is none.
    """

    symbol: str
    where: str
    how: str
    on_failure: str = ""
    only_if: str = ""


class Gate(msgspec.Struct, frozen=True):
    """A condition on the card that stands in code on the way to a kernel.

    Attributes:
        answer: whether the target's exact capability passes; NOT_KNOWN when the condition could not be evaluated.
        text: the condition as it stands there.
        proof: where.
        targets: the capabilities it lists, where it is a list ("10.0", "10.3").
        claim: whether the list is only that: it refuses nobody whom it does not name.
    """

    answer: Answer
    text: str
    proof: Proof
    targets: tuple[str, ...] = ()
    claim: bool = False


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where asking for a backend leads, for one target.

    Attributes:
        answer: PASS: the asked kernel is what runs. FAIL: refused, or another kernel runs. NOT_KNOWN with the reason.
        why: one sentence: "accepted, but runs sgl_kernel's cutlass_moe_fp4: no branch of apply() asks for this name".
        destination: the function or class that runs in the end, dotted, "" when not known.
        proofs: the lines that were followed, in order: each gate, each branch taken, the call at the end.
        needs: what that path imports.
        gates: conditions on the card along it.
        hint: what to try when the answer is no: another layout, all-to-all, a variable.
        beside: options that the answer hangs on besides the name and the target's layout.
        instead: the same name under other options, best first, where it would be what runs. Each is judged before it
            is advised.
        slow: why what runs is slow whatever the card, "" where nothing says so.
        alias_of: the name that this one is only another spelling of, "" for one of its own.
    """

    answer: Answer
    why: str
    destination: str = ""
    proofs: tuple[Proof, ...] = ()
    needs: tuple[Need, ...] = ()
    gates: tuple[Gate, ...] = ()
    hint: str = ""
    beside: str = ""
    instead: tuple["Instead", ...] = ()
    slow: str = ""
    alias_of: str = ""


class Instead(msgspec.Struct, frozen=True):
    """Options to add, and where the name leads with them."""

    options: str
    route: Route


class Pin(msgspec.Struct, frozen=True):
    """A version the engine asks for, and where: its metadata, or a check it makes when it runs.

    `when` says under which condition a run-time check is made ("attention backend is flashinfer"), "" for always.
    """

    distribution: str
    specifier: str
    proof: Proof
    when: str = ""


@runtime_checkable
class HasFormats(Protocol):
    """An engine with lists of names apart for formats of weights."""

    def concerns(self, declaration: Declaration, target: Target) -> bool:
        """Whether a name is one for the target; of another format's own list it is none."""
        ...


@runtime_checkable
class HasLayout(Protocol):
    """An engine whose options for a layout are known."""

    def layout_options(self, sources: Sources, target: Target) -> str:
        """What has to be typed for the all-to-all, expert and data parallelism of a target, "" for plain ranks."""
        ...


class Engine(Protocol):
    """One engine. Each method reads lazily; what a version lays out in a new way is "not known", and why."""

    name: str
    package: str  # top-level import name
    distributions: tuple[str, ...]  # that may own it
    areas: tuple[str, ...]
    folders: tuple[str, ...]  # of its source that the answers are read from, for fetching them at once from afar
    variables: tuple[str, ...]  # prefixes of environment variables it reads

    def declared(self, sources: Sources, area: str) -> tuple[Declaration, ...]: ...

    def route(self, sources: Sources, declaration: Declaration, target: Target) -> Route: ...

    def auto(self, sources: Sources, area: str, target: Target) -> Route:
        """What runs when nothing is asked for."""
        ...

    def pins(self, sources: Sources) -> tuple[Pin, ...]:
        """Checks in the code; those of the metadata are read by whoever knows the installation."""
        ...

    def known_variables(self, sources: Sources) -> frozenset[str] | None:
        """Environment variables that this version reads; None when its list was not found."""
        ...

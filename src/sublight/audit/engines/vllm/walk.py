"""A walk through vLLM's choice of kernels, for one card and one set of assumptions about what is installed.

vLLM asks its platform for the card, its own helpers for packages (`has_flashinfer...`), the environment for wishes.
The first is answered with the target's capability; a package that is read beside vLLM is asked for the symbol by its
source, any other is taken to be there and becomes a need, which the installation is asked for later.
"""

import ast
import posixpath
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from sublight.audit.engines.base import Need
from sublight.audit.engines.vllm import outside
from sublight.audit.engines.vllm.formats import LATENT, LATENT_WIDTHS, SPARSE, UNPOSITIONED
from sublight.audit.source.creating import fields
from sublight.audit.source.evaluate import Evaluator, Outcome
from sublight.audit.source.events import Event
from sublight.audit.source.facts import Facts
from sublight.audit.source.machine import Raising
from sublight.audit.source.symbols import Existence, resolve
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Choice,
    Class,
    External,
    Failure,
    Function,
    Instance,
    Namespace,
    Unknown,
    Value,
)
from sublight.audit.target import Target

PACKAGE = "vllm"
FOLLOWED = ("humming",)  # read too, where it is there: vLLM compares values of its enumerations
PLATFORMS = ("vllm.platforms.cuda.CudaPlatformBase", "vllm.platforms.cuda.CudaPlatform")
_CAPABILITY = ("vllm.platforms.interface.DeviceCapability",)
CURRENT = "vllm.platforms.current_platform"
_HEADS = "the heads of a rank"  # what the model's configuration is asked for
_COMMAND = "/usr/bin/"  # where a command that is taken to be there is said to be
_ALWAYS = frozenset(("torch", "numpy", *sys.stdlib_module_names))  # outside, but never optional


class Assumed(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken to hold on the machine.

    Attributes:
        importable: whether a package, module or symbol can be imported, by dotted name; None leaves it to the sources,
            and to a need.
        commands: commands on the path; None: all that are asked for.
        environment: variables that are set.
    """

    importable: Callable[[str], bool | None] = lambda _symbol: None
    commands: frozenset[str] | None = None
    environment: Mapping[str, str] = {}

    def with_variable(self, name: str, value: str) -> "Assumed":
        return msgspec.structs.replace(self, environment={**self.environment, name: value})


class _Outside(dict[str, Value]):
    """Names outside vLLM: `hasattr(module, name)` of one asks whether that symbol is there."""

    def __init__(self, there: Callable[[str], bool], absent: Callable[[str], str]) -> None:
        super().__init__()
        self.there = there
        self.absent = absent

    def __contains__(self, dotted: object) -> bool:
        return super().__contains__(dotted) or (isinstance(dotted, str) and self.there(dotted))

    def get(self, dotted: str, default: Value = None) -> Value:
        if super().__contains__(dotted):
            return self[dotted]
        return MISSING if isinstance(default, External) and self.absent(dotted) else default


class _Names(dict[str, Value]):
    """Attributes of a package that was imported: every symbol that is there."""

    def __init__(self, package: str, there: Callable[[str], bool]) -> None:
        super().__init__()
        self.package = package
        self.there = there

    def __contains__(self, name: object) -> bool:
        return self.there(f"{self.package}.{name}")

    def get(self, name: str, default: Value = None) -> Value:
        return External(f"{self.package}.{name}") if name in self else default


def _package(dotted: str, there: Callable[[str], bool]) -> Value:
    """An imported package: true, and asked for its names."""
    module = Namespace(Module(dotted, dotted, b""))
    cls = Class(module, ast.ClassDef(dotted, [], [], [], []), dotted, [])
    return Instance(cls, _Names(dotted, there), False)


def _next(arguments: list[Value], _keywords: dict[str, Value]) -> Value:
    """`next(...)` of a generator expression, which a walk holds as the list it makes."""
    found = arguments[0] if arguments else None
    if not isinstance(found, list) or any(item is MANY or isinstance(item, Choice) for item in found[:1]):
        return Unknown("what next gives")
    if found:
        return found[0]
    return arguments[1] if len(arguments) > 1 else Unknown("what next gives")


def _path(work: Callable[..., str]) -> Callable[[list[Value], dict[str, Value]], Value]:
    def answer(arguments: list[Value], _keywords: dict[str, Value]) -> Value:
        return work(*arguments) if all(isinstance(item, str) for item in arguments) else Unknown("a path")

    return answer


def _callable(arguments: list[Value], _keywords: dict[str, Value]) -> Value:
    found = arguments[0] if arguments else None
    if found is None or isinstance(found, str | int | float | list | dict | tuple):
        return False
    return Unknown("whether it can be called") if isinstance(found, Unknown | Choice) else True


class Walk:
    """One evaluator under one target's facts. `needs` collects what was taken to be there, in order."""

    def __init__(self, sources: Sources, target: Target, assumed: Assumed) -> None:
        capability = target.compute_capability
        self.sources = sources
        self.model_type = target.model_type
        self.parallel: dict[str, Value] = {
            "tensor_parallel_size": target.layout.tp,
            "data_parallel_size": target.layout.dp,
            "pipeline_parallel_size": target.layout.pp,
            "decode_context_parallel_size": 1,
            "prefill_context_parallel_size": 1,
            "enable_expert_parallel": target.layout.ep > 1,
        }
        self.assumed = assumed
        self.needs: dict[str, Need] = {}
        self.missing: dict[str, str] = {}  # symbol -> why it is not there
        self.wishes: dict[str, Value] = {}  # of the kernel configuration
        self.generous = False  # for the moment everything counts as installed: a question about cards alone
        self.denied = ""  # a symbol that is taken not to be there, to see who minds
        self.asked: list[str] = []  # symbols that were asked for since somebody last emptied it
        self.calls: dict[str, Any] = {
            "importlib.import_module": self._import_module,
            "shutil.which": self._which,
            "get_device_capability": lambda _arguments, _keywords: self.capability,
            "torch.cuda.get_device_capability": capability,
            "torch.cuda.is_available": True,
            "builtins.next": _next,
            "vllm.envs.is_set": lambda arguments, _keywords: bool(arguments) and arguments[0] in assumed.environment,
            "builtins.callable": _callable,
            "os.path.join": _path(posixpath.join),
            "os.path.dirname": _path(posixpath.dirname),
            _HEADS: Unknown("the heads of a rank", solid=True) if target.rank_heads is None else target.rank_heads,
            "os.path.exists": outside.exists(sources),
            "inspect.signature": outside.signature(sources),
        }
        self.values = _Outside(self._there, self.absent)
        self.values["torch.version.hip"] = None
        self.evaluator = Evaluator(
            sources,
            Facts(
                follow=(PACKAGE, *(name for name in FOLLOWED if name in sources.roots)),
                calls=self.calls,
                values=self.values,
                environment=assumed.environment,
                importable=self.importable,
            ),
        )
        for asked in ("get_current_vllm_config", "get_current_vllm_config_or_none"):
            self.calls[asked] = lambda _arguments, _keywords: self._configuration()
        self.problem = self._platform()
        self.capability: Value = None
        self.look(capability)

    def _platform(self) -> str:
        """Puts the CUDA platform in the place of the one vLLM would find; says why it cannot."""
        for dotted in PLATFORMS:
            platform = self.evaluator.name(dotted)
            if isinstance(platform, Class):
                self.values[CURRENT] = Instance(platform, {}, False)
                return ""
        otherwise = f"{PLATFORMS[0]} is not in the sources: this version describes its platform elsewhere"
        return self.sources.unparsed_at(*PLATFORMS) or otherwise

    def _configuration(self) -> Value:
        """The configuration that a running engine holds: nothing is known of it but that no wishes were given."""
        cls = self.evaluator.name("vllm.config.VllmConfig")
        names = [name for name, *_ in fields(cls)] if isinstance(cls, Class) else []
        unknown: dict[str, Value] = {name: Unknown(f"the engine's {name}", solid=True) for name in names}
        described: dict[str, Value] = {"model_type": self.model_type} if self.model_type else {}
        if self.model_type in SPARSE:
            described["index_topk"] = SPARSE[self.model_type]
        if self.model_type in LATENT:
            described |= LATENT_WIDTHS
        if self.model_type in UNPOSITIONED:
            described["qk_nope_head_dim"] = UNPOSITIONED[self.model_type]
        config = Instance(None, described, True)
        model = {"quantization_config": None, "hf_config": config, "hf_text_config": config,
                 "get_num_attention_heads": External(_HEADS)}  # fmt: skip
        unknown["model_config"] = Instance(None, dict(model), True)
        unknown["parallel_config"] = Instance(None, dict(self.parallel), True)
        unknown["kernel_config"] = Instance(None, dict(self.wishes), True)
        return Instance(cls if isinstance(cls, Class) else None, unknown, True)

    def look(self, capability: tuple[int, int]) -> None:
        """From now on the card is of this capability."""
        made = self.evaluator.call_name(_CAPABILITY[0], list(capability))
        self.capability = made.value if isinstance(made.value, Instance) else capability
        self.calls["torch.cuda.get_device_capability"] = capability
        self.evaluator.kept.clear()

    def fresh(self) -> None:
        """Forgets what earlier questions asked for and wished; modules stay worked out."""
        self.missing.clear()
        self.asked.clear()
        self.wishes.clear()
        self.evaluator.kept.clear()
        self.evaluator.events.clear()

    def deny(self, symbol: str) -> None:
        """From now on a symbol is not there; "" takes it back. Answers that were kept go with what they hung on."""
        self.denied = symbol
        self.evaluator.kept.clear()

    # -- what is installed ----------------------------------------------------------------------------------------

    def absent(self, symbol: str) -> str:
        """Why a symbol is not there; "" when it is, as far as anybody knows."""
        top = symbol.partition(".")[0]
        if top in _ALWAYS or self.generous:
            return ""
        known = False if symbol == self.denied else self.assumed.importable(symbol)
        if known is not None:
            return "" if known else f"{symbol} cannot be imported"
        if top in self.sources.roots:
            answer = resolve(self.sources, symbol)
            return answer.why if answer.existence is Existence.MISSING else ""
        return ""

    def importable(self, symbol: str) -> bool | None:
        """Whether a symbol is there, asked by the engine itself: one that is taken to be becomes a need."""
        if symbol.partition(".")[0] in _ALWAYS:
            return True
        self.asked.append(symbol)
        why = self.absent(symbol)
        if why:
            self.missing[symbol] = why
            return False
        if symbol not in self.needs:
            asker = self.evaluator.active[-1].where if self.evaluator.active else ""
            self.needs[symbol] = Need(symbol, asker, "string", "the kernel is not offered")
        return True

    def _there(self, dotted: str) -> bool:
        return dotted.partition(".")[0] not in _ALWAYS and bool(self.importable(dotted))

    def _import_module(self, arguments: list[Value], _keywords: dict[str, Value]) -> Value:
        name = arguments[0] if arguments else None
        if not isinstance(name, str):
            return External("a module")
        if name.partition(".")[0] in self.evaluator.facts.follow:
            found = self.evaluator.name(name)
            return External(name) if found is MISSING else found
        if not self.importable(name):
            raise Raising(Failure(("ModuleNotFoundError", "ImportError", "Exception"), f"No module named {name!r}"))
        return External(name) if name.partition(".")[0] in _ALWAYS else _package(name, self._there)

    def _which(self, arguments: list[Value], _keywords: dict[str, Value]) -> Value:
        name = str(arguments[0]).rpartition("/")[2] if arguments else ""
        if self.generous or self.assumed.commands is None or name in self.assumed.commands:
            return _COMMAND + name
        self.missing[name] = f"the command {name} is not there"
        return None

    # -- walking --------------------------------------------------------------------------------------------------

    def wish(self, **values: Value) -> None:
        """What the user asks for in the kernel configuration."""
        self.wishes |= values

    def run(self, dotted: str, arguments: list[Value] | None = None, **keywords: Value) -> Outcome:
        outcome = self.evaluator.call_name(dotted, arguments, **keywords)
        self.place(outcome.events)
        return outcome

    def place(self, events: tuple[Event, ...]) -> None:
        """Needs get the line that imports them, where the walk came past one."""
        for event in events:
            need = self.needs.get(event.name)
            if event.kind == "import" and need is not None and event.how in ("lazy", "guarded"):
                how = event.how or need.how
                self.needs[event.name] = Need(need.symbol, event.where, how, event.on_failure or need.on_failure)

    def function(self, dotted: str) -> Function | None:
        """A function of vLLM by its dotted name, methods included."""
        found = self.evaluator.name(dotted)
        return found if isinstance(found, Function) else getattr(found, "function", None)

    @contextmanager
    def intercepted(self, name: str, answer: Callable[[list[Value], dict[str, Value]], Value]) -> Iterator[None]:
        """While it lasts, calls of `name` are answered by a function of ours."""
        kept = self.calls.get(name)
        self.calls[name] = answer
        try:
            yield
        finally:
            self.calls.pop(name, None)
            if kept is not None:
                self.calls[name] = kept


_walks: "WeakKeyDictionary[Sources, dict[Any, tuple[Walk, Assumed]]]" = WeakKeyDictionary()


def walking(sources: Sources, target: Target, assumed: Assumed) -> Walk:
    """The walk for a target under the same assumptions, as if nothing had been asked: modules are worked out once."""
    kept = _walks.setdefault(sources, {})
    same = "plain" if assumed == Assumed() else id(assumed)
    key = (target.compute_capability, target.model_type, target.layout, target.heads, same)
    if key not in kept:
        kept[key] = (Walk(sources, target, assumed), assumed)
    walk = kept[key][0]
    walk.fresh()
    return walk

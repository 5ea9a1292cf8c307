"""A group of ranks as SGLang makes it for a launch, and the communicator of it that sums one token's activations."""

import ast
import re

import msgspec

from sublight.audit.engines.sglang import communicators
from sublight.audit.engines.sglang.arguments import Launch, Settled
from sublight.audit.engines.sglang.communicators import GROUP, GROUPS, MAKER, Way
from sublight.audit.engines.sglang.layers import LayerWalk, Lost
from sublight.audit.source.events import Event
from sublight.audit.source.outline import definition
from sublight.audit.source.tree import Module
from sublight.audit.source.values import Class, External, Function, Instance, Namespace, Partial, Scope, Unknown, Value
from sublight.audit.target import Target

_SUM = re.compile(r"^(?!_?(?:should|can|is|has)_).*all_?reduce", re.IGNORECASE)  # what sums, and does not only ask
_COORDINATOR = f"{GROUPS}.{GROUP}"
_NCCL = "torch.distributed.all_reduce"
_ELEMENT_BYTES = 2  # activations are bf16
_HELD = "weakref.held"
_PEERS = "gpu_p2p_access_check"
_TAGGER = "_tag_groups_for_flashinfer_allreduce_only"
_OF_ALL_RANKS = ("_TP", "_ATTN_TP")
# MSCCL++ times its kernels when a server starts, and takes the fastest, or none.
_TIMED = ("_create_algorithm_configs", "_create_algorithms", "_get_allreduce_tuned_config")


def message_bytes(target: Target) -> int:
    """What one token's sum carries."""
    return (target.shape.hidden if target.shape else 4096) * _ELEMENT_BYTES


def _device() -> Instance:
    """The first card, as PyTorch names it."""
    name = "device"
    node = ast.ClassDef(name, [], [], [], [], lineno=1, col_offset=0)
    cls = Class(Namespace(Module("torch", "torch", b"")), node, name, [External(f"torch.{name}")])
    return Instance(cls, {"type": "cuda", "index": 0}, open_=True)


class Taker(msgspec.Struct, frozen=True):
    """A call that sums a message: which communicator's, dotted, and where."""

    runs: str
    event: Event

    @property
    def name(self) -> str:
        return "NCCL" if self.runs == _NCCL else self.runs.rpartition(".")[2]


class GroupWalk(LayerWalk):
    """From the settled options to the communicator that sums, for cards that are joined by NVLink or not.

    Attributes:
        joined: whether NVLink joins them.
        group: what was made.
        lost: why the way was lost, "" when it was not.
    """

    MADE = "the group of ranks is made"
    SUMMED = "a message is summed"

    def __init__(self, begun: Launch, settled: Settled, way: Way | None, joined: bool) -> None:
        super().__init__(begun.walk, begun.target, settled.values)
        self.way = way
        self.joined = joined
        self.group: Value = None
        self.lost = self.follow().reason

    def _steps(self) -> None:
        self._machine()
        self.walk.environment.update(dict(self.way.variables) if self.way else {})
        self._hand_over()
        ranks = list(range(self.target.layout.tp))
        asked = {"group_ranks": [ranks], "local_rank": 0, "backend": "nccl", "group_name": "tp"}
        self.group = self._step(self.MADE, self.walk.call_name(f"{GROUPS}.{MAKER}", [], **asked))
        if not isinstance(self.group, Instance):
            raise Lost("the group of ranks is not an object that can be followed")
        self._tag(self.group)
        self._capture(self.group)
        self._step(self.SUMMED, self.walk.call_method(self.group, "all_reduce", [self._message(self.group)]))

    def _machine(self) -> None:
        """Ranks of one machine whose cards reach one another: whether they do is a question to the machine."""
        ranks = self.target.layout.tp
        calls = self.walk.facts.calls
        assert isinstance(calls, dict)
        calls |= {
            "torch.distributed.get_world_size": ranks,
            "torch.distributed.get_rank": 0,
            "torch.distributed.get_process_group_ranks": list(range(ranks)),
            "torch.compiler.is_compiling": False,
            "torch.device": _device(),
            "torch.cuda.is_current_stream_capturing": True,
            "torch.Tensor.numel": message_bytes(self.target) // _ELEMENT_BYTES,
            "torch.Tensor.element_size": _ELEMENT_BYTES,
            "torch.Tensor.is_contiguous": True,
            "torch.Tensor.dim": 2,
            "in_the_same_node_as": [True] * ranks,
            "is_full_nvlink": self.joined,
            _PEERS: True,
            "can_use_flashinfer_allreduce": Unknown("whether a workspace of FlashInfer's was made and fits"),
            "weakref.ref": lambda arguments, _keywords: Partial(External(_HELD), arguments, {}),
            _HELD: lambda arguments, _keywords: arguments[0],
            **dict.fromkeys(_TIMED, Unknown("what timing at the start finds")),
        }
        self.walk.kept.clear()  # what an earlier walk was told of the links

    def _hand_over(self) -> None:
        """Calls what a starting server calls, with the options as they were settled: a whole function where it can."""
        done: set[str] = set()
        known = {"server_args": Instance(None, dict(self.values), open_=True)}
        for setter in dict.fromkeys(communicators.setters(self.walk.sources).values()):
            found = communicators.started(self.walk.sources, setter)
            if found is None or found.inside in done:
                continue
            around = self.walk.name(found.inside) if found.inside else None
            space = self.walk.name(found.module.name)
            if isinstance(around, Function) and isinstance(around.node, ast.FunctionDef):
                spec = around.node.args
                names = {each.arg for each in (*spec.args, *spec.kwonlyargs)}
                done.add(found.inside)
                self.walk.run(around, [], {name: value for name, value in known.items() if name in names})
            elif isinstance(space, Namespace) and found.call.args:
                scope = Scope(space, space.scope)
                scope.names |= known | {"self": Instance(None, dict(known), open_=True)}
                self.walk.call_name(f"{GROUPS}.{setter}", [self.walk.value(found.call.args[0], scope)])

    def _tag(self, group: Instance) -> None:
        """Where ranks of several kinds are one group, it is told whose workspaces it may use."""
        space = self.walk.name(GROUPS)
        tag = self.walk.name(f"{GROUPS}.{_TAGGER}")
        if isinstance(space, Namespace) and isinstance(tag, Function):
            space.written |= dict.fromkeys(_OF_ALL_RANKS, group)
            self.walk.run(tag, [], {})

    def _capture(self, group: Instance) -> None:
        """A step of decoding is captured in a graph: communicators that the capture switches on are on.

        One that gave up early lacks what it works with: switching it on does not make it sum.
        """
        module = self.walk.sources.module(GROUPS)
        cls = definition(module, GROUP) if module is not None else None
        method = next((n for n in getattr(cls, "body", ()) if getattr(n, "name", "") == "graph_capture"), None)
        for node in ast.walk(method) if method is not None else ():
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "change_state":
                made = group.attributes.get(getattr(getattr(node.func, "value", None), "id", ""))
                if isinstance(made, Instance) and self._came_to_its_end(made):
                    made.attributes["disabled"] = False
        for made in group.attributes.values():
            if isinstance(made, Instance):
                made.attributes |= {  # what a library gives is something
                    name: Unknown(value.why, solid=True)
                    for name, value in made.attributes.items()
                    if isinstance(value, Unknown) and value.why.startswith("what ")
                }

    def _came_to_its_end(self, made: Instance) -> bool:
        """Whether the last statement of a communicator's constructor was reached."""
        maker = made.cls.names.get("__init__") if made.cls is not None else None
        if not isinstance(maker, Function) or isinstance(maker.node, ast.Lambda):
            return False
        last = maker.node.body[-1]
        return any(
            event.function == maker.dotted and last.lineno <= event.line <= (last.end_lineno or 0)
            for event in self.events(self.MADE)
        )

    def _message(self, group: Instance) -> Instance:
        """One token's activations on a rank."""
        methods = {name: External(f"torch.Tensor.{name}") for name in ("numel", "element_size", "is_contiguous", "dim")}
        shape = (1, message_bytes(self.target) // _ELEMENT_BYTES)
        known = {"is_cpu": False, "is_cuda": True, "ndim": 2, "shape": shape, "dtype": External("torch.bfloat16")}
        return Instance(None, methods | known | {"device": group.attributes.get("device")}, open_=True)

    # -- what came of it ------------------------------------------------------------------------------------------

    def events(self, stage: str) -> list[Event]:
        return [event for each in self.stages if each.name == stage for event in each.outcome.events]

    def asked_for_peers(self) -> bool:
        """Whether something was made because cards were taken to reach one another."""
        return any(e.kind == "call" and e.name.endswith(f".{_PEERS}") for e in self.events(self.MADE))

    def made(self, runs: str) -> Instance | None:
        """The communicator of a class."""
        held = self.group.attributes.values() if isinstance(self.group, Instance) else ()
        return next((v for v in held if isinstance(v, Instance) and v.cls is not None and v.cls.dotted == runs), None)

    def takers(self) -> list[Taker]:
        """Communicators that may sum the message, in order."""
        classes = {
            base.dotted: value.cls.dotted
            for value in (self.group.attributes.values() if isinstance(self.group, Instance) else ())
            if isinstance(value, Instance) and value.cls is not None
            for base in value.cls.line()
        }
        found = []
        for event in self.events(self.SUMMED):
            owner, _, bare = event.name.rpartition(".")
            if event.kind != "call" or not event.function.startswith(f"{_COORDINATOR}."):
                continue
            if event.name == _NCCL or (_SUM.search(bare) and owner not in (GROUPS, _COORDINATOR, "torch.distributed")):
                found.append(Taker(classes.get(owner, event.name), event))
        return found

"""vLLM's all-reduce backends: each a communicator that disables itself when it is made, and says why in the log.

Where to look: the CUDA communicator, which makes them under tests of variables. Whether cards are joined by NVLink is
what the catalogue says of the card: a card without NVLink is joined by none, one that is sold on boards with it by it.
For others every communicator is made for both, and where that decides, the answer is not known and says so.
"""

import ast
from collections.abc import Iterator

from sublight.audit.engines.base import Declaration, Gate, Route
from sublight.audit.engines.vllm.judge import by_card, gate
from sublight.audit.engines.vllm.walk import Assumed, Walk, walking
from sublight.audit.ladder import Answer, Proof
from sublight.audit.links import SAID, linked
from sublight.audit.source.evaluate import Outcome
from sublight.audit.source.events import Event
from sublight.audit.source.machine import Raising
from sublight.audit.source.operators import truth
from sublight.audit.source.outline import absolute
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import Class, External, Instance, Namespace, Value, options
from sublight.audit.target import Target

FOLDER = "vllm.distributed.device_communicators"
MODULE = f"{FOLDER}.cuda_communicator"
COMMUNICATOR = "CudaCommunicator"
_GROUPS = "torch.distributed"
CUSTOM_FLAG = "--disable-custom-all-reduce"


def declared(sources: Sources) -> tuple[Declaration, ...]:
    module = sources.module(MODULE)
    maker = _maker(module) if module else None
    if module is None or maker is None:
        return ()
    places = _classes(module, maker)
    switches = dict(_switches(maker))
    found: list[Declaration] = []
    for test, name, line in _made(maker):
        switched = any(used.startswith("use_") for used in _names(test))
        if switched and name in places and name not in {item.name for item in found}:
            variable = next((switches[used] for used in _names(test) if used in switches), "")
            flag = f"{variable}=1" if variable else f"on without {CUSTOM_FLAG}" if "custom" in ast.unparse(test) else ""
            proof = Proof("source", f"{module.shown}:{line}", module.line(line))
            found.append(Declaration("all-reduce", name, flag, bool(flag) or None, None, (proof,)))
    return tuple(found)


def _maker(module: Module) -> ast.FunctionDef | None:
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == COMMUNICATOR:
            return next((i for i in node.body if isinstance(i, ast.FunctionDef) and i.name == "__init__"), None)
    return None


def _classes(module: Module, maker: ast.FunctionDef) -> dict[str, str]:
    """Communicators by name, with the module each is imported from."""
    nodes = [*ast.walk(maker), *module.tree.body]
    return {
        alias.asname or alias.name: absolute(module, node)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and absolute(module, node).startswith(FOLDER)
        for alias in node.names
        if alias.name[:1].isupper()
    }


def _switches(maker: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Local names that a variable switches: `use_x = envs.VLLM_X and ...`."""
    for node in ast.walk(maker):
        if isinstance(node, ast.Assign):
            variables = [
                item.attr
                for item in ast.walk(node.value)
                if isinstance(item, ast.Attribute) and getattr(item.value, "id", "") == "envs"
            ]
            for target in node.targets:
                if isinstance(target, ast.Name) and variables:
                    yield target.id, variables[0]


def _made(maker: ast.FunctionDef) -> Iterator[tuple[ast.expr, str, int]]:
    """Communicators that are made under a test: the test, the class, the line."""
    for node in ast.walk(maker):
        if isinstance(node, ast.If):
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call):
                    name = ast.unparse(item.value.func)
                    if name.isidentifier():
                        yield node.test, name, item.lineno


def _names(test: ast.expr) -> list[str]:
    return [getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(test)]


def _never(walk: Walk, module: Module, maker: ast.FunctionDef, name: str) -> Proof | None:
    """The part of a communicator's switch that is never on here, whatever variables are set; None where none is."""
    space = walk.evaluator.name(module.name)
    switches = {used for test, made, _ in _made(maker) if made == name for used in _names(test)}
    inner = {node.id for node in ast.walk(maker) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(maker) if isinstance(space, Namespace) else ():
        if not isinstance(node, ast.Assign) or getattr(node.targets[0], "id", "") not in switches:
            continue
        for part in node.value.values if isinstance(node.value, ast.BoolOp) else ():
            used = {item.id for item in ast.walk(part) if isinstance(item, ast.Name)}
            if used & (inner | {"envs"}) or not isinstance(node.value.op, ast.And):  # type: ignore[attr-defined]
                continue
            try:
                value = walk.evaluator.value(part, space.scope)
            except Raising:
                continue
            if truth(value) is False:
                return Proof("source", f"{module.shown}:{part.lineno}", ast.unparse(part))
    return None


def _group() -> Value:
    """A group of ranks, of which nothing is known but what it is."""
    name = "ProcessGroup"
    node = ast.ClassDef(name, [], [], [], [], lineno=1, col_offset=0)
    cls = Class(Namespace(Module(_GROUPS, _GROUPS, b"")), node, name, [External(f"{_GROUPS}.{name}")])
    return Instance(cls, {}, open_=True)


class _Made:
    """One communicator, made for one target."""

    def __init__(self, walk: Walk, cls: Class, ranks: int, joined: bool) -> None:
        walk.calls |= {
            "torch.distributed.get_world_size": ranks,
            "torch.distributed.get_rank": 0,
            "in_the_same_node_as": [True] * ranks,
            "is_fully_connected": joined,
            "_can_p2p": True,  # taken to work: whether it does is a question to the machine
        }
        walk.evaluator.kept.clear()
        self.outcome: Outcome = walk.evaluator.run(cls, [_group()], {"device": 0})
        made = self.outcome.value
        self.works: bool | None = None
        if isinstance(made, Instance):
            told = options(made.attributes.get("disabled"))
            self.works = not told[0] if len(told) == 1 and isinstance(told[0], bool) else None

    @property
    def said(self) -> Event | None:
        """The last message of its constructor: why it disabled itself."""
        logs = self.outcome.of("log")
        return logs[-1] if logs else None


def route(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed) -> Route:
    module = sources.module(MODULE)
    maker = _maker(module) if module else None
    place = _classes(module, maker).get(declaration.name, "") if module and maker else ""
    walk = walking(sources, target, assumed)
    cls = walk.evaluator.name(f"{place}.{declaration.name}") if place else None
    if walk.problem or not isinstance(cls, Class):
        why = walk.problem or sources.unparsed_at(place or MODULE) or f"{declaration.name} is not in the sources"
        return Route(answer=Answer.NOT_KNOWN, why=why)
    ranks = target.layout.tp
    never = _never(walk, module, maker, declaration.name) if module and maker else None
    if never is not None:
        why = f"it is made only where {never.text} holds, which it does on no card of NVIDIA's"
        return Route(answer=Answer.FAIL, why=why, destination=cls.dotted, proofs=(*declaration.proofs, never),
                     hint="NCCL runs instead")  # fmt: skip
    link = linked(target.gpu)
    joined = _Made(walk, cls, ranks, link is not False)
    apart = joined if link is not None else _Made(walk, cls, ranks, False)
    gates = _cards(walk, cls, ranks, target)
    if joined.works and apart.works:
        return Route(
            answer=Answer.PASS,
            why=f"{declaration.name} for {ranks} cards{SAID[link]}, where peer access works",
            destination=cls.dotted,
            proofs=(*declaration.proofs, Proof("source", cls.where, f"class {cls.qualified}")),
            gates=gates,
        )
    answer = Answer.FAIL if joined.works is False and apart.works is False else Answer.NOT_KNOWN
    return Route(
        answer=answer,
        why=_why(declaration.name, joined, apart, ranks),
        destination=cls.dotted,
        proofs=(*declaration.proofs, *(_line(made.said) for made in (apart,) if made.said)),
        gates=gates,
        hint="NCCL runs instead" if answer is Answer.FAIL else "",
    )


def _why(name: str, joined: _Made, apart: _Made, ranks: int) -> str:
    message = str(apart.said.value) if apart.said else "it does not say why"
    if joined.works is not False and apart.works is False:
        return f"{name} for {ranks} cards: nothing is against it where NVLink joins them all; else: {message}"
    if joined.works is False and apart.works is False:
        return f"disabled: {message}"
    unsure = next((event for event in apart.outcome.events if event.conditions), None)
    return (
        f"depends on {unsure.conditions[0].text} ({unsure.conditions[0].where})" if unsure else "it could not be told"
    )


def _line(event: Event | None) -> Proof:
    return Proof("source", event.where if event else "", str(event.value)[:200] if event else "")


def _cards(walk: Walk, cls: Class, ranks: int, target: Target) -> tuple[Gate, ...]:
    """Which cards get it when nothing else stands against it; nothing when all do."""
    answers = by_card(walk, target.compute_capability, lambda: _Made(walk, cls, ranks, True).works)
    if all(answers.values()) or not any(answers.values()):
        return ()
    return (gate(answers, target.compute_capability, f"{cls.qualified} disables itself on other cards", cls.where),)


def auto(sources: Sources, target: Target, assumed: Assumed) -> Route:
    """Every message goes to the first communicator that takes its size; which that is shows when it runs."""
    found = []
    for item in declared(sources):
        answered = route(sources, item, target, assumed)
        if answered.answer is not Answer.FAIL:
            found.append(item.name if answered.answer is Answer.PASS else f"{item.name} ({answered.why})")
    if not found:
        return Route(answer=Answer.NOT_KNOWN, why="NCCL, as far as the source tells: no other communicator was found")
    return Route(answer=Answer.NOT_KNOWN, why=f"by the size of the message, of NCCL and {'; '.join(found)}")

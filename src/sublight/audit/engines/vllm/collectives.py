"""vLLM's all-reduce backends: each a communicator that disables itself when it is made, and says why in the log.

Where to look: the CUDA communicator, which makes them under tests of variables. Whether cards are joined by NVLink is
what the catalogue says of the card: a card without NVLink is joined by none, one that is sold on boards with it by it.
For others every communicator is made for both, and where that decides, the answer is not known and says so.
"""

import ast
from collections.abc import Iterator

import msgspec

from sublight.audit.engines.base import Declaration, Gate, Route
from sublight.audit.engines.vllm.declared import option
from sublight.audit.engines.vllm.judge import by_card, gate
from sublight.audit.engines.vllm.walk import Assumed, Walk, walking
from sublight.audit.ladder import Answer, Proof
from sublight.audit.links import SAID, linked
from sublight.audit.source.cards import Capability
from sublight.audit.source.evaluate import Outcome
from sublight.audit.source.events import Event
from sublight.audit.source.machine import Raising
from sublight.audit.source.operators import truth
from sublight.audit.source.outline import absolute
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import Class, External, Instance, Namespace, Value, options
from sublight.audit.target import Target
from sublight.units import counted

FOLDER = "vllm.distributed.device_communicators"
MODULE = f"{FOLDER}.cuda_communicator"
COMMUNICATOR = "CudaCommunicator"
_GROUPS = "torch.distributed"
CUSTOM_FLAG = "--disable-custom-all-reduce"
_INSTEAD = "NCCL runs instead"


def declared(sources: Sources) -> tuple[Declaration, ...]:
    module = sources.module(MODULE)
    maker = _maker(module) if module else None
    if module is None or maker is None:
        return ()
    places = _classes(module, maker)
    found: list[Declaration] = []
    for test, name, line in _made(maker):
        switched = any(used.startswith("use_") for used in _names(test))
        if switched and name in places and name not in {item.name for item in found}:
            variable, behind = _switch(maker, test)
            custom = any("custom" in used for used in behind) and option(sources, CUSTOM_FLAG) is not None
            flag = f"{variable}=1" if variable else f"on without {CUSTOM_FLAG}" if custom else ""
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


def _switch(maker: ast.FunctionDef, test: ast.expr) -> tuple[str, tuple[str, ...]]:
    """The variable that has to be set for a test ("" for none), and all names that have to be true, locals followed.

    What stands behind a `not` switches off and is no such name.
    """
    variable = ""
    waiting: list[ast.AST] = [test]
    names: dict[str, None] = {}
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            continue
        waiting += ast.iter_child_nodes(node)
        name = getattr(node, "id", getattr(node, "attr", ""))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "envs":
            variable = variable or name
        elif name and name not in names:
            names[name] = None
            waiting += [
                item.value
                for item in ast.walk(maker)
                if isinstance(item, ast.Assign) and any(getattr(to, "id", "") == name for to in item.targets)
            ]
    return variable, tuple(names)


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
    tests = [test for test, made, _ in _made(maker) if made == name]
    switches = {used for test in tests for used in _names(test)}
    assigned = [node for node in ast.walk(maker) if isinstance(node, ast.Assign)]
    values = [node.value for node in assigned if getattr(node.targets[0], "id", "") in switches]
    inner = {node.id for node in ast.walk(maker) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for value in (*values, *tests) if isinstance(space, Namespace) else ():
        for part in value.values if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) else ():
            used = {item.id for item in ast.walk(part) if isinstance(item, ast.Name)}
            if used & (inner | {"envs", "self"}):
                continue
            try:
                answer = walk.evaluator.value(part, space.scope)
            except Raising:
                continue
            if truth(answer) is False:
                return Proof("source", f"{module.shown}:{part.lineno}", ast.unparse(part))
    return None


def _group() -> Value:
    """A group of ranks, of which nothing is known but what it is."""
    name = "ProcessGroup"
    node = ast.ClassDef(name, [], [], [], [], lineno=1, col_offset=0)
    cls = Class(Namespace(Module(_GROUPS, _GROUPS, b"")), node, name, [External(f"{_GROUPS}.{name}")])
    return Instance(cls, {}, open_=True)


def _surround(walk: Walk, ranks: int, joined: bool) -> None:
    """From now on so many ranks of one machine ask, with NVLink between all of them or between none."""
    walk.calls |= {
        "torch.distributed.get_world_size": ranks,
        "torch.distributed.get_rank": 0,
        "in_the_same_node_as": [True] * ranks,
        "is_fully_connected": joined,
        "_can_p2p": True,  # taken to work: whether it does is a question to the machine
    }
    walk.evaluator.kept.clear()


class _Switch(msgspec.Struct, frozen=True):
    """Whether a communicator is made (None: not known), and the test it stands under."""

    on: bool | None
    test: Proof


def _switches(walk: Walk, module: Module, maker: ast.FunctionDef, ranks: int) -> dict[str, _Switch]:
    """Which communicators are made by a group of tensor-parallel ranks, as variables and switches now stand."""
    _surround(walk, ranks, joined=True)
    cls = walk.evaluator.name(f"{MODULE}.{COMMUNICATOR}")
    if not isinstance(cls, Class):
        return {}
    given: dict[str, Value] = {"device": 0, "device_group": _group(), "unique_name": "tp:0"}
    outcome = walk.evaluator.run(cls, [_group()], given)
    whole = not outcome.gave_up and outcome.refusal is None
    calls = [event for event in outcome.of("call") if event.function == f"{cls.dotted}.{maker.name}"]
    found: dict[str, _Switch] = {}
    for test, name, line in _made(maker):
        at = [event.certain for event in calls if event.line == line and event.name.endswith(f".{name}")]
        on = True if any(at) else None if at or not whole else False
        before = found.get(name)
        if before is None or (before.on is False and on is not False):
            found[name] = _Switch(on, Proof("source", module.at(test), ast.unparse(test)))
    return found


class _Made:
    """One communicator, made for one target."""

    def __init__(self, walk: Walk, cls: Class, ranks: int, joined: bool) -> None:
        _surround(walk, ranks, joined)
        self.outcome: Outcome = walk.evaluator.run(cls, [_group()], {"device": 0})
        made = self.outcome.value
        self.works: bool | None = None
        if isinstance(made, Instance):
            told = options(made.attributes.get("disabled"))
            self.works = not told[0] if len(told) == 1 and isinstance(told[0], bool) else None

    @property
    def said(self) -> Event | None:
        """The last message of its constructor: why it disabled itself. Where it says nothing, the test it ended at."""
        logs = self.outcome.of("log")
        tests = [event for event in self.outcome.of("branch") if event.certain and event.outcome is True]
        return next(iter((*logs[-1:], *tests[-1:])), None)

    @property
    def message(self) -> str:
        said = self.said
        if said is None:
            return "it does not say why"
        return str(said.value).rstrip(".") if said.kind == "log" else f"it says nothing, and ends at: if {said.text}"


def route(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed) -> Route:
    module = sources.module(MODULE)
    maker = _maker(module) if module else None
    place = _classes(module, maker).get(declaration.name, "") if module and maker else ""
    tests = [test for test, made, _ in _made(maker) if made == declaration.name] if maker else []
    variable = _switch(maker, tests[0])[0] if maker and tests else ""
    walk = walking(sources, target, assumed.with_variable(variable, "1") if variable else assumed)
    cls = walk.evaluator.name(f"{place}.{declaration.name}") if place else None
    if walk.problem or not isinstance(cls, Class):
        why = walk.problem or sources.unparsed_at(place or MODULE) or f"{declaration.name} is not in the sources"
        return Route(answer=Answer.NOT_KNOWN, why=why)
    ranks = target.layout.tp
    never = _never(walk, module, maker, declaration.name) if module and maker else None
    if never is not None:
        why = f"it is made only where {never.text} holds, which it does on no card of NVIDIA's"
        return Route(answer=Answer.FAIL, why=why, destination=cls.dotted, proofs=(*declaration.proofs, never),
                     gates=(Gate(Answer.FAIL, f"made only where {never.text}", never),), hint=_INSTEAD)  # fmt: skip
    switch = _switches(walk, module, maker, ranks).get(declaration.name) if module and maker else None
    if switch is not None and switch.on is False:
        why = f"it is made only where {switch.test.text} holds, which it does not for {counted(ranks, 'rank')} here"
        return Route(answer=Answer.FAIL, why=why, destination=cls.dotted, proofs=(*declaration.proofs, switch.test),
                     hint=_INSTEAD if ranks > 1 else "")  # fmt: skip
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
        why=_why(declaration.name, joined, apart, ranks) + _by_card(gates, ranks),
        destination=cls.dotted,
        proofs=(*declaration.proofs, *(_line(made.said) for made in (apart,) if made.said)),
        gates=gates,
        hint=_INSTEAD if answer is Answer.FAIL else "",
    )


def _why(name: str, joined: _Made, apart: _Made, ranks: int) -> str:
    message = apart.message
    if joined.works is not False and apart.works is False:
        return f"{name} for {ranks} cards: nothing is against it where NVLink joins them all; else: {message}"
    if joined.works is False and apart.works is False:
        return f"disabled: {message}"
    unsure = next((event for event in apart.outcome.events if event.conditions), None)
    return (
        f"depends on {unsure.conditions[0].text} ({unsure.conditions[0].where})" if unsure else "it could not be told"
    )


def _by_card(gates: tuple[Gate, ...], ranks: int) -> str:
    """That the card decides, where its own words blame something else: as many ranks get it on others."""
    refused = [gate.targets for gate in gates if gate.answer is Answer.FAIL and gate.targets]
    return f"; {ranks} ranks get it where the compute capability is {' or '.join(refused[0])}" if refused else ""


def _line(event: Event | None) -> Proof:
    said = "" if event is None else event.text if event.kind == "branch" else str(event.value)
    return Proof("source", event.where if event else "", said[:200])


def _cards(walk: Walk, cls: Class, ranks: int, target: Target) -> tuple[Gate, ...]:
    """Which cards get it when nothing else stands against it; nothing when all do."""
    answers = by_card(walk, target.compute_capability, lambda: _Made(walk, cls, ranks, True).works)
    if len({works is False for works in answers.values()}) == 1:
        return ()
    # What else it hangs on is no card's doing.
    by_cards: dict[Capability, bool | None] = {card: works is not False for card, works in answers.items()}
    return (gate(by_cards, target.compute_capability, f"{cls.qualified} disables itself on other cards", cls.where),)


def auto(sources: Sources, target: Target, assumed: Assumed) -> Route:
    """Every message goes to the first communicator that takes its size; which that is shows when it runs."""
    module = sources.module(MODULE)
    maker = _maker(module) if module else None
    ranks = target.layout.tp
    switches = {}
    if module is not None and maker is not None:
        walk = walking(sources, target, assumed)
        switches = {} if walk.problem else _switches(walk, module, maker, ranks)
    if switches and ranks == 1:
        return Route(answer=Answer.PASS, why="nothing: one rank alone has nothing to reduce")
    found, off = [], []
    for item in declared(sources):
        answered = route(sources, item, target, assumed)
        if answered.answer is Answer.FAIL:
            continue
        switch = switches.get(item.name)
        if switch is not None and switch.on is False:
            off.append(f"{item.name} is off without {item.flag} ({switch.test.where})")
        else:
            found.append(item.name if answered.answer is Answer.PASS else f"{item.name} ({answered.why})")
    beside = f"; {'; '.join(off)}" if off else ""
    if not found:
        others = (
            "every other communicator is off, or disables itself" if switches else "no other communicator was found"
        )
        return Route(answer=Answer.NOT_KNOWN, why=f"NCCL, as far as the source tells: {others}{beside}")
    return Route(answer=Answer.NOT_KNOWN, why=f"by the size of the message, of NCCL and {'; '.join(found)}{beside}")

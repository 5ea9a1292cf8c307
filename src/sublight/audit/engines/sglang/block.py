"""The model's own block around its experts, for all-to-alls with which the block calls a kernel past the layer.

Where it is: in the module of the model's class, or of a class it derives from; it is the class whose methods name the
all-to-all's functions. Its constructor is not run, because that builds the whole layer anew: of what it sets, only
attributes that follow from the engine's settings alone are taken, everything else about the block stays unknown.
"""

import ast
import re
from collections.abc import Iterator

from sublight.audit.source.evaluate import Evaluator
from sublight.audit.source.machine import Raising
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import MISSING, Class, Function, Instance, Namespace, Value

MODELS = "sglang.srt.models"
_FROM_MODELS = re.compile(rf"^from {re.escape(MODELS)}\.(\w+) import", re.MULTILINE)


def block(walk: Evaluator, architecture: str, word: str, experts: Value) -> Instance | None:
    """The block of an architecture whose code has the word in it, around these experts.

    None when its models are not there, or none of its classes names the word: then the layer is called as ever.
    """
    for module in modules(walk, architecture):
        space = walk.name(module.name) if word in module.text else MISSING
        for name in _classes(module, word) if isinstance(space, Namespace) else ():
            cls = walk.name(f"{module.name}.{name}")
            if isinstance(cls, Class) and isinstance(cls.names.get("forward"), Function):
                known = dict(_of_the_settings(walk, cls))
                return Instance(cls, {**known, "experts": experts}, open_=True)
    return None


def model_module(sources: Sources, architecture: str) -> Module | None:
    """The module that defines an architecture's class."""
    defines = re.compile(rf"^class {re.escape(architecture)}\b", re.MULTILINE)
    for name in sources.submodules(MODELS):
        module = sources.module(name)
        if module is not None and architecture in module.text and defines.search(module.text):
            return module
    return None


def modules(walk: Evaluator, architecture: str) -> Iterator[Module]:
    """The module of the model's class, and those of the models that it takes classes from, the nearest first."""
    own = model_module(walk.sources, architecture) if architecture else None
    todo = [own] if own is not None else []
    seen = {module.name for module in todo}
    for module in todo:
        yield module
        for name in _FROM_MODELS.findall(module.text):
            other = walk.sources.module(f"{MODELS}.{name}")
            if other is not None and other.name not in seen:
                seen.add(other.name)
                todo.append(other)


def _classes(module: Module, word: str) -> Iterator[str]:
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            lines = module.lines[node.lineno - 1 : node.end_lineno]
            if any(word in line for line in lines):
                yield node.name


def _of_the_settings(walk: Evaluator, cls: Class) -> Iterator[tuple[str, Value]]:
    """Attributes that the constructor sets to what follows from names of the module alone."""
    maker = cls.names.get("__init__")
    if not isinstance(maker, Function) or isinstance(maker.node, ast.Lambda):
        return
    inner = {each.arg for each in (*maker.node.args.args, *maker.node.args.kwonlyargs)}
    inner |= {n.id for n in ast.walk(maker.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in maker.node.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Attribute):
            continue
        used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        if not used & inner and getattr(target.value, "id", "") == "self":
            try:
                yield target.attr, walk.value(node.value, cls.module.scope)
            except Raising:
                continue

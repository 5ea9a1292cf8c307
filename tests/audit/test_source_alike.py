"""Walks that only a name tells apart: what is put in place of a walk is what the walk would have come to."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.audit.source.alike import Alike
from sublight.audit.source.evaluate import Evaluator, Outcome
from sublight.audit.source.facts import Facts
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import (
    Bound,
    Choice,
    Class,
    External,
    Failure,
    Function,
    Instance,
    Member,
    Template,
    Unknown,
)
from tests.audit.reading import written

NAMES = ("auto", "triton", "trtllm", "flashinfer_trtllm", "fa3", "wave", "aiter", "old")
# Steps over the arguments, as engines have them. `cfg` is the server's arguments, `name` the option's value so far.
STEPS = (
    'if cfg.name == "auto":\n    cfg.name = "triton"',
    'if cfg.name in ("triton", "fa3"):\n    cfg.page = 64',
    'if cfg.name not in {"triton", "wave"}:\n    logger.warning("not %s", cfg.page)',
    'if cfg.name.startswith("flashinfer"):\n    from flashinfer.fused_moe import trtllm\n    trtllm(backend=cfg.name)',
    'cfg.name = {"old": "wave"}.get(cfg.name, cfg.name)',
    'if cfg.name == "aiter":\n    raise ValueError(f"{cfg.name} needs another card")',
    "cfg.said.append((cfg.page, {'name': cfg.name}))",
    "cfg.said.append({'name': cfg.name, 'page': cfg.page})",
    "cfg.raw = {'name': cfg.name, 'page': cfg.page}",
    "cfg.kept = lambda: cfg.name",
    "global CHOSEN\nCHOSEN = cfg.name",
    "logger.info(f'uses {cfg.name}')",
    "if unknown():\n    cfg.name = 'fa3'",
    "if unknown():\n    cfg.page = len(cfg.name)",
    "cfg.pair = (cfg.name, 1)",
    "cfg.which = Kind(cfg.name) if cfg.name in ('triton', 'wave') else None",
    "for each in cfg.said:\n    if 'name' in each and each['name'] == 'trtllm':\n        cfg.page = 1",
    "try:\n    check(cfg.name)\nexcept ValueError:\n    cfg.name = 'auto'",
    "setattr(cfg, 'is_' + cfg.name, True)",
    "cfg.has = hasattr(cfg, cfg.name)",
    "cfg.pages[cfg.page] = cfg.name",
    "if table.get(cfg.name):\n    cfg.page = table[cfg.name]",
    "import os\nos.environ['CHOSEN'] = cfg.name",
    "cached(cfg.name)",
    "hook(pick, cfg)",
    "try:\n    if cfg.page:\n        pick(cfg)\n    else:\n        cfg.page = 5\nexcept ValueError:\n    pass",
    "with cfg.lock:\n    pick(cfg)",
    "for _ in (1, 2):\n    pick(cfg)",
    "if cfg.page > 3:\n    return",
)
HEAD = """\
import enum
import logging
from dataclasses import dataclass
from functools import lru_cache
from outside import unknown
logger = logging.getLogger()
CHOSEN = None
table = {"fa3": 128, "wave": 0}

class Kind(enum.Enum):
    TRITON = "triton"
    WAVE = "wave"

def check(name):
    if name == "trtllm":
        raise ValueError("no")

@lru_cache
def cached(name):
    logger.info("once")
    return name

def hook(step, cfg):
    logger.info("hook")
    step(cfg)
    cfg.said.append({"page": cfg.page})

def pick(cfg):
    before = cfg.page
    try:
        if before:
            check(cfg.name)
            cfg.page = 7
            if cfg.name == "wave":
                cfg.page = 8
        cfg.raw = [cfg.name, before]
    except ValueError as error:
        logger.warning("%s", error)
        cfg.page = 9

@dataclass
class Args:
    name: str = "auto"
    page: int = 1

    def __post_init__(self):
        self.said = []
        self.pages = {}

def settle(cfg):
"""
TAIL = """
def after(cfg):
    if cfg.name == CHOSEN:
        logger.info("global")
    cfg.page = CHOSEN
    return (cfg.name, CHOSEN, cfg.said, cfg.pages, getattr(cfg, "raw", None), cfg.kept() if hasattr(cfg, "kept") else 0)
"""


def program(steps: Iterable[str]) -> str:
    lines = ["global CHOSEN", *(line for step in steps for line in step.removeprefix("global CHOSEN\n").split("\n"))]
    return HEAD + "".join(f"    {line}\n" for line in lines) + TAIL


def told(value: Any, depth: int = 0) -> Any:
    """A value as something that can be compared with one of another evaluator."""
    if depth > 6:
        return "..."
    if isinstance(value, Instance):
        attributes = {name: told(each, depth + 1) for name, each in value.attributes.items()}
        return ("object", value.cls.qualified if value.cls else "", value.open, attributes)
    if isinstance(value, Choice):
        return ("choice", [told(option, depth + 1) for option in value.options])
    if isinstance(value, dict):
        return {told(key, depth + 1): told(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(told(each, depth + 1) for each in value)
    if isinstance(value, Failure):
        return ("failure", value.kinds, value.message)
    if isinstance(value, Template):
        return ("template", value.text)
    if isinstance(value, Unknown):
        return ("unknown", value.why, value.solid)
    if isinstance(value, (Function, Class, External, Member)):
        return repr(value)
    return "bound" if isinstance(value, Bound) else value if isinstance(value, (str, int, type(None))) else repr(value)


def events(outcome: Outcome) -> list[Any]:
    return [
        (e.kind, e.where, e.name, e.outcome, e.function, e.depth, e.how, e.on_failure, told(e.value), e.text,
         [(c.where, c.text) for c in e.conditions])
        for e in outcome.events
    ]  # fmt: skip


def ends(walk: Evaluator, outcomes: tuple[Outcome, ...]) -> Any:
    """All that can be seen of a walk, and of one that goes on from where it stands."""
    found = [(told(o.value), told(o.refusal), o.gave_up, events(o)) for o in outcomes]
    on = walk.call_name("engine.part.after", [outcomes[0].value])
    return found, walk.steps, told(on.value), events(on), told(walk.environment), told(walk.name("engine.part.CHOSEN"))


class Walks:
    """The same program, walked plainly for each name or through `Alike`."""

    def __init__(self, sources: Sources) -> None:
        self.walk = Evaluator(sources, Facts(follow=("engine",)))
        self.walk.name("engine.part.Args")
        self.start = self.walk.checkpoint()
        self.alike = Alike(self.walk, self.start, worth=0)
        self.walked: list[str] = []
        self.steps = 0

    def make(self, name: str, _done: tuple[Outcome, ...]) -> Outcome:
        self.walked.append(str.__str__(name))
        return self.walk.call_name("engine.part.Args", name=name)

    def settle(self, _name: str, done: tuple[Outcome, ...]) -> Outcome:
        return self.walk.call_name("engine.part.settle", [done[0].value])

    def plain(self, name: str) -> Any:
        self.walk.back(self.start)
        made = self.make(name, ())
        return ends(self.walk, (made, self.settle(name, (made,))))

    def shared(self, name: str, rest: str = "") -> Any:
        return ends(self.walk, self.alike.outcomes(name, rest, (self.make, self.settle)))


def both(steps: Iterable[str], names: Iterable[str]) -> list[str]:
    """Compares the two for every name, in this order, and tells which were really walked."""
    names = list(names)
    with tempfile.TemporaryDirectory() as folder:
        text = program(steps)
        plain = [Walks(written(Path(folder), {"engine/part.py": text})).plain(name) for name in names]
        shared = Walks(written(Path(folder), {"engine/part.py": text}))
        for name, expected in zip(names, plain, strict=True):
            assert shared.shared(name) == expected
    return shared.walked


@pytest.mark.parametrize("step", STEPS)
def test_each_shape_of_a_step_comes_to_the_same(step: str) -> None:
    both([step, *STEPS[6:8]], [*NAMES, *NAMES])


@given(st.lists(st.sampled_from(STEPS), max_size=8), st.lists(st.sampled_from(NAMES), min_size=1, max_size=10))
@settings(max_examples=60, deadline=None)
def test_any_steps_for_any_names_come_to_the_same(steps: list[str], names: list[str]) -> None:
    both(steps, names)


def test_names_that_nothing_tells_apart_are_walked_once() -> None:
    steps = ['if cfg.name == "auto":\n    cfg.page = 2', 'if cfg.name in {"fa3", "wave"}:\n    cfg.page = 3']
    assert both(steps, [*NAMES, *NAMES]) == ["auto", "triton"]  # the third kind goes on with the second


def test_a_name_in_a_tuple_is_walked_each_time() -> None:
    assert both(["cfg.pair = (cfg.name, 1)"], ["triton", "fa3", "triton"]) == ["triton", "fa3", "triton"]


def test_a_walk_goes_on_where_it_parts_from_another() -> None:
    steps = [*["hook(pick, cfg)"] * 20, 'if cfg.name == "fa3":\n    cfg.page = 1', "cfg.said.append(cfg.page)"]
    assert both(steps, ["triton", "trtllm", "fa3", "wave", "trtllm"]) == ["triton", "trtllm"]


def test_what_hangs_on_more_than_the_name_is_kept_apart() -> None:
    with tempfile.TemporaryDirectory() as folder:
        walks = Walks(written(Path(folder), {"engine/part.py": program([])}))
        for rest in ("none", "deepep", "none"):
            walks.shared("triton", rest)
    assert walks.walked == ["triton", "triton"]

"""A file that this Python cannot parse is the reason of every rung that it decides; nothing is made up of it."""

import textwrap
from pathlib import Path

import pytest

from sublight.audit.engines.sglang import SGLANG
from sublight.audit.ladder import Answer, Rung
from sublight.audit.reading import DiskReader, WatchedSources
from sublight.audit.routes import read
from sublight.audit.run import declared
from tests.audit.reading import target, written
from tests.audit.test_sglang_small import FILES
from tests.audit.test_vllm_small import ENGINE

_LATER = "later ->> now\n"  # of a Python to come


def answers(folder: Path, files: dict[str, str], path: str, area: str = "moe"):
    """Answers of an engine of which one file has a line that this Python has no syntax for."""
    from sublight.audit.engines.vllm import VLLM

    roots = written(folder, {**files, path: textwrap.dedent(files.get(path, "")) + _LATER}).roots
    engine = SGLANG if path.startswith("sglang") else VLLM
    return read(engine, WatchedSources(DiskReader(), roots), target((12, 0)), (area,))


def said(path: str) -> str:
    return f"{path} cannot be parsed by this Python: invalid syntax"


@pytest.mark.parametrize(
    "path",
    [
        "sglang/srt/server_args.py",
        "sglang/srt/layers/moe/utils.py",
        "sglang/srt/layers/quantization/four.py",
        "sglang/srt/layers/moe/fused_moe_triton/layer.py",
    ],
)
def test_each_way_that_goes_through_it_is_not_known_because_of_it(tmp_path: Path, path: str) -> None:
    found = answers(tmp_path, FILES, path)
    # One name is refused before the way gets there.
    routes = [each.route for each in found.backends if each.declaration.name != "picky"] + [found.autos["moe"]]
    assert len(routes) > 6
    assert {route.answer for route in routes} == {Answer.NOT_KNOWN}
    assert all(said(path) in route.why for route in routes)
    assert found.unparsed[0].startswith(said(path))


def test_names_whose_option_could_not_be_read_are_not_said_to_be_accepted(tmp_path: Path) -> None:
    path = "sglang/srt/server_args.py"
    steps = [declared(answered.declaration) for answered in answers(tmp_path, FILES, path).backends]
    assert {(step.rung, step.answer) for step in steps} == {(Rung.DECLARED, Answer.NOT_KNOWN)}
    assert all(step.why.startswith(f"what the command line takes is not known: {said(path)}") for step in steps)


def test_a_registry_that_could_not_be_read_lacks_nothing(tmp_path: Path) -> None:
    arguments = FILES["sglang/srt/server_args.py"].replace("moe-runner", "attention").replace("MOE_RUNNER", "ATTENTION")
    path = "sglang/srt/layers/attention/attention_registry.py"
    found = answers(tmp_path, {**FILES, "sglang/srt/server_args.py": arguments}, path, "attention").backends
    assert found
    for answered in found:
        step = declared(answered.declaration)
        assert (step.answer, step.why) == (Answer.PASS, f"{answered.declaration.flag} is accepted")


@pytest.mark.parametrize("path", ["vllm/platforms/cuda.py", "vllm/model_executor/layers/fused_moe/oracle/nvfp4.py"])
def test_vllms_ways_too(tmp_path: Path, path: str) -> None:
    routes = [each.route for each in answers(tmp_path, ENGINE, path).backends if each.declaration.selectable]
    assert {route.answer for route in routes} == {Answer.NOT_KNOWN}
    assert all(said(path) in route.why for route in routes)


def test_an_area_whose_names_stand_in_it_is_not_read_because_of_it(tmp_path: Path) -> None:
    path = "vllm/config/kernel.py"
    assert said(path) in answers(tmp_path, ENGINE, path).not_read["moe"]

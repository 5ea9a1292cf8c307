"""A small engine whose communicators are laid out as vLLM's are: which are made, by whom, and what then reduces."""

from pathlib import Path

import pytest

from sublight.audit.engines.vllm import VLLM
from sublight.audit.engines.vllm.walk import Assumed
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target
from sublight.facts.workload import Layout
from tests.audit.reading import target, written
from tests.audit.test_vllm_small import ENGINE

FOLDER = "vllm/distributed/device_communicators"
MAKER = f"{FOLDER}/cuda_communicator.py"
OPT_IN = "VLLM_USE_OPT_IN"

COLLECTIVES = {
    "vllm/engine/arg_utils.py": 'parser.add_argument("--disable-custom-all-reduce")\n',
    "vllm/envs.py": """
        import os
        environment_variables = {
            "VLLM_USE_LISTED": lambda: bool(int(os.getenv("VLLM_USE_LISTED", "1"))),
            "VLLM_USE_OPT_IN": lambda: bool(int(os.getenv("VLLM_USE_OPT_IN", "0"))),
            "VLLM_SAME_ORDER": lambda: bool(int(os.getenv("VLLM_SAME_ORDER", "0"))),
        }
        def __getattr__(name):
            if name in environment_variables:
                return environment_variables[name]()
            raise AttributeError(name)
        """,
    "vllm/platforms/cuda.py": ENGINE["vllm/platforms/cuda.py"]
    + """
            @classmethod
            def is_other(cls):
                return False
        """,
    "vllm/distributed/state.py": "_ENABLE_CUSTOM_ALL_REDUCE = True\n",
    f"{FOLDER}/made.py": """
        import logging
        import torch.distributed as dist
        from vllm.platforms import current_platform
        logger = logging.getLogger(__name__)
        SIZES = {9: {2: 1, 8: 2}, 10: {8: 4}}
        class Listed:
            def __init__(self, group, device):
                self.disabled = True
                size = SIZES.get(current_platform.get_device_capability().major, {}).get(dist.get_world_size(group))
                if size is None:
                    logger.warning("not supported for world_size=%d.", dist.get_world_size(group))
                    return
                self.disabled = False
        class OptIn:
            def __init__(self, group, device):
                self.disabled = False
        class Custom:
            def __init__(self, group, device):
                self.disabled = True
                if dist.get_world_size(group) == 6:
                    return
                self.disabled = False
        class Other:
            def __init__(self, group, device):
                self.disabled = False
        """,
    MAKER: """
        import torch.distributed as dist
        from vllm import envs
        from vllm.platforms import current_platform
        class CudaCommunicator:
            def __init__(self, cpu_group, device=None, device_group=None, unique_name=""):
                self.world_size = dist.get_world_size(cpu_group)
                if unique_name.split(":")[0] != "tp":
                    use_custom = False
                    use_listed = False
                    use_opt_in = False
                else:
                    from vllm.distributed.state import _ENABLE_CUSTOM_ALL_REDUCE
                    use_custom = _ENABLE_CUSTOM_ALL_REDUCE
                    use_listed = envs.VLLM_USE_LISTED
                    use_opt_in = not envs.VLLM_SAME_ORDER and envs.VLLM_USE_OPT_IN
                from vllm.distributed.device_communicators.made import Custom, Listed, OptIn, Other
                if use_listed and self.world_size > 1:
                    self.listed = Listed(cpu_group, device)
                if use_opt_in and self.world_size > 1 and device_group is not None:
                    self.opt_in = OptIn(cpu_group, device)
                if use_custom and self.world_size > 1:
                    self.custom = Custom(cpu_group, device)
                if use_custom and current_platform.is_other() and not envs.VLLM_SAME_ORDER:
                    self.other = Other(cpu_group, device)
        """,
}


@pytest.fixture
def engine(tmp_path: Path) -> Sources:
    return written(tmp_path, {**ENGINE, **COLLECTIVES})


def ranks(count: int, capability: tuple[int, int] = (12, 0)) -> Target:
    return target(capability, layout=Layout(tp=count), gpus=count, gpu="rtx-pro-6000-server")


def asked(engine: Sources, name: str, judged: Target, assumed: Assumed | None = None) -> tuple[Answer, str]:
    (item,) = (item for item in VLLM.declared(engine, "all-reduce") if item.name == name)
    route = VLLM.route(engine, item, judged, assumed)
    return route.answer, route.why


def test_what_switches_off_is_no_flag_to_switch_on(engine: Sources) -> None:
    """A variable behind a `not`, alone or first, turns a communicator off."""
    flags = {item.name: item.flag for item in VLLM.declared(engine, "all-reduce")}
    assert flags == {
        "Listed": "VLLM_USE_LISTED=1",
        "OptIn": f"{OPT_IN}=1",
        "Custom": "on without --disable-custom-all-reduce",
        "Other": "on without --disable-custom-all-reduce",
    }


def test_an_option_that_the_version_has_not_is_no_flag(tmp_path: Path) -> None:
    engine = written(tmp_path, {**ENGINE, **COLLECTIVES, "vllm/engine/arg_utils.py": ""})
    flags = {item.name: (item.flag, item.selectable) for item in VLLM.declared(engine, "all-reduce")}
    assert (flags["Custom"], flags["OptIn"]) == (("", None), (f"{OPT_IN}=1", True))


def test_asked_for_nothing_what_is_off_by_default_does_not_run(engine: Sources) -> None:
    auto = VLLM.auto(engine, "all-reduce", ranks(8))
    assert auto.answer is Answer.NOT_KNOWN
    assert auto.why == f"by the size of the message, of NCCL and Custom; OptIn is off without {OPT_IN}=1 ({MAKER}:20)"
    assert asked(engine, "OptIn", ranks(8))[0] is Answer.PASS
    told = VLLM.auto(engine, "all-reduce", ranks(8), Assumed(environment={OPT_IN: "1"}))
    assert told.why == "by the size of the message, of NCCL and OptIn; Custom"
    none = VLLM.auto(engine, "all-reduce", ranks(6))
    assert none.why == (
        "NCCL, as far as the source tells: every other communicator is off, or disables itself; "
        f"OptIn is off without {OPT_IN}=1 ({MAKER}:20)"
    )


def test_a_default_follows_the_source(tmp_path: Path) -> None:
    turned = COLLECTIVES["vllm/envs.py"].replace('"VLLM_USE_OPT_IN", "0"', '"VLLM_USE_OPT_IN", "1"')
    engine = written(tmp_path, {**ENGINE, **COLLECTIVES, "vllm/envs.py": turned})
    assert VLLM.auto(engine, "all-reduce", ranks(8)).why == "by the size of the message, of NCCL and OptIn; Custom"


def test_a_variable_that_is_set_switches_off_what_is_asked_for(engine: Sources) -> None:
    answer, why = asked(engine, "OptIn", ranks(8), Assumed(environment={"VLLM_SAME_ORDER": "1"}))
    assert answer is Answer.FAIL
    assert why == (
        "it is made only where use_opt_in and self.world_size > 1 and (device_group is not None) holds, "
        "which it does not for 8 ranks here"
    )


def test_one_rank_reduces_nothing(engine: Sources) -> None:
    auto = VLLM.auto(engine, "all-reduce", ranks(1))
    assert (auto.answer, auto.why) == (Answer.PASS, "nothing: one rank alone has nothing to reduce")
    answer, why = asked(engine, "Custom", ranks(1))
    assert answer is Answer.FAIL
    assert why == "it is made only where use_custom and self.world_size > 1 holds, which it does not for 1 rank here"


def test_the_card_is_named_where_the_words_blame_the_ranks(engine: Sources) -> None:
    assert asked(engine, "Listed", ranks(8)) == (
        Answer.FAIL,
        "disabled: not supported for world_size=8; 8 ranks get it where the compute capability is "
        "9.0 or 10.0 or 10.3 or 10.7",
    )
    assert asked(engine, "Listed", ranks(4)) == (Answer.FAIL, "disabled: not supported for world_size=4")
    (item, *_) = VLLM.declared(engine, "all-reduce")
    (gate,) = VLLM.route(engine, item, ranks(8)).gates
    assert (gate.answer, gate.targets) == (Answer.FAIL, ("9.0", "10.0", "10.3", "10.7"))


def test_a_communicator_that_says_nothing_is_quoted_by_its_test(engine: Sources) -> None:
    assert asked(engine, "Custom", ranks(6)) == (
        Answer.FAIL,
        "disabled: it says nothing, and ends at: if dist.get_world_size(group) == 6",
    )


def test_one_for_other_cards_is_refused_by_its_test(engine: Sources) -> None:
    item = next(item for item in VLLM.declared(engine, "all-reduce") if item.name == "Other")
    route = VLLM.route(engine, item, ranks(8))
    assert route.why == (
        "it is made only where current_platform.is_other() holds, which it does on no card of NVIDIA's"
    )
    assert [gate.answer for gate in route.gates] == [Answer.FAIL]

"""SGLang's all-reduces on an engine of some lines in the same shape: every way a communicator can end."""

from pathlib import Path

import pytest

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.sglang import SGLANG
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from sublight.facts.workload import Layout
from tests.audit.reading import edited, target, without, written

HERE = "sglang/srt/distributed/device_communicators"
FILES = {
    "sglang/srt/server_args.py": """
        import dataclasses
        import logging

        logger = logging.getLogger(__name__)

        @dataclasses.dataclass
        class ServerArgs:
            model_path: str
            quantization: str = None
            tp_size: int = 1
            disable_swift: bool = False
            enable_rare: bool = False
            enable_pooled: bool = False
            enable_flashinfer_allreduce_fusion: bool = False

            def __post_init__(self):
                self._handle_swift()

            def _handle_swift(self):
                if self.disable_swift and self.enable_rare:
                    raise ValueError("rare needs swift. Remove --disable-swift.")

        def get_global_server_args():
            return _ARGUMENTS
        """,
    "sglang/srt/environ.py": """
        import os

        class EnvBool:
            def __init__(self, default):
                self.default = default

            def __set_name__(self, owner, name):
                self.name = name

            def get(self):
                value = os.getenv(self.name)
                return self.default if value is None else value == "1"

        class Envs:
            SGLANG_SECOND = EnvBool(True)
            SGLANG_BY_WIRE = EnvBool(False)

        envs = Envs()
        """,
    "sglang/srt/distributed/bootstrap.py": """
        from sglang.srt.distributed.parallel_state import set_rare, set_swift
        from sglang.srt.server_args import ServerArgs

        def _set_flags(*, server_args: ServerArgs) -> None:
            set_swift(not server_args.disable_swift)
            set_rare(server_args.enable_rare)
        """,
    "sglang/srt/distributed/parallel_state.py": """
        import weakref

        import torch

        _groups = {}

        def _register(group):
            _groups[group.unique_name] = weakref.ref(group)

        def out_of_place(tensor, group_name, method):
            return _groups[group_name]()._all_reduce_out_place(tensor, method)

        class GroupCoordinator:
            def __init__(self, group_ranks, use_swift, use_rare, group_name):
                self.unique_name = group_name
                _register(self)
                self.rank = torch.distributed.get_rank()
                for ranks in group_ranks:
                    if self.rank in ranks:
                        self.world_size = len(ranks)
                self.use_rare = use_rare
                from sglang.srt.distributed.device_communicators.pooled import is_pooled
                from sglang.srt.distributed.device_communicators.rare import Rare
                from sglang.srt.distributed.device_communicators.steady import Steady
                from sglang.srt.distributed.device_communicators.swift import choose
                from sglang.srt.distributed.device_communicators.wire import Wire, wanted

                self.is_pooled = is_pooled
                self.steady_comm = None
                if self.world_size > 1:
                    self.steady_comm = Steady(self.world_size)
                self.wire_comm = None
                if wanted(self.world_size):
                    self.wire_comm = Wire(self.world_size)
                self.swift_comm = None
                if use_swift and self.world_size > 1:
                    chosen = choose(self.world_size)
                    self.swift_comm = chosen(self.world_size)
                self.rare_comm = None
                if self.use_rare and self.world_size > 1:
                    self.rare_comm = Rare(self.world_size)

            def graph_capture(self):
                steady_comm = self.steady_comm
                with steady_comm.change_state(enable=True):
                    yield

            def all_reduce(self, input_):
                if self.steady_comm is not None and self.is_pooled():
                    return self.steady_comm.all_reduce(input_)
                method = None
                if self.swift_comm is not None and not self.swift_comm.disabled and self.swift_comm.should_sum(input_):
                    method = "swift"
                elif self.wire_comm is not None and self.wire_comm.should_sum(input_):
                    method = "wire"
                elif self.rare_comm is not None and not self.rare_comm.disabled:
                    method = "rare"
                if method is not None:
                    return out_of_place(input_, group_name=self.unique_name, method=method)
                self._all_reduce_in_place(input_)
                return input_

            def _all_reduce_out_place(self, input_, method):
                if method == "swift":
                    return self.swift_comm.swift_all_reduce(input_)
                if method == "wire":
                    return self.wire_comm.wire_all_reduce(input_)
                return self.rare_comm.all_reduce(input_)

            def _all_reduce_in_place(self, input_):
                if not self.steady_comm.disabled:
                    self.steady_comm.all_reduce(input_)
                else:
                    torch.distributed.all_reduce(input_)

        def init_model_parallel_group(group_ranks, local_rank, backend, use_swift=None, use_rare=None, group_name=None):
            if use_swift is None:
                use_swift = _ENABLE_SWIFT
            if use_rare is None:
                use_rare = _ENABLE_RARE
            return GroupCoordinator(group_ranks, use_swift=use_swift, use_rare=use_rare, group_name=group_name)

        _ENABLE_SWIFT = True
        _ENABLE_RARE = False

        def set_swift(enable: bool):
            global _ENABLE_SWIFT
            _ENABLE_SWIFT = enable

        def set_rare(enable: bool):
            global _ENABLE_RARE
            _ENABLE_RARE = enable
        """,
    f"{HERE}/links.py": """
        import pynvml

        def is_full_nvlink(ids, world_size):
            return pynvml.ask(ids)

        def gpu_p2p_access_check(a, b):
            return pynvml.ask([a, b])
        """,
    f"{HERE}/steady.py": """
        class Steady:
            def __init__(self, ranks):
                self.disabled = True
                self.ranks = ranks
                self.disabled = True

            def all_reduce(self, input_):
                if self.disabled:
                    return None
                return input_
        """,
    f"{HERE}/pooled.py": """
        from sglang.srt.server_args import get_global_server_args

        def is_pooled():
            return get_global_server_args().enable_pooled
        """,
    f"{HERE}/swift.py": """
        import logging

        from sglang.srt.distributed.device_communicators.links import gpu_p2p_access_check, is_full_nvlink
        from sglang.srt.environ import envs

        logger = logging.getLogger(__name__)
        try:
            import sgl_kernel.allreduce as ops
        except ImportError:
            ops = None

        class Swift:
            _MOST = 8192

            def __init__(self, ranks, most=_MOST):
                self.disabled = True
                if ranks > 2 and not is_full_nvlink(list(range(ranks)), ranks):
                    logger.warning("Swift is off: more than two cards over PCIe")
                    return
                if not gpu_p2p_access_check(0, 1):
                    return
                self.most = most
                self.handle = ops.open_ring(ranks)
                self.disabled = False

            def should_sum(self, input_):
                return input_.numel() * input_.element_size() <= self.most * 8

            def swift_all_reduce(self, input_):
                return ops.ring(self.handle, input_)

        class Swifter(Swift):
            def __init__(self, ranks):
                super().__init__(ranks)

        def choose(ranks):
            if envs.SGLANG_SECOND.get():
                if ranks in (4, 8) and is_full_nvlink(list(range(ranks)), ranks):
                    return Swifter
            return Swift
        """,
    f"{HERE}/wire.py": """
        from sglang.srt.environ import envs

        def wanted(ranks):
            return envs.SGLANG_BY_WIRE.get() and ranks > 1

        class Wire:
            def __init__(self, ranks):
                from flashinfer.comm import WireSpace

                self.space = WireSpace(ranks)

            def should_sum(self, input_):
                return self.space.supports(input_)

            def wire_all_reduce(self, input_):
                return self.space.all_reduce(input_)
        """,
    f"{HERE}/rare.py": """
        import logging

        import torch

        logger = logging.getLogger(__name__)
        SIZES = {9: 64, 10: 64}

        class Rare:
            def __init__(self, ranks):
                self.disabled = True
                if ranks < 2:
                    return
                self.capability = torch.cuda.get_device_capability()[0]
                most = SIZES.get(self.capability)
                if most is None:
                    logger.warning("Rare: Device capability %s not supported", self.capability)
                    return
                self.disabled = False

            def all_reduce(self, input_):
                return torch.ops.symm_mem.sum_(input_)
        """,
    "sglang/srt/layers/communicator.py": """
        import torch
        from sglang.srt.server_args import get_global_server_args

        _is_sm90_supported = torch.cuda.get_device_capability()[0] == 9

        def apply_flashinfer_allreduce_fusion(batch_size: int):
            return (
                _is_sm90_supported
                and batch_size > 0
                and get_global_server_args().enable_flashinfer_allreduce_fusion
            )

        class LayerCommunicator:
            pass
        """,
    "sglang/srt/layers/flashinfer_comm_fusion.py": """
        _comm = None
        try:
            import flashinfer.comm as comm

            _comm = comm
        except ImportError:
            pass

        def flashinfer_allreduce_residual_rmsnorm(input_tensor, residual, weight):
            if _comm is None:
                return None, None
            return _comm.fused_sum(input_tensor)
        """,
    "sglang/srt/models/glm.py": """
        from sglang.srt.layers.communicator import LayerCommunicator

        class GlmMoeDsaForCausalLM:
            pass
        """,
}
PCIE = "rtx-pro-6000-server"  # the catalogue knows that it has no NVLink
NVLINK = "h200"
PAIRS = "h100-nvl"  # with NVLink between two of them


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return written(tmp_path, FILES)


def ask(sources: Sources, name: str, gpu: str = NVLINK, tp: int = 8, **more: object) -> Route:
    asked = target((12, 0) if gpu == PCIE else (9, 0), gpu=gpu, layout=Layout(tp=tp), gpus=tp, **more)
    if name == "auto":
        return SGLANG.auto(sources, "all-reduce", asked)
    found = next(each for each in SGLANG.declared(sources, "all-reduce") if each.name == name)
    return SGLANG.route(sources, found, asked)


def line(path: str, text: str) -> str:
    """Where a line of the small engine stands."""
    lines = FILES[path].splitlines()
    return f"{path}:{next(at for at, each in enumerate(lines, 1) if text in each)}"


def test_each_way_and_what_switches_it(sources: Sources) -> None:
    assert {each.name: each.flag for each in SGLANG.declared(sources, "all-reduce")} == {
        "Wire": "SGLANG_BY_WIRE=1",
        "Swifter": "on without --disable-swift",
        "Swift": "SGLANG_SECOND=0",
        "Rare": "--enable-rare",
        "Steady": "--disable-swift",
        "Steady pooled": "--enable-pooled",
        "flashinfer_fusion": "--enable-flashinfer-allreduce-fusion",
    }
    places = {each.name: each.proofs[0].where for each in SGLANG.declared(sources, "all-reduce")}
    assert places["Rare"] == line("sglang/srt/distributed/parallel_state.py", "self.rare_comm = Rare(")
    assert places["Swifter"] == line(f"{HERE}/swift.py", "return Swifter")


def test_what_a_launch_without_options_takes_follows_the_catalogues_link(sources: Sources) -> None:
    joined, apart, pairs = (ask(sources, "auto", gpu) for gpu in (NVLINK, PCIE, PAIRS))
    assert (joined.answer, joined.destination.rpartition(".")[2]) == (Answer.PASS, "Swifter")
    assert joined.why == (
        "Swifter sums a step of decoding: 12,288 B of each of 8 cards that NVLink joins, as it usually does this card, "
        "where peer access works"
    )
    assert (apart.answer, apart.destination.rpartition(".")[2]) == (Answer.PASS, "Steady")
    assert apart.why == "Steady sums a step of decoding: 12,288 B of each of 8 cards without NVLink"
    assert (pairs.answer, pairs.why) == (
        Answer.NOT_KNOWN,
        "Swifter where NVLink joins the cards, else Steady",
    )
    groups = "sglang/srt/distributed/parallel_state.py"
    assert [proof.where for proof in pairs.proofs] == [
        line(groups, "return self.swift_comm.swift_all_reduce("),
        line(groups, f"{'':20}self.steady_comm.all_reduce("),
    ]


def test_a_communicator_that_is_off_says_why_with_its_lines(sources: Sources) -> None:
    found = ask(sources, "Swift", PCIE)
    assert (found.answer, found.hint) == (Answer.FAIL, "Steady sums instead")
    assert found.why == "disabled: Swift is off: more than two cards over PCIe"
    assert [proof.where for proof in found.proofs[1:]] == [
        line(f"{HERE}/swift.py", "if ranks > 2"),
        line(f"{HERE}/swift.py", "logger.warning("),
    ]
    assert ask(sources, "Swift", PCIE, tp=2).answer is Answer.PASS


def test_the_verdict_follows_a_renamed_class_and_a_moved_branch(sources: Sources) -> None:
    renamed = edited(sources, {f"{HERE}/rare.py": ("class Rare:", "class Scarce:"),
                               "parallel_state.py": ("Rare", "Scarce")})  # fmt: skip
    assert ask(renamed, "Scarce", PCIE).why == "disabled: Rare: Device capability 12 not supported"
    lower = edited(sources, {f"{HERE}/swift.py": ("logger = logging", "\n\nlogger = logging")})
    file, _, number = line(f"{HERE}/swift.py", "logger.warning(").rpartition(":")
    assert ask(lower, "Swift", PCIE).proofs[-1].where == f"{file}:{int(number) + 2}"
    kinder = edited(sources, {f"{HERE}/swift.py": ("if ranks > 2 and", "if ranks > 8 and")})
    assert ask(kinder, "Swift", PCIE).answer is Answer.PASS


def test_what_links_decide_is_not_known_where_nobody_knows_them(sources: Sources) -> None:
    found = ask(sources, "Swift", PAIRS)
    assert found.answer is Answer.NOT_KNOWN
    assert found.why == (
        "hangs on NVLink, which is not known of this card: Swift sums where NVLink joins them all; else: disabled: "
        "Swift is off: more than two cards over PCIe"
    )
    assert found.proofs[-1].where == line(f"{HERE}/swift.py", "logger.warning(")


def test_symbols_that_are_called_are_needed_with_their_import(sources: Sources) -> None:
    found = ask(sources, "Swifter")
    assert [(need.symbol, need.how, need.on_failure) for need in found.needs] == [
        ("sgl_kernel.allreduce.open_ring", "guarded", "ops is None"),
        ("sgl_kernel.allreduce.ring", "guarded", "ops is None"),
    ]
    assert {need.where for need in found.needs} == {line(f"{HERE}/swift.py", "import sgl_kernel.allreduce")}


def test_a_refused_card_is_a_gate(sources: Sources) -> None:
    found = ask(sources, "Rare", PCIE)
    assert found.why == "disabled: Rare: Device capability 12 not supported"
    assert [(gate.answer, gate.text) for gate in found.gates] == [(Answer.FAIL, "most is None")]


def test_who_is_asked_first_sums_and_switching_it_off_is_the_thing_to_try(sources: Sources) -> None:
    free = edited(sources, {"server_args.py": ("if self.disable_swift and self.enable_rare:", "if False:")})
    found = ask(free, "Rare")
    assert (found.answer, found.why) == (
        Answer.FAIL,
        "accepted, but Swifter sums a message of 12,288 B: it is asked first",
    )
    assert found.hint == "--disable-swift besides: there Rare sums"
    assert ask(sources, "Rare").hint == "Swifter sums instead"  # this engine refuses both together


def test_a_message_that_a_communicator_does_not_take(sources: Sources) -> None:
    small = edited(sources, {f"{HERE}/swift.py": ("_MOST = 8192", "_MOST = 512")})
    assert ask(small, "Swifter").why == "accepted, but it leaves a message of 12,288 B to Steady"
    assert ask(small, "auto").destination.endswith(".Steady")


def test_a_variable_asks_for_a_communicator(sources: Sources) -> None:
    found = ask(sources, "Wire", PCIE)
    assert found.answer is Answer.NOT_KNOWN
    assert found.why.startswith("Wire or Steady sums, depending on the answer of should_sum(), which was not followed")
    assert [need.symbol for need in found.needs] == ["flashinfer.comm.WireSpace"]
    assert found.hint == "SGLANG_BY_WIRE=1, and a trace of it: its kernels tell"
    certain = edited(sources, {f"{HERE}/wire.py": ("return self.space.supports(input_)", "return True")})
    assert ask(certain, "Wire", PCIE).answer is Answer.PASS
    assert ask(certain, "auto", PCIE).destination.endswith(".Steady")


def test_a_second_use_of_a_communicator_is_one_line(sources: Sources) -> None:
    found = ask(sources, "Steady pooled")
    assert found.answer is Answer.PASS
    assert found.proofs[-1].where == line("sglang/srt/distributed/parallel_state.py", "self.steady_comm.all_reduce(")


def test_what_the_arguments_refuse_and_set_back(sources: Sources) -> None:
    refusing = edited(sources, {"server_args.py": ("self.disable_swift and self.enable_rare", "self.enable_rare")})
    assert ask(refusing, "Rare").why.startswith("refused when the arguments are checked: rare needs swift")
    setting = edited(sources, {"server_args.py": ("if self.disable_swift and self.enable_rare:",
                                                  "self.disable_swift = True\n        if False:")})  # fmt: skip
    assert ask(setting, "auto").destination.endswith(".Steady")


def test_a_communicator_for_other_machines_is_never_made(sources: Sources) -> None:
    change = {"parallel_state.py": ("if self.use_rare and self.world_size > 1:", "if torch.version.hip and use_rare:")}
    found = ask(edited(sources, change), "Rare")
    assert (found.answer, found.why) == (
        Answer.FAIL,
        "it is made only where torch.version.hip and use_rare holds, which it does not here",
    )


def test_a_table_without_the_card_stops_the_server(sources: Sources) -> None:
    found = ask(edited(sources, {f"{HERE}/rare.py": ("SIZES.get(self.capability)", "SIZES[self.capability]")}),
                "Rare", PCIE)  # fmt: skip
    assert found.answer is Answer.FAIL
    assert found.why == "accepted, but the server stops when the group of ranks is made: KeyError: 12"
    assert found.destination == ""  # nothing runs
    assert found.proofs[-1].where == line(f"{HERE}/rare.py", "SIZES.get(self.capability)")


def test_a_condition_that_nothing_decides_is_named(sources: Sources) -> None:
    change = {f"{HERE}/rare.py": ("if most is None:", "if torch.handle() == 0:")}
    found = ask(edited(sources, change), "Rare", PCIE)
    assert found.answer is Answer.NOT_KNOWN
    where = line(f"{HERE}/rare.py", "if most is None")
    assert found.why == f"Rare or Steady sums, depending on torch.handle() == 0 ({where})"


def test_sums_fused_with_a_norm(sources: Sources) -> None:
    name = "flashinfer_fusion"
    found = ask(sources, name)
    assert (found.answer, found.destination) == (Answer.PASS, "flashinfer.comm.fused_sum")
    assert [(need.symbol, need.how) for need in found.needs] == [("flashinfer.comm.fused_sum", "guarded")]
    refused = ask(sources, name, PCIE)
    assert refused.why == "accepted, but no sum is fused: _is_sm90_supported does not hold here"
    where = line("sglang/srt/layers/communicator.py", f"{'':16}_is_sm90_supported")
    assert (refused.proofs[-1].where, refused.gates[0].answer) == (where, Answer.FAIL)
    elsewhere = ask(sources, name, architecture="Unheard")
    assert elsewhere.answer is Answer.NOT_KNOWN
    assert elsewhere.why.endswith("the model's own code was not seen to leave its sums to a norm")


def test_an_engine_that_fuses_by_itself_is_told_as_that(sources: Sources) -> None:
    change = {"server_args.py": ("self._handle_swift()\n", "self.enable_flashinfer_allreduce_fusion = True\n")}
    found = ask(edited(sources, change), "auto")
    assert (found.answer, found.destination) == (Answer.PASS, "flashinfer.comm.fused_sum")
    assert found.why.endswith("fused with it; other sums: Swifter")
    assert ask(edited(sources, change), "auto", PCIE).destination.endswith(".Steady")
    back = {"server_args.py": ("self._handle_swift()\n", "self.enable_flashinfer_allreduce_fusion = False\n")}
    found = ask(edited(sources, back), "flashinfer_fusion")
    assert found.why == "accepted, but set back to False when the arguments are settled"
    assert found.proofs[-1].text == "self.enable_flashinfer_allreduce_fusion = False"


def test_layouts_without_a_sum_of_all_ranks(sources: Sources) -> None:
    assert ask(sources, "Swift", tp=1).why == "nothing is summed: one rank holds every layer"
    asked = target((9, 0), gpu=NVLINK, layout=Layout(tp=8, dp=8))
    found = SGLANG.auto(sources, "all-reduce", asked)
    assert found.answer is Answer.NOT_KNOWN
    assert "data-parallel attention" in found.why


def test_groups_that_were_not_followed_are_said(sources: Sources) -> None:
    asked = target((9, 0), gpu=NVLINK, layout=Layout(tp=16, ep=2), gpus=16)
    found = SGLANG.auto(sources, "all-reduce", asked)
    assert found.why.endswith(
        "; groups that the experts have to themselves were not followed; all of them are taken to be in one machine"
    )


def test_a_step_that_lacks_what_a_skipped_one_leaves_is_skipped(sources: Sources) -> None:
    old = "self._handle_swift()\n"
    new = """self._handle_graphs()
        self._handle_memory()
        self._handle_swift()

    def _handle_graphs(self):
        self.graphs = Sizes()

    def _handle_memory(self):
        self._sized = True
        self.reserved = self.graphs.decode
"""
    lacking = {"server_args.py": (old, new.replace("self.graphs = Sizes()", "pass"))}
    fields = {
        "server_args.py": ("enable_rare: bool = False\n", "enable_rare: bool = False\n    graphs: object = None\n")
    }
    for change in ({"server_args.py": (old, new)}, lacking):
        assert ask(edited(edited(sources, change), fields), "auto").destination.endswith(".Swifter")


@pytest.mark.parametrize(
    ("path", "old", "new", "says"),
    [
        ("server_args.py", "class ServerArgs", "class LaunchArgs", "ServerArgs is not in the sources"),
        ("parallel_state.py", "def all_reduce(", "def sum_up(", "has no all_reduce"),
        ("parallel_state.py", "def init_model_parallel_group", "def make_group", "init_model_parallel_group is not in"),
    ],
)
def test_a_layout_nobody_has_seen_is_not_known(sources: Sources, path: str, old: str, new: str, says: str) -> None:
    found = ask(edited(sources, {path: (old, new)}), "Swift")
    assert found.answer is Answer.NOT_KNOWN
    assert says in found.why


def test_a_name_that_is_not_there_is_not_known(sources: Sources) -> None:
    gone = Declaration("all-reduce", "Gone", "", None, None, ())
    found = SGLANG.route(sources, gone, target((9, 0), gpu=NVLINK))
    assert (found.answer, found.why) == (Answer.NOT_KNOWN, "Gone is not among the ways to sum of these sources")


def test_nothing_is_declared_where_groups_are_made_elsewhere(sources: Sources) -> None:
    bare = without(sources, "distributed/parallel_state.py", "server_args.py")
    assert SGLANG.declared(bare, "all-reduce") == ()

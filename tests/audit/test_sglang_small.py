"""SGLang's description on an engine of a hundred lines in the same shape: every way an experts' backend can end."""

from pathlib import Path

import pytest

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import SGLANG
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from tests.audit.reading import edited, target, written

FILES = {
    "sglang/srt/server_args.py": """
        import dataclasses
        import logging

        logger = logging.getLogger(__name__)
        MOE_RUNNER_BACKEND_CHOICES = ["auto", "fast", "swallowed", "picky", "alias", "torn", "tilted"]

        @dataclasses.dataclass
        class ServerArgs:
            model_path: str
            quantization: str = None
            tp_size: int = 1
            moe_runner_backend: str = "auto"
            moe_a2a_backend: str = "none"

            def __post_init__(self):
                self._handle_moe()
                self._handle_other_things()

            def _handle_moe(self):
                if self.moe_runner_backend == "picky":
                    assert self.quantization == "fp8", "picky wants fp8. Use --moe-runner-backend fast instead."
                if self.moe_runner_backend == "alias":
                    logger.warning("alias is another name of fast")
                    self.moe_runner_backend = "fast"

            def _handle_other_things(self):
                raise RuntimeError("it is skipped: it knows nothing of the option")

        def add_cli_args(parser):
            parser.add_argument("--moe-runner-backend", choices=MOE_RUNNER_BACKEND_CHOICES)
        """,
    "sglang/srt/layers/moe/utils.py": """
        from enum import Enum

        class MoeRunnerBackend(Enum):
            AUTO = "auto"
            FAST = "fast"
            SWALLOWED = "swallowed"
            PICKY = "picky"
            TORN = "torn"
            TILTED = "tilted"
            HIDDEN = "hidden"

            def is_fast(self):
                return self == MoeRunnerBackend.FAST

        BACKEND = None

        def initialize_moe_config(server_args):
            global BACKEND
            BACKEND = MoeRunnerBackend(server_args.moe_runner_backend)

        def get_backend():
            return BACKEND
        """,
    "sglang/srt/layers/quantization/__init__.py": """
        from sglang.srt.layers.quantization.four import FourConfig

        METHODS = {"modelopt_fp4": FourConfig}

        def get_quantization_config(name):
            if name not in METHODS:
                raise ValueError(f"no method {name}")
            return METHODS[name]
        """,
    "sglang/srt/layers/quantization/four.py": """
        import torch
        from sglang.srt.layers.moe.utils import MoeRunnerBackend, get_backend

        class FourConfig:
            @classmethod
            def from_config(cls, config):
                return cls()

            def get_quant_method(self, layer, prefix):
                return FourMethod()

        class FourMethod:
            def __init__(self):
                if torch.cuda.get_device_capability()[0] < 10:
                    raise ValueError("four bits need Blackwell and above")
                self.tilted = get_backend() == MoeRunnerBackend.TILTED
                if get_backend() == MoeRunnerBackend.TORN:
                    self.half = 1

            def process_weights_after_loading(self, layer):
                if get_backend().is_fast():
                    layer.shuffled = layer.weight

            def apply(self, layer, x):
                if hasattr(layer, "shuffled"):
                    from vendor.fused_moe import fast_fused_moe

                    return fast_fused_moe(x)
                if self.tilted:
                    from vendor.other import leaning_fused_moe

                    return leaning_fused_moe(x)
                if get_backend() == MoeRunnerBackend.TORN:
                    return self.runner.run(x)
                from vendor.fallback import plain_fused_moe

                return plain_fused_moe(x)
        """,
    "sglang/srt/layers/moe/fused_moe_triton/layer.py": """
        import torch

        class FusedMoE(torch.nn.Module):
            def __init__(self, num_experts, hidden_size, quant_config=None, prefix="", **rest):
                super().__init__()
                self.weight = torch.empty(num_experts, hidden_size)
                self.quant_method = quant_config.get_quant_method(self, prefix)

            def forward(self, hidden_states, topk_output):
                return self.quant_method.apply(self, hidden_states)
        """,
}
METHOD = "quantization/four.py"


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return written(tmp_path, FILES)


def ask(sources: Sources, name: str, capability: tuple[int, int] = (12, 0), **more: object) -> Route:
    found = next(each for each in SGLANG.declared(sources, "moe") if each.name == name)
    return SGLANG.route(sources, found, target(capability, **more))  # type: ignore[arg-type]


def test_names_and_where_they_are_declared(sources: Sources) -> None:
    found = {each.name: each for each in SGLANG.declared(sources, "moe")}
    assert (found["hidden"].selectable, found["hidden"].in_enum, found["hidden"].flag) == (False, True, "")
    assert (found["alias"].selectable, found["alias"].in_enum) == (True, False)
    assert found["fast"].flag == "--moe-runner-backend fast"


def test_the_asked_kernel_runs(sources: Sources) -> None:
    found = ask(sources, "fast")
    assert (found.answer, found.destination) == (Answer.PASS, "vendor.fused_moe.fast_fused_moe")
    assert [(need.symbol, need.how) for need in found.needs] == [("vendor.fused_moe.fast_fused_moe", "lazy")]


def test_an_alias_is_rewritten(sources: Sources) -> None:
    found = ask(sources, "alias")
    assert found.destination == "vendor.fused_moe.fast_fused_moe"
    assert "rewritten to fast" in found.why


def test_a_name_nothing_asks_for_is_a_failure_with_its_lines(sources: Sources) -> None:
    found = ask(sources, "swallowed")
    assert (found.answer, found.destination) == (Answer.FAIL, "vendor.fallback.plain_fused_moe")
    lines = FILES["sglang/srt/layers/quantization/four.py"].splitlines()
    call = next(at for at, line in enumerate(lines, 1) if "return plain_fused_moe(x)" in line)
    assert found.proofs[-1].where == f"sglang/srt/layers/quantization/four.py:{call}"
    assert [proof.text for proof in found.proofs][:2] == ["hasattr(layer, 'shuffled') is False", "self.tilted is False"]


def test_a_kernel_of_another_name_that_only_one_backend_reaches_is_that_backends(sources: Sources) -> None:
    found = ask(sources, "tilted")
    assert (found.answer, found.destination) == (Answer.PASS, "vendor.other.leaning_fused_moe")


def test_refused_by_the_arguments_with_the_engines_advice(sources: Sources) -> None:
    found = ask(sources, "picky")
    assert found.answer is Answer.FAIL
    assert found.why.startswith("refused when the arguments are checked: picky wants fp8")
    assert found.hint == "Use --moe-runner-backend fast instead"


def test_refused_for_the_card(sources: Sources) -> None:
    found = ask(sources, "fast", (9, 0))
    assert (found.answer, found.gates[0].answer) == (Answer.FAIL, Answer.FAIL)
    assert "get_device_capability()[0] < 10" in found.gates[0].text


def test_a_runner_that_nothing_made(sources: Sources) -> None:
    found = ask(sources, "torn")
    assert found.answer is Answer.FAIL
    assert "FourMethod.runner" in found.why


def test_without_the_fallback_nothing_runs(sources: Sources) -> None:
    tail = "        from vendor.fallback import plain_fused_moe\n\n        return plain_fused_moe(x)\n"
    found = ask(edited(sources, {METHOD: (tail, "")}), "swallowed")
    assert found.answer is Answer.FAIL
    assert found.why == "accepted, but nothing runs: no branch of FourMethod.apply() asks for swallowed"


def test_something_unknown_on_the_way_is_not_known(sources: Sources) -> None:
    change = {METHOD: ("if self.tilted:", "if x.numel() > vendor_limit():")}
    found = ask(edited(sources, change), "swallowed")
    assert found.answer is Answer.NOT_KNOWN
    assert "x.numel() > vendor_limit()" in found.why


@pytest.mark.parametrize(
    ("path", "old", "new", "says"),
    [
        ("server_args.py", "class ServerArgs", "class LaunchArgs", "ServerArgs is not in the sources"),
        ("moe/utils.py", "def initialize_moe_config", "def start", "initialize_moe_config is not where"),
        ("fused_moe_triton/layer.py", "class FusedMoE", "class Experts", "class of the experts' layer"),
        ("quantization/__init__.py", "def get_quantization_config", "def find", "registry of quantisation methods"),
    ],
)
def test_a_layout_nobody_has_seen_is_not_known(sources: Sources, path: str, old: str, new: str, says: str) -> None:
    found = ask(edited(sources, {path: (old, new)}), "fast")
    assert found.answer is Answer.NOT_KNOWN
    assert says in found.why


def test_a_format_nobody_registered_is_refused(sources: Sources) -> None:
    found = ask(sources, "fast", method="awq", expert_format="INT4")
    assert found.answer is Answer.FAIL
    assert "no method awq" in found.why


def test_a_dense_model_has_no_experts(sources: Sources) -> None:
    assert ask(sources, "fast", shape=None).why == "the model has no experts"


def test_what_a_skipped_step_would_leave_for_a_later_one_is_walked(sources: Sources) -> None:
    old = """self._handle_moe()
        self._handle_other_things()
"""
    new = """self._handle_defaults()
        self._handle_moe()

    def _handle_defaults(self):
        if self.tp_size == 0:
            self._left_alone = True
        else:
            self._left_alone = False
"""
    once = edited(sources, {"server_args.py": (old, new)})
    decided = """    def _handle_moe(self):
        if not self._left_alone and self.moe_runner_backend == "swallowed":
            self.moe_runner_backend = "fast"
"""
    found = ask(edited(once, {"server_args.py": ("    def _handle_moe(self):\n", decided)}), "swallowed")
    assert found.destination == "vendor.fused_moe.fast_fused_moe"
    assert "rewritten to fast" in found.why


def test_an_all_to_all_left_open_is_told_with_the_line_it_hangs_on(sources: Sources) -> None:
    change = """    def _handle_moe(self):
        import vendor
        if vendor.has_fabric():
            self.moe_a2a_backend = vendor.fabric()
"""
    found = ask(edited(sources, {"server_args.py": ("    def _handle_moe(self):\n", change)}), "fast")
    assert found.answer is Answer.NOT_KNOWN
    assert found.why == (
        "the arguments do not settle which all-to-all is used: it hangs on a condition that could not be worked out, "
        "vendor.has_fabric() (sglang/srt/server_args.py:22)"
    )
    assert [proof.where for proof in found.proofs] == ["sglang/srt/server_args.py:22"]
    assert found.gates == ()


def test_a_card_refused_behind_something_unknown_is_not_refused_for_certain(sources: Sources) -> None:
    old = "        if torch.cuda.get_device_capability()[0] < 10:\n            raise ValueError"
    new = """        if vendor_says():
            if torch.cuda.get_device_capability()[0] < 10:
                raise ValueError"""
    found = ask(edited(sources, {METHOD: (old, new)}), "fast", (9, 0))
    assert (found.answer, found.destination) == (Answer.PASS, "vendor.fused_moe.fast_fused_moe")
    assert [(gate.answer, gate.text) for gate in found.gates] == [
        (Answer.NOT_KNOWN, "torch.cuda.get_device_capability()[0] < 10, on some ways only")
    ]


def test_a_refusal_that_is_caught_and_raised_again_is_told_where_it_was_raised_first(sources: Sources) -> None:
    old = "self._handle_moe()\n"
    new = """try:
            self._handle_moe()
        except BaseException:
            self.failed = True
            raise
"""
    found = ask(edited(sources, {"server_args.py": (old, new)}), "picky")
    assert found.proofs[-1].where == "sglang/srt/server_args.py:26"
    assert found.proofs[-1].text.startswith("AssertionError: picky wants fp8")


def test_advice_that_does_not_work_here_is_not_repeated(sources: Sources) -> None:
    change = {"server_args.py": ("--moe-runner-backend fast instead", "--moe-runner-backend swallowed instead")}
    found = ask(edited(sources, change), "picky")
    assert found.why.endswith("Use --moe-runner-backend swallowed instead.")
    assert found.hint == (
        "auto, which leads to plain_fused_moe here; swallowed, which the engine advises, does not work here either"
    )


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ("hasattr(layer, 'weight') or use_swallowed", Answer.FAIL),
        ("not use_swallowed", Answer.FAIL),
        ("get_backend().value != 'fast' or get_backend().value == 'swallowed'", Answer.FAIL),
        ("hasattr(layer, 'weight') and get_backend().value == 'swallowed'", Answer.PASS),
        ("use_swallowed or get_backend().value in ('torn', 'swallowed')", Answer.PASS),
        ("not (use_swallowed or get_backend().value != 'swallowed')", Answer.PASS),
    ],
)
def test_a_condition_asks_for_a_name_where_it_holds_because_of_it(
    sources: Sources, condition: str, answer: Answer
) -> None:
    """A condition that mentions the name, and holds for another reason or the opposite one, leads others there too."""
    old = "        from vendor.fallback import plain_fused_moe\n"
    new = f"""        use_swallowed = False
        if {condition}:
            from vendor.fallback import plain_fused_moe

            return plain_fused_moe(x)
        from vendor.fallback import plain_fused_moe
"""
    found = ask(edited(sources, {METHOD: (old, new)}), "swallowed")
    assert found.answer is answer
    assert ("no branch on the way to it asks for swallowed" in found.why) is (answer is Answer.FAIL)
    assert found.destination == "vendor.fallback.plain_fused_moe"

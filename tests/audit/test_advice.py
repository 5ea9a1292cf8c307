"""Advice: what to type has every option that its answer hangs on; nothing is advised that the audit itself refuses."""

from pathlib import Path

import msgspec
import pytest

from sublight.audit.engines.base import Declaration, Instead, Route
from sublight.audit.engines.sglang import SGLANG
from sublight.audit.engines.sglang.attention import of_another_family
from sublight.audit.engines.vllm import VLLM
from sublight.audit.flags import worth_trying
from sublight.audit.ladder import Answer, Ladder, Rung, Step
from sublight.audit.record import Auto
from sublight.audit.run import advised
from sublight.audit.source.evaluate import Evaluator
from sublight.audit.source.facts import Facts
from sublight.audit.source.tree import Sources
from sublight.facts.workload import Layout
from sublight.report.views.audit import flag_line
from tests.audit import scenes
from tests.audit.reading import edited, target, written
from tests.audit.test_sglang_small import FILES

# One option more, and a layer that an all-to-all sends prompts through another way of, unless its mode is for both.
_WITH_A_MODE = {
    "server_args.py": (
        'moe_a2a_backend: str = "none"\n',
        'moe_a2a_backend: str = "none"\n    deepep_mode: str = "auto"\n',
    ),
    "moe/utils.py": (
        "BACKEND = MoeRunnerBackend(server_args.moe_runner_backend)\n",
        """BACKEND = MoeRunnerBackend(server_args.moe_runner_backend)
    global A2A, MODE
    A2A, MODE = server_args.moe_a2a_backend, server_args.deepep_mode

def prompts_apart():
    return A2A == "deepep" and MODE == "auto" and get_is_extend_in_batch()

def get_is_extend_in_batch():
    return AT_RUN_TIME
""",
    ),
    "quantization/four.py": (
        "    def apply(self, layer, x):\n",
        """    def apply(self, layer, x):
        from sglang.srt.layers.moe.utils import prompts_apart
        if prompts_apart():
            assert False, "the way of prompts is deprecated"
""",
    ),
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return edited(written(tmp_path, FILES), _WITH_A_MODE)


def asked(sources: Sources, name: str, a2a: str) -> Route:
    declaration = Declaration("moe", name, f"--moe-runner-backend {name}", True, True, ())
    return SGLANG.route(sources, declaration, target((12, 0), a2a=a2a))


def ladder(
    flag: str,
    beside: str = "",
    area: str = "moe",
    destination: str = "",
    slow: str = "",
    alias_of: str = "",
    **answers: Answer,
) -> Ladder:
    told = {Rung(name): answer for name, answer in answers.items()}
    steps = tuple(Step(rung, told.get(rung, Answer.PASS), "") for rung in Rung)
    name = flag.rpartition(" ")[2]
    return Ladder(
        area=area,
        name=name,
        flag=flag,
        steps=steps,
        beside=beside,
        destination=destination,
        slow=slow,
        alias_of=alias_of,
    )


def test_a_flag_carries_the_layout_that_its_answers_are_of() -> None:
    found = worth_trying("sglang", [ladder("--moe-runner-backend fast", "--moe-a2a-backend deepep --ep-size 8")])
    assert [flag.flag for flag in found] == ["--moe-runner-backend fast --moe-a2a-backend deepep --ep-size 8"]


def test_what_stands_in_for_a_kernel_comes_last_and_says_so() -> None:
    found = worth_trying(
        "vllm",
        [
            ladder("--moe-backend emulation"),
            ladder("--moe-backend open", installed=Answer.NOT_KNOWN, fast=Answer.NOT_KNOWN),
            ladder("--moe-backend hidden", destination="vllm.moe.Nvfp4EmulationExperts"),
            ladder("--moe-backend fused"),
            ladder("--attention-backend torch_native", area="attention"),
        ],
    )
    assert [(flag.flag.rpartition(" ")[2], flag.slow.partition(":")[0]) for flag in found] == [
        ("fused", ""),
        ("open", ""),
        ("emulation", "emulation"),
        ("hidden", "emulation"),
        ("torch_native", "plain PyTorch in the place of a kernel, which is slow"),
    ]
    assert flag_line(found[2]).endswith("emulation  # emulation: weights are unpacked at every call, which is slow")


def test_a_longer_name_of_the_same_kernel_is_not_advised_beside_it() -> None:
    kernel = "engine.marlin.fused"
    own = ladder("--moe marlin", destination=kernel)
    alias = ladder("--moe other_marlin", destination=kernel)
    elsewhere = ladder("--moe new_marlin", destination="engine.new.fused")
    assert [flag.flag for flag in worth_trying("e", [alias, own, elsewhere])] == ["--moe marlin", "--moe new_marlin"]
    # One that was asked for, and ran when the other did not, stays.
    unproven = ladder("--moe marlin", destination=kernel, executed=Answer.NOT_KNOWN)
    assert {flag.flag for flag in worth_trying("e", [alias, unproven])} == {"--moe other_marlin", "--moe marlin"}


def test_what_changes_nothing_is_not_advised() -> None:
    plain, other = "engine.Plain", "engine.Other"
    autos = (Auto(area="all-reduce", answer=Answer.PASS, why="", destination=plain),)
    off = ladder("--disable-custom", area="all-reduce", destination=plain)
    pooled = ladder("--enable-pool", area="all-reduce", destination=plain)
    wanted = ladder("OTHER=0", area="all-reduce", destination=other)
    automatic = ladder("--moe auto", destination="engine.experts")
    named = ladder("--moe experts", destination="engine.experts")
    ladders = [off, pooled, wanted, automatic, named]
    assert [flag.flag for flag in worth_trying("e", _unproven(ladders), autos)] == [
        "--enable-pool",
        "OTHER=0",
        "--moe experts",
    ]
    unknown = (msgspec.structs.replace(autos[0], answer=Answer.NOT_KNOWN),)
    assert [flag.flag for flag in worth_trying("e", _unproven([off]), unknown)] == ["--disable-custom"]
    # What nothing else stands beside stays, and what was seen running.
    assert [flag.flag for flag in worth_trying("e", _unproven([off, automatic]), autos)] == [
        "--disable-custom",
        "--moe auto",
    ]
    assert len(worth_trying("e", [automatic, *_unproven([named])])) == 2
    assert [flag.flag for flag in worth_trying("e", [automatic])] == ["--moe auto"]


def _unproven(ladders: list[Ladder]) -> list[Ladder]:
    last = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)
    return [
        msgspec.structs.replace(
            each,
            steps=tuple(Step(s.rung, Answer.NOT_KNOWN if s.rung in last else s.answer, s.why) for s in each.steps),
        )
        for each in ladders
    ]


def test_another_spelling_of_a_name_is_not_advised_beside_it() -> None:
    own = ladder("--attention new", destination="engine.Selecting")
    former = ladder("--attention old", destination="engine.Selecting", alias_of="new")
    assert [flag.flag for flag in worth_trying("e", [former, own])] == ["--attention new"]
    assert [flag.flag for flag in worth_trying("e", [former])] == ["--attention old"]


def test_what_does_more_than_the_model_asks_for_comes_behind_and_says_so() -> None:
    every = "attends to every key, where the model selects some"
    found = worth_trying(
        "sglang",
        [
            ladder("--attention torch_native", area="attention", slow=every),
            ladder("--attention triton", area="attention", slow=every),
            ladder("--attention dsa", area="attention", installed=Answer.NOT_KNOWN),
        ],
    )
    assert [flag_line(flag).partition(", which")[0] for flag in found] == [
        "--attention dsa  # not known: installed",
        f"--attention triton  # {every}",
        f"--attention torch_native  # {every}; plain PyTorch in the place of a kernel",
    ]


def test_a_backend_that_is_slow_by_its_source_is_told_with_the_reason() -> None:
    from sublight.report.views.audit_reasons import reasons

    def told(shown: Ladder) -> list[str]:
        return [getattr(block, "text", "") for block in reasons([shown])]

    assert told(ladder("--attention triton", slow="attends to every key")) == ["What is slow", ""]
    assert told(ladder("--attention triton", slow="attends to every key", capable=Answer.FAIL)) == ["Why not", ""]
    assert told(ladder("--attention dsa")) == []


@pytest.mark.parametrize(
    ("cls", "family"),
    [("QwenSparseBackend", "qwen"), ("DeepseekBackend", ""), ("FlashBackend", ""), ("TorchBackend", "")],
)
def test_a_class_that_is_named_after_other_models(tmp_path: Path, cls: str, family: str) -> None:
    """What this model takes classes from is its own family too, and a library that is imported is none."""
    read = written(
        tmp_path,
        {
            "sglang/srt/models/qwen3_moe.py": "class Qwen3MoeForCausalLM: ...\n",
            "sglang/srt/models/torch_native_llama.py": "class TorchNativeLlama: ...\n",
            "sglang/srt/models/deepseek_v2.py": "class DeepseekV2ForCausalLM: ...\n",
            "sglang/srt/models/glm_dsa.py": (
                "from sglang.srt.models.deepseek_v2 import DeepseekV2ForCausalLM\n\n"
                "class GlmForCausalLM(DeepseekV2ForCausalLM): ...\n"
            ),
            "sglang/srt/layers/backends.py": "import torch\n",
        },
    )
    walk = Evaluator(read, Facts(follow=("sglang",)))
    assert of_another_family(walk, "GlmForCausalLM", f"sglang.srt.layers.backends.{cls}") == family
    assert of_another_family(walk, "UnheardOf", f"sglang.srt.layers.backends.{cls}") == ""


def test_a_variable_is_no_option_and_stands_alone() -> None:
    found = worth_trying("vllm", [ladder("VLLM_FAST=1", "--enable-expert-parallel", "all-reduce")])
    assert [flag.flag for flag in found] == ["VLLM_FAST=1"]


def test_options_of_a_layout_as_the_engine_spells_them(sources: Sources) -> None:
    plain = target((12, 0), layout=Layout(tp=8))
    spread = target((12, 0), a2a="deepep", layout=Layout(tp=8, ep=8, dp=2))
    assert SGLANG.layout_options(sources, plain) == VLLM.layout_options(sources, plain) == ""
    assert SGLANG.layout_options(sources, spread) == (
        "--moe-a2a-backend deepep --ep-size 8 --dp-size 2 --enable-dp-attention"
    )
    own = edited(sources, {"server_args.py": ("tp_size: int = 1\n", "tp_size: int = 1\n    attn_dp_size: int = 1\n")})
    assert SGLANG.layout_options(own, spread).endswith(" --attn-dp-size 2")
    assert VLLM.layout_options(sources, spread) == (
        "--enable-expert-parallel --all2all-backend deepep --data-parallel-size 2"
    )


def test_prompts_that_are_refused_bring_the_mode_for_both(sources: Sources) -> None:
    found = asked(sources, "fast", "deepep")
    assert (found.answer, found.beside) == (Answer.PASS, "--deepep-mode low_latency")
    assert found.why == (
        "fast_fused_moe (vendor) runs; prompts take another way, which is refused when the layer is called: "
        "the way of prompts is deprecated"
    )
    assert "the way of prompts is deprecated" in found.proofs[-1].text
    assert asked(sources, "fast", "none").beside == ""


def test_prompts_that_no_mode_takes_are_only_told(sources: Sources) -> None:
    always = edited(sources, {"moe/utils.py": (' and MODE == "auto"', "")})
    found = asked(always, "fast", "deepep")
    assert found.beside == ""
    assert "prompts take another way" in found.why


def other_way(kernel: str, options: str, answer: Answer, beside: str = "") -> Instead:
    gates = [scenes.gate(answer, "major == 10", "10.0")]
    leads = scenes.route(kernel, gates=gates, destination=kernel)
    return Instead(options, msgspec.structs.replace(leads, beside=beside))


def test_what_the_card_refuses_is_not_advised(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/__init__.py").write_text("def masked(): ...\ndef plain(): ...\n")
    where = scenes.scene(scenes.installation(), tmp_path)
    elsewhere = Route(answer=Answer.FAIL, why="rerouted", hint="another name")
    refused = other_way("kernels.masked", "--a2a deep", Answer.FAIL)
    taken = other_way("kernels.plain", "--a2a flat", Answer.PASS, beside="--mode low")

    both = advised(where, msgspec.structs.replace(elsewhere, instead=(refused, taken)))
    assert both.hint == "--a2a flat --mode low: there plain runs"
    one = advised(where, msgspec.structs.replace(elsewhere, instead=(refused,)))
    assert one.hint == "another name; --a2a deep leads to masked, which is not capable here"
    assert advised(where, elsewhere).hint == "another name"

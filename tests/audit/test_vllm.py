"""vLLM's choices, walked in released wheels for cards that are not there, and in edited copies of them."""

import msgspec
import pytest

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.vllm import VLLM
from sublight.audit.engines.vllm.formats import scheme_of
from sublight.audit.engines.vllm.oracle import choose
from sublight.audit.engines.vllm.walk import Assumed, walking
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from sublight.facts.workload import Layout
from tests.audit.reading import edited, target, without
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

FUSED = "vllm/model_executor/layers/fused_moe"
ORACLE = f"{FUSED}/oracle/nvfp4.py"


@pytest.fixture(scope="module")
def new() -> Sources:
    return sources("vllm==0.33.0", "humming-kernels==0.1.20")


@pytest.fixture(scope="module")
def old() -> Sources:
    return sources("vllm==0.20.2")


def asked(
    wheel: Sources,
    name: str,
    capability: tuple[int, int],
    area: str = "moe",
    assumed: Assumed | None = None,
    **more: object,
) -> Route:
    declaration = Declaration(area, name, "", True, None, ())
    return VLLM.route(wheel, declaration, target(capability, **more), assumed)  # type: ignore[arg-type]


def backend(route: Route) -> str:
    return route.why.partition(" ")[0]


# What runs when nothing is asked for


@pytest.mark.parametrize(
    ("capability", "chosen", "cls"),
    [
        ((9, 0), "HUMMING", "HummingIndexedExperts"),
        ((10, 0), "FLASHINFER_TRTLLM", "TrtLlmNvFp4ExpertsModular"),
        ((10, 3), "FLASHINFER_TRTLLM", "TrtLlmNvFp4ExpertsModular"),
        ((12, 0), "FLASHINFER_CUTLASS", "FlashInferExperts"),
        ((12, 1), "FLASHINFER_CUTLASS", "FlashInferExperts"),
        ((8, 9), "MARLIN", "MarlinExperts"),
    ],
)
def test_auto_for_nvfp4(new: Sources, capability: tuple[int, int], chosen: str, cls: str) -> None:
    route = VLLM.auto(new, "moe", target(capability))
    assert (route.answer, backend(route)) == (Answer.PASS, chosen)
    assert route.destination.rpartition(".")[2] == cls


def test_auto_says_why_each_one_before_was_passed_over(new: Sources) -> None:
    why = VLLM.auto(new, "moe", target((9, 0))).why
    assert "CutlassExpertsFp4: kernel does not support current device cuda" in why
    assert "FlashInferExperts: kernel does not support quantization scheme kNvfp4Static x kNvfp4Dynamic" in why


def test_without_humming_hopper_gets_marlin(new: Sources) -> None:
    def no_humming(name: str) -> bool | None:
        return False if name.startswith("humming") else None

    route = VLLM.auto(new, "moe", target((9, 0)), Assumed(importable=no_humming))
    assert (route.answer, backend(route)) == (Answer.PASS, "MARLIN")
    alone = VLLM.auto(sources("vllm==0.33.0"), "moe", target((9, 0)))
    assert (alone.answer, alone.why.partition(":")[0]) == (Answer.NOT_KNOWN, "HUMMING or MARLIN")


def test_a_weight_only_checkpoint_gets_marlin_where_the_card_has_fp4(new: Sources) -> None:
    """Not the card, the checkpoint: native kernels take quantised activations only."""
    route = VLLM.auto(new, "moe", target((12, 0), "NVFP4 (W4A16)", "BF16"))
    assert (route.answer, backend(route)) == (Answer.PASS, "MARLIN")
    assert "CutlassExpertsFp4: kernel does not support quantization scheme kNvfp4Static x none" in route.why
    native = asked(new, "cutlass", (12, 0), expert_format="NVFP4", activation_format="BF16")
    assert native.answer is Answer.FAIL
    assert native.hint.startswith("this checkpoint is weight-only")
    card = next(gate for gate in native.gates if gate.proof.where == f"{FUSED}/experts/cutlass_moe.py:716")
    assert card.answer is Answer.PASS


@pytest.mark.parametrize(
    ("form", "activations", "capability", "chosen"),
    [
        ("FP8 block", "FP8", (10, 0), "FLASHINFER_TRTLLM"),
        ("FP8 block", "FP8", (9, 0), "TRITON"),
        ("FP8", "FP8", (12, 0), "FLASHINFER_CUTLASS"),
        ("MXFP4", "", (9, 0), "FLASHINFER_CUTLASS_MXFP4_BF16"),
        ("MXFP4", "", (12, 0), "MARLIN"),
        ("BF16", "", (12, 0), "FLASHINFER_CUTLASS"),
        ("BF16", "", (9, 0), "TRITON"),
        ("INT8", "", (12, 0), "TRITON"),
    ],
)
def test_other_formats_by_the_same_door(
    new: Sources, form: str, activations: str, capability: tuple[int, int], chosen: str
) -> None:
    route = VLLM.auto(new, "moe", target(capability, form, activations))
    assert (route.answer, backend(route)) == (Answer.PASS, chosen)


def test_what_the_checkpoint_does_not_say_is_not_known(new: Sources) -> None:
    route = VLLM.auto(new, "moe", target((10, 0), "BF16", ""))
    assert route.answer is Answer.NOT_KNOWN
    assert route.why.startswith("FLASHINFER_TRTLLM or FLASHINFER_CUTLASS: depends on not cls._supports_routing_method(")


def test_what_hangs_on_scales_the_target_does_not_name_is_not_known(new: Sources) -> None:
    route = VLLM.auto(new, "moe", target((12, 0), "FP8", "FP8", method="fp8"))
    assert route.answer is Answer.NOT_KNOWN
    assert route.why.startswith("with static activation scales: FLASHINFER_CUTLASS")
    assert "with dynamic ones: TRITON" in route.why
    groups = VLLM.auto(new, "moe", target((12, 0), "INT4 group 128", "BF16"))
    assert groups.why.startswith("MARLIN or TRITON or HUMMING: depends on ")


# What asking for a name leads to

HERE = ("10.0", "10.3", "10.7")


@pytest.mark.parametrize(
    ("name", "where", "targets"),
    [
        ("flashinfer_trtllm", "experts/trtllm_nvfp4_moe.py:204", HERE),
        ("flashinfer_cutedsl", "experts/flashinfer_cutedsl_moe.py:88", HERE),
        ("flashinfer_cutlass", "experts/flashinfer_cutlass_moe.py:128", ("9.0", *HERE, "12.0", "12.1")),
        ("cutlass", "experts/cutlass_moe.py:716", (*HERE, "11.0", "12.0", "12.1")),
        ("flashinfer_b12x", "experts/flashinfer_b12x_moe.py:165", ("12.0", "12.1")),
        ("b12x", "b12x.py:499", ("12.0", "12.1")),
        ("flashinfer_moe_ep_cutedsl", "experts/flashinfer_moe_ep.py:90", ("10.0", "10.3")),
    ],
)
def test_the_line_that_takes_the_card(new: Sources, name: str, where: str, targets: tuple[str, ...]) -> None:
    route = asked(new, name, (12, 0))
    gate = next(gate for gate in route.gates if gate.proof.where == f"{FUSED}/{where}")
    assert gate.targets == targets
    expected = Answer.NOT_KNOWN if name == "b12x" else Answer.PASS if "12.0" in targets else Answer.FAIL
    assert route.answer is expected
    assert gate.answer is expected


@pytest.mark.parametrize("name", ["marlin", "humming"])
def test_what_takes_every_card(new: Sources, name: str) -> None:
    gate = asked(new, name, (12, 0)).gates[0]
    assert (gate.targets[0], gate.targets[-1], len(gate.targets)) == ("7.5", "12.1", 12)


def test_a_device_that_is_taken_and_a_scheme_that_is_not(new: Sources) -> None:
    route = asked(new, "flashinfer_cutlass", (9, 0))
    assert route.answer is Answer.FAIL
    assert route.why == (
        "refused: NvFp4 MoE backend 'FLASHINFER_CUTLASS' does not support the deployment configuration since kernel "
        "does not support quantization scheme kNvfp4Static x kNvfp4Dynamic."
    )
    assert [proof.where for proof in route.proofs] == [
        f"{FUSED}/experts/flashinfer_cutlass_moe.py:146",
        f"{FUSED}/modular_kernel.py:596",
        f"{ORACLE}:273",
    ]
    scheme, device = route.gates
    assert (scheme.answer, scheme.targets) == (Answer.FAIL, (*HERE, "12.0", "12.1"))
    assert (device.answer, device.targets[0]) == (Answer.PASS, "9.0")


def test_a_name_that_means_nothing_for_this_format(new: Sources) -> None:
    route = asked(new, "triton", (12, 0))
    assert route.answer is Answer.FAIL
    assert route.why.startswith("refused: moe_backend='triton' is not supported for NvFP4 MoE. Expected one of ['b12x'")
    assert route.proofs[-1].where == f"{ORACLE}:179"


def test_the_way_of_a_name_that_works(new: Sources) -> None:
    route = asked(new, "flashinfer_cutlass", (12, 0))
    assert [proof.where for proof in route.proofs[:2]] == [f"{ORACLE}:169", f"{ORACLE}:96"]
    assert {need.symbol: need.where for need in route.needs} == {
        "flashinfer": "vllm/utils/flashinfer.py:92",
        "flashinfer.fused_moe": "vllm/utils/flashinfer.py:437",
        "flashinfer.fused_moe.cutlass_fused_moe": "vllm/utils/flashinfer.py:571",
        "flashinfer.fp4_quantize": "vllm/utils/flashinfer.py:572",
        "flashinfer.nvfp4_block_scale_interleave": "vllm/utils/flashinfer.py:573",
        "flashinfer.fused_moe.trtllm_fp4_block_scale_moe": "vllm/utils/flashinfer.py:574",
    }


def test_a_symbol_that_the_installed_flashinfer_lacks(new: Sources) -> None:
    """Read beside FlashInfer 0.6.3, which has no cute_dsl_fused_moe_nvfp4 yet."""
    both = sources("vllm==0.33.0", "flashinfer-python==0.6.3")
    assert asked(new, "flashinfer_cutedsl", (10, 0)).answer is Answer.PASS
    route = asked(both, "flashinfer_cutedsl", (10, 0))
    assert route.answer is Answer.FAIL
    assert route.hint == "not there: flashinfer.cute_dsl_fused_moe_nvfp4"


# The engine's own test of the installation


def no_cubin(name: str) -> bool | None:
    return False if name.startswith("flashinfer_cubin") else None


def test_hidden_because_a_compiler_is_missing(new: Sources) -> None:
    production = Assumed(importable=no_cubin, commands=frozenset())
    route = asked(new, "flashinfer_trtllm", (10, 0), assumed=production)
    assert route.answer is Answer.FAIL
    assert route.why.startswith(
        "flashinfer_trtllm is not offered here: flashinfer_cubin cannot be imported, the command"
    )
    assert "The card is no obstacle" in route.why
    assert route.hint.endswith("VLLM_HAS_FLASHINFER_CUBIN=1 where its code is there")
    assert "vllm/utils/flashinfer.py:77" in {proof.where for proof in route.proofs}
    told = msgspec.structs.replace(production, environment={"VLLM_HAS_FLASHINFER_CUBIN": "1"})
    assert asked(new, "flashinfer_trtllm", (10, 0), assumed=told).answer is Answer.PASS
    compiler = msgspec.structs.replace(production, commands=frozenset(("nvcc", "ninja")))
    assert asked(new, "flashinfer_trtllm", (10, 0), assumed=compiler).answer is Answer.PASS


def test_auto_names_what_is_missing_where_the_engine_blames_the_card(new: Sources) -> None:
    route = VLLM.auto(new, "moe", target((12, 0)), Assumed(importable=no_cubin, commands=frozenset()))
    assert (route.answer, backend(route)) == (Answer.PASS, "VLLM_CUTLASS")
    assert (
        "FlashInferExperts: kernel does not support current device cuda (flashinfer_cubin cannot be imported, "
        "the command nvcc is not there)" in route.why
    )
    assert "FlashInferCuteDSLExperts: kernel does not support current device cuda;" in route.why
    only_here = asked(new, "flashinfer_trtllm", (12, 0), assumed=Assumed(importable=no_cubin, commands=frozenset()))
    assert (only_here.answer, only_here.gates[0].targets) == (Answer.FAIL, HERE)
    assert "not offered here" not in only_here.why


# Declarations and variables


def test_declared(new: Sources) -> None:
    declared = VLLM.declared(new, "moe")
    options = [item for item in declared if item.selectable]
    assert len(options) == 24
    assert options[0].proofs[0].where == "vllm/config/kernel.py:123"
    assert options[0].proofs[1].where == "vllm/engine/arg_utils.py:1845"
    by_name = {item.name: item for item in declared}
    assert by_name["flashinfer_b12x"].note == "means something for nvfp4"
    assert (by_name["flydsl"].in_enum, by_name["flydsl"].note) == (False, "in no oracle's mapping")
    batched = by_name["FLASHINFER_CUTEDSL_BATCHED"]
    assert (batched.selectable, batched.in_enum, batched.flag) == (False, True, "")
    assert batched.proofs[0].where == f"{ORACLE}:48"
    assert VLLM.route(new, batched, target((10, 0))).answer is Answer.FAIL
    here = [item.name for item in declared if not item.selectable and VLLM.concerns(item, target((12, 0)))]
    assert here == ["FLASHINFER_CUTEDSL_BATCHED"]


def test_variables_come_and_go(old: Sources, new: Sources) -> None:
    before, now = VLLM.known_variables(old), VLLM.known_variables(new)
    assert before is not None and now is not None
    gone = {"VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_FLASHINFER_MOE_BACKEND"}
    assert gone <= before
    assert not gone & now


def test_a_variable_of_the_old_version_edits_the_list(old: Sources) -> None:
    wish = Assumed(environment={"VLLM_USE_FLASHINFER_MOE_FP4": "0"})
    assert backend(VLLM.auto(old, "moe", target((12, 0)))) == "FLASHINFER_CUTLASS"
    assert backend(VLLM.auto(old, "moe", target((12, 0)), wish)) == "VLLM_CUTLASS"


# A real log as the judge: vLLM 0.20.2 on an H200 with the experts of GLM-5 and of Qwen3-30B-A3B in NVFP4

LOG_MOE = (
    "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['FLASHINFER_TRTLLM', 'FLASHINFER_CUTEDSL', "
    "'FLASHINFER_CUTEDSL_BATCHED', 'FLASHINFER_CUTLASS', 'VLLM_CUTLASS', 'MARLIN', 'EMULATION']."
)
LOG_LINEAR = "Using MarlinNvFp4LinearKernel for NVFP4 GEMM"
LOG_ATTENTION = {  # model type -> chosen, candidates that had no objection
    "glm_moe_dsa": ("FLASHMLA_SPARSE", ["FLASHMLA_SPARSE"]),
    "qwen3_moe": ("FLASH_ATTN", ["FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"]),
}


def test_the_walk_says_the_line_that_the_engine_logged(old: Sources) -> None:
    question = target((9, 0))
    scheme = scheme_of(question)
    assert scheme is not None
    choice = choose(walking(old, question, Assumed()), question, scheme, "auto", unknown=False)
    assert not isinstance(choice, str)
    assert [event.value for event in choice.outcome.of("log")][-1] == LOG_MOE
    assert VLLM.auto(old, "moe", question).destination.endswith(".MarlinExperts")


def test_the_linear_kernel_of_the_log_is_among_those_left_open(old: Sources) -> None:
    """Whether the one before it takes the card stands in compiled code."""
    route = VLLM.auto(old, "fp4-gemm", target((9, 0)))
    assert route.answer is Answer.NOT_KNOWN
    chosen = LOG_LINEAR.split()[1]
    assert route.why == (
        f"CutlassNvFp4LinearKernel or {chosen}: depends on the answer of the compiled "
        "torch.ops._C.cutlass_scaled_mm_supports_fp4 (vllm/_custom_ops.py:849), which only a call on the card tells"
    )


@pytest.mark.parametrize("model_type", LOG_ATTENTION)
def test_the_attention_backend_of_the_log(old: Sources, model_type: str) -> None:
    question = target((9, 0), model_type=model_type)
    chosen, candidates = LOG_ATTENTION[model_type]
    declared = {item.name: item for item in VLLM.declared(old, "attention")}
    route = VLLM.auto(old, "attention", question)
    assert route.answer is Answer.PASS
    assert route.destination == VLLM.route(old, declared[chosen], question).destination
    assert [VLLM.route(old, declared[name], question).answer for name in candidates] == [Answer.PASS] * len(candidates)
    assert VLLM.route(old, declared["FLASHINFER_MLA"], question).answer is Answer.FAIL


def test_a_linear_name_without_a_kernel_is_accepted_and_rerouted(new: Sources) -> None:
    route = asked(new, "machete", (12, 0), "fp4-gemm")
    assert route.answer is Answer.FAIL
    assert route.why.startswith("accepted, but machete has no kernel for NVFP4 layers: runs ")
    torch = asked(new, "torch", (12, 0), "fp4-gemm")
    assert torch.why == "refused: TorchNvFp4LinearKernel: Torch NVFP4 requires sm_10x (Blackwell)"
    assert asked(new, "marlin", (12, 0), "fp4-gemm").answer is Answer.PASS


# Edited copies: nothing hangs on a version


def test_a_renamed_class_is_followed(new: Sources) -> None:
    renamed = edited(
        new,
        {
            f"{FUSED}/experts/cutlass_moe.py": ("class CutlassExpertsFp4(", "class NativeExperts("),
            "oracle/nvfp4.py": ("CutlassExpertsFp4", "NativeExperts"),
        },
    )
    assert asked(renamed, "cutlass", (12, 0)).destination.endswith(".cutlass_moe.NativeExperts")


def test_a_reordered_list_changes_the_winner(new: Sources) -> None:
    first = "        NvFp4MoeBackend.FLASHINFER_TRTLLM,\n        NvFp4MoeBackend.FLASHINFER_CUTEDSL,\n"
    reordered = edited(new, {ORACLE: (first, f"        NvFp4MoeBackend.VLLM_CUTLASS,\n{first}")})
    route = VLLM.auto(reordered, "moe", target((12, 0)))
    assert (route.answer, backend(route)) == (Answer.PASS, "VLLM_CUTLASS")


def test_a_moved_and_narrowed_gate_moves_the_line(new: Sources) -> None:
    file = f"{FUSED}/experts/cutlass_moe.py"
    end = "        )\n\n    @staticmethod\n    def _supports_no_act_and_mul"
    old_gate, new_gate = f"            or p.is_device_capability_family(120)\n{end}", end
    line = ("\n\nclass CutlassExpertsFp4(", "\n\n# one\n# more\nclass CutlassExpertsFp4(")
    narrowed = edited(edited(new, {file: (old_gate, new_gate)}), {file: line})
    route = asked(narrowed, "cutlass", (12, 0))
    assert route.answer is Answer.FAIL
    assert route.gates[0].proof.where == f"{file}:718"
    assert route.gates[0].targets == (*HERE, "11.0")


def test_an_added_backend_is_declared_and_found(new: Sources) -> None:
    added = edited(
        edited(
            new,
            {
                "vllm/config/kernel.py": (
                    '    "emulation",\n    "rdna3",',
                    '    "emulation",\n    "novel",\n    "rdna3",',
                ),
                ORACLE: ('    MARLIN = "MARLIN"\n', '    MARLIN = "MARLIN"\n    NOVEL = "NOVEL"\n'),
            },
        ),
        {
            ORACLE: (
                '        "marlin": NvFp4MoeBackend.MARLIN,\n',
                '        "marlin": NvFp4MoeBackend.MARLIN,\n        "novel": NvFp4MoeBackend.NOVEL,\n',
            )
        },
    )
    declared = {item.name: item for item in VLLM.declared(added, "moe")}["novel"]
    assert (declared.selectable, declared.note) == (True, "means something for nvfp4")
    route = VLLM.route(added, declared, target((12, 0)))
    assert (route.answer, route.why) == (Answer.FAIL, "refused: Unknown NvFP4 MoE backend: NOVEL")


# Layouts nobody has seen


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("oracle/nvfp4.py", "has no function that selects a backend"),
        ("platforms/cuda.py", "describes its platform elsewhere"),
    ],
)
def test_an_unseen_layout_is_not_known(new: Sources, gone: str, why: str) -> None:
    route = VLLM.auto(without(new, gone), "moe", target((12, 0)))
    assert route.answer is Answer.NOT_KNOWN
    assert why in route.why
    assert VLLM.route(without(new, gone), Declaration("moe", "marlin", "", True, None, ()), target((12, 0))).answer is (
        Answer.NOT_KNOWN
    )


def test_nothing_declared_where_nothing_is_found(new: Sources) -> None:
    bare = without(new, "config/kernel.py", "linear/__init__.py", "backends/registry.py", "vllm/envs.py")
    assert [item for item in VLLM.declared(bare, "moe") if item.selectable] == []
    assert VLLM.declared(bare, "fp4-gemm") == ()
    assert VLLM.declared(bare, "attention") == ()
    assert VLLM.known_variables(bare) is None
    unknown = VLLM.auto(new, "moe", target((12, 0), "TERNARY", ""))
    assert unknown.why == "no oracle of vLLM's is known for TERNARY experts"
    for area in ("fp4-gemm", "attention", "all-reduce"):
        assert VLLM.auto(bare, area, target((12, 0))).answer is Answer.NOT_KNOWN


# All-reduce


def test_custom_all_reduce_hangs_on_nvlink(new: Sources, old: Sources) -> None:
    for wheel, line in ((new, 268), (old, 153)):
        route = asked(wheel, "CustomAllreduce", (12, 0), "all-reduce")
        assert route.answer is Answer.NOT_KNOWN
        assert "nothing is against it where NVLink joins them all; else: Custom allreduce is disabled" in route.why
        assert "more than two PCIe-only GPUs" in route.why
        where = f"vllm/distributed/device_communicators/custom_all_reduce.py:{line}"
        assert route.proofs[-1].where == where
    pair = asked(new, "CustomAllreduce", (12, 0), "all-reduce", layout=Layout(tp=2), gpus=2)
    assert pair.answer is Answer.PASS
    odd = asked(new, "CustomAllreduce", (12, 0), "all-reduce", layout=Layout(tp=3), gpus=3)
    assert odd.answer is Answer.FAIL
    assert "unsupported world size: 3" in odd.why


def test_communicators_of_a_version(new: Sources, old: Sources) -> None:
    declared = {item.name: item.flag for item in VLLM.declared(new, "all-reduce")}
    assert declared["SymmMemCommunicator"] == "VLLM_ALLREDUCE_USE_SYMM_MEM=1"
    assert declared["CustomAllreduce"] == "on without --disable-custom-all-reduce"
    assert "FlashInferPcieIpcAllReduce" in declared
    assert "FlashInferPcieIpcAllReduce" not in {item.name for item in VLLM.declared(old, "all-reduce")}
    route = asked(new, "SymmMemCommunicator", (12, 0), "all-reduce")
    assert route.why.startswith("disabled: SymmMemCommunicator: Device capability 12.0 not supported")
    assert VLLM.auto(new, "all-reduce", target((12, 0))).answer is Answer.NOT_KNOWN


@pytest.mark.parametrize(
    ("gpu", "capability", "name", "answer", "told"),
    [
        (
            "rtx-pro-6000-server",
            (12, 0),
            "CustomAllreduce",
            Answer.FAIL,
            "not supported on more than two PCIe-only GPUs",
        ),
        ("h200", (9, 0), "CustomAllreduce", Answer.PASS, "8 cards that NVLink joins, as it usually does this card"),
        ("h100-nvl", (9, 0), "CustomAllreduce", Answer.NOT_KNOWN, "nothing is against it where NVLink joins them all"),
        ("rtx-pro-6000-server", (12, 0), "FlashInferPcieIpcAllReduce", Answer.PASS, "8 cards without NVLink"),
        ("h200", (9, 0), "FlashInferAllReduce", Answer.PASS, "8 cards that NVLink joins"),
        ("h200", (9, 0), "AiterCustomAllreduce", Answer.FAIL, "rocm_aiter_ops.is_custom_all_reduce_enabled()"),
    ],
)
def test_all_reduce_by_what_joins_the_cards(
    new: Sources, gpu: str, capability: tuple[int, int], name: str, answer: Answer, told: str
) -> None:
    route = asked(new, name, capability, "all-reduce", layout=Layout(tp=8), gpus=8, gpu=gpu)
    assert route.answer is answer
    assert told in route.why


def test_products_for_nvfp4_are_no_way_for_another_checkpoint(new: Sources) -> None:
    route = asked(new, "cutlass", (12, 0), "fp4-gemm", expert_format="FP8 block", method="fp8")
    assert (route.answer, route.why) == (
        Answer.FAIL,
        "kernels for NVFP4 layers; this checkpoint is FP8 block",
    )


# Attention by the heads of a rank, and by what a library has


@pytest.mark.parametrize(("heads", "chosen"), [(64, "FlashAttnMLASparseFA4Backend"), (None, "FlashMLASparseBackend")])
def test_sparse_attention_on_b200_is_chosen_by_the_heads_of_a_rank(
    new: Sources, heads: int | None, chosen: str
) -> None:
    route = VLLM.auto(new, "attention", target((10, 0), heads=heads))
    assert (route.answer, route.destination.rpartition(".")[2]) == (Answer.PASS, chosen)


def test_a_class_that_the_registry_names_and_nobody_has_is_not_reachable(new: Sources) -> None:
    route = asked(new, "NO_ATTENTION", (9, 0), "attention")
    assert route.answer is Answer.FAIL
    assert route.why == (
        "it names vllm.v1.attention.backends.no_attention.NoAttentionBackend, which this version does not have"
    )


def test_a_file_that_is_gone_takes_its_backend_with_it(new: Sources) -> None:
    gone = without(new, "vllm_flash_attn/cute/interface.py")
    assert asked(gone, "FLASH_ATTN_MLA_SPARSE_FA4", (10, 0), "attention", heads=64).answer is Answer.FAIL
    assert asked(new, "FLASH_ATTN_MLA_SPARSE_FA4", (10, 0), "attention", heads=64).answer is Answer.PASS


def test_a_shipped_library_of_its_own_is_no_objection(new: Sources) -> None:
    """`import vllm._flashmla_C` succeeds: the file is in the wheel."""
    route = asked(new, "FLASHMLA", (9, 0), "attention", model_type="deepseek_v3")
    assert (route.answer, route.destination.rpartition(".")[2]) == (Answer.PASS, "FlashMLABackend")
    refused = asked(new, "FLASH_ATTN_MLA", (12, 0), "attention")
    assert "FlashAttention MLA not supported on this device" in refused.why
    assert "combination_reason" not in refused.why


def test_what_is_opt_in_does_not_reduce_unasked(new: Sources, old: Sources) -> None:
    card = target((12, 0), gpu="rtx-pro-6000-server")
    why = VLLM.auto(new, "all-reduce", card).why
    assert why.startswith("NCCL, as far as the source tells: every other communicator is off, or disables itself")
    assert "FlashInferPcieIpcAllReduce is off without VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1" in why
    assert "FlashInferAllReduce is off without" in VLLM.auto(old, "all-reduce", target((9, 0), gpu="h200")).why
    flags = {item.name: item.flag for item in VLLM.declared(new, "all-reduce")}
    assert flags["AiterCustomAllreduce"] == "on without --disable-custom-all-reduce"


def test_no_option_is_advised_that_a_version_has_not(new: Sources, old: Sources) -> None:
    for wheel, there in ((new, True), (old, False)):
        hints = [VLLM.route(wheel, item, target((9, 0))).hint for item in VLLM.declared(wheel, "fp4-gemm")]
        assert any("--linear-backend" in hint for hint in hints) is there
        assert any("VLLM_NVFP4_GEMM_BACKEND" in hint for hint in hints) is not there

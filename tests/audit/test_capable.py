"""Gates are claims, code objects are code: both sets, and what the machine can build."""

from pathlib import Path

import msgspec
import pytest

from sublight.audit.capable import capable
from sublight.audit.findings import of_objects, of_toolchain
from sublight.audit.ladder import Answer, Step
from sublight.audit.replies import Imported, Objects, Tool
from sublight.audit.run import staged_bytes
from sublight.audit.scene import Scene
from sublight.audit.tiles import Tile, of_tiles
from tests.audit.scenes import code, distribution, gate, installation, nvcc, route, scene, target, toolchain
from tests.audit.wheels import tree


def answered(made: Scene, *symbols: str, gates: tuple = ()) -> Step:
    return capable(made, route(*symbols, gates=gates))[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sources of packages whose kernels are shipped, built by nvcc, by Triton, and by CuTe DSL."""
    for name, text in {
        "sgl_kernel/__init__.py": "def moe(): ...\n",
        "flashinfer/__init__.py": "from .fused import cutlass_moe, trtllm_moe\n",
        "flashinfer/fused.py": "from .jit.fused import gen\ndef cutlass_moe(): ...\ndef trtllm_moe(): ...\n",
        "flashinfer/jit/__init__.py": "",
        "flashinfer/jit/fused.py": "def gen(): ...\n",
        "flashinfer/dsl.py": "import cutlass\ndef masked(): ...\n",
        "flashinfer/wrapped.py": "from .dsl import masked\nclass Wrapper: ...\n",
        "tritonic/__init__.py": "import triton\ndef fused(): ...\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_widened_gate_is_a_claim_and_no_support(folder: Path) -> None:
    """A list in Python names 120 and 121; cubins are there for 100 and 103."""
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    shipped = {
        "sgl-kernel": [
            code("/site/sgl_kernel/a.cubin", (["sm_100a"], 1)),
            code("/site/sgl_kernel/b.cubin", (["sm_103a"], 1)),
        ]
    }
    claim = gate(Answer.PASS, "cc in {100, 103, 120, 121}", "10.0", "10.3", "12.0", "12.1")
    step, sets = capable(scene(where, folder, objects=shipped), route("sgl_kernel.moe", gates=(claim,)))
    assert step.answer is Answer.FAIL
    assert step.why == (
        "claimed, not proven on sm_120: gates let it through, but sgl-kernel ships code for sm_100a x 1, sm_103a x 1, "
        "none of it runs on sm_120"
    )
    assert sets.claimed == ("10.0", "10.3", "12.0", "12.1")
    assert sets.code[0].coverage.targets == {"sm_100a": 1, "sm_103a": 1}


def test_a_helper_that_looks_at_the_cuda_version_proves_nothing(folder: Path) -> None:
    """ "Is FP4 supported" says yes from CUDA 12.8 on; the library holds code for sm_100a alone."""
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    made = scene(where, folder, objects={"sgl-kernel": [code("/site/sgl_kernel/ops.so", (["sm_100a"], 12))]})
    step = answered(made, "sgl_kernel.moe", gates=(gate(Answer.PASS, "CUDA >= 12080"),))
    assert step.answer is Answer.FAIL
    assert "none of it runs on sm_120" in step.why


def test_gates_alone_are_not_known(folder: Path) -> None:
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    step = answered(scene(where, folder), "sgl_kernel.moe", gates=(gate(Answer.PASS, "is_sm120()"),))
    assert step.answer is Answer.NOT_KNOWN
    assert "which is a claim" in step.why


def test_a_gate_that_refuses_names_its_line_and_the_cards_it_takes(folder: Path) -> None:
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    made = scene(where, folder, objects={"sgl-kernel": [code("/site/sgl_kernel/ops.so", (["sm_120a"], 12))]})
    step = answered(made, "sgl_kernel.moe", gates=(gate(Answer.FAIL, "assert sm in (100, 103)", "10.0", "10.3"),))
    assert step.answer is Answer.FAIL
    assert step.why == "the code refuses sm_120: assert sm in (100, 103) (kernels/gate.py:1)"
    assert step.hint == "a card of compute capability 10.0 or 10.3"


def test_shipped_code_for_the_card_passes_with_its_share(folder: Path) -> None:
    where = installation([distribution("sgl-kernel", "0.3.21")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    units = (["sm_90a", "sm_120a"], 74), (["sm_90a"], 26)
    made = scene(where, folder, objects={"sgl-kernel": [code("/site/sgl_kernel/ops.so", *units)]})
    step = answered(made, "sgl_kernel.moe")
    assert step.answer is Answer.PASS
    assert step.why == "sgl-kernel: 74 of 100 units are built for sm_120 (74.0 %)"


def test_two_separate_faults_of_one_wheel(folder: Path) -> None:
    """No code for sm_121, and a library of CUDA 12 on a machine with 13: neither cure is enough alone."""
    tools = toolchain(libraries=["libnvrtc.so.13", "libcudart.so.13"])
    where = installation([distribution("sgl-kernel", "0.3.21")], {"sgl_kernel": ["sgl-kernel"]}, tools)
    needed = ["libnvrtc.so.12", "libcudart.so.12", "libc.so.6"]
    shipped = [
        code("/site/sgl_kernel/sm90/common_ops.abi3.so", (["sm_90a"], 9), needed=needed),
        code("/site/sgl_kernel/sm100/common_ops.abi3.so", (["sm_100a"], 9), needed=needed),
    ]
    made = scene(where, folder, judged=target(12, 1, gpu="gb10"), objects={"sgl-kernel": shipped})
    step = answered(made, "sgl_kernel.moe")
    assert step.answer is Answer.FAIL
    assert "ships code for sm_90a x 9, sm_100a x 9, none of it runs on sm_121" in step.why
    assert "common_ops.abi3.so needs libnvrtc.so.12, found libnvrtc.so.13" in step.why
    (found,) = of_objects("sgl-kernel", Objects(tuple(shipped)), where)
    assert found.text == (
        "2 of its libraries need what is not there: libnvrtc.so.12 (there is libnvrtc.so.13), "
        "libcudart.so.12 (there is libcudart.so.13)"
    )


def test_prebuilt_code_needs_no_compiler(folder: Path) -> None:
    """An image without nvcc that never compiles anything: the engine's own test for nvcc would hide it."""
    wheels = [distribution("flashinfer-python", "0.6.3"), distribution("flashinfer-cubin", "0.6.3")]
    owners = {"flashinfer": ["flashinfer-python"], "flashinfer_cubin": ["flashinfer-cubin"]}
    where = installation(wheels, owners, toolchain())
    cubins = {"flashinfer-cubin": [code("pool", (["sm_100a"], 40), (["sm_100f"], 900), (["sm_103a"], 60))]}
    variables = frozenset({"VLLM_HAS_FLASHINFER_CUBIN", "VLLM_PORT"})
    b200 = target(10, 0, gpu="b200")
    made = scene(where, folder, judged=b200, objects=cubins, variables=variables)
    step = answered(made, "flashinfer.trtllm_moe")
    assert step.answer is Answer.PASS
    assert step.why == (
        "flashinfer-cubin: 940 of 1,000 units are built for sm_100 (94.0 %), "
        "prebuilt, so it does not matter that there is no nvcc to build it with when it is first called"
    )
    assert step.hint == "VLLM_HAS_FLASHINFER_CUBIN=1, if the engine asks for nvcc before it looks for prebuilt code"
    told = installation(wheels, owners, toolchain(), environment={"VLLM_HAS_FLASHINFER_CUBIN": "1"})
    assert (
        answered(scene(told, folder, judged=b200, objects=cubins, variables=variables), "flashinfer.trtllm_moe").hint
        == ""
    )


def test_prebuilt_code_for_other_cards_does_not_help(folder: Path) -> None:
    wheels = [distribution("flashinfer-python", "0.6.3"), distribution("flashinfer-cubin", "0.6.3")]
    owners = {"flashinfer": ["flashinfer-python"], "flashinfer_cubin": ["flashinfer-cubin"]}
    cubins = {"flashinfer-cubin": [code("pool", (["sm_100a"], 40), (["sm_100f"], 900), (["sm_103a"], 60))]}
    step = answered(scene(installation(wheels, owners, toolchain()), folder, objects=cubins), "flashinfer.trtllm_moe")
    assert step.answer is Answer.FAIL
    assert "none of it runs on sm_120" in step.why


def test_built_on_the_machine_by_a_compiler_that_knows_the_card(folder: Path) -> None:
    wheels, owners = [distribution("flashinfer-python", "0.6.3")], {"flashinfer": ["flashinfer-python"]}
    good = scene(installation(wheels, owners, toolchain(nvcc("13.0.88", "90", "100", "120"))), folder)
    assert answered(good, "flashinfer.cutlass_moe").answer is Answer.PASS
    old = scene(installation(wheels, owners, toolchain(nvcc("12.4", "80", "90"))), folder)
    step = answered(old, "flashinfer.cutlass_moe")
    assert step.answer is Answer.FAIL
    assert "release 12.4, does not know sm_120" in step.why
    none = answered(scene(installation(wheels, owners, toolchain()), folder), "flashinfer.cutlass_moe")
    assert none.answer is Answer.FAIL
    assert none.hint.endswith("or flashinfer-cubin and flashinfer-jit-cache")
    unasked = answered(scene(installation(wheels, owners), folder), "flashinfer.cutlass_moe")
    assert unasked.answer is Answer.NOT_KNOWN


def test_cute_dsl_brings_its_own_compiler(folder: Path) -> None:
    """A kernel that takes it through another module waits for it, whatever nvcc would build of the same path."""
    wheels, owners = [distribution("flashinfer-python", "0.6.3")], {"flashinfer": ["flashinfer-python"]}
    dsl = [*wheels, distribution("nvidia-cutlass-dsl", "4.5.0")], {**owners, "cutlass": ["nvidia-cutlass-dsl"]}
    compiler = toolchain(nvcc("13.0.88", "90", "100", "120"))
    for asked in (("flashinfer.dsl.masked",), ("flashinfer.cutlass_moe", "flashinfer.wrapped.Wrapper")):
        step = answered(scene(installation(*dsl, compiler), folder), *asked)
        assert step.answer is Answer.NOT_KNOWN
        assert step.why == (
            "built by CuTe DSL's own compiler (nvidia-cutlass-dsl 4.5.0) when it is first called, which was not tried"
        )
        without = answered(scene(installation(wheels, owners, compiler), folder), *asked)
        assert without.answer is Answer.FAIL
        assert without.why == (
            "cutlass: CuTe DSL, whose compiler builds the kernel when it is first called, is not installed"
        )
        aside = answered(scene(installation(wheels, owners, interpreter=False), folder), *asked)
        assert aside.answer is Answer.NOT_KNOWN
    really = {"flashinfer.dsl.masked": Imported("found")}
    loose = answered(scene(installation(wheels, owners, compiler), folder, imported=really), "flashinfer.dsl.masked")
    assert loose.why.startswith("built by CuTe DSL's own compiler (imported, but in no distribution's RECORD)")
    assert answered(scene(installation(wheels, owners, compiler), folder), "flashinfer.cutlass_moe").answer is (
        Answer.PASS
    )


def ptxas(path: str, release: str, *targets: str, found_by: str) -> Tool:
    return Tool("ptxas", path, (found_by,), release, targets)


def test_tritons_assembler_is_too_old_and_the_systems_is_not(folder: Path) -> None:
    own = ptxas("/site/triton/backends/nvidia/bin/ptxas", "12.8", "90a", "100a", "120a", found_by="triton")
    system = ptxas("/usr/local/cuda/bin/ptxas", "13.0", "90a", "120a", "121a", found_by="/usr/local/cuda")
    gb10 = target(12, 1, gpu="gb10")
    owners = {"tritonic": ["tritonic"], "triton": ["triton"]}
    where = installation([distribution("tritonic", "1")], owners, toolchain(own, system))
    step = answered(scene(where, folder, judged=gb10), "tritonic.fused")
    assert step.answer is Answer.FAIL
    assert "/site/triton/backends/nvidia/bin/ptxas, release 12.8, does not know sm_121" in step.why
    assert "/usr/local/cuda/bin/ptxas 13.0 does" in step.why
    assert step.hint == "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas"
    (found,) = of_toolchain(where, (12, 1))
    assert found.text.startswith("Triton's own, release 12.8, does not know sm_121; /usr/local/cuda/bin/ptxas")
    assert "torch.compile" in found.hint
    assert list(of_toolchain(where, (12, 0))) == []
    told = ptxas("/usr/local/cuda/bin/ptxas", "13.0", "90a", "120a", "121a", found_by="TRITON_PTXAS_PATH")
    with_variable = installation([distribution("tritonic", "1")], owners, toolchain(told, own))
    assert answered(scene(with_variable, folder, judged=gb10), "tritonic.fused").answer is Answer.PASS


def test_two_compilers_of_different_releases_are_said() -> None:
    wheel = Tool("nvcc", "/site/nvidia/cu13/bin/nvcc", ("a wheel",), "13.2", ("120",))
    where = installation(tools=toolchain(nvcc("12.8", "120"), wheel))
    (found,) = of_toolchain(where)
    assert "/usr/local/cuda/bin/nvcc 12.8 (on the PATH)" in found.text
    assert "/site/nvidia/cu13/bin/nvcc 13.2 (a wheel)" in found.text


def test_shared_memory_of_a_tile_is_arithmetic() -> None:
    tile = Tile(m=128, n=256, k=128, stages=4)
    assert tile.shared_memory_bytes(1) == 147456
    assert tile.most_stages(1, 101376) == 3
    assert Tile(m=128, n=256, k=128, stages=3).shared_memory_bytes(1) == 98304
    assert tile.most_stages(1, 40000) == 0


@pytest.mark.parametrize(("limit", "count"), [(101376, 1), (232448, 0)])
def test_a_default_tile_too_large_for_the_card(tmp_path: Path, limit: int, count: int) -> None:
    (tmp_path / "eng.py").write_text(
        "def config(m):\n"
        "    if m <= 16:\n"
        '        return {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "num_stages": 4}\n'
        '    sizes = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "num_stages": 2 if HIP else 4}\n'
        "    return sizes\n"
    )
    found = list(of_tiles(tree(tmp_path), ["eng"], 1, limit, "sm_120"))
    assert len(found) == count
    for finding in found:
        assert "wants 147,456 bytes" in finding.text
        assert "can have 101,376" in finding.text
        assert "num_stages=3 takes 98,304" in finding.text
        assert "at 1 byte an element" in finding.text
        assert (
            "a call with m > 16 fails, which prefill is; decode rows fit, with 16 x 64 x 128, 4 stages" in finding.text
        )
        assert finding.proofs[0].where == "eng.py:4"


_LARGE = '{"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "num_stages": 4}'
_SMALL = '{"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "num_stages": 4}'


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            f"tile = {_LARGE}\nif M <= E:\n    tile = {_SMALL}",
            "a call with M > E fails, which prefill is; decode rows fit",
        ),
        (
            f"tile = {_SMALL}\nif M > E:\n    tile = {_LARGE}",
            "a call with M > E fails, which prefill is; decode rows fit",
        ),
        (
            f"if M < 32:\n    tile = {_SMALL}\nelse:\n    tile = {_LARGE}",
            "a call with M >= 32 fails, which prefill is; dec",
        ),
        (f"if M <= E or fast:\n    tile = {_SMALL}\nelse:\n    tile = {_LARGE}", "a call with M > E fails"),
        (
            f"tile = {_LARGE}\nif M <= E:\n    tile = {_LARGE}",
            "a call with M > E fails, which prefill is; num_stages=3",
        ),
        (f"tile = {_LARGE}\nif fast:\n    tile = {_SMALL}", "a call that picks it fails; num_stages=3"),
        (f"tile = {_LARGE}", "a call that picks it fails; num_stages=3"),
    ],
)
def test_who_picks_a_tile_that_is_too_large(tmp_path: Path, body: str, says: str) -> None:
    (tmp_path / "eng.py").write_text(body + "\n")
    found = [finding.text for finding in of_tiles(tree(tmp_path), ["eng"], 1, 101376, "sm_120")]
    assert says in found[0]
    assert len(found) == (2 if body.count(_LARGE) == 2 else 1)


def test_a_list_that_leaves_the_card_out_is_no_refusal(folder: Path) -> None:
    """Nothing enforces it: what is known is the claim and its line, and that code for the card can be built here."""
    tools = toolchain(nvcc("13.0.88", "100", "120"))
    where = installation([distribution("flashinfer-python", "1")], {"flashinfer": ["flashinfer-python"]}, tools)
    listed = msgspec.structs.replace(gate(Answer.FAIL, "@supported([100, 103])", "10.0", "10.3"), claim=True)
    step = answered(scene(where, folder), "flashinfer.cutlass_moe", gates=(listed,))
    assert step.answer is Answer.NOT_KNOWN
    assert step.why.startswith(
        f"its list does not name sm_120: {listed.proof.text} (kernels/gate.py:1), and nothing on"
    )
    assert "refuses" not in step.why.partition("and nothing on the way enforces that")[2]
    assert step.proofs[-1] == listed.proof


def test_the_proof_that_stands_last_is_the_line_that_refuses(folder: Path) -> None:
    tools = toolchain(nvcc("13.0.88", "100", "120"))
    where = installation([distribution("flashinfer-python", "1")], {"flashinfer": ["flashinfer-python"]}, tools)
    refusal = gate(Answer.FAIL, "assert sm in (100, 103)", "10.0", "10.3")
    step = answered(scene(where, folder), "flashinfer.cutlass_moe", gates=(refusal,))
    assert step.answer is Answer.FAIL
    assert step.proofs[-1] == refusal.proof


def test_a_path_that_needs_another_vendors_library_is_refused_with_the_line(folder: Path) -> None:
    """Imports under a condition, in a guard, or in a method for that vendor alone say nothing of the path."""
    for name, text in {
        "engine/rocm.py": (
            "class Builder:\n    def __init__(self):\n        from aiter import dtypes\n\n\nclass Backend: ...\n"
        ),
        "engine/shared.py": (
            "try:\n    import aiter\nexcept ImportError:\n    aiter = None\n"
            "class Backend:\n"
            "    def __init__(self, rocm=False):\n        if rocm:\n            import aiter\n"
            "    def forward_rocm(self):\n        from aiter import moe\n"
        ),
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    made = scene(installation([distribution("engine", "1")], {"engine": ["engine"]}, toolchain()), folder)
    step, sets = capable(made, route(destination="engine.rocm.Backend"))
    assert step.answer is Answer.FAIL
    assert step.why == "the code refuses sm_120: it needs aiter, which is for AMD's ROCm (engine/rocm.py:3)"
    assert [(proof.where, proof.text) for proof in sets.gates] == [("engine/rocm.py:3", "from aiter import dtypes")]
    assert capable(made, route(destination="engine.shared.Backend"))[0].answer is Answer.NOT_KNOWN
    needed = capable(made, route("aiter.fused_moe.fused_moe", destination="engine.shared.Backend"))[0]
    assert needed.why == "the code refuses sm_120: it needs aiter, which is for AMD's ROCm (engine/moe.py:1)"


def test_one_gate_that_is_open_does_not_weigh_against_one_that_names_the_card(folder: Path) -> None:
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    shipped = {"sgl-kernel": [code("/site/sgl_kernel/ops.so", (["sm_120a"], 12))]}
    made = scene(where, folder, objects=shipped)
    doubtful = gate(Answer.NOT_KNOWN, "mystery()")
    named = gate(Answer.PASS, "cc in (12.0,)", "12.0")
    assert answered(made, "sgl_kernel.moe", gates=(doubtful, named)).answer is Answer.PASS
    alone = answered(made, "sgl_kernel.moe", gates=(doubtful, gate(Answer.PASS, "cc in (9.0,)", "9.0")))
    assert (alone.answer, alone.why) == (Answer.NOT_KNOWN, "this gate could not be decided: mystery()")


def test_of_several_refusals_the_first_says_which_cards_are_taken(folder: Path) -> None:
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    gates = (gate(Answer.FAIL, "first", "10.0"), gate(Answer.FAIL, "second", "9.0"))
    step, sets = capable(scene(where, folder), route("sgl_kernel.moe", gates=gates))
    assert sets.claimed == ("10.0",)
    assert step.hint == "a card of compute capability 10.0"


def test_of_lists_that_share_no_card_the_shortest_is_told(folder: Path) -> None:
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    gates = (gate(Answer.PASS, "a", "9.0", "10.0"), gate(Answer.PASS, "b", "12.0"))
    assert capable(scene(where, folder), route("sgl_kernel.moe", gates=gates))[1].claimed == ("12.0",)


def test_code_for_the_card_is_not_enough_while_another_package_waits_for_a_build(folder: Path) -> None:
    """One package ships code; what the other's build comes to, nobody was asked."""
    owners = {"sgl_kernel": ["sgl-kernel"], "flashinfer": ["flashinfer-python"]}
    where = installation([distribution("sgl-kernel", "1"), distribution("flashinfer-python", "1")], owners)
    shipped = {"sgl-kernel": [code("/site/sgl_kernel/ops.so", (["sm_120a"], 12))]}
    step = answered(scene(where, folder, objects=shipped), "sgl_kernel.moe", "flashinfer.cutlass_moe")
    assert step.answer is Answer.NOT_KNOWN


def test_portable_code_of_an_older_card_is_translated_when_it_is_loaded(folder: Path) -> None:
    where = installation([distribution("sgl-kernel", "1")], {"sgl_kernel": ["sgl-kernel"]}, toolchain())
    made = scene(where, folder, objects={"sgl-kernel": [code("/site/sgl_kernel/ops.so", (["compute_90"], 12))]})
    assert answered(made, "sgl_kernel.moe").answer is Answer.PASS


@pytest.mark.parametrize(("name", "size"), [("FP8", 1.0), ("NVFP4", 1.0), ("MXFP4", 1.0), ("BF16", 2.0), ("", 2.0)])
def test_bytes_of_an_activation_in_a_tile(name: str, size: float) -> None:
    assert staged_bytes(name) == size

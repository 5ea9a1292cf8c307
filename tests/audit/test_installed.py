"""Who ships what a path needs, and whether the engine's pins and checks are met."""

from pathlib import Path

import pytest

from sublight.audit.engines.base import Pin
from sublight.audit.installed import installed
from sublight.audit.ladder import Answer, Proof
from sublight.audit.replies import Clash, Imported
from sublight.audit.requirements import demands, meets
from tests.audit.machines import Site
from tests.audit.scenes import distribution, installation, route, scene

ENGINE = distribution(
    "engine",
    "0.5.9",
    "flashinfer-python[cu13]==0.6.3",
    'sgl-kernel==0.3.21; platform_machine == "x86_64"',
    'other==1; platform_machine == "aarch64"',
    'torch==2.9; extra == "test"',
    "not a requirement at all!!",
)
PATH = route("flashinfer.fused_moe.cutlass_fused_moe")


def test_the_pinned_version_passes(tmp_path: Path) -> None:
    where = installation([ENGINE, distribution("flashinfer-python", "0.6.3")], {"flashinfer": ["flashinfer-python"]})
    step = installed(scene(where, tmp_path, engine=ENGINE), PATH)
    assert (step.answer, step.why) == (Answer.PASS, "engine 0.5.9, flashinfer-python 0.6.3")
    assert (
        Proof("distribution", "engine-0.5.9.dist-info/METADATA", "Requires-Dist: flashinfer-python[cu13]==0.6.3")
        in step.proofs
    )


def test_another_version_than_the_pinned_one(tmp_path: Path) -> None:
    where = installation([ENGINE, distribution("flashinfer-python", "0.6.1")], {"flashinfer": ["flashinfer-python"]})
    step = installed(scene(where, tmp_path, engine=ENGINE), PATH)
    assert step.answer is Answer.NOT_KNOWN  # it is there, and nothing refuses it
    assert step.why.startswith("flashinfer-python 0.6.1 is installed; the engine's metadata asks for ==0.6.3, which")
    assert step.hint == "pip install 'flashinfer-python[cu13]==0.6.3'"


def test_a_check_in_the_code_refuses_where_the_metadata_does_not(tmp_path: Path) -> None:
    check = Pin("flashinfer-python", ">=0.6.2", Proof("source", "engine/server.py:10", "check"))
    for version, answer in (("0.6.1", Answer.FAIL), ("0.6.2", Answer.NOT_KNOWN), ("0.6.3", Answer.PASS)):
        where = installation(
            [ENGINE, distribution("flashinfer-python", version)], {"flashinfer": ["flashinfer-python"]}
        )
        step = installed(scene(where, tmp_path, engine=ENGINE, pins=(check,)), PATH)
        assert step.answer is answer
        if answer is Answer.FAIL:
            assert step.why == "flashinfer-python 0.6.1, but >=0.6.2 is asked for"


def test_a_floor_that_the_code_checks_when_it_runs(tmp_path: Path) -> None:
    """The metadata pins 0.6.3; one option asks for more at run time, and only then."""
    check = Pin(
        "flashinfer-python", ">=0.6.5", Proof("source", "engine/server.py:10", "check"), "the backend is trtllm"
    )
    where = installation([ENGINE, distribution("flashinfer-python", "0.6.3")], {"flashinfer": ["flashinfer-python"]})
    step = installed(scene(where, tmp_path, engine=ENGINE, pins=(check,)), PATH)
    assert step.answer is Answer.FAIL
    assert step.why == "flashinfer-python 0.6.3, but >=0.6.5 is asked for when the backend is trtllm"


def test_nothing_ships_it(tmp_path: Path) -> None:
    step = installed(scene(installation([ENGINE]), tmp_path, engine=ENGINE), PATH)
    assert (step.answer, step.why) == (Answer.FAIL, "flashinfer is not installed")
    assert step.hint == "pip install 'flashinfer-python[cu13]==0.6.3'"


def test_a_folder_need_not_be_everything(tmp_path: Path) -> None:
    step = installed(scene(installation([ENGINE], interpreter=False), tmp_path, engine=ENGINE), PATH)
    assert step.answer is Answer.NOT_KNOWN


def test_no_metadata_names_what_ships_it(tmp_path: Path) -> None:
    step = installed(scene(installation([ENGINE]), tmp_path, engine=ENGINE), route("hpc.moe"))
    assert step.why == "hpc is not installed"
    assert step.hint == "a distribution that ships hpc; the engine's metadata names none"


def test_a_source_tree_on_the_path_belongs_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "flashinfer").mkdir()
    step = installed(scene(installation([ENGINE]), tmp_path, engine=ENGINE), PATH)
    assert step.answer is Answer.PASS
    assert step.proofs[-1].text == "on the path, but in no distribution's RECORD"


def test_two_owners_of_the_same_files(tmp_path: Path) -> None:
    names = [
        distribution("nvidia-cutlass-dsl-libs-base", "4.5.0"),
        distribution("nvidia-cutlass-dsl-libs-cu13", "4.5.0"),
    ]
    matches = {"nvidia-cutlass-dsl-libs-base 4.5.0": 168, "nvidia-cutlass-dsl-libs-cu13 4.5.0": 0}
    where = installation(
        names, {"cutlass": [d.name for d in names]}, clashes=[Clash(168, matches, ("nvidia_cutlass_dsl/mma.py",))]
    )
    step = installed(scene(where, tmp_path), route("cutlass.cute.compile"))
    assert step.answer is Answer.FAIL
    assert step.why == (
        "nvidia-cutlass-dsl-libs-base 4.5.0 and nvidia-cutlass-dsl-libs-cu13 4.5.0 both claim 168 files with different "
        "contents; on disk 168 match nvidia-cutlass-dsl-libs-base 4.5.0, 0 match nvidia-cutlass-dsl-libs-cu13 4.5.0"
    )


def test_markers_are_asked_of_the_audited_machine(tmp_path: Path) -> None:
    del tmp_path
    where = installation([ENGINE, distribution("sgl-kernel", "0.3.20")])
    assert [d.met for d in demands(ENGINE, (), where, "sgl_kernel")] == [False]
    assert demands(ENGINE, (), where, "other") == ()
    assert demands(ENGINE, (), where, "torch") == ()


@pytest.mark.parametrize(
    ("version", "specifier", "met"),
    [
        ("0.6.11.post1", ">=0.6.11", True),
        ("0.6.11.post1", "==0.6.11.post1", True),
        ("0.6.11", "==0.6.11.post1", False),
        ("0.7.0rc1", ">=0.6", True),
        ("2.9.0+cu130", "==2.9.0", True),
        ("", ">=1", False),
        ("unknown", ">=1", None),
        ("1.0", "=>1", None),
    ],
)
def test_versions(version: str, specifier: str, met: bool | None) -> None:
    assert meets(version, specifier) is met


WRAPPED = {
    "flash/__init__.py": """\
        import contextlib
        with contextlib.suppress(ImportError):
            from .wrapped import Wrapper
        """,
    "flash/wrapped.py": """\
        from .here import is_available
        if is_available():
            from .dsl import Wrapper
        """,
    "flash/here.py": """\
        import importlib.util
        def is_available():
            return importlib.util.find_spec("cutlass") is not None
        """,
    "flash/dsl.py": "from .inner import masked\nclass Wrapper: ...\n",
    "flash/inner.py": "import cutlass\ndef masked(): ...\n",
    "flash/plain.py": "import binding\ndef run(): ...\n",
}


def test_what_builds_a_kernel_is_part_of_what_it_needs(tmp_path: Path) -> None:
    """The engine asks flash for a class, and nobody is told that CuTe DSL behind it is missing."""
    Site(tmp_path).write(WRAPPED)
    engine = distribution("engine", "2.0", "flash==1.0", "nvidia-cutlass-dsl==4.6.0")
    names, owners = [engine, distribution("flash", "1.0")], {"flash": ["flash"]}
    asked = route("flash.Wrapper")
    step = installed(scene(installation(names, owners), tmp_path, engine=engine), asked)
    assert step.answer is Answer.FAIL
    assert step.why == "cutlass is not installed, and flash.Wrapper takes it"
    assert step.hint == "pip install 'nvidia-cutlass-dsl==4.6.0'"
    assert Proof("source", "flash/inner.py:1", "import cutlass") in step.proofs
    aside = installed(scene(installation(names, owners, interpreter=False), tmp_path, engine=engine), asked)
    assert aside.answer is Answer.NOT_KNOWN
    assert aside.why == "not in the folder, which need not hold all that is installed: cutlass"
    for version, answer in (("4.6.0", Answer.PASS), ("4.5.0", Answer.NOT_KNOWN)):
        more = [
            *names,
            distribution("nvidia-cutlass-dsl", version),
            distribution("nvidia-cutlass-dsl-libs-base", version),
        ]
        there = installation(more, {**owners, "cutlass": ["nvidia-cutlass-dsl-libs-base"]})
        step = installed(scene(there, tmp_path, engine=engine), asked)
        assert step.answer is answer
        assert f"nvidia-cutlass-dsl-libs-base {version}" in step.why
    really = {"flash.Wrapper": Imported("found")}
    assert installed(scene(installation(names, owners), tmp_path, imported=really), asked).answer is Answer.PASS


def test_any_package_that_the_code_fails_without(tmp_path: Path) -> None:
    Site(tmp_path).write(WRAPPED)
    engine = distribution("engine", "2.0", "flash==1.0")
    names = [engine, distribution("flash", "1.0", "some-binding>=2")]
    asked = route("flash.plain.run")
    step = installed(scene(installation(names, {"flash": ["flash"]}), tmp_path, engine=engine), asked)
    assert (step.answer, step.why) == (Answer.FAIL, "binding is not installed, and flash.plain.run takes it")
    assert step.hint == "pip install 'some-binding>=2'"
    alone = installed(scene(installation(names, {"flash": ["flash"]}, interpreter=False), tmp_path), asked)
    assert alone.answer is Answer.PASS


def test_the_last_line_is_what_the_sentence_is_about(tmp_path: Path) -> None:
    names = [distribution("flash", "1.0"), distribution("triton", "3.9")]
    there = installation(names, {"flash": ["flash"], "triton": ["triton"]})
    step = installed(scene(there, tmp_path), route("absent.x", "flash.y", "triton"))
    assert step.why == "absent is not installed"
    assert step.proofs[-1] == Proof("distribution", "absent", "no installed distribution ships it")

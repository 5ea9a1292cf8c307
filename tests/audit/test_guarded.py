"""One guard around several imports: the one that fails takes the others along, and is named."""

from pathlib import Path

from sublight.audit.guarded import of_guards
from tests.audit.wheels import tree


def written(folder: Path, gdn: str) -> None:
    for name, text in {
        "fi/__init__.py": "",
        "fi/decode.py": "def run(): ...\n",
        "fi/prefill.py": "def run(): ...\n",
        "fi/verify.py": "def run(): ...\n",
        "fi/state_sm100.py": "import cutlass\ndef run(): ...\n",
        "eng/__init__.py": "",
        "eng/gdn.py": gdn,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


TOGETHER = """\
try:
    from fi.decode import run as decode
    from fi.prefill import run as prefill
    from fi.verify import run as verify
    from fi.state_sm100 import run as state
    AVAILABLE = True
except ImportError:
    AVAILABLE = False
"""


def test_three_of_four_succeed_and_all_are_given_up(tmp_path: Path) -> None:
    written(tmp_path, TOGETHER)
    (found,) = of_guards(tree(tmp_path), ["eng.gdn"], ["fi"], lambda name: name != "cutlass")
    assert found.subject == "eng/gdn.py:1"
    assert found.text.startswith(
        "3 of the 4 imports under one guard succeed here, and all are given up, and AVAILABLE = False"
    )
    assert "fi.state_sm100.run asks for cutlass, which is not there" in found.text
    assert "fi/state_sm100.py:1" in [proof.where for proof in found.proofs]


def test_nothing_to_say_where_all_succeed_or_all_fail(tmp_path: Path) -> None:
    written(tmp_path, TOGETHER)
    assert list(of_guards(tree(tmp_path), ["eng.gdn"], ["fi"], lambda _: True)) == []
    apart = TOGETHER.replace("from fi.state_sm100 import run as state\n    ", "")
    written(tmp_path, apart)
    assert list(of_guards(tree(tmp_path), ["eng.gdn"], ["fi"], lambda name: name != "cutlass")) == []

"""The README's output is what the program prints, and its commands are the ones that CI runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
# Rewrite the blocks instead of checking them: UPDATE_README=1 pytest tests/docs
UPDATE = bool(os.environ.get("UPDATE_README"))
BLOCK = re.compile(r"<!-- output: (sublight .*?) \| (\d+) lines -->\n```\n(.*?)```\n", re.DOTALL)


def printed(command: str, lines: int) -> str:
    argv = [sys.executable, "-m", *shlex.split(command)]
    env = os.environ | {"COLUMNS": "100", "PYTHONUTF8": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True)
    return "\n".join(done.stdout.splitlines()[:lines]).rstrip() + "\n"


def test_output_is_real() -> None:
    blocks = BLOCK.findall(README)
    assert blocks
    if UPDATE:
        fresh = BLOCK.sub(
            lambda m: f"<!-- output: {m[1]} | {m[2]} lines -->\n```\n{printed(m[1], int(m[2]))}```\n", README
        )
        (ROOT / "README.md").write_text(fresh)
        return
    for command, lines, shown in blocks:
        assert printed(command, int(lines)) == shown


def test_ci_runs_the_test_command_of_the_readme() -> None:
    section = README.split("## Install and test", 1)[1]
    command = re.search(r"```\n(.*?)\n```", section, re.DOTALL)
    assert command is not None
    assert command[1] == "pip install -e '.[dev]' && scripts/check"
    assert "## Install and test" in (ROOT / ".ci" / "run").read_text()


def test_every_command_named_in_the_readme_exists() -> None:
    from sublight.cli.main import COMMANDS

    named = set(re.findall(r"^sublight (\w+)|`sublight (\w+)", README, re.MULTILINE))
    assert {a or b for a, b in named} <= set(COMMANDS)


def test_every_module_is_on_the_map() -> None:
    """docs/architecture.md names each file of the package, or the folder it lies in."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "sublight"
    missing = []
    for path in source.rglob("*.py"):
        inner = path.relative_to(source)
        folders = [f"{part}/" for part in inner.parts[1:-1]]
        if inner.name in {"__init__.py", "__main__.py"} or inner.parts[0] in {"trace", "cli", "campaign"}:
            continue
        if inner.name not in text and not any(folder in text for folder in folders):
            missing.append(str(inner))
    assert not missing

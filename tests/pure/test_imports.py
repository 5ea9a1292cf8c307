"""Imports run downhill: the table is read here, and no module of ours imports another that is not below it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "sublight"

GROUND = {"errors", "units", "files", "records", "registry", "rows", "sublight"}
# Left may import right (and itself), and nothing else of ours.
ALLOWED: dict[str, set[str]] = {
    "sublight": set(),
    "errors": set(),
    "units": {"errors"},
    "files": {"errors"},
    "records": {"errors", "files", "sublight"},
    "registry": {"errors"},
    "rows": set(),
    "facts": GROUND,
    "limits": GROUND | {"facts"},
    "trace": GROUND,
    "gap": GROUND | {"facts", "limits", "trace"},
    "campaign": GROUND | {"facts", "limits", "trace", "gap", "hosts", "tuning", "audit", "bench"},
    "hosts": {"errors"},
    "tuning": GROUND | {"facts", "hosts"},
    "audit.probe": set(),  # it travels, and finds nothing of ours where it arrives
    "audit": GROUND | {"facts", "limits", "trace", "hosts", "audit.probe"},
    "kernels": GROUND | {"facts", "limits"},
    "bench": GROUND | {"facts", "limits", "kernels"},
    "trials": GROUND | {"facts", "limits", "hosts", "audit", "kernels", "bench"},
    "report.blocks": set(),
    "report.views": GROUND
    | {"report.blocks", "facts", "limits", "trace", "gap", "campaign", "tuning", "audit", "bench"},
    "report": {"errors", "registry", "report.blocks"},
    "__main__": {"cli"},
}
ALLOWED["cli"] = set(ALLOWED) - {"__main__"}
HEAVY = {"torch", "triton", "pandas"}
# Imported late themselves, as the tests below hold.
TORCH_AT_HOME = ("sublight.kernels.", "sublight.bench.", "sublight.trials.worker")
LATE = {"numpy", "jinja2", "rich"}  # never at the top of a module that a start passes
MAY_START_WITH = {
    "sublight.report.terminal": "rich",
    "sublight.trace": "numpy",
    "sublight.kernels.": "numpy",
}  # imported late themselves


def late_in(module: str) -> str:
    """The heavy library that a module may import at its top, because the module itself is imported late."""
    return next((library for place, library in MAY_START_WITH.items() if module.startswith(place)), "")


def part_of(module: str) -> str:
    """The row of the table that a module of ours belongs to: its longest prefix there."""
    inner = module.removeprefix("sublight").lstrip(".")
    if not inner:
        return "sublight"
    pieces = inner.split(".")
    for length in range(len(pieces), 0, -1):
        name = ".".join(pieces[:length])
        if name in ALLOWED:
            return name
    return f"{inner} is in no row of the table"


def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module, and whether at module level (type-checking blocks left out)."""
    found = []

    def walk(node: ast.AST, top: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.extend((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                found.append((child.module or "", top))
                if child.module == "sublight":
                    found.extend((f"sublight.{a.name}", top) for a in child.names if not a.name.startswith("__"))
            walk(child, top and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    walk(ast.parse(path.read_text()), True)
    return found


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_run_downhill(path: Path) -> None:
    module = ".".join(("sublight", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    own = part_of(module)
    assert own in ALLOWED, own
    for imported, top in imports(path):
        root = imported.split(".")[0]
        at_home = module.startswith(TORCH_AT_HOME) and root != "pandas"
        assert root not in HEAVY or at_home, f"{module} imports {imported}"
        assert not (top and root in LATE and root != late_in(module)), f"{module} imports {imported} at start"
        if root == "sublight":
            target = part_of(imported)
            if target == "sublight" and imported != "sublight":
                continue
            assert target == own or target in ALLOWED[own], f"{module} ({own}) imports {imported} ({target})"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_no_module_needs_torch() -> None:
    names = [
        ".".join(("sublight", *p.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for p in MODULES
        if p.name != "__main__.py"
        and p.relative_to(SOURCE).parts[0] not in ("kernels", "bench")
        and p != SOURCE / "trials" / "worker.py"
    ]
    assert not loaded_by("\n".join(f"import {name}" for name in names)) & HEAVY


def test_a_limit_starts_without_numpy_and_jinja2() -> None:
    loaded = loaded_by(
        "from sublight.cli.main import main\n"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['limit', 'glm-5-nvfp4', '--gpus', '8xrtx-pro-6000-workstation'])\n"
        "assert 'sublight.limits.decode' in sys.modules"
    )
    assert not loaded & {"numpy", "jinja2", "torch", "pandas"}


def test_help_loads_no_command() -> None:
    loaded = loaded_by(
        "from sublight.cli.main import main\nimport contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n    main(['--help'])"
    )
    assert not loaded & {"numpy", "rich", "msgspec", "jinja2"}

"""The probe as one script: the files of `probe/` behind each other, and the request.

Modules are put into `sys.modules` under their own names before they run, so that the files which travel are the very
files that are type-checked and tested here.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "probe"
# What comes later may import what comes before.
_ORDER = ("interpreter", "files", "distributions", "gpus", "toolchain", "objects", "symbols", "entry")
# "" on the path is the folder the probe was started in, whose files are not part of the installation.
_LOADER = """\
import sys
if sys.version_info < (3, 9):
    sys.exit("the probe needs Python 3.9 or newer, this is " + sys.version.split()[0])
sys.path[:] = [entry for entry in sys.path if entry]
sys.dont_write_bytecode = True
import types
for _name in ("sublight", "sublight.audit", "sublight.audit.probe"):
    sys.modules[_name] = types.ModuleType(_name)
for _name, _text in {sources!r}:
    _module = types.ModuleType("sublight.audit.probe." + _name)
    sys.modules[_module.__name__] = _module
    setattr(sys.modules["sublight.audit.probe"], _name, _module)
    exec(compile(_text, "<sublight probe: %s>" % _name, "exec"), _module.__dict__)
for _name in [_name for _name in sys.modules if _name.partition(".")[0] == "sublight"]:
    del sys.modules[_name]  # an installed Sublight is none of the probe's business, and not hidden by it
_module.symbols.CHILD = {child!r}
_module.main({request!r})
"""


_UNPACK = """\
import base64, zlib
exec(compile(zlib.decompress(base64.b64decode({packed!r})).decode("utf-8"), "<sublight probe>", "exec"))
"""


@cache
def _sources() -> tuple[tuple[str, str], ...]:
    return tuple((name, (_FOLDER / f"{name}.py").read_text("utf-8")) for name in _ORDER)


def script(request: Mapping[str, Mapping[str, Any]]) -> bytes:
    """What to send on standard input to `PYTHON -`, compressed: a request may name thousands of files.

    `request`: question -> its arguments, see `probe.entry`.
    """
    child = (_FOLDER / "child.py").read_text("utf-8")
    text = _LOADER.format(sources=_sources(), child=child, request=json.dumps(request)).encode("utf-8")
    packed = base64.b64encode(zlib.compress(text)).decode("ascii")
    return _UNPACK.format(packed=packed).encode("ascii")

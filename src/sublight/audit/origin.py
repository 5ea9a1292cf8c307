"""Origin: what a log or a trace is of. It proves that a backend runs only for the run it was taken from.

Compared is what it says: version, card, architecture, quantisation, layout. What it does not say is told beside the
proof. Names of checkpoints are not compared: a folder is called as its owner likes.
"""

import re
from collections.abc import Iterator

import msgspec

from sublight.audit.log import EngineLog
from sublight.audit.log.record import FactKind
from sublight.audit.target import Target
from sublight.errors import SublightError
from sublight.facts.gpu import get_gpu


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """How a run compares with the target.

    Attributes:
        differs: "tensor parallelism 1, asked for 8", one entry a thing that differs.
        untold: things that nothing is said of.
    """

    differs: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()

    def is_of_another(self, *whats: str) -> bool:
        """Whether one of these things, named as in `differs`, is another one."""
        return any(text.startswith(f"{what} ") for text in self.differs for what in whats)

    @property
    def caveat(self) -> str:
        """ "; it does not say: card, layers", "" where everything compared is said."""
        return f"; it does not say: {', '.join(self.untold)}" if self.untold else ""


class _Told(msgspec.Struct, frozen=True):
    what: str
    run: str  # "" where nothing is said
    asked: str
    same: bool


def of_log(log: EngineLog, target: Target, version: str) -> Origin:
    """`version`: of the engine that is audited, "" where no metadata has one."""
    return _origin([*_engine(log, version), *_card(_cards(log), target), *_model(log, target), *_layout(log, target)])


def of_trace(card: str, capability: tuple[int, int] | None, world: int | None, target: Target) -> Origin:
    """A trace names its card and, of some profilers, how many ranks there were; nothing of the model."""
    told = list(_card([card] if card else [], target))
    if capability is not None and capability != target.compute_capability and not any(not t.same for t in told):
        shown = f"sm_{capability[0]}{capability[1]}"
        told = [_Told("card", shown, target.sm, False)]
    ranks = "" if world is None else str(world)
    told.append(_Told("ranks", ranks, str(target.layout.gpus), ranks in ("", str(target.layout.gpus))))
    return _origin([*told, _Told("engine version", "", "", True), _Told("model", "", "", True)])


def _origin(told: list[_Told]) -> Origin:
    return Origin(
        differs=tuple(f"{item.what} {item.run}, asked for {item.asked}" for item in told if not item.same),
        untold=tuple(item.what for item in told if not item.run),
    )


def _compared(what: str, run: str, asked: str) -> _Told:
    return _Told(what, run, asked, not run or not asked or run == asked)


def _engine(log: EngineLog, version: str) -> Iterator[_Told]:
    yield _compared("engine version", log.engine_version, version)


def _cards(log: EngineLog) -> list[str]:
    """Cards that a log names: in the file names of tuned configurations ("device_name=NVIDIA_H200")."""
    files = (fact.get("file") for fact in log.of(FactKind.NO_CONFIG, FactKind.OTHER_CONFIG, FactKind.TUNED_CONFIG))
    found = (match[1].replace("_", " ") for file in files if (match := re.search(r"device_name=([^,.]+)", file)))
    return list(dict.fromkeys(found))


def _card(names: list[str], target: Target) -> Iterator[_Told]:
    if not names:
        yield _Told("card", "", target.gpu, True)
    for name in names:
        try:
            yield _compared("card", get_gpu(name).name, get_gpu(target.gpu).name)
        except SublightError:  # a card that the catalogue does not have is none that can be asked for
            yield _Told("card", name, target.gpu, False)


def _model(log: EngineLog, target: Target) -> Iterator[_Told]:
    named = [fact.get("name") for fact in log.of(FactKind.ARCHITECTURE)]
    yield _compared("architecture", named[-1] if named else "", target.architecture)
    methods = [fact.get("method") for fact in log.of(FactKind.QUANTIZATION)]
    method = methods[-1] if methods else log.config.get("quantization")
    method = "" if method in ("None", "none") else method
    same = not method or _family(method) == _family(target.method)
    yield _Told("quantisation", method, target.method, same)
    yield _Told("layers", "", "", True)


def _family(method: str) -> str:
    """ "modelopt_fp4" is one of "modelopt", "awq_marlin" of "awq"."""
    return re.split(r"[_-]", method.lower())[0]


def _layout(log: EngineLog, target: Target) -> Iterator[_Told]:
    layout = target.layout
    if log.engine == "vllm":  # which counts data-parallel groups outside tensor parallelism
        yield _compared("tensor parallelism", log.setting("tensor_parallel_size"), str(layout.attention_tp))
        spread = log.setting("enable_expert_parallel")
        yield _compared("expert parallelism", {"True": "yes", "False": "no"}.get(spread, ""), _yes(layout.ep > 1))
        yield _compared("data parallelism", log.setting("data_parallel_size"), str(layout.dp))
        return
    yield _compared("tensor parallelism", log.setting("tp_size"), str(layout.tp))
    yield _compared("expert parallelism", log.setting("ep_size"), str(layout.ep))
    yield _compared("data parallelism", log.setting("dp_size"), str(layout.dp))


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"

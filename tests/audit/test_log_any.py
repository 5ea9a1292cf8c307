"""Any bytes at all end in facts or in one error; damage to a real log never makes up a fact."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.audit.log import EngineLog, log_findings, proven_experts, read_log
from sublight.audit.log.echo import arguments, inner, without_secrets
from sublight.audit.log.rules import built_in
from sublight.audit.log.spoken import Listener
from sublight.errors import InputFileError

LOGS = Path(__file__).parents[1] / "data" / "logs"
WHOLE = {path.name: path.read_bytes() for path in LOGS.glob("*.log")}
EXAMPLES = [message for rule in built_in() for message in rule.example]
PREFIXES = ["", "INFO 05-15 03:31:20 [a.py:1] ", "(Worker_TP1 pid=3) ", "[2026-11-30 04:02:07 TP0] ", "\x1b[32m", "\r"]


def read(data: bytes) -> EngineLog | None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.log"
        path.write_bytes(data)
        try:
            log = read_log(path)
        except InputFileError as error:
            assert error.found and error.hint
            return None
    log_findings(log)
    proven_experts(log)
    assert list(log.flaws()) == []
    return log


@given(st.binary(max_size=3000))
@settings(deadline=None)
def test_any_bytes(data: bytes) -> None:
    read(data)


@given(st.lists(st.tuples(st.sampled_from(PREFIXES), st.sampled_from(EXAMPLES), st.text(max_size=9)), max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_lines_in_any_order(lines: list[tuple[str, str, str]]) -> None:
    log = read("\n".join(prefix + message + tail for prefix, message, tail in lines).encode(errors="replace"))
    assert log is None or len(log.facts) <= 2 * len(lines)


@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 25_000), st.binary(max_size=40), st.integers(0, 400))
@settings(max_examples=150, deadline=None)
def test_a_damaged_log_says_less_and_nothing_else(name: str, at: int, put: bytes, cut: int) -> None:
    whole = WHOLE[name]
    log = read(whole[:at] + put + whole[at + cut :])
    intact = read(whole)
    assert intact is not None
    if log is None:
        return
    damaged = whole[:at].count(b"\n") + 1
    known = {(fact.rule, *sorted(fact.fields.items())) for fact in intact.facts}
    for fact in log.facts:
        nearby = abs(fact.first.line - damaged) <= put.count(b"\n") + 1
        assert nearby or (fact.rule, *sorted(fact.fields.items())) in known


@given(st.text(max_size=400))
@settings(deadline=None)
def test_any_text_as_a_line(text: str) -> None:
    for spoken in Listener().hear(text):
        built_in().read(spoken.message)


@given(st.text(alphabet="ab='\"()[]{},\\<>: key_1", max_size=80))
@settings(deadline=None)
def test_any_text_as_arguments(text: str) -> None:
    for argument in arguments(text):
        inner(argument.text)
        assert without_secrets(argument.text) is not None

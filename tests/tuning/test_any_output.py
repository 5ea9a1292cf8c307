"""Damaged output never stops the rest: whatever is cut, doubled or emptied, every knob still gets an answer."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.hosts.base import Completed
from sublight.hosts.recorded import RecordedHost
from sublight.hosts.recording import Recording, answer_of
from sublight.records import decode, encode
from sublight.report.markdown import render_markdown
from sublight.report.views.host import host_document
from sublight.tuning.record import HostReport, Verdict
from sublight.tuning.report import host_report
from sublight.tuning.sources import SOURCES
from tests.tuning.judged import H200
from tests.tuning.machines import Server

SERVER = list(Server(acs="+", width=8, peers="CNS").texts().values())
REAL = [path.read_text() for path in sorted(H200.iterdir()) if path.suffix in (".log", ".csv")]
NOT_THERE = ("", "N/A", "[N/A]", "-1", "99999999999999999999", "0", "x", "Unknown Error", "1e400", "é")


@st.composite
def damaged(draw: st.DrawFn) -> list[str]:
    """The outputs of a machine with some lines gone, doubled, cut short, or with other values."""
    texts = []
    for text in draw(st.sampled_from([SERVER, REAL])):
        lines = text.splitlines()
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(lines) - 1))
            how = draw(st.sampled_from(["gone", "twice", "cut", "value", "number", "rest"]))
            line = lines[at]
            if how == "gone":
                lines[at] = ""
            elif how == "twice":
                lines.insert(at, line)
            elif how == "cut":
                lines[at] = line[: draw(st.integers(0, len(line)))]
            elif how == "value":
                lines[at] = re.sub(r"(: ?)\S.*$", rf"\g<1>{draw(st.sampled_from(NOT_THERE))}", line)
            elif how == "number":
                lines[at] = re.sub(r"[0-9]+", draw(st.sampled_from(NOT_THERE)), line, count=1)
            else:
                lines = lines[: at + 1]
        texts.append("\n".join(lines) + "\n")
    return texts


def judge(texts: list[str]) -> HostReport:
    answers = []
    for source in SOURCES.values():
        text = next((text for text in texts if source.looks_like(text)), None)
        if text is not None:
            answers.append(answer_of(Completed(source.argv, 0, text.encode())))
    return host_report(RecordedHost(Recording("box", tuple(answers))), "snapshot")


@settings(max_examples=100, deadline=None)
@given(damaged())
def test_every_knob_gets_an_answer(texts: list[str]) -> None:
    report = judge(texts)
    assert list(report.flaws()) == []
    for finding in report.findings:
        assert finding.found and finding.why
        assert finding.command or finding.verdict is not Verdict.NOT_KNOWN
        assert "None" not in finding.found and "nan" not in finding.found
    assert decode(encode(report), {"host": HostReport}) == report
    assert render_markdown(host_document(report)).startswith("# Host: box")

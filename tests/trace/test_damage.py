"""Text that is not JSON: what can be mended is read, what can not is counted, the events around it are untouched."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import InputFileError
from sublight.trace.mending import mend, without_bare_words
from sublight.trace.repairs import RepairKind

from .samples import EPOCH_NS, LAYOUTS, Sample, compact, everything, found, gpu_rows, kineto, names, read, typical


def ten(name: str = "MARK") -> Sample:
    sample = Sample()
    for number in range(10):
        sample.kernel(EPOCH_NS + number * 100, 50, name if number == 4 else f"k{number}", correlation=number)
    return sample


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        (rb'f<"x">(int)', 'f<"x">(int)'),
        (rb'odd " quote', 'odd " quote'),
        (rb'a "{" b', 'a "{" b'),
        (rb'lambda "}, {" q', 'lambda "}, {" q'),
        (rb"C:\path\new", "C:\\path\new"),
        (rb"ends in \ ", "ends in \\ "),
        (rb"\q\"", '\\q"'),
        (b"caf\xe9", "caf�"),
        (b"tab\there\x01", "tab\there\x01"),
        (rb"half \ud800 pair", "half ? pair"),
        (b"line\nbreak", "line\nbreak"),
    ],
)
@pytest.mark.parametrize("layout", ["lines", "compact", "packed"])
def test_a_name_that_json_does_not_allow_is_read(raw: bytes, meant: str, layout: str) -> None:
    text = LAYOUTS[layout](ten()).replace(b"MARK", raw)
    for block_bytes in (150, 1 << 20):
        trace = read(text, block_bytes)
        assert names(trace.gpu) == [f"k{n}" if n != 4 else meant for n in range(10)]
        assert trace.gpu.correlation.tolist() == list(range(10))
        assert found(trace) == {RepairKind.MENDED_TEXT: 1}
        assert trace.name == trace.name


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "nan", "-nan", "inf", "-inf", "N/A", "undefined"])
def test_a_bare_word_where_a_number_belongs_is_nothing(token: str) -> None:
    sample = ten()
    sample.events[3]["args"]["est. achieved occupancy %"] = "TOKEN"
    trace = read(kineto(sample).replace(b'"TOKEN"', token.encode()))
    assert (len(trace.gpu), found(trace)) == (10, {RepairKind.BAD_NUMBER: 1})
    assert trace.repairs[0].example == f'"est. achieved occupancy %": {token}'
    sample.events[5]["dur"] = "TOKEN"
    trace = read(kineto(sample).replace(b'"TOKEN"', token.encode()))
    assert len(trace.gpu) == 9
    # Twice the word, and once that a time is missing for it.
    assert found(trace) == {RepairKind.BAD_NUMBER: 3}
    sample = ten()
    sample.events[2]["args"]["grid"] = ["TOKEN", 1, 1]
    trace = read(kineto(sample).replace(b'"TOKEN"', token.encode()))
    assert (len(trace.gpu), found(trace)) == (10, {RepairKind.MENDED_TEXT: 1, RepairKind.BAD_NUMBER: 1})


@pytest.mark.parametrize("position", [0, 4, 9])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_unreadable_event_costs_itself_alone(position: int, layout: str) -> None:
    sample = ten("k4")
    sample.events[position]["name"] = "MARK"
    text = LAYOUTS[layout](sample).replace(b'"MARK"', b'"a" "b" : : ]')
    trace = read(text)
    # A stray bracket may close the list as far as anyone can tell, but only where nothing else says otherwise.
    assert names(trace.gpu) == [f"k{n}" for n in range(10) if n != position]
    assert found(trace)[RepairKind.UNREADABLE_EVENT] >= 1


@pytest.mark.parametrize("junk", [b"null", b"[]", b"17", b'"text"', b"", b"[[1]]"])
def test_what_is_no_event_in_the_list_is_passed_over(junk: bytes) -> None:
    text = compact(ten()).replace(
        b'},{"ph":"X","cat":"kernel","name":"k6"', b"}," + junk + b',{"ph":"X","cat":"kernel","name":"k6"'
    )
    assert len(text) > len(compact(ten()))
    trace = read(text)
    assert len(trace.gpu) == 10
    assert found(trace) == ({RepairKind.UNREADABLE_EVENT: 1} if junk else {})


@pytest.mark.parametrize("layout", ["lines", "compact"])
def test_a_missing_comma_and_a_trailing_one_lose_nothing(layout: str) -> None:
    text = LAYOUTS[layout](ten())
    middle = text.index(b'"k5"')
    comma = text.rindex(b"},", 0, middle) + 1
    trace = read(text[:comma] + b" " + text[comma + 1 :])
    assert len(trace.gpu) == 10
    last = text.rindex(b"]")
    assert len(read(text[:last] + b"," + text[last:]).gpu) == 10


def test_many_damaged_events_are_all_mended() -> None:
    sample = Sample()
    for number in range(3000):
        sample.kernel(EPOCH_NS + number * 100, 50, "MARK" if number % 3 == 0 else "k")
    trace = read(kineto(sample).replace(b"MARK", b'f<"x">'), 50_000)
    assert names(trace.gpu) == ['f<"x">' if number % 3 == 0 else "k" for number in range(3000)]
    assert found(trace) == {RepairKind.MENDED_TEXT: 1000}


def test_damage_before_the_events_does_not_hide_them() -> None:
    for bad in (b'"note": "stray " quote", ', b'"note": {unquoted}, ', b'"note": }, ', b"!!! ", b'"a" "b", '):
        text = kineto(typical(6)).replace(b'"schemaVersion"', bad + b'"schemaVersion"')
        trace = read(text, 5000)
        assert len(trace.gpu) == 10, bad
        assert everything(trace)["gpu.start"] == everything(read(kineto(typical(6))))["gpu.start"]


def test_two_lists_of_events_are_both_read() -> None:
    first, second = compact(ten()), compact(ten())
    trace = read(first[:-1] + b"," + second[1:])
    assert len(trace.gpu) == 20
    assert found(trace)[RepairKind.REPEATED_EVENTS] == 1


def test_events_nested_beyond_measure_are_left_out() -> None:
    deep = b'{"ph":"X","cat":"kernel","name":"deep","ts":1,"dur":1,"args":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    text = b'{"traceEvents":[' + deep + b',{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":1}]}'
    trace = read(text)
    assert names(trace.gpu) == ["k"]
    assert found(trace)[RepairKind.UNREADABLE_EVENT] == 1


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"schemaVersion": 1}',
        b'{"traceEvents": 5}',
        b'{"traceEvents": {"a": 1}}',
        b"hello",
        b'"traceEvents"',
        b"}" * 50,
        b"{" * 50,
        b'{"a":' * 50,
        b" \n ",
        b'{"schema":"sublight/limit","version":1}',
    ],
)
def test_what_is_no_trace_is_refused(text: bytes) -> None:
    with pytest.raises(InputFileError) as caught:
        read(text)
    assert caught.value.found
    assert "nsys export --type sqlite" in caught.value.hint


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_damage_never_ends_in_a_traceback(data: st.DataObject) -> None:
    text = bytearray(LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))](typical(8)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip":
                text[at] = data.draw(st.integers(0, 255))
            case "cut":
                del text[at : at + data.draw(st.integers(1, 40))]
            case _:
                text[at:at] = data.draw(st.sampled_from([b'"', b"\\", b"{", b"}", b"]", b",", b"\xff", b"\0", b"\n"]))
    damaged = bytes(text)
    try:
        whole = everything(read(damaged))
    except InputFileError:
        return
    # Where the blocks end makes no difference to damaged text either.
    assert everything(read(damaged, data.draw(st.integers(40, 3000)))) == whole


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_mending_takes_any_bytes(text: bytes) -> None:
    for whole in (text, b'{"ph":"X","name":"' + text + b'","ts":1}'):
        mend(whole, 0, len(whole))
        assert len(without_bare_words(whole)[0]) == len(whole)


def test_good_events_are_never_mended() -> None:
    for layout in LAYOUTS.values():
        assert RepairKind.MENDED_TEXT not in found(read(layout(typical()), 777))
    assert gpu_rows(read(kineto(typical())))


def test_a_bare_word_inside_a_string_stays() -> None:
    sample = ten('f<nan>: nan, "key": NaN, [inf, -inf]')
    sample.events[9]["args"]["note"] = "TOKEN"
    trace = read(compact(sample).replace(b'"TOKEN"', b"NaN"))
    assert names(trace.gpu)[4] == 'f<nan>: nan, "key": NaN, [inf, -inf]'
    assert found(trace) == {RepairKind.BAD_NUMBER: 1}


def test_after_many_failures_in_a_row_only_good_events_are_looked_for() -> None:
    sample = Sample()
    for number in range(1000):
        sample.kernel(EPOCH_NS + number * 100, 50, "MARK" if number < 900 else f"k{number}")
    text = kineto(sample).replace(b'"name": "MARK"', b'name: "MARK"')
    for block_bytes in (3000, 1 << 20):
        trace = read(text, block_bytes)
        assert names(trace.gpu) == [f"k{number}" for number in range(900, 1000)]
        assert found(trace) == {RepairKind.UNREADABLE_EVENT: 900}


def test_text_after_the_end_is_told_and_padding_is_not() -> None:
    for layout in LAYOUTS.values():
        text = layout(ten())
        assert found(read(text + b" \n\0\0\0")) == {}
        assert found(read(text + text, 5000)) == {RepairKind.TRAILING_TEXT: 1}
        assert len(read(text + text).gpu) == 10


def test_a_member_without_a_value_ends_nothing() -> None:
    text = compact(ten())
    assert found(read(text[:-1] + b',"note":}')) == {}
    assert len(read(b'{"note":,' + text[1:]).gpu) == 10

"""The journal: what is still held of what changed."""

from sublight.audit.source.journal import Journal


def test_what_only_the_journal_holds_is_left_out() -> None:
    journal = Journal()
    mark = journal.mark()
    kept: dict[str, object] = {"a": 1}
    inner: list[object] = [1]
    kept["inner"] = inner
    journal.touch(kept)
    journal.touch(inner)
    for each in (kept, inner):
        journal.touch(each)
    gone: dict[str, object] = {"b": 2}
    journal.touch(gone)
    del gone, each
    kept["a"] = 2
    assert journal.held_since(mark) == {id(kept): (kept, {"a": 2, "inner": [1]}), id(inner): (inner, [1])}
    del inner
    assert [content for _, content in journal.held_since(mark).values()] == [{"a": 2, "inner": [1]}, [1]]
    kept.clear()  # what it held before is held for going back
    assert [content for _, content in journal.held_since(mark).values()] == [{}, [1]]


def test_a_state_is_put_back_as_it_was() -> None:
    journal = Journal()
    mark = journal.mark()
    kept: dict[str, object] = {"a": 1}
    journal.touch(kept)
    kept["b"] = 2
    later = journal.held_since(mark)
    journal.leave(mark)
    assert kept == {"a": 1}
    journal.resume(later)
    assert kept == {"a": 1, "b": 2}
    journal.leave(mark)
    assert kept == {"a": 1}

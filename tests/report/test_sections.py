import pytest

from sublight.report.blocks import Cell, Column, Line, Table
from sublight.report.sections import measure, notes, sections, shapes, sorting

from .samples import ROWS, row


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("6.64", (6.64, "")),
        ("-0.16 ms", (-0.00016, "s")),
        ("920 us", (0.00092, "s")),
        ("6.64 ms", (0.00664, "s")),
        ("2.52 GB", (2.52e9, "B")),
        ("1,597 GB/s", (1.597e12, "B/s")),
        ("12 %", (12.0, "%")),
        ("14.6x", (14.6, "x")),
        ("78", (78.0, "")),
        ("+6.99 ms", (0.00699, "s")),
        ("8 of 256", None),
        ("NVFP4", None),
        ("not known", None),
        ("", None),
    ],
)
def test_a_cell_is_read_back_as_a_number_in_the_base_of_its_unit(text: str, found: tuple[float, str] | None) -> None:
    value = measure(text)
    assert (value is None) == (found is None)
    if value and found:
        assert value[0] == pytest.approx(found[0]) and value[1] == found[1]


def test_a_column_sorts_as_numbers_only_where_its_cells_share_a_unit() -> None:
    columns = tuple(Column(title) for title in ("name", "bytes", "mixed", "mostly words"))
    lines = (
        row("a", "2.52 GB", "1 ms", "not known"),
        row("b", "654 MB", "2 GB", "not known"),
        row("c", "", "3 ms", "7"),
    )
    table = Table(columns, lines)
    assert sorting(table) == ["text", "number", "text", "text"]
    (section,) = sections(table)
    assert [line.entries[1].key for line in section.rows] == [2.52e9, 654e6, None]
    assert [line.entries[2].key for line in section.rows] == [None, None, None]


def test_a_short_table_is_not_worth_sorting() -> None:
    assert sorting(Table((Column("a"),), (row("x"), row("y")))) == [""]


def test_groups_open_sections_and_totals_stay_in_them() -> None:
    found = sections(ROWS)
    assert [section.rows[0].entries[0].cell.text for section in found] == [
        "attention projections",
        "attention core",
        "routed experts, 8 of 256, with a name that is quite long",
        "collectives",
        "no row of the model",
    ]
    assert [line.kind for line in found[-1].rows] == ["group", "row", "row", "total"]
    assert [line.is_title for line in found[0].rows] == [True, False, False, False, False]
    assert sum(len(section.rows) for section in found) == len(ROWS.lines)


def test_notes_say_where_they_belong() -> None:
    table = Table(
        (Column("row"), Column("gap ms", "right")),
        (Line((Cell("experts", note="eight of them"), Cell("6.99", note="not NVFP4"))), Line((Cell("x"), Cell("1")))),
    )
    assert notes(table) == [("experts", "eight of them"), ("experts, gap ms", "not NVFP4")]


def test_only_columns_of_prose_wrap_and_a_group_does_not_count() -> None:
    assert shapes(ROWS) == ["short"] * 9
    why = Table((Column("a"), Column("why")), (row("x", "the kernel asserts SM100 or SM103"), row("y", "")))
    assert shapes(why) == ["short", "long"]

"""The neutral document between records and renderers: no colour, no HTML, no domain.

A view decides wording and precision and puts finished text into these blocks; a renderer decides how text looks on its
medium. Charts carry numbers beside their text, because a renderer has to draw them to scale. Everything here is plain
data, so a document can be compared in a test and sent as JSON.
"""

from typing import Literal

import msgspec

Tone = Literal["plain", "strong", "muted", "good", "warn", "bad"]
Align = Literal["left", "right"]


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """Finished text in a table. `note` is what a page shows on hover and a terminal leaves out."""

    text: str
    tone: Tone = "plain"
    note: str = ""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """`priority` 0 is always shown; where the medium is too narrow, columns with the highest priority go first.

    `least` is the width, in characters, below which a column of text is worth less than the room it takes.
    `narrow` is a shorter title, for where words of the table would have to be broken otherwise.
    """

    title: str
    align: Align = "left"
    priority: int = 0
    least: int = 0
    narrow: str = ""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a table. `kind` "group" opens a section, "total" closes one."""

    cells: tuple[Cell, ...]
    kind: Literal["row", "group", "total"] = "row"


class Heading(msgspec.Struct, frozen=True, tag="heading"):
    text: str
    level: Literal[1, 2, 3] = 2


class Paragraph(msgspec.Struct, frozen=True, tag="paragraph", omit_defaults=True):
    text: str
    tone: Tone = "plain"


class Facts(msgspec.Struct, frozen=True, tag="facts"):
    """Short label and value pairs, shown as an aligned list."""

    items: tuple[tuple[str, Cell], ...]


class Headline(msgspec.Struct, frozen=True, tag="headline"):
    """The answer: a few large figures, each with what it is and a line under it."""

    figures: tuple[tuple[str, str, str], ...]  # label, value, explanation


class Table(msgspec.Struct, frozen=True, tag="table", omit_defaults=True):
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    caption: str = ""

    def __post_init__(self) -> None:
        for line in self.lines:
            if len(line.cells) != len(self.columns):
                raise ValueError(f"a line has {len(line.cells)} cells for {len(self.columns)} columns")


class Listing(msgspec.Struct, frozen=True, tag="listing", omit_defaults=True):
    """Paragraphs that belong together; numbered where their order matters."""

    items: tuple[Cell, ...]
    ordered: bool = False


class Note(msgspec.Struct, frozen=True, tag="note"):
    """Something the reader must not miss."""

    text: str
    level: Literal["info", "warn", "error"] = "info"


class Code(msgspec.Struct, frozen=True, tag="code"):
    """A command to run, shown so that it can be copied whole."""

    text: str


class Segment(msgspec.Struct, frozen=True):
    """A part of a bar: which series it belongs to, its size in the chart's unit, and the size in words."""

    series: str
    value: float
    text: str


class Bar(msgspec.Struct, frozen=True):
    label: str
    segments: tuple[Segment, ...]
    text: str  # the whole bar in words


class Bars(msgspec.Struct, frozen=True, tag="bars", omit_defaults=True):
    """Horizontal stacked bars on one scale from zero. `series` fixes order and colour."""

    title: str
    series: tuple[str, ...]
    bars: tuple[Bar, ...]
    caption: str = ""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of a waterfall: "delta" hangs on the sum so far, "total" stands on the ground and must equal it."""

    label: str
    value: float
    text: str
    kind: Literal["delta", "total", "unknown"] = "delta"  # an unknown is a delta that nobody has explained
    note: str = ""


class Waterfall(msgspec.Struct, frozen=True, tag="waterfall", omit_defaults=True):
    title: str
    steps: tuple[Step, ...]
    caption: str = ""


class Curve(msgspec.Struct, frozen=True):
    name: str
    points: tuple[tuple[float, float], ...]


class Mark(msgspec.Struct, frozen=True):
    """A place on the x axis worth a word."""

    x: float
    label: str


class Curves(msgspec.Struct, frozen=True, tag="curves", omit_defaults=True):
    """Lines over a common x axis. `log_x` and `log_y` ask for a logarithmic scale; points must be above zero then."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    log_x: bool = False
    log_y: bool = False
    caption: str = ""


class EventRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an event counts as, and the group that gives it its colour; `known` is false for what nobody explained."""

    name: str
    group: str
    known: bool = True


class Events(msgspec.Struct, frozen=True):
    """Columns of one length, a place for each event, in the order of their starts.

    `start` and `duration` are in the timeline's unit, as precise as they were measured and no more: every digit is in
    the page. The others are numbers into the timeline's `lanes`, `rows` and `names`.
    """

    start: tuple[float, ...]
    duration: tuple[float, ...]
    lane: tuple[int, ...]
    row: tuple[int, ...]
    name: tuple[int, ...]

    def __post_init__(self) -> None:
        lengths = [len(self.start), len(self.duration), len(self.lane), len(self.row), len(self.name)]
        if len(set(lengths)) > 1:
            raise ValueError(f"the columns of events have {', '.join(map(str, lengths))} places")


class Band(msgspec.Struct, frozen=True):
    """A named stretch of the axis."""

    start: float
    end: float
    label: str


class Timeline(msgspec.Struct, frozen=True, tag="timeline", omit_defaults=True):
    """What ran on each lane from zero to `span`. `rows` fixes order and colour; `names` are the distinct events.

    `terminal` is false where its lines on a terminal would tell less than the room they take.
    """

    title: str
    unit: str
    span: float
    lanes: tuple[str, ...]
    rows: tuple[EventRow, ...]
    names: tuple[str, ...]
    events: Events
    bands: tuple[Band, ...] = ()
    marks: tuple[Mark, ...] = ()
    caption: str = ""
    terminal: bool = True


Block = Heading | Paragraph | Facts | Headline | Table | Listing | Note | Code | Bars | Waterfall | Curves | Timeline


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page. `title` names it; `footer` says what wrote it and from what.

    `more` comes behind `blocks` on a page and in Markdown; a terminal names its headings and leaves it out.
    """

    title: str
    blocks: tuple[Block, ...]
    footer: str = ""
    more: tuple[Block, ...] = ()

    @property
    def whole(self) -> tuple[Block, ...]:
        return (*self.blocks, *self.more)

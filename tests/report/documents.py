"""Any document at all: every block, filled with text that nobody vouches for. For property tests."""

from hypothesis import strategies as st

from sublight.report import blocks

# Surrogates are let in: a file name that is no UTF-8 reaches Python with them.
_NASTY = st.sampled_from(
    [
        "</script><script>document.title='run'</script>",
        '"><img src=x onerror=alert(1)>',
        "\x1b[31mred\x1b[0m\x1b]0;title\x07",
        "[bold red]markup[/] :smile:",
        "a\nb\r\nc\td",
        "\u202egnp.exe\u2066",
        "a | b || c",
        "`code` ``x`` ```",
        "[link](http://evil.example) www.evil.example <b@evil.example> https://evil.example",
        "內核名稱很長的一個中文名字" * 3,
        "名\u0301前",
        "x" * 130,
        "{{ 7 * 7 }}{% raw %}",
        "&lt;b&gt;&amp;",
        "# heading",
        "- item",
        "1. item",
        "\ud800\udfff",
        "\u2028\u2029\x85",
        "",
        " ",
        "*bold* _it_ __bo__ ~~no~~ $x$ @someone #12",
        "\\",
    ]
)
texts = st.one_of(st.text(max_size=40), _NASTY, st.text(st.characters(), max_size=12))
tones = st.sampled_from(["plain", "strong", "muted", "good", "warn", "bad"])
cells = st.builds(blocks.Cell, texts, tones, texts)
sizes = st.floats(0, 1e12)
signed = st.floats(-1e12, 1e12)
places = st.floats(1e-9, 1e12)


def _several(strategy: st.SearchStrategy, most: int = 4, least: int = 0) -> st.SearchStrategy:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


@st.composite
def _tables(draw: st.DrawFn) -> blocks.Table:
    columns = draw(
        _several(
            st.builds(blocks.Column, texts, st.sampled_from(["left", "right"]), st.integers(0, 3), st.integers(0, 60)),
            6,
            1,
        )
    )
    line = st.builds(
        blocks.Line,
        st.lists(cells, min_size=len(columns), max_size=len(columns)).map(tuple),
        st.sampled_from(["row", "row", "group", "total"]),
    )
    return blocks.Table(columns, draw(_several(line, 5)), draw(texts))


@st.composite
def _bars(draw: st.DrawFn) -> blocks.Bars:
    series = tuple(dict.fromkeys(draw(_several(texts, 4, 1))))
    segment = st.builds(blocks.Segment, st.sampled_from(series), sizes, texts)
    bar = st.builds(blocks.Bar, texts, _several(segment), texts)
    return blocks.Bars(draw(texts), series, draw(_several(bar)), draw(texts))


@st.composite
def _waterfalls(draw: st.DrawFn) -> blocks.Waterfall:
    steps = []
    total = 0.0
    for kind in draw(st.lists(st.sampled_from(["delta", "unknown", "total"]), max_size=6)):
        value = total if kind == "total" else draw(signed)
        total = total if kind == "total" else total + value
        steps.append(blocks.Step(draw(texts), value, draw(texts), kind, draw(texts)))  # type: ignore[arg-type]
    return blocks.Waterfall(draw(texts), tuple(steps), draw(texts))


_curves = st.builds(
    blocks.Curves,
    texts,
    texts,
    texts,
    _several(st.builds(blocks.Curve, texts, _several(st.tuples(places, places), 20)), 3),
    _several(st.builds(blocks.Mark, places, texts), 2),
    st.booleans(),
    st.booleans(),
    texts,
)


@st.composite
def _timelines(draw: st.DrawFn) -> blocks.Timeline:
    span = draw(places)
    tables = [draw(_several(texts, 3, 1)) for _ in ("lanes", "names")]
    rows = draw(_several(st.builds(blocks.EventRow, texts, texts, st.booleans()), 4, 1))
    share = st.floats(0, 1)
    starts = sorted(draw(st.lists(share, max_size=30)))
    columns = [
        tuple(start * span for start in starts),
        tuple((1 - start) * draw(share) * span for start in starts),
        *(tuple(draw(st.integers(0, len(table) - 1)) for _ in starts) for table in (tables[0], rows, tables[1])),
    ]
    edges = sorted(draw(st.lists(share, max_size=4)))
    bands = tuple(
        blocks.Band(start * span, end * span, draw(texts)) for start, end in zip(edges[::2], edges[1::2], strict=False)
    )
    marks = tuple(blocks.Mark(draw(share) * span, draw(texts)) for _ in edges)
    title, unit, caption = draw(texts), draw(texts), draw(texts)
    events = blocks.Events(*columns)
    return blocks.Timeline(title, unit, span, tables[0], rows, tables[1], events, bands, marks, caption)


any_block = st.one_of(
    st.builds(blocks.Heading, texts, st.sampled_from([1, 2, 3])),
    st.builds(blocks.Paragraph, texts, tones),
    st.builds(blocks.Facts, _several(st.tuples(texts, cells))),
    st.builds(blocks.Headline, _several(st.tuples(texts, texts, texts))),
    _tables(),
    st.builds(blocks.Listing, _several(cells), st.booleans()),
    st.builds(blocks.Note, texts, st.sampled_from(["info", "warn", "error"])),
    st.builds(blocks.Code, texts),
    _bars(),
    _waterfalls(),
    _curves,
    _timelines(),
)


def documents(block: st.SearchStrategy = any_block) -> st.SearchStrategy[blocks.Document]:
    return st.builds(blocks.Document, texts, _several(block, 5), texts)

"""Bars and waterfalls on a terminal: labels left, bars on one scale in the middle, words right."""

from collections.abc import Iterator, Sequence

from sublight.report.blocks import Bar, Bars, Waterfall
from sublight.report.check import running_sums
from sublight.report.legend import legend
from sublight.report.terminal.screen import Screen, beside, plain, widest
from sublight.report.terminal.strokes import COLOURS, PATTERNS, SOLID, UNKNOWN, solid, span
from sublight.report.terminal.text import Text

GAP = 2
LONGEST = 64  # columns of the longest bar: more adds ink, not precision
SHORT_TEXT = 24  # words up to this width are figures, and line up on the right


def bars(block: Bars, screen: Screen) -> Iterator[Text]:
    """Stacked bars; a legend where there is more than one series."""
    labels, texts = [bar.label for bar in block.bars], [bar.text for bar in block.bars]
    layout = _Layout(labels, texts, screen)
    longest = max((_length(bar) for bar in block.bars), default=0.0) or 1.0
    drawings = [_stack(bar, block.series, longest, layout.bar) for bar in block.bars]
    yield from _title(block.title, screen)
    if len(block.series) > 1:
        yield from _legend(block, screen)
    yield from layout.lines(labels, drawings, texts)
    yield from _caption(block.caption, screen)


def waterfall(block: Waterfall, screen: Screen) -> Iterator[Text]:
    """Each step where the sum before it ended; totals from the ground, the unknown in its own pattern."""
    spans = running_sums(block)
    labels, texts = [step.label for step in block.steps], [step.text for step in block.steps]
    notes = [step.note for step in block.steps]
    layout = _Layout(labels, texts, screen, notes)
    low = min((min(pair) for pair in spans), default=0.0)
    high = max((max(pair) for pair in spans), default=0.0)
    reach = (high - low) or 1.0
    drawings = []
    for step, pair in zip(block.steps, spans, strict=True):
        pattern = UNKNOWN if step.kind == "unknown" else SOLID
        style = {"total": "", "unknown": "yellow"}.get(step.kind, "blue" if step.value >= 0 else "green")
        start, end = ((place - low) / reach * layout.bar for place in sorted(pair))
        before, stroke = span(start, end, pattern) if step.value else (round(start), "")
        # Rounding may push the last trace one column over the edge.
        before = min(before, layout.bar - len(stroke))
        drawings.append(Text.of(" " * before, Text(stroke, style)))
    yield from _title(block.title, screen)
    yield from layout.lines(labels, drawings, texts)
    yield from _caption(block.caption, screen)


class _Layout:
    """Widths of the parts of a chart's lines. Notes get a column where all of them fit on one line each."""

    def __init__(self, labels: Sequence[str], texts: Sequence[str], screen: Screen, notes: Sequence[str] = ()) -> None:
        self.label = min(widest(labels), screen.width // 3)
        self.text = min(widest(texts), screen.width // 3)
        self.bar = max(1, min(LONGEST, screen.width - self.label - self.text - 2 * GAP))
        self.right = self.text <= SHORT_TEXT
        note = widest(notes)
        fits = 0 < note <= screen.width - self.label - self.text - self.bar - 3 * GAP
        self.notes = [plain(note, "muted") for note in notes] if fits else []

    def lines(self, labels: Sequence[str], drawings: Sequence[Text], texts: Sequence[str]) -> Iterator[Text]:
        for index, (label, drawing, text) in enumerate(zip(labels, drawings, texts, strict=True)):
            columns = [
                plain(label).wrapped(self.label),
                [drawing],
                plain(text, "strong").wrapped(self.text),
            ]
            widths = [self.label, self.bar, self.text]
            if self.notes:
                columns.append([self.notes[index]])
                widths.append(self.notes[index].width)
            yield from beside(columns, widths, GAP, (False, False, self.right, False)[: len(columns)])


def _length(bar: Bar) -> float:
    return sum(segment.value for segment in bar.segments)


def _stack(bar: Bar, series: Sequence[str], longest: float, width: int) -> Text:
    """The segments end to end. Inner borders fall on whole columns, the end on an eighth where the pattern allows."""
    drawing = Text()
    sum_so_far = 0.0
    segments = [segment for segment in bar.segments if segment.value > 0]
    for index, segment in enumerate(segments):
        sum_so_far += segment.value
        # The sum of a bar's segments may come out a rounding error longer than the longest bar.
        reached = min(sum_so_far / longest, 1.0) * width
        which = series.index(segment.series)
        pattern, style = PATTERNS[which % len(PATTERNS)], COLOURS[which % len(COLOURS)]
        if index == len(segments) - 1 and pattern == SOLID:
            drawing.append(solid(max(reached - drawing.width, 0)), style)
        else:
            drawing.append(pattern * (round(reached) - drawing.width), style)
    if segments and not drawing.width:
        drawing.append(solid(1 / 8), COLOURS[series.index(segments[0].series) % len(COLOURS)])
    return drawing


def _legend(block: Bars, screen: Screen) -> Iterator[Text]:
    line = Text()
    for index, (name, size) in enumerate(legend(block)):
        key = Text(PATTERNS[index % len(PATTERNS)] * 2, COLOURS[index % len(COLOURS)])
        entry = Text.of(key, " ", plain(name))
        if size:
            entry.append(Text.of(" ", plain(size, "strong")))
        if line.width and line.width + 3 + entry.width > screen.prose:
            yield line
            line = Text()
        line.append("   " if line.width else "")
        line.append(entry)
        if line.width > screen.prose:
            *whole, line = line.wrapped(screen.prose)
            yield from whole
    yield line


def _title(title: str, screen: Screen) -> Iterator[Text]:
    if title:
        yield from plain(title, "strong").wrapped(screen.prose)


def _caption(caption: str, screen: Screen) -> Iterator[Text]:
    if caption:
        yield from plain(caption, "muted").wrapped(screen.prose)

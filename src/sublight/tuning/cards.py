"""Which lines of up to three outputs are of one card: by its bus address, by its index, by order where nothing else is.

An index is nvidia-smi's own, which counts cards by their bus address. A list that shows some of the cards (`-q -i 4`)
does not say it; the table, a CSV with both columns, or a PCI listing of all cards do.
"""

from collections.abc import Iterable

from sublight.tuning.card import Card
from sublight.tuning.parsers import lspci, nvidia_csv, nvidia_q, nvidia_table
from sublight.tuning.readings import Readings


class _Pieces:
    """What is known to be of one card so far."""

    def __init__(self, index: int | None = None, bus: str = "") -> None:
        self.index, self.bus = index, bus
        self.section: nvidia_q.Section | None = None
        self.row: nvidia_csv.Row | None = None
        self.card: nvidia_table.Card | None = None


def cards(readings: Readings) -> list[Card]:
    """Every card that any output lists, in the order of the indices."""
    log: nvidia_q.QueryLog | None = readings.parsed("nvidia-smi -q")
    rows: tuple[nvidia_csv.Row, ...] = readings.parsed("nvidia-smi --query-gpu") or ()
    table: nvidia_table.Table | None = readings.parsed("nvidia-smi")
    pci: lspci.Pci | None = readings.parsed("lspci -vvv")
    known = _indices(log, rows, table, pci)
    found: list[_Pieces] = []
    for section in log.gpus if log else ():
        found.append(_Pieces(known.get(lspci.address(section.bus)), section.bus))
        found[-1].section = section
    for card in table.cards if table else ():
        own = _of(found, card.index, card.bus)
        own.card = card
    _add_rows(found, rows)
    return _numbered(found, readings)


def _indices(
    log: nvidia_q.QueryLog | None,
    rows: Iterable[nvidia_csv.Row],
    table: nvidia_table.Table | None,
    pci: lspci.Pci | None,
) -> dict[str, int]:
    """Bus address -> index, from the outputs that say both or list every card."""
    known = {lspci.address(card.bus): card.index for card in table.cards} if table else {}
    for row in rows:
        if (index := _index(row)) is not None and row.text("bus"):
            known.setdefault(lspci.address(row.text("bus")), index)
    if log is None:
        return known
    attached = log.head.number("Attached GPUs")
    if attached is None or attached == len(log.gpus):
        addresses = [lspci.address(section.bus) for section in log.gpus]
    elif pci and attached == len(pci.gpus):
        addresses = sorted(device.address for device in pci.gpus)
    else:
        return known
    for index, address in enumerate(addresses):
        known.setdefault(address, index)
    return known


def _index(row: nvidia_csv.Row) -> int | None:
    text = row.text("index")
    return int(text) if text.isdecimal() and len(text) < 5 else None


def _of(found: list[_Pieces], index: int | None, bus: str) -> _Pieces:
    """The card of this address or, where addresses are not both known, of this index; else a new one."""
    for pieces in found:
        same = lspci.address(pieces.bus) == lspci.address(bus) if pieces.bus and bus else pieces.index == index
        if same:
            pieces.bus = pieces.bus or bus
            return pieces
    found.append(_Pieces(index, bus))
    return found[-1]


def _add_rows(found: list[_Pieces], rows: tuple[nvidia_csv.Row, ...]) -> None:
    numbered = any(pieces.index is not None for pieces in found) or not found
    if all(row.text("bus") or (numbered and _index(row) is not None) for row in rows):
        for row in rows:
            _of(found, _index(row), row.text("bus")).row = row
    elif not found or len(found) == len(rows):
        # Nothing says whose they are; as many as there are cards are taken to be in the cards' order.
        for place, row in enumerate(rows):
            if place == len(found):
                found.append(_Pieces(place))
            found[place].row = row


def _numbered(found: list[_Pieces], readings: Readings) -> list[Card]:
    free = iter(sorted(set(range(len(found))) - {pieces.index for pieces in found}))
    made = []
    for pieces in found:
        placed = pieces.index is not None
        index = pieces.index if pieces.index is not None else next(free)
        made.append(Card(index, placed, pieces.bus, pieces.section, pieces.row, pieces.card, readings))
    return sorted(made, key=lambda card: card.index)

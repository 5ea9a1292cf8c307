"""Plain `nvidia-smi`: the boxed table. Only what `-q` would say better, for folders that hold nothing else."""

import re

import msgspec

from sublight.tuning.parsers.values import kept, number, plain

_HEAD = re.compile(r"\|\s*NVIDIA-SMI\s+(\S+).*?Driver Version:\s*(\S+)(?:.*?CUDA Version:\s*(\S+))?")
_CARD = re.compile(
    r"\|\s+([0-9]+)\s+(\S.*?)\s+(On|Off)\s+\|\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
)
_STATE = re.compile(r"\|\s*\S+\s+\S+\s+(P[0-9]{1,2})\s+(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)")


class Card(msgspec.Struct, frozen=True):
    """One GPU of the table; a number that is not printed is None."""

    line: int
    index: int
    name: str
    bus: str
    persistence: bool
    pstate: str = ""
    power_w: float | None = None
    limit_w: float | None = None
    memory_mib: float | None = None
    utilization: float | None = None  # percent


class Table(msgspec.Struct, frozen=True):
    driver: str
    cuda: str
    cards: tuple[Card, ...]


def looks_like(text: str) -> bool:
    return _HEAD.search(text) is not None


def keep(text: str) -> str:
    """The head and two lines a card: nothing of the processes."""

    def of_a_line(raw: str) -> str:
        match = _HEAD.search(raw) or _CARD.match(raw) or _STATE.match(raw)
        return match[0] if match else ""

    return kept(text, of_a_line)


def parse(text: str) -> Table:
    driver = cuda = ""
    cards: list[Card] = []
    for line, raw in enumerate(plain(text).splitlines(), 1):
        if head := _HEAD.search(raw):
            driver, cuda = head[2], (head[3] or "").strip("|")
        elif card := _CARD.match(raw):
            cards.append(Card(line, int(card[1]), card[2], card[4].lower(), card[3] == "On"))
        elif cards and not cards[-1].pstate and (state := _STATE.match(raw)):
            cards[-1] = msgspec.structs.replace(
                cards[-1],
                pstate=state[1],
                power_w=number(state[2]),
                limit_w=number(state[3]),
                memory_mib=number(state[5]),
                utilization=number(state[6]),
            )
    return Table(driver, cuda, tuple(cards))

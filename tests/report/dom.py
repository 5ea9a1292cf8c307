"""A tree of a page's elements, for tests that read numbers back out of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "img", "input", "link", "col", "source", "wbr", "embed", "area", "base", "track"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    def walk(self) -> Iterator["Element"]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, tag: str, *classes: str) -> list["Element"]:
        return [found for found in self.walk() if found.tag == tag and set(classes) <= found.classes]

    def one(self, tag: str, *classes: str) -> "Element":
        (found,) = self.all(tag, *classes)
        return found


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]
        self.comments: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        # The pages under test close what they open; anything else is a fault worth failing on.
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def parse(page: str) -> Element:
    """The page as a tree. Fails where elements are not nested properly, or where there is a comment."""
    builder = _Builder()
    builder.feed(page)
    builder.close()
    assert builder.open == [builder.root], f"not closed: {[element.tag for element in builder.open[1:]]}"
    assert not builder.comments, builder.comments
    return builder.root


def table_texts(table: Element) -> list[list[str]]:
    """The rows of a table as the texts of their cells."""
    cells = {"th", "td"}
    return [
        [cell.text.strip() for cell in row.children if isinstance(cell, Element) and cell.tag in cells]
        for row in table.all("tr")
    ]

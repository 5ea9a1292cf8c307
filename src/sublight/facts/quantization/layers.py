"""ModelOpt's table of modules, `quantized_layers`: a format for each module it names, or for a pattern of them.

The table names what the exporter quantised: a linear module, or a whole `experts` module. The engines' order is kept
(vLLM and SGLang, `ModelOptMixedPrecisionConfig`): exclusions first, then the name itself, then the parts of a fused
module, then modules below the asked one; what no entry means stays in the checkpoint's dtype.
"""

from collections.abc import Iterable
from itertools import product
from math import prod

import msgspec

from sublight.errors import ConfigError
from sublight.facts.fields import Fields
from sublight.facts.formats import Format
from sublight.facts.quantization.base import Rules, Site
from sublight.facts.quantization.exclusion import may_be_quantised
from sublight.facts.quantization.names import has_other_spelling, is_alias, is_number, spellings
from sublight.facts.quantization.patterns import Globs
from sublight.units import counted


class Template(msgspec.Struct, frozen=True):
    """A pattern with a hole per number, and the numbers that may stand in each hole."""

    pattern: str
    sets: tuple[frozenset[int], ...]
    format: Format

    @property
    def count(self) -> int:
        return prod(len(numbers) for numbers in self.sets)

    def names(self) -> Iterable[str]:
        """Every module it stands for."""
        pieces = self.pattern.split("{}")
        for numbers in product(*(sorted(s) for s in self.sets)):
            holes = [*map(str, numbers), ""]
            yield "".join(piece + hole for piece, hole in zip(pieces, holes, strict=True))


def read_template(fields: Fields, format: Format) -> Template:
    """An entry of `quantized_layers_compressed`: pattern, index_sets, and whether every combination is meant.

    The compact form replaces thousands of entries that differ in layer and expert. A set is a list of numbers or a
    range "0..127", both ends included. Raises ConfigError where the combinations cannot be told.
    """
    pattern = fields.text("pattern")
    sets = [_numbers(item, fields) for item in fields.list("index_sets") or []]
    parts = pattern.split(".")
    if not pattern or pattern.count("{}") != len(sets):
        raise fields.error(
            f"pattern {pattern!r} has {pattern.count('{}')} holes for {len(sets)} index sets", "one index set a hole"
        )
    if any("{}" in part and part != "{}" for part in parts):
        raise fields.error(f"pattern {pattern!r} has a hole inside a component", "holes that stand for whole numbers")
    # A number that is written out is a hole with one choice, so that all numbers of a name are looked up alike.
    given = iter(sets)
    filled = [
        next(given) if part == "{}" else frozenset({int(part)}) for part in parts if part == "{}" or is_number(part)
    ]
    pattern = ".".join("{}" if is_number(part) else part for part in parts)
    template = Template(pattern, tuple(filled), format)
    count = fields.size("count", default=template.count, least=0)
    if not fields.flag("full_product", True) or count != template.count:
        raise fields.error(
            f"pattern {pattern!r} stands for {counted(count, 'module')} and its index sets give {template.count}",
            "the uncompressed quantized_layers, which says which combinations are meant",
        )
    return template


def _numbers(item: object, fields: Fields) -> frozenset[int]:
    if isinstance(item, str):
        first, dots, last = item.partition("..")
        if dots and is_number(first) and is_number(last) and int(last) - int(first) < 100_000:
            return frozenset(range(int(first), int(last) + 1))
    elif isinstance(item, list) and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in item):
        return frozenset(item)
    shown = repr(item)[:40]
    raise fields.error(f"an index set is {shown}", 'a list of whole numbers or a range such as "0..127"')


class Table:
    """A format for each module named; `rest` for linear modules that no entry means.

    Args:
        named: module -> format.
        templates: the same for patterns of modules.
        excluded: modules that stay plain whatever the table says.
        plain: the checkpoint's dtype.
        rest: format of unnamed linear modules: `plain`, unless the file names a class ("Linear") as well.
    """

    def __init__(
        self,
        named: dict[str, Format],
        templates: Iterable[Template],
        excluded: Globs,
        plain: Format,
        rest: Format | None = None,
    ) -> None:
        self.named = named
        self.templates = tuple(templates)
        self.excluded = excluded
        self.plain = plain
        self.rest = rest or plain
        self._by_pattern: dict[str, list[Template]] = {}
        for template in self.templates:
            self._by_pattern.setdefault(template.pattern, []).append(template)
        self._depths = sorted({name.count(".") + 1 for name in (*named, *self._by_pattern)}, reverse=True)
        self._list = Globs(named)
        self._has_alias = any(is_alias(name) for name in (*named, *self._by_pattern))
        self.names_experts = (
            excluded.names_experts or self._list.names_experts or any(".experts.{}" in p for p in self._by_pattern)
        )
        self._asked: set[str] = set()

    def format_of(self, site: Site) -> Format:
        module = site.module
        self._asked.add(module)
        linear = may_be_quantised(site)
        if not linear and (site.fixed or site.module_class != "Embedding"):
            return self.plain
        if self.excluded.covers(module):
            return self.plain
        found = self._find(module)
        if found is not None:
            return found
        return self.rest if linear else self.plain

    def _find(self, module: str) -> Format | None:
        found = self._at_or_above(module)
        if found is None and (self._has_alias or has_other_spelling(module)):
            found = self._other_spelling(module)
        if found is None and module.endswith("experts"):
            below = module + "."
            found = next((f for name, f in self.named.items() if name.startswith(below)), None)
        return found

    def _at_or_above(self, module: str) -> Format | None:
        """The entry of the module or of the nearest module above it that has one."""
        parts = module.split(".")
        forms = ["{}" if is_number(part) else part for part in parts] if self._by_pattern else parts
        for depth in self._depths:
            if depth > len(parts):
                continue
            found = self.named.get(".".join(parts[:depth]))
            if found is not None:
                return found
            templates = self._by_pattern.get(".".join(forms[:depth]), ()) if self._by_pattern else ()
            for template in templates:
                numbers = [int(part) for part in parts[:depth] if is_number(part)]
                if all(number in allowed for number, allowed in zip(numbers, template.sets, strict=True)):
                    return template.format
        return None

    def _other_spelling(self, module: str) -> Format | None:
        for names in spellings(module):
            found = [self._at_or_above(name) for name in names]
            kinds = {f.title if f else "the checkpoint's dtype" for f in found}
            if len(kinds) > 1:
                raise ConfigError(
                    f"reading the format of {module}",
                    f"the table stores {', '.join(names)} as {' and '.join(sorted(kinds))}, and they are one matrix",
                    "one format for all parts of a fused matrix; vLLM and SGLang refuse a checkpoint that mixes them",
                )
            if found[0] is not None:
                return found[0]
        return None

    def unmatched(self) -> list[str]:
        idle = [p for p, templates in self._by_pattern.items() if not self._used(templates)]
        return [*self.excluded.unmatched(self._asked), *self._list.unmatched(self._asked), *idle]

    def _used(self, templates: list[Template]) -> bool:
        one = Table({}, templates, Globs(()), self.plain)
        return any(one._find(module) is not None for module in self._asked)

    def rules(self) -> Rules:
        named = {name: format.name for name, format in self.named.items()}
        for template in self.templates:
            named.update(dict.fromkeys(template.names(), template.format.name))
        default = self.rest.name if self.rest is not self.plain else ""
        return Rules(default, frozenset(self.excluded.patterns), named)

    def counts(self) -> dict[str, int]:
        """How many modules the table names, by the title of their format."""
        counts: dict[str, int] = {}
        for format in self.named.values():
            counts[format.title] = counts.get(format.title, 0) + 1
        for template in self.templates:
            counts[template.format.title] = counts.get(template.format.title, 0) + template.count
        return counts

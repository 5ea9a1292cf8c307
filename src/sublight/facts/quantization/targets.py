"""Targets of compressed-tensors: names, `re:` expressions, and classes of modules."""

from collections.abc import Callable, Iterable, Mapping
from re import Pattern

from sublight.facts.fields import Fields
from sublight.facts.formats import Format
from sublight.facts.quantization.base import Rules, Site
from sublight.facts.quantization.exclusion import may_be_quantised
from sublight.facts.quantization.expressions import check_together, compiled
from sublight.facts.quantization.patterns import ModuleList

_EXPRESSION = "re:"
# Classes that the library compresses (`COMPRESSIBLE_MODULE_TYPES`), as sites name them.
_CLASSES = ("Linear", "Embedding")


class Targets(ModuleList):
    """A list of targets. Raises ConfigError for an expression that is none.

    Args:
        patterns: as written.
        fields: names the file in an error.
    """

    def __init__(self, patterns: Iterable[str], fields: Fields) -> None:
        super().__init__(patterns)
        self.names = frozenset(p for p in self.patterns if not p.startswith(_EXPRESSION))
        written = [p for p in sorted(self.patterns) if p.startswith(_EXPRESSION)]
        self.expressions = {p: compiled(p.removeprefix(_EXPRESSION), fields, _EXPRESSION) for p in written}
        check_together((e.pattern for e in self.expressions.values()), fields)
        # An expression can tell experts apart where it holds a digit beside the word; then each is asked.
        self.names_experts = self.names_experts or any(
            "experts" in p and any(ch.isdigit() for ch in p.partition("experts")[2]) for p in self.expressions
        )
        self._any = _any_of(self.expressions)

    def covers_name(self, module: str) -> bool:
        return module in self.names or (self._any is not None and self._any(module) is not None)

    def idle(self, patterns: list[str], modules: set[str]) -> list[str]:
        def is_idle(pattern: str) -> bool:
            expression = self.expressions.get(pattern)
            return pattern not in modules if expression is None else not any(map(expression.match, modules))

        return [pattern for pattern in patterns if is_idle(pattern)]

    def unmatched(self, asked: Iterable[str]) -> list[str]:
        return [p for p in super().unmatched(asked) if p not in _CLASSES]


def _any_of(expressions: Mapping[str, Pattern[str]]) -> Callable[[str], object] | None:
    """One matcher for all expressions. Groups and flags inside them can forbid joining; then each is tried."""
    import re

    if not expressions:
        return None
    try:
        return re.compile("|".join(f"(?:{e.pattern})" for e in expressions.values())).match
    except (re.error, OverflowError):
        return lambda module: next((True for e in expressions.values() if e.match(module)), None)


class Targeted:
    """Each module by the first target that means it, unless it is ignored.

    Args:
        targets: of all groups.
        formats: target -> format; of a target written twice the later group counts, as in the library.
        ignored: what stays plain.
        plain: the checkpoint's dtype.
    """

    def __init__(self, targets: Targets, formats: Mapping[str, Format], ignored: Targets, plain: Format) -> None:
        self.targets = targets
        self.formats = formats
        self.ignored = ignored
        self.plain = plain
        self.names_experts = targets.names_experts or ignored.names_experts
        self._by_name = any(target not in _CLASSES for target in formats)
        self._asked: set[str] = set()

    def format_of(self, site: Site) -> Format:
        module, module_class = site.module, site.module_class
        self._asked.add(module)
        if may_be_quantised(site):
            module_class = "Linear"
        elif site.fixed or module_class not in _CLASSES:
            return self.plain
        if module_class in self.ignored.names or self.ignored.covers(module):
            return self.plain
        found = self._by_target(module) if self._by_name else None
        return found or self.formats.get(module_class, self.plain)

    def _by_target(self, module: str) -> Format | None:
        if module in self.targets.names:
            return self.formats[module]
        for pattern, expression in self.targets.expressions.items():
            if expression.match(module):
                return self.formats[pattern]
        if self.targets.covers(module):  # under another spelling
            from sublight.facts.quantization.names import spellings

            for names in spellings(module):
                if all(self.targets.covers_name(name) for name in names):
                    return self._by_target(names[0])
        return None

    def unmatched(self) -> list[str]:
        return [*self.ignored.unmatched(self._asked), *self.targets.unmatched(self._asked)]

    def rules(self) -> Rules:
        named = {target: format.name for target, format in self.formats.items() if target not in _CLASSES}
        default = self.formats.get("Linear")
        return Rules(default.name if default else "", frozenset(self.ignored.patterns), named)

"""The commonest scheme: one format for every linear module, and a list of those that keep the checkpoint's dtype."""

from sublight.facts.formats import Format
from sublight.facts.quantization.base import Rules, Site
from sublight.facts.quantization.names import tail
from sublight.facts.quantization.patterns import ModuleList


def may_be_quantised(site: Site) -> bool:
    """Linear modules, and stacks of experts, which several models hold as bare parameters; never what is fixed."""
    return not site.fixed and (site.module_class == "Linear" or (site.expert and site.module_class == "Parameter"))


class AllBut:
    """Every "Linear" in one format, except those a list covers.

    Args:
        quantised: the format of what is not excluded.
        plain: the format of everything else, as `dtype` says.
        excluded: the scheme's own list.
        kept: last components that stay plain though no list says so.
        experts: format of the routed experts where they have one of their own.
        experts_only: nothing but routed experts is quantised (gpt-oss).
    """

    def __init__(
        self,
        quantised: Format,
        plain: Format,
        excluded: ModuleList,
        *,
        kept: frozenset[str] = frozenset(),
        experts: Format | None = None,
        experts_only: bool = False,
    ) -> None:
        self.quantised = quantised
        self.plain = plain
        self.excluded = excluded
        self.kept = kept
        self.experts = experts or quantised
        self.experts_only = experts_only
        self.names_experts = excluded.names_experts
        self._asked: set[str] = set()

    def format_of(self, site: Site) -> Format:
        module = site.module
        self._asked.add(module)
        if not may_be_quantised(site) or (self.experts_only and not site.expert):
            return self.plain
        if self.excluded.covers(module) or (self.kept and tail(module) in self.kept):
            return self.plain
        return self.experts if site.expert else self.quantised

    def unmatched(self) -> list[str]:
        return self.excluded.unmatched(self._asked)

    def rules(self) -> Rules:
        return Rules(self.quantised.name, frozenset(self.excluded.patterns))

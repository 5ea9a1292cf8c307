"""Lists of module names in a scheme, matched as what wrote them means them.

Speed decides the form: GLM-5-NVFP4 has 471 exclusions and 1,800 modules, 850,000 pairs. Names and `prefix*` go into
one dictionary that is asked once for each length that occurs (about ten), and only what is left becomes an
expression. Which rules matched nothing is worked out afterwards, if somebody wants to know.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable

from sublight.errors import ConfigError
from sublight.facts.quantization.names import (
    has_other_spelling,
    is_alias,
    shortened,
    spellings,
    with_any_expert,
)

LONGEST = 1000  # characters of a name or pattern; module names have a tenth
MOST_GLOBS = 2000  # with a wildcard inside; published lists have some dozens
MOST_STARS = 32
_WILDCARDS = frozenset("*?[")
_NUMBERS = frozenset("0123456789?[")
_VECTORS = ("norm", "bias", "conv1d")


class ModuleList:
    """Names of modules in a scheme. Subclasses say what a pattern means in their dialect.

    Attributes:
        patterns: as written, each once.
        names_experts: some pattern names single experts, so one expert's answer does not hold for all.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        _check(self.patterns)
        self.names_experts = any(p.partition(".experts.")[2][:1] in _NUMBERS for p in self.patterns if ".experts." in p)
        self._has_alias = any(is_alias(pattern) for pattern in self.patterns)

    def covers(self, module: str) -> bool:
        """Whether the list means this module, under its own name or another spelling of it."""
        if self.covers_name(module):
            return True
        if not (self._has_alias or has_other_spelling(module)):
            return False
        for names in spellings(module):
            covered = [name for name in names if self.covers_name(name)]
            if len(covered) == len(names):
                return True
            if covered:
                left = shortened([name for name in names if name not in covered])
                raise ConfigError(
                    f"reading the format of {module}",
                    f"the scheme lists {shortened(covered)} and not {left}, which are stored as one matrix",
                    "one format for all parts of a fused matrix; vLLM and SGLang refuse a checkpoint that splits it",
                )
        return False

    def covers_name(self, module: str) -> bool:
        """Whether the list means a module of exactly this name."""
        raise NotImplementedError

    def idle(self, patterns: list[str], modules: set[str]) -> list[str]:
        """Those of the patterns that mean none of the modules."""
        raise NotImplementedError

    def unmatched(self, asked: Iterable[str]) -> list[str]:
        """Patterns that mean none of the asked modules.

        A pattern about one expert stands for all experts asked. Patterns about norms, biases and convolutions are
        passed over: no scheme quantises those, so callers need not ask, and leaving them alone says nothing.
        """
        names = {name for module in asked for name in self._all_names(module)}
        exact = {with_any_expert(name) for name in names}
        left = [p for p in self.patterns if with_any_expert(p) not in exact and not p.rstrip("*").endswith(_VECTORS)]
        return self.idle(left, names) if left else []

    def _all_names(self, module: str) -> Iterable[str]:
        yield module
        if self._has_alias or has_other_spelling(module):
            for names in spellings(module):
                yield from names


class Globs(ModuleList):
    """ModelOpt: `fnmatch` globs, exactly; a name without wildcard covers itself and what lies below it.

    `model.layers.1*` covers layers 1 and 10 to 19, `model.layers.1.*` only layer 1, `model.layers.0*` only layer 0 of
    78. This is what the exporter means: it writes `prefix*` only where no quantised module begins with the prefix
    (modelopt 0.47, `export/quant_utils.py`, `_prefix_wildcard_summarize_exclude_modules`).

    Engines read the list in their own ways. TensorRT-LLM: `fnmatch`. vLLM (`is_layer_excluded`): equal, or any entry
    as a substring, so that a bare `model.layers.1` also takes layer 10, or `fnmatch`; and it splits `prefix*` into
    `prefix` and `prefix.*` where a model renames its modules. SGLang: a bare name as a path between dots anywhere, a
    glob against the whole name or any one component. All agree on the lists that ModelOpt writes; they part on
    hand-made ones, where `mtp*` taken as plain text excludes nothing (NVIDIA-NeMo/RL#3615).
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        super().__init__(patterns)
        self._is_prefix: dict[str, bool] = {}
        globs = []
        for pattern in self.patterns:
            stem = pattern.rstrip("*")
            if _WILDCARDS.isdisjoint(stem):
                self._is_prefix[stem] = self._is_prefix.get(stem, False) or stem != pattern
            else:
                globs.append(pattern)
        self._lengths = sorted({len(stem) for stem in self._is_prefix})
        self._glob = _any_of(globs)

    def covers_name(self, module: str) -> bool:
        end = len(module)
        for length in self._lengths:
            if length > end:
                break
            is_prefix = self._is_prefix.get(module[:length])
            if is_prefix is not None and (is_prefix or length == end or module[length] == "."):
                return True
        return self._glob is not None and self._glob(module) is not None

    def idle(self, patterns: list[str], modules: set[str]) -> list[str]:
        in_order = sorted(modules)

        def none_begins(prefix: str) -> bool:
            at = bisect_left(in_order, prefix)
            return at == len(in_order) or not in_order[at].startswith(prefix)

        def is_idle(pattern: str) -> bool:
            stem = pattern.rstrip("*")
            if not _WILDCARDS.isdisjoint(stem):
                match = _any_of([pattern])
                return not any(map(match, modules)) if match else True
            return none_begins(stem) if stem != pattern else stem not in modules and none_begins(stem + ".")

        return [pattern for pattern in patterns if is_idle(pattern)]


class Paths(ModuleList):
    """`modules_to_not_convert`, `ignored_layers`: a path of whole components, anywhere in the module's name.

    `gate` covers `model.layers.3.mlp.gate` and not `gate_proj`; `model.layers.0.` covers that layer; `mlp.gate.` is
    written with a closing dot by some quantisers to say the same. An entry with a wildcard is a glob over the whole
    name or over the name of a module above it.

    This is SGLang's rule (`_module_path_match`). vLLM wants the whole name; transformers (`should_convert_module`)
    takes an entry from the front up to a dot, as a regular expression, or as an ending. On the published lists, which
    write full names or single components, the three agree.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        super().__init__(patterns)
        self._paths: set[str] = set()
        self._lengths: dict[str, set[int]] = {}
        globs = []
        for pattern in self.patterns:
            path = pattern.strip(".")
            if not _WILDCARDS.isdisjoint(path):
                globs += [path, path + ".*"]
            elif path:
                parts = path.split(".")
                self._paths.add(path)
                self._lengths.setdefault(parts[0], set()).add(len(parts))
        self._glob = _any_of(globs)

    def covers_name(self, module: str) -> bool:
        parts = module.split(".")
        for start, part in enumerate(parts):
            for length in self._lengths.get(part, ()):
                if ".".join(parts[start : start + length]) in self._paths:
                    return True
        return self._glob is not None and self._glob(module) is not None

    def idle(self, patterns: list[str], modules: set[str]) -> list[str]:
        paths: set[str] = set()
        for module in modules:
            parts = module.split(".")
            for start in range(len(parts)):
                paths.update(".".join(parts[start:end]) for end in range(start + 1, len(parts) + 1))
        left = [pattern for pattern in patterns if pattern.strip(".") not in paths]
        return [p for p in left if _WILDCARDS.isdisjoint(p) or not any(map(Paths([p]).covers_name, modules))]


def _check(patterns: Collection[str]) -> None:
    """Raises ConfigError for lists that no exporter writes and no matching would get through."""
    asked, longest = "reading the list of modules", max(patterns, key=len, default="")
    if len(longest) > LONGEST:
        raise ConfigError(
            asked,
            f"{longest[:77]!r}... has {len(longest):,} characters",
            f"names and patterns of at most {LONGEST:,} characters",
        )
    stems = [pattern for pattern in patterns if not _WILDCARDS.isdisjoint(pattern.rstrip("*"))]
    globs = [stem for stem in stems if not stem.startswith("re:")]
    if len(globs) > MOST_GLOBS:
        hint = f"at most {MOST_GLOBS:,}; plain names are not counted"
        raise ConfigError(asked, f"it holds {len(globs):,} globs", hint)
    busiest = max(globs, key=lambda glob: glob.count("*"), default="")
    if busiest.count("*") > MOST_STARS:
        found = f"{shortened([busiest[:80]])!r} has {busiest.count('*')} stars"
        raise ConfigError(asked, found, f"globs of at most {MOST_STARS} stars")


def _any_of(globs: list[str]) -> Callable[[str], object] | None:
    """One matcher for all globs, or None when there are none: compiling is the expensive part."""
    if not globs:
        return None
    import re
    from fnmatch import translate

    return re.compile("|".join(translate(glob) for glob in globs)).match

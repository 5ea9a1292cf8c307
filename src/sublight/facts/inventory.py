"""Building an inventory: what a family says of its layers, asked of the quantisation scheme, merged into entries."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec

from sublight.facts.formats import BF16, FP32, Format
from sublight.facts.quantization.base import Finding, ModuleClass, Quantization, Site
from sublight.facts.tensors import Cache, Cut, Part, Read, Stage, Tensor

Use = Literal["replicated", "router", "attention", "dense", "shared", "experts", "head"]


class Moe(msgspec.Struct, frozen=True):
    """The routed experts of a model.

    Attributes:
        experts: how many each MoE layer holds.
        top_k: how many a token is sent to.
        layers: how many layers are MoE layers.
        width: of one expert (its hidden channels).
        shared: shared experts a layer, as the family counts them.
        groups: expert groups that routing chooses among first; 1 means no such limit.
        top_groups: how many of them a token may use.
    """

    experts: int
    top_k: int
    layers: int
    width: int
    shared: int = 0
    groups: int = 1
    top_groups: int = 1


class Inventory:
    """Collects the tensors and caches of one model.

    Args:
        quantization: asked for the format of every weight.
        root: prefix of the layers in the checkpoint ("model", "model.language_model", "backbone").
        head_root: prefix of lm_head ("" or "language_model.").
    """

    def __init__(self, quantization: Quantization, root: str = "model", head_root: str = "") -> None:
        self.quantization = quantization
        self.root = root
        self.head_root = head_root
        self.tensors: list[Tensor] = []
        self.caches: list[Cache] = []
        self.findings: list[Finding] = []
        self.stage: Stage = "main"
        self.moe: Moe | None = None
        self.mtp_modules = 0
        self.heads = 0
        self.kv_heads = 0
        self.hidden = 0
        self.layers = 0
        self.vocab = 0
        self.tied = False

    @contextmanager
    def mtp(self, root: str = "", *, modules: int) -> Iterator[None]:
        """Everything added inside belongs to the multi-token-prediction layers.

        Args:
            root: their own prefix in the checkpoint ("mtp"); "" where they are numbered on after the model's layers.
            modules: how many there are to draft with; each drafted token passes through one of them, in turn.
        """
        outside, self.mtp_modules = self.root, modules
        self.stage, self.root = "mtp", root or outside
        try:
            yield
        finally:
            self.stage, self.root = "main", outside

    def note(self, level: Literal["info", "warn", "error"], subject: str, text: str) -> None:
        self.findings.append(Finding(level, subject, text))

    def layer(self, path: str) -> str:
        """Full module name of something inside a layer."""
        return f"{self.root}.layers.{{layer}}.{path}"

    def matrix(
        self,
        module: str,
        shape: tuple[int, int],
        row: str,
        part: Part,
        *,
        layers: Sequence[int] = (),
        cut: Cut | None = None,
        bias: bool = False,
        copies: int = 1,
        read: Read = "every step",
        module_class: ModuleClass = "Linear",
        fixed: bool = False,
        leaf: str = "weight",
        tied: bool = False,
        stored: Format | None = None,
    ) -> None:
        """A weight that is multiplied (or looked up, for an embedding).

        Args:
            module: with {layer} and {expert} left in where they vary.
            shape: (out, in).
            copies: experts a layer; the scheme is asked for the first and, where rules name experts, for each.
            module_class, fixed: see `quantization.base.Site`.
            stored: the format that every release of the family keeps it in, which no scheme says (a router in FP32).
                The headers of a checkpoint know better, where there are any.
        """
        by_format: dict[str, tuple[Format, list[int], int]] = {}
        for layer in layers or (None,):
            named = module if layer is None else module.replace("{layer}", str(layer))
            site = Site(named, module_class, shape, part == "experts", fixed)
            for inferred, share in self._formats(site, copies):
                format_ = inferred if stored is None or hasattr(self.quantization.scheme, "checkpoint") else stored
                key = f"{format_.name}/{share}"
                by_format.setdefault(key, (format_, [], share))[1].extend([] if layer is None else [layer])
        for format_, where, share in by_format.values():
            self._add(
                Tensor(
                    module=module,
                    leaf=leaf,
                    row=row,
                    stage=self.stage,
                    layers=tuple(where),
                    copies=share,
                    shape=shape,
                    format=format_,
                    kind=_KINDS[module_class],
                    part=part,
                    cut=cut,
                    read=read,
                    tied=tied,
                )
            )
        if bias:
            length = (shape[0],)
            # A bias of a row-parallel matrix is added once, after the reduction: every rank keeps it whole.
            bias_cut = cut if cut is not None and cut.axis == 0 else None
            self.vector(module, length, row, part, layers=layers, leaf="bias", cut=bias_cut, copies=copies, read=read)

    def vector(
        self,
        module: str,
        shape: tuple[int, ...],
        row: str = "norms",
        part: Part = "replicated",
        *,
        layers: Sequence[int] = (),
        leaf: str = "weight",
        cut: Cut | None = None,
        copies: int = 1,
        read: Read = "every step",
        format: Format = BF16,
        kind: Literal["vector", "conv"] = "vector",
    ) -> None:
        """A norm, a bias, or any other small parameter that no scheme quantises."""
        self._add(
            Tensor(
                module=module,
                leaf=leaf,
                row=row,
                stage=self.stage,
                layers=tuple(layers),
                copies=copies,
                shape=shape,
                format=FP32 if self.quantization.scheme.format_of(_PLAIN).bits == 32 else format,
                kind=kind,
                part=part,
                cut=cut,
                read=read,
            )
        )

    def norm(self, path: str, width: int, layers: Sequence[int], *, bias: bool = False) -> None:
        """A normalisation inside a layer; RMS norms have a weight, layer norms a bias as well."""
        self.vector(self.layer(path), (width,), layers=layers)
        if bias:
            self.vector(self.layer(path), (width,), layers=layers, leaf="bias")

    def cache(self, **fields: object) -> None:
        """Something a layer remembers; the fields are those of `Cache`, less `stage`."""
        cache = Cache(stage=self.stage, **fields)  # type: ignore[arg-type]
        if cache.layers:
            self.caches.append(cache)

    def _add(self, tensor: Tensor) -> None:
        self.tensors.append(tensor)

    def _formats(self, site: Site, copies: int) -> Iterable[tuple[Format, int]]:
        """The formats of the copies in one layer, and how many have each. A fused stack of experts has one."""
        scheme = self.quantization.scheme
        if "{expert}" not in site.module:
            return [(scheme.format_of(site), copies)]
        asked = range(copies) if getattr(scheme, "names_experts", False) else (0,)
        counts: dict[str, tuple[Format, int]] = {}
        for expert in asked:
            module = site.module.replace("{expert}", str(expert))
            found = scheme.format_of(msgspec.structs.replace(site, module=module))
            counts[found.name] = (found, counts.get(found.name, (found, 0))[1] + 1)
        if len(asked) == 1:
            return [(found, copies) for found, _ in counts.values()]
        return counts.values()


_PLAIN = Site("", "Norm", (1,))
_KINDS: dict[ModuleClass, Literal["linear", "gate", "embedding", "vector", "conv"]] = {
    "Linear": "linear",
    "Gate": "gate",
    "Embedding": "embedding",
    "Norm": "vector",
    "Conv1d": "conv",
    "Parameter": "linear",
}

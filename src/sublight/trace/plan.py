"""Plan: which matrix products a model's layers make, in the order engines make them, with the size of each result.

The trace knows kernels by name, and one name serves many products: cuBLAS picks the same tile for q_b and for W_UV.
What tells them apart is where they stand in the layer and how many columns they make. Whoever knows the model says both
here, in plain data; nothing in `trace` knows what a model is.
"""

from typing import Literal

import msgspec

# Where a product stands: before the layer's attention (or other mixer), after it, in its MLP half, or after all layers.
Place = Literal["before", "after", "mlp", "end"]


class Product(msgspec.Struct, frozen=True):
    """One matrix product of a layer on one rank.

    Attributes:
        row: the row of the step it belongs to.
        columns: of the result, on this rank; products that engines fuse into one launch are one.
        bits: of one stored weight, without scales.
        place: where it stands.
    """

    row: str
    columns: int
    bits: int
    place: Place


class LayerPlan(msgspec.Struct, frozen=True):
    """The products of one layer, in order. `mixer` is the row of its attention, linear attention or Mamba state; "" for
    a layer that has none (an MLP alone)."""

    mixer: str
    products: tuple[Product, ...]

    def at(self, place: Place) -> tuple[Product, ...]:
        return tuple(p for p in self.products if p.place == place)


class Plan(msgspec.Struct, frozen=True):
    """All layers of a step in order, and the products after the last.

    `heads` are the query heads of this rank, `tokens` those that its attention takes in a step; 0 where not known.
    """

    layers: tuple[LayerPlan, ...]
    end: tuple[Product, ...]
    heads: int = 0
    tokens: int = 0

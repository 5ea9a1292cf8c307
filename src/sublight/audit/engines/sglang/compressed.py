"""What the library compressed-tensors answers, which holds the words of its own checkpoint format and is not followed.

Its enumerations are the words as they stand in a checkpoint's configuration, one member a word; its records are made
from the configuration's objects field by field.
"""

import ast
from typing import Any

from sublight.audit.source.tree import Module
from sublight.audit.source.values import Class, External, Instance, Member, Namespace, Value

PACKAGE = "compressed_tensors"
# Modules of the library that its users import these names from.
_PLACES = (PACKAGE, f"{PACKAGE}.config", f"{PACKAGE}.config.base", f"{PACKAGE}.quantization",
           f"{PACKAGE}.quantization.quant_args")  # fmt: skip
_WORDS = {
    "QuantizationStrategy": ("tensor", "channel", "group", "block", "token", "tensor_group", "attn_head"),
    "QuantizationType": ("int", "float"),
    "DynamicType": ("local",),
    "CompressionFormat": (
        "dense", "sparse-bitmask", "sparse-24-bitmask", "int-quantized", "float-quantized", "naive-quantized",
        "pack-quantized", "marlin-24", "mixed-precision", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
    ),
    "SparsityStructure": ("unstructured", "2:4", "0:0"),
}  # fmt: skip
_NAMED = {"2:4": "TWO_FOUR", "0:0": "ZERO_ZERO"}
# A record's fields where the configuration leaves them out.
_ARGUMENTS: dict[str, Value] = {
    "num_bits": 8,
    "type": "int",
    "symmetric": True,
    "group_size": None,
    "strategy": None,
    "block_structure": None,
    "dynamic": False,
    "actorder": None,
}


def values() -> dict[str, Value]:
    """The enumerations, under every name they are imported by."""
    made = {name: _enumeration(name, words) for name, words in _WORDS.items()}
    return {f"{place}.{name}": cls for name, cls in made.items() for place in _PLACES}


def calls() -> dict[str, Any]:
    """The records' constructors, under every name they are called by."""
    makers = ("QuantizationArgs", "QuantizationArgs.model_validate", "QuantizationArgs.parse_obj")
    return {f"{place}.{maker}": _record for maker in makers for place in _PLACES}


def _record(arguments: list[Value], keywords: dict[str, Value]) -> Value:
    given = arguments[0] if arguments else keywords
    fields = {key: value for key, value in given.items() if isinstance(key, str)} if isinstance(given, dict) else {}
    return Instance(None, _ARGUMENTS | fields, open_=True)


def _enumeration(name: str, words: tuple[str, ...]) -> Class:
    """An enumeration of strings: each word is a member, and equal to its text."""
    module = Namespace(Module(PACKAGE, PACKAGE, b""))
    node = ast.ClassDef(name, [], [], [], [], lineno=1, col_offset=0)
    cls = Class(module, node, name, [External("builtins.str"), External("enum.Enum")])
    cls.is_enum = True
    upper = name != "CompressionFormat"
    for word in words:
        member = _NAMED.get(word, word.upper() if upper else word.replace("-", "_"))
        cls.members[member] = Member(cls, member, word)
    return cls

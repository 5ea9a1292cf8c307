"""Reading safetensors headers: what they hold, and everything that can be wrong with a file."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublight.errors import InputFileError
from sublight.facts.checkpoint import INDEX, read_checkpoint, read_header

BITS = {"BF16": 16, "F16": 16, "F32": 32, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I32": 32, "F4": 4, "I64": 64}
Spec = tuple[str, tuple[int, ...]] | tuple[str, tuple[int, ...], bytes]


def write_safetensors(path: Path, tensors: dict[str, Spec], metadata: dict[str, str] | None = None) -> Path:
    """A file with these tensors: name -> (dtype, shape) filled with zeros, or with the bytes given."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, (dtype, shape, *payload) in tensors.items():
        size = BITS[dtype]
        for length in shape:
            size *= length
        content = payload[0] if payload else bytes(size // 8)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def write_raw(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def scalar(value: float) -> Spec:
    return ("F32", (), struct.pack("<f", value))


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))


def test_a_header_tells_every_tensor(tmp_path: Path):
    path = write_safetensors(
        tmp_path / "model.safetensors",
        {"a.weight": ("U8", (4, 8)), "a.weight_scale": ("F8_E4M3", (4, 1)), "b": ("BF16", (3,)), "s": scalar(0.5)},
        {"format": "pt", "dtype": "int", "shape": "none"},
    )
    found = read_header(path)
    assert list(found) == ["a.weight", "a.weight_scale", "b", "s"]
    assert (found["a.weight"].dtype, found["a.weight"].shape, found["a.weight"].bytes) == ("U8", (4, 8), 32)
    assert found["s"].shape == ()
    raw = path.read_bytes()
    at = found["s"].offset
    assert struct.unpack("<f", raw[at : at + 4]) == (0.5,)
    assert found["b"].file == "model.safetensors"


def test_four_bit_and_empty_tensors(tmp_path: Path):
    found = read_header(write_safetensors(tmp_path / "m.safetensors", {"w": ("F4", (2, 6)), "e": ("BF16", (0, 5))}))
    assert (found["w"].bytes, found["e"].bytes) == (6, 0)


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        ({"a": entry("U8", [4], 0, 3)}, 3, "a is U8 [4] in 3 bytes"),
        ({"a": entry("U8", [4], 1, 5)}, 5, "a begins at byte 1 of the data, where byte 0"),
        ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, 6, "b begins at byte 2 of the data, where byte 4"),
        ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 6, 10)}, 10, "b begins at byte 6"),
        ({"a": entry("U8", [4], 0, 4)}, 3, "take 4 bytes, and 3 follow the header: cut short"),
        ({"a": entry("U8", [4], 0, 4)}, 9, "take 4 bytes, and 9 follow"),
        ({"a": entry("Q4", [4], 0, 4)}, 4, "dtype 'Q4'"),
        ({"a": entry("U8", [-2, -2], 0, 4)}, 4, "shape [-2, -2]"),
        ({"a": entry("U8", [4], 4, 0)}, 4, "a is U8 [4] in -4 bytes"),
        ({"a": {"dtype": "U8", "shape": [4]}}, 4, "data_offsets"),
        ({"a": {"dtype": "U8", "shape": ["4"], "data_offsets": [0, 4]}}, 4, "not the JSON"),
        ({"a": [1]}, 4, "not the JSON"),
    ],
)
def test_broken_headers_are_named(tmp_path: Path, header: dict[str, Any], size: int, said: str):
    path = write_raw(tmp_path / "m.safetensors", json.dumps(header).encode(), bytes(size))
    with pytest.raises(InputFileError) as error:
        read_header(path)
    assert said in error.value.found
    assert str(path) in error.value.asked
    assert error.value.hint


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "header length of 0, and the file has 0 bytes"),
        (b"\x10\0\0", "the file has 3 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "cut short, or no safetensors file"),
        (struct.pack("<Q", 100) + b"{}", "header length of 100, and the file has 10 bytes"),
        (struct.pack("<Q", 2) + b"[]", "not the JSON"),
        (struct.pack("<Q", 2) + b"\xff\xfe", "not the JSON"),
        (struct.pack("<Q", 20_000) + b"[" * 20_000, "not the JSON"),
        (struct.pack("<Q", 20_006) + b'{"a":' + b"[" * 20_000 + b"}", "not the JSON"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, said: str):
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as error:
        read_header(path)
    assert said in error.value.found


def test_a_name_that_stands_twice(tmp_path: Path):
    one = json.dumps(entry("U8", [4], 0, 4))
    header = f'{{"a": {one}, "a": {one}}}'.encode()
    with pytest.raises(InputFileError, match="a name stands twice among its 1 tensors"):
        read_header(write_raw(tmp_path / "m.safetensors", header, bytes(4)))
    # The word inside a quoted metadata string is no second entry.
    header = json.dumps({"__metadata__": {"note": 'has "data_offsets" inside'}, "a": json.loads(one)}).encode()
    assert list(read_header(write_raw(tmp_path / "n.safetensors", header, bytes(4)))) == ["a"]


def test_what_is_no_file(tmp_path: Path):
    (tmp_path / "m.safetensors").mkdir()
    with pytest.raises(InputFileError, match="no regular file"):
        read_header(tmp_path / "m.safetensors")
    with pytest.raises(InputFileError):
        read_header(tmp_path / "absent.safetensors")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.data())
def test_random_bytes_never_raise_anything_else(tmp_path: Path, data: st.DataObject):
    path = tmp_path / "m.safetensors"
    good = write_safetensors(path, {"a": ("U8", (4, 2)), "b": ("BF16", (3,))}).read_bytes()
    kind = data.draw(st.sampled_from(["noise", "changed", "cut", "json"]))
    if kind == "noise":
        content = data.draw(st.binary(max_size=80))
    elif kind == "cut":
        content = good[: data.draw(st.integers(0, len(good) - 1))]
    elif kind == "json":
        leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
        value = data.draw(
            st.recursive(leaves, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3))
        )
        text = json.dumps(value).encode()
        content = struct.pack("<Q", len(text)) + text
    else:
        at = data.draw(st.integers(0, len(good) - 1))
        content = good[:at] + data.draw(st.binary(min_size=1, max_size=3)) + good[at + 1 :]
    path.write_bytes(content)
    try:
        found = read_header(path)
    except InputFileError as error:
        assert error.hint
    else:
        assert sum(tensor.bytes for tensor in found.values()) <= len(content)


def test_a_folder_with_an_index(tmp_path: Path):
    first, second = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
    write_safetensors(tmp_path / first, {"a.weight": ("BF16", (2, 3))})
    write_safetensors(tmp_path / second, {"b.weight": ("U8", (5,))})
    write_safetensors(tmp_path / "consolidated.safetensors", {"a.weight": ("BF16", (2, 3))})  # not in the index
    third = "model-00003-of-00003.safetensors"
    write_index(tmp_path, {"a.weight": first, "b.weight": second, "c.weight": third, "d.weight": second})
    checkpoint = read_checkpoint(tmp_path)
    assert sorted(checkpoint.tensors) == ["a.weight", "b.weight"]
    assert checkpoint.total_bytes == 12 + 5
    assert checkpoint.files == [first, second]
    assert checkpoint.missing == (third,)
    assert checkpoint.unread == {"c.weight", "d.weight"}


def test_a_folder_without_an_index(tmp_path: Path):
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": ("BF16", (2,))})
    write_safetensors(tmp_path / "mtp.safetensors", {"b": ("BF16", (2,))})
    checkpoint = read_checkpoint(tmp_path)
    assert sorted(checkpoint.tensors) == ["a", "b"]
    assert checkpoint.missing == ("model-00002-of-00002.safetensors",)
    assert checkpoint.unread == frozenset()


def test_a_tensor_in_two_shards(tmp_path: Path):
    write_safetensors(tmp_path / "a.safetensors", {"x": ("BF16", (2,))})
    write_safetensors(tmp_path / "b.safetensors", {"x": ("BF16", (2,))})
    with pytest.raises(InputFileError, match=r"x is stored twice, in a\.safetensors and in b\.safetensors"):
        read_checkpoint(tmp_path)


def test_folders_that_are_no_checkpoint(tmp_path: Path):
    with pytest.raises(InputFileError, match="holds no safetensors file"):
        read_checkpoint(tmp_path)
    write_index(tmp_path, {"a": "model.safetensors"})
    with pytest.raises(InputFileError, match="none of the 1 shard of its index"):
        read_checkpoint(tmp_path)
    write_index(tmp_path, {"a": "../elsewhere.safetensors"})
    with pytest.raises(InputFileError, match="outside the folder"):
        read_checkpoint(tmp_path)
    (tmp_path / INDEX).write_text('{"weight_map": [1]}')
    with pytest.raises(InputFileError, match="not an index of shards"):
        read_checkpoint(tmp_path)
    with pytest.raises(InputFileError):
        read_checkpoint(tmp_path / "absent")

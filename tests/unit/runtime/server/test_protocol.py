from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from veltair.runtime.framed import bytes_of_strings, read_framed, write_framed
from veltair.runtime.manifest import ITEM_BYTES, TensorSpec
from veltair.runtime.server.protocol import Signature, decode_request, timeout_ns
from veltair.runtime.server.refusals import Refusal
from veltair.runtime.server.tensors import DATATYPES, InputTensor, binary_size

DATA = TensorSpec(name="data", dtype="float32", shape=(1, 2, 3))
MASK = TensorSpec(name="mask", dtype="int8", shape=(4,))
SCORES = TensorSpec(name="scores", dtype="float32", shape=(2,))
LABEL = TensorSpec(name="label", dtype="int64", shape=(1,))


def signature() -> Signature:
    return Signature("net", 3, (DATA, MASK), (SCORES, LABEL))


def data_input(**changes: object) -> dict[str, Any]:
    tensor = {"name": "data", "shape": [1, 2, 3], "datatype": "FP32", "data": [0, 1, 2, 3, 4, 5]}
    return {key: value for key, value in {**tensor, **changes}.items() if value is not None}


def mask_input(**changes: object) -> dict[str, Any]:
    return {"name": "mask", "shape": [4], "datatype": "INT8", "data": [1, 0, 0, 1], **changes}


def check(*inputs: dict[str, Any], **fields: object) -> None:
    text = json.dumps({"inputs": inputs, **fields}).encode()
    request = decode_request(text)
    signature().check(request)
    signature().wanted(request)
    timeout_ns(request)


def refusal(*inputs: dict[str, Any], **fields: object) -> str:
    with pytest.raises(Refusal) as refused:
        check(*inputs, **fields)
    assert refused.value.status == 400
    return refused.value.message


def test_a_right_request_passes() -> None:
    check(data_input(), mask_input())
    check(data_input(data=None, parameters={"binary_data_size": 24}), mask_input())
    check(data_input(), mask_input(), unknown={"field": 1}, parameters={"priority": 2})


@pytest.mark.parametrize(
    ("inputs", "parts"),
    [
        ([data_input(name="dat")], ["'dat'", "data FP32 [1, 2, 3]; mask INT8 [4]", "rename"]),
        ([data_input()], ["'mask' is missing", "add mask INT8 [4]"]),
        ([data_input(), data_input()], ["'data' is given twice", "give it once"]),
        ([data_input(datatype="FP64")], ["'FP64'", "data FP32 [1, 2, 3]", "convert it to FP32"]),
        ([data_input(datatype="BYTES")], ["'BYTES'", "convert it to FP32"]),
        ([data_input(shape=[2, 3])], ["[2, 3]", "FP32 [1, 2, 3]", "reshape it to [1, 2, 3]"]),
        ([data_input(data=None)], ["no data", "6 numbers or 24 bytes"]),
        ([data_input(data=None, parameters={"binary_data_size": 23})], ["23", "takes 24 bytes"]),
        ([data_input(data=None, parameters={"binary_data_size": -1})], ["-1", "number of bytes"]),
        ([data_input(data=None, parameters={"binary_data_size": "9"})], ["'9'", "must be"]),
        ([data_input(parameters={"binary_data_size": 24})], ["both", "give one"]),
        (
            [data_input(parameters={"shared_memory_region": "r"})],
            ["shared_memory_region = 'r'", "can't be registered", "leave it out"],
        ),
    ],
)
def test_a_wrong_input_names_value_rule_and_remedy(
    inputs: list[dict[str, Any]], parts: list[str]
) -> None:
    message = refusal(*inputs)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"outputs": [{"name": "top"}]}, ["'top'", "scores FP32 [2], label INT64 [1]", "rename"]),
        ({"outputs": [{"name": "label"}, {"name": "label"}]}, ["'label'", "twice"]),
        (
            {"outputs": [{"name": "label", "parameters": {"classification": 3}}]},
            ["classification = 3", "leave it out"],
        ),
        (
            {"outputs": [{"name": "label", "parameters": {"binary_data": 1}}]},
            ["binary_data = 1", "true or false"],
        ),
        ({"parameters": {"binary_data_output": "yes"}}, ["'yes'", "true or false"]),
        ({"parameters": {"sequence_id": 7}}, ["sequence_id = 7", "no state", "leave it out"]),
        ({"parameters": {"timeout": -1}}, ["timeout is -1", "from 1 to 3600000000"]),
        ({"parameters": {"timeout": 1.5}}, ["timeout is 1.5"]),
    ],
)
def test_a_wrong_wish_names_value_rule_and_remedy(fields: dict[str, Any], parts: list[str]) -> None:
    message = refusal(data_input(), mask_input(), **fields)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"inputs": 3}',
        b'{"inputs": [{"name": "data"}]}',
        b'{"inputs": [{"name": 1, "shape": [1], "datatype": "FP32"}]}',
        b'{"inputs": []} trailing',
        b'{"inputs": [',
        b"\xff\xfe\x00",
        b'{"inputs": [], "id": "\xff"}',
    ],
)
def test_what_is_not_a_request_says_what_one_is(text: bytes) -> None:
    with pytest.raises(Refusal, match=rf"the first {len(text)} bytes .*send an object with"):
        decode_request(text)


def wanted(**fields: object) -> list[tuple[str, bool]]:
    request = decode_request(json.dumps({"inputs": [], **fields}).encode())
    return [(rule.name, binary) for rule, binary in signature().wanted(request)]


def test_outputs_come_in_the_order_and_form_that_was_asked_for() -> None:
    assert wanted() == [("scores", False), ("label", False)]
    assert wanted(parameters={"binary_data_output": True}) == [("scores", True), ("label", True)]
    assert wanted(
        outputs=[{"name": "label"}, {"name": "scores", "parameters": {"binary_data": False}}],
        parameters={"binary_data_output": True},
    ) == [("label", True), ("scores", False)]


def test_timeout_is_microseconds_and_zero_means_none() -> None:
    def timeout(**parameters: int) -> int | None:
        return timeout_ns(
            decode_request(json.dumps({"inputs": [], "parameters": parameters}).encode())
        )

    assert timeout() is None
    assert timeout(timeout=0) is None
    assert timeout(timeout=1500) == 1_500_000


def write(spec: TensorSpec, text: str) -> np.ndarray[Any, Any]:
    rule = Signature("net", 1, (spec,), ()).inputs[spec.name]
    target = np.full(spec.shape, 9, "uint16" if spec.dtype == "bfloat16" else spec.dtype)
    rule.write(given(spec, text), target)
    return target


def given(spec: TensorSpec, text: str, shape: Sequence[int] | None = None) -> InputTensor:
    """An input with its data in the JSON."""
    return InputTensor(
        name=spec.name,
        shape=list(spec.shape if shape is None else shape),
        datatype=DATATYPES[spec.dtype],
        data=msgspec.Raw(text.encode()),
    )


def test_numbers_are_read_flat_or_nested() -> None:
    expected = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    np.testing.assert_array_equal(write(DATA, "[0, 1, 2.0, 3, 4e0, 5]"), expected)
    np.testing.assert_array_equal(write(DATA, " [ [[0,1,2],\n[3,4,5]]]"), expected)


@pytest.mark.parametrize("dtype", sorted(set(ITEM_BYTES) - {"bfloat16"}))
def test_every_type_survives_json_both_ways(dtype: str) -> None:
    spec = TensorSpec(name="t", dtype=dtype, shape=(2, 2))
    limit = 1 if dtype == "bool" else 100
    expected = np.array([[0, 1], [limit, 1]], dtype)
    rule = Signature("net", 1, (spec,), ()).inputs["t"]
    described = msgspec.json.decode(rule.read(expected))
    assert described["datatype"] == DATATYPES[dtype]
    np.testing.assert_array_equal(write(spec, json.dumps(described["data"])), expected)


def test_bfloat16_is_read_out_as_numbers_and_refused_as_json() -> None:
    spec = TensorSpec(name="t", dtype="bfloat16", shape=(2,))
    bits = np.array([0x3FC0, 0xC000], np.uint16)
    rule = Signature("net", 1, (spec,), ()).inputs["t"]
    assert msgspec.json.decode(rule.read(bits))["data"] == [1.5, -2.0]
    with pytest.raises(Refusal, match="BF16, which JSON can't carry; send it as binary"):
        write(spec, "[1, 2]")


@pytest.mark.parametrize(
    ("spec", "text", "part"),
    [
        (DATA, "[0, 1, 2]", "has 3 numbers; data FP32 .1, 2, 3. takes 6"),
        (DATA, "[0, 1, 2, 3, 4, 5, 6]", "has 7 numbers"),
        (DATA, "[[0, 1, 2], [3, 4, 5]]", "correct it"),
        (DATA, "[[[0, 1], [2, 3], [4, 5]]]", r"nested as \[1, 3, 2\].*nested as \[1, 2, 3\]"),
        (DATA, "[[[0, 1, 2], [3, 4]]]", "lists of different lengths"),
        (DATA, '[0, 1, 2, 3, 4, "5"]', "Expected `float`, got `str`"),
        (DATA, "[0, 1, 2, 3, 4, null]", "Expected `float`, got `null`"),
        (DATA, "[0, 1, 2, 3, 4, true]", "Expected `float`, got `bool`"),
        (DATA, '{"a": 1}', "not 6 numbers of FP32"),
        (DATA, "7", "not 6 numbers of FP32"),
        (DATA, "[]", "has 0 numbers"),
        (MASK, "[1, 2, 3, 128]", "128 out of bounds"),
        (MASK, "[1, 2, 3, 1.5]", "Expected `int`"),
    ],
)
def test_wrong_numbers_are_refused_and_nothing_is_written(
    spec: TensorSpec, text: str, part: str
) -> None:
    rule = Signature("net", 1, (spec,), ()).inputs[spec.name]
    target = np.full(spec.shape, 9, spec.dtype)
    with pytest.raises(Refusal, match=part) as refused:
        rule.write(given(spec, text), target)
    assert refused.value.status == 400
    assert f"input {spec.name!r}" in refused.value.message
    assert (target == 9).all()


def test_metadata_is_what_the_protocol_asks_for() -> None:
    assert signature().metadata["inputs"][1] == {
        "name": "mask",
        "datatype": "INT8",
        "shape": [4],
    }


def test_null_data_counts_as_none() -> None:
    request = decode_request(
        b'{"inputs": [{"name": "data", "shape": [1], "datatype": "FP32", "data": null,'
        b' "parameters": {"binary_data_size": 4}}]}'
    )
    assert not request.inputs[0].has_data
    assert binary_size(request.inputs[0]) == 4


WORDS = TensorSpec(name="words", dtype="string", shape=(-1, 2), most_bytes=64)


def memory_of(spec: TensorSpec) -> np.ndarray[Any, Any]:
    return np.zeros(spec.size_bytes, np.uint8)


def test_strings_are_read_from_json_and_from_binary_data_alike() -> None:
    rule = Signature("net", 1, (WORDS,), ()).inputs["words"]
    expected = np.array([["a", "\u00e4\n"], ["", "bcd"]], np.object_)
    as_json, as_bytes = memory_of(WORDS), memory_of(WORDS)
    tensor = given(WORDS, '[["a", "\u00e4\\n"], ["", "bcd"]]', shape=(2, 2))
    rule.check(tensor)
    rule.write(tensor, as_json)
    data = bytes_of_strings(expected)
    rule.frame(tensor, len(data), as_bytes)
    rule.payload(as_bytes, len(data))[:] = np.frombuffer(data, np.uint8)
    assert as_json.tobytes() == as_bytes.tobytes()
    assert read_framed(as_json, "string").tolist() == expected.tolist()
    assert rule.description == {"name": "words", "datatype": "BYTES", "shape": [-1, 2]}


@pytest.mark.parametrize(
    ("text", "shape", "part"),
    [
        ('["a", "b"]', (2,), r"has shape \[2\]"),
        ('["a", "b", "c"]', (1, 3), r"has shape \[1, 3\]"),
        ("[]", (-1, 2), r"has shape \[-1, 2\]"),
        ("[]", (1 << 62, 2), "there is room for 64 bytes"),
        ('["a"]', (1, 2), "has 1 strings; .* takes 2"),
        ("[1, 2]", (1, 2), "not 2 strings of BYTES: Expected `str`, got `int`"),
        (json.dumps(["x" * 40, "y" * 40]), (1, 2), "has 88 bytes .* at most 64"),
    ],
)
def test_wrong_strings_are_refused(text: str, shape: tuple[int, ...], part: str) -> None:
    rule = Signature("net", 1, (WORDS,), ()).inputs["words"]
    tensor = given(WORDS, text, shape)

    def take() -> None:
        rule.check(tensor)
        rule.write(tensor, memory_of(WORDS))

    with pytest.raises(Refusal, match=part) as refused:
        take()
    assert refused.value.status == 400


@pytest.mark.parametrize("dtype", ["int64", "string"])
def test_outputs_that_carry_their_shapes_are_answered_with_them(dtype: str) -> None:
    spec = TensorSpec(name="found", dtype=dtype, shape=(-1, 3), most_bytes=1024)
    rule = Signature("net", 1, (), (spec,)).outputs["found"]
    expected = np.arange(6, dtype=np.int64).reshape(2, 3)
    if dtype == "string":
        expected = expected.astype(str).astype(np.object_)
    memory = memory_of(spec)
    write_framed(memory, expected, "found")
    array = read_framed(memory, dtype)
    described = msgspec.json.decode(rule.read(array))
    assert (described["shape"], described["data"]) == ([2, 3], expected.reshape(-1).tolist())
    text, data = rule.read_binary(array)
    described = msgspec.json.decode(text)
    assert described["shape"] == [2, 3]
    assert described["parameters"]["binary_data_size"] == len(data)
    plain = bytes_of_strings(expected) if dtype == "string" else expected.tobytes()
    assert bytes(data) == plain

"""Models of which parts fall back are served as any other, over HTTP and to local clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.http as triton
from fallback_models import large_weights, selections, subgraphs, words
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.progress import Silent
from veltair.eval.served import serving
from veltair.runtime.artifact import available_isa
from veltair.runtime.client import LocalClient
from veltair.runtime.framed import write_framed

ISA = available_isa()
pytestmark = pytest.mark.skipif(ISA is None, reason="this CPU can't run kernels")

MODELS = {"large_weights": large_weights, "selections": selections, "subgraphs": subgraphs}
# Room for fewer indices than the largest input has.
MOST_BYTES = {"selections": {"where": 5 * 7 * 16 - 8}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    for name, build in {**MODELS, "words": words}.items():
        path = folder / f"{name}.onnx"
        onnx.save(build(), path)
        options = CompileOptions(
            model=path,
            repository=folder / "repository",
            name=name,
            version=1,
            qos_ns=0,
            shapes={},
            isa=ISA,
            jobs=1,
            force=False,
            most_bytes=MOST_BYTES.get(name, {}),
            profiled=name not in MOST_BYTES,
        )
        compile_model(options, Silent())
    with serving(folder / "repository", workers=2) as url:
        yield url


@pytest.fixture
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address.removeprefix("http://")) as made:
        yield made


def ask(
    client: triton.InferenceServerClient, model: str, feed: dict[str, Any], *, binary: bool = True
) -> Any:  # noqa: ANN401 (the client's)
    inputs = []
    for name, array in feed.items():
        made = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        made.set_data_from_numpy(array, binary_data=binary)
        inputs.append(made)
    return client.infer(model, inputs)


def feed_of(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    feed = {}
    for given in model.graph.input:
        shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
        if given.type.tensor_type.elem_type == onnx.TensorProto.BOOL:
            feed[given.name] = np.array(rng.random(shape) < 0.5)
        else:
            feed[given.name] = rng.standard_normal(shape).astype(np.float32)
    return feed


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_answers_agree_with_onnx_runtime(
    client: triton.InferenceServerClient, name: str, binary: bool
) -> None:
    model = MODELS[name]()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    for seed in range(3):
        feed = feed_of(model, seed)
        answer = ask(client, name, feed, binary=binary)
        for output, expected in zip(names, session.run(None, feed), strict=True):
            got = answer.as_numpy(output)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_strings_are_served(client: triton.InferenceServerClient, binary: bool) -> None:
    a = np.array([["one", "to", ""], ["f\u00f6o", "x", "moon"]], np.object_)
    b = np.array([["o", "!", "\u00f6"]], np.object_)
    answer = ask(client, "words", {"a": a, "b": b}, binary=binary)
    joined = [[(x + y).encode() for x, y in zip(row, b[0], strict=True)] for row in a]
    assert answer.as_numpy("joined").tolist() == joined
    assert answer.as_numpy("count").tolist() == [
        [len(w.decode().split("o")) for w in row] for row in joined
    ]
    metadata = client.get_model_metadata("words")
    assert metadata["inputs"][0] == {"name": "a", "datatype": "BYTES", "shape": [2, 3]}
    assert metadata["outputs"][1] == {"name": "parts", "datatype": "BYTES", "shape": [2, 3, -1]}


def test_damaged_strings_fail_their_query_and_no_other(
    client: triton.InferenceServerClient, address: str
) -> None:
    good = np.full((2, 3), "a", np.object_)
    with LocalClient.attach(address) as local:
        for damage in (b"\xff" * 8, (1 << 40).to_bytes(8, "little")):
            slot = local.allocate("words")
            write_framed(slot.inputs["a"], good, "a")
            write_framed(slot.inputs["b"], good[:1], "b")
            slot.inputs["b"][:8] = np.frombuffer(damage, np.uint8)
            local.submit(slot)
            (done,) = local.wait(30)
            assert "input 'b': damaged strings" in done.error
            slot.release()
        slot = local.allocate("words")
        write_framed(slot.inputs["a"], good, "a")
        write_framed(slot.inputs["b"], good[:1], "b")
        local.submit(slot, deadline_ns=time.monotonic_ns() + 30_000_000_000)
        (done,) = local.wait(30)
        assert done.ok, done.error
        assert slot.outputs["joined"].tolist() == [["aa"] * 3] * 2
        slot.release()


def test_a_result_without_room_fails_its_query_and_no_other(
    client: triton.InferenceServerClient,
) -> None:
    few = np.zeros((5, 7), np.float32)
    few[1, 2] = 1.0
    with pytest.raises(InferenceServerException, match="'where' has 560 bytes, room is for 552"):
        ask(client, "selections", {"x": few + 1})
    assert ask(client, "selections", {"x": few}).as_numpy("where").tolist() == [[1], [2]]

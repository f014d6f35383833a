from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import factories
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from veltair.runtime import Model
from veltair.runtime.errors import ArtifactError, InputError, KernelError
from veltair.runtime.manifest import WEIGHTS_FILE, Argument, Layer, TensorSpec
from veltair.runtime.model import empty_aligned, sample_inputs

CPUS = sorted(os.sched_getaffinity(0))
LAYERS = factories.tiny_layers()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository") / "tiny"
    factories.write_tiny_artifact(folder / "1")
    return folder


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    return Model.load(tiny)


def check(scores: NDArray[Any], data: NDArray[np.float32], seed: int = 0) -> None:
    expected = factories.tiny_reference(data, seed)
    assert expected.max() > 1
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("verify", [False, True])
def test_weights_are_brought_into_huge_pages_before_they_are_mapped(
    verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny" / "1"
    factories.write_tiny_artifact(folder)
    weights = str((folder / WEIGHTS_FILE).resolve())
    settled: list[Path] = []

    def settle(path: Path) -> None:
        assert weights not in Path("/proc/self/maps").read_text()
        settled.append(path)

    monkeypatch.setattr("veltair.runtime.model.settle", settle)
    monkeypatch.setattr("veltair.runtime.artifact.settle", settle)
    loaded = Model.load(folder, verify=verify)
    assert weights in Path("/proc/self/maps").read_text()
    assert settled.count(folder / WEIGHTS_FILE) == 1 + verify
    del loaded


@pytest.mark.parametrize("cores", [CPUS[:1], CPUS[-1:], CPUS[:2], CPUS[::-1], None])
def test_run_computes_what_the_kernels_say_on_any_cores(
    model: Model, cores: list[int] | None
) -> None:
    for seed in range(20):
        data = factories.tiny_input(seed)
        check(model.run({"data": data}, cores)["scores"], data)


def test_results_of_a_run_are_its_own(model: Model) -> None:
    first, second = factories.tiny_input(1), factories.tiny_input(2)
    first_scores = model.run({"data": first})["scores"]
    model.run({"data": second})
    check(first_scores, first)


def test_the_callers_affinity_comes_back(model: Model) -> None:
    before = os.sched_getaffinity(0)
    model.run({"data": factories.tiny_input()}, CPUS[-1:])
    assert os.sched_getaffinity(0) == before


def test_inputs_that_kernels_cannot_read_in_place_are_copied(model: Model) -> None:
    data = factories.tiny_input()
    spec = model.manifest.inputs[0]
    shifted = np.empty(data.size + 1, np.float32)[1:].reshape(data.shape)
    shifted[...] = data
    read_only = empty_aligned(spec)
    read_only[...] = data
    read_only.flags.writeable = False
    for form in (np.asfortranarray(data), np.repeat(data, 2, axis=1)[:, ::2], shifted, read_only):
        check(model.run({"data": form})["scores"], data)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 2)])
def test_arrays_without_elements_are_aligned_too(shape: tuple[int, ...]) -> None:
    for _ in range(8):
        array = empty_aligned(TensorSpec(name="x", dtype="float32", shape=shape))
        assert (array.shape, array.dtype, array.ctypes.data % 64) == (shape, np.float32, 0)


def test_run_into_writes_the_callers_arrays(model: Model) -> None:
    data = factories.tiny_input(5)
    outputs = model.empty_outputs()
    model.run_into({"data": data}, outputs, CPUS)
    check(outputs["scores"], data)


def test_every_variant_computes_the_same(model: Model) -> None:
    data = factories.tiny_input(6)
    choices = itertools.product(*(range(len(layer.variants)) for layer in LAYERS))
    for variants in choices:
        outputs = model.empty_outputs()
        model.run_into({"data": data}, outputs, CPUS, variants=variants)
        check(outputs["scores"], data)


def test_blocks_in_order_equal_the_whole_run(model: Model) -> None:
    data = factories.tiny_input(7)
    whole = model.run({"data": data})["scores"]
    outputs = model.empty_outputs()
    outputs["scores"][...] = -1
    model.run_into({"data": data}, outputs, CPUS[:1], layers=(0, 1), variants=[1])
    assert (outputs["scores"] == -1).all()  # the first block doesn't reach the output
    model.run_into({"data": data}, outputs, CPUS[-1:], layers=(1, 2))
    np.testing.assert_allclose(outputs["scores"], whole, rtol=1e-5, atol=1e-5)


def test_two_threads_each_with_a_model(tiny: Path, tmp_path: Path) -> None:
    factories.write_tiny_artifact(tmp_path / "other" / "1", seed=9)
    errors: list[BaseException] = []

    def work(folder: Path, seed: int) -> None:
        try:
            own = Model.load(folder)
            for round_seed in range(100):
                data = factories.tiny_input(round_seed)
                check(own.run({"data": data}, CPUS)["scores"], data, seed)
        except BaseException as error:  # shown by the assertion below
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=arguments)
        for arguments in ((tiny, 0), (tmp_path / "other", 9))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_share_one_model(model: Model) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        data = factories.tiny_input(seed)
        expected = factories.tiny_reference(data)
        for _ in range(50):
            if not np.allclose(model.run({"data": data})["scores"], expected, atol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_layers_and_runs_are_timed(model: Model) -> None:
    inputs = sample_inputs(model.manifest.inputs)
    layer_ns = model.time_layers(inputs, CPUS[:1], rounds=7, variants=[1, 0])
    assert layer_ns.shape == (7, 2)
    assert layer_ns.dtype == np.int64
    assert (layer_ns > 0).all()
    run_ns = model.time_run(CPUS[:1], 7)
    assert run_ns.shape == (7,)
    assert (run_ns > 0).all()
    # The product has 64 times the work of the other layer.
    assert np.median(layer_ns[:, 0]) > np.median(layer_ns[:, 1])


BAD_INPUTS = {
    "missing": ({}, "'data': missing.*'data' \\(float32\\[8,64\\]\\)"),
    "unknown name": ({"data": factories.tiny_input(), "x": 1}, "'x': there is none"),
    "wrong dtype": ({"data": factories.tiny_input().astype(np.float64)}, "is float64, must be"),
    "wrong shape": ({"data": factories.tiny_input().T}, "shape \\[64, 8\\], must have \\[8, 64\\]"),
    "extra dimension": ({"data": factories.tiny_input()[None]}, "shape \\[1, 8, 64\\]"),
    "other byte order": ({"data": factories.tiny_input().astype(">f4")}, "is >f4, must be"),
    "text": ({"data": "photo.png"}, "is <U9, must be float32"),
}


@pytest.mark.parametrize(("inputs", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_inputs_are_named(model: Model, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.run(inputs)


@pytest.mark.parametrize("cores", [[], [10_000], [CPUS[0], CPUS[0]], [-1]])
def test_bad_cores_are_refused(model: Model, cores: list[int]) -> None:
    with pytest.raises(InputError, match=r"cores|gang"):
        model.run({"data": factories.tiny_input()}, cores)


def test_outputs_that_cannot_be_written_in_place_are_refused(model: Model) -> None:
    data = factories.tiny_input()
    good = model.empty_outputs()["scores"]
    frozen = model.empty_outputs()["scores"]
    frozen.flags.writeable = False
    shifted = np.empty(good.size + 1, np.float32)[1:].reshape(good.shape)
    for scores in (frozen, shifted, np.asfortranarray(good), good.astype(np.float64), good[:4]):
        with pytest.raises(InputError, match="output 'scores'"):
            model.run_into({"data": data}, {"scores": scores})
    with pytest.raises(InputError, match="output 'scores': missing"):
        model.run_into({"data": data}, {})


@pytest.mark.parametrize(
    ("block", "variants"), [((0, 3), ()), ((2, 1), ()), ((0, 2), (0,)), ((0, 2), (2, 0))]
)
def test_bad_blocks_are_refused(
    model: Model, block: tuple[int, int], variants: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match=r"layers|run:|variant"):
        model.run_into(
            {"data": factories.tiny_input()},
            model.empty_outputs(),
            layers=block,
            variants=variants,
        )


def with_argument(position: int, /, **changes: object) -> tuple[Layer, ...]:
    """The tiny model's layers with one argument of the first kernel changed."""
    variant = LAYERS[0].variants[0]
    forged = msgspec.structs.replace(variant.arguments[position], **changes)
    arguments: tuple[Argument, ...] = (
        *variant.arguments[:position],
        forged,
        *variant.arguments[position + 1 :],
    )
    changed = msgspec.structs.replace(variant, arguments=arguments)
    return (msgspec.structs.replace(LAYERS[0], variants=(changed,)), LAYERS[1])


FORGED = {
    "beyond the input": with_argument(0, shape=(9, 64)),
    "beyond the weights": with_argument(1, offset_bytes=4),
    "beyond the arena": with_argument(2, strides=(513, 1)),
    "before the arena": with_argument(2, offset_bytes=-4),
    "no such input": with_argument(0, index=1),
    "unknown dtype": with_argument(0, dtype="float31"),
    "too large to count": with_argument(0, shape=(2**62, 64)),
}


@pytest.mark.parametrize("layers", FORGED.values(), ids=FORGED)
def test_a_forged_manifest_reads_nothing_outside(tmp_path: Path, layers: tuple[Layer, ...]) -> None:
    factories.write_tiny_artifact(tmp_path / "1", layers=layers)
    with pytest.raises(ArtifactError, match="compile the model again"):
        Model.load(tmp_path)


def test_a_kernel_that_refuses_its_arguments_says_why(tmp_path: Path) -> None:
    factories.write_tiny_artifact(
        tmp_path / "1", layers=with_argument(0, shape=(8, 32), strides=(64, 1))
    )
    model = Model.load(tmp_path)
    with pytest.raises(KernelError, match=r"layer product, kernel matmul_rows: .*Error: .*shape"):
        model.run({"data": factories.tiny_input()})


def test_running_loads_no_compiler(tiny: Path) -> None:
    script = """
import sys
import numpy as np
from veltair.runtime import Model
model = Model.load(sys.argv[1])
model.run({"data": np.ones((8, 64), np.float32)})
maps = open("/proc/self/maps").read()
assert "libtvm_ffi.so" in maps
assert not [name for name in ("libtvm_compiler", "libtvm.so", "libtvm_runtime") if name in maps]
assert not {"tvm", "tvm_ffi", "onnx", "onnxruntime"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script, str(tiny)], check=True, timeout=60)

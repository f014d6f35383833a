"""Builders of the objects that tests need. Each makes the real thing, small."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from veltair.compiler.search.samples import SCHEMA as SEARCH_SCHEMA
from veltair.compiler.search.samples import LayerSearch, Sample, SearchReport
from veltair.runtime.manifest import (
    KERNELS_FILE,
    MANIFEST_FILE,
    SCHEMA,
    WEIGHTS_FILE,
    Argument,
    FileDigest,
    Interference,
    Layer,
    Manifest,
    Profile,
    TensorSpec,
    Variant,
    compact_strides,
)

TINY_ROWS, TINY_INNER, TINY_COLUMNS = 8, 64, 512


def one_layer_profile(*model_ms: int) -> Profile:
    """A model of one layer on 1, 2, ... cores."""
    times = tuple((ms * 1_000_000,) for ms in model_ms)
    return Profile(
        machine={},
        cores=tuple(range(1, len(model_ms) + 1)),
        levels=(0.0,),
        layer_ns=((times,),),
        model_ns=times,
    )


@functools.cache
def tiny_kernels() -> bytes:
    """A kernels.so that TVM compiled for any x86-64-v3: the kernels of `write_tiny_artifact`."""
    import tvm

    # The target is named in full: what the machine at hand has must not change the test.
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    functions = {
        "matmul_rows": _tiny_matmul(parallel="rows"),
        "matmul_columns": _tiny_matmul(parallel="columns"),
        "relu_halve": _tiny_relu_halve(),
    }
    module = tvm.IRModule(
        {name: f.with_attr("global_symbol", name) for name, f in functions.items()}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / KERNELS_FILE
        tvm.compile(module, target=target).export_library(str(path))
        return path.read_bytes()


def _tiny_matmul(parallel: str) -> Any:  # noqa: ANN401 # tvm has no types
    """data (rows, inner) @ weight (inner, columns), parallel over rows or columns."""
    import tvm
    from tvm import te

    data = te.placeholder((TINY_ROWS, TINY_INNER), name="data")
    weight = te.placeholder((TINY_INNER, TINY_COLUMNS), name="weight")
    k = te.reduce_axis((0, TINY_INNER), "k")
    product = te.compute(
        (TINY_ROWS, TINY_COLUMNS),
        lambda i, j: te.sum(data[i, k] * weight[k, j], axis=k),
        name="product",
    )
    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, weight, product]))
    block = schedule.get_sblock("product")
    i, j, _ = schedule.get_loops(block)
    if parallel == "columns":
        schedule.reorder(j, i)
    schedule.parallel(schedule.get_loops(block)[0])
    return schedule.mod["main"]


def _tiny_relu_halve() -> Any:  # noqa: ANN401 # tvm has no types
    """max(product, 0) / 2, through a workspace that each parallel task asks the engine for."""
    import tvm
    from tvm import te

    shape = (TINY_ROWS, TINY_COLUMNS)
    product = te.placeholder(shape, name="product")
    relu = te.compute(shape, lambda i, j: te.max(product[i, j], 0.0), name="relu")
    half = te.compute(shape, lambda i, j: relu[i, j] * 0.5, name="half")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([product, half]))
    row, _ = schedule.get_loops(schedule.get_sblock("half"))
    schedule.compute_at(schedule.get_sblock("relu"), row)
    schedule.parallel(row)
    return schedule.mod["main"]


def tiny_weights(seed: int = 0) -> NDArray[np.float32]:
    """The tiny model's weight, float32[TINY_INNER, TINY_COLUMNS]."""
    shape = (TINY_INNER, TINY_COLUMNS)
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def tiny_reference(data: NDArray[np.float32], seed: int = 0) -> NDArray[np.float32]:
    """What the tiny model computes: half of the positive part of `data @ weight`."""
    return np.asarray(np.maximum(data @ tiny_weights(seed), 0) * np.float32(0.5))


def tiny_input(seed: int = 1) -> NDArray[np.float32]:
    """An input of the tiny model, float32[TINY_ROWS, TINY_INNER]."""
    shape = (TINY_ROWS, TINY_INNER)
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def dense(storage: str, dtype: str, shape: tuple[int, ...], **place: int) -> Argument:
    """A row-major kernel argument at `index` and `offset_bytes` of `storage`, 0 if not given."""
    where = {"index": 0, "offset_bytes": 0, **place}
    return Argument(
        storage=storage, dtype=dtype, shape=shape, strides=compact_strides(shape), **where
    )


def tiny_layers() -> tuple[Layer, ...]:
    """The tiny model's layers: a product with two variants, then an element-wise one."""
    data = dense("input", "float32", (TINY_ROWS, TINY_INNER))
    weight = dense("weights", "float32", (TINY_INNER, TINY_COLUMNS))
    product = dense("arena", "float32", (TINY_ROWS, TINY_COLUMNS), offset_bytes=64)
    scores = dense("output", "float32", (TINY_ROWS, TINY_COLUMNS))
    variants = [
        ("matmul_rows", "matmul", TINY_ROWS, (data, weight, product)),
        ("matmul_columns", "matmul", TINY_COLUMNS, (data, weight, product)),
        ("relu_halve", "default", TINY_ROWS, (product, scores)),
    ]
    rows, columns, relu = (
        Variant(
            id=symbol,
            symbol=symbol,
            algorithm=algorithm,
            parallel_extent=extent,
            tile_bytes=4096,
            arguments=arguments,
        )
        for symbol, algorithm, extent, arguments in variants
    )
    shape = (TINY_ROWS, TINY_COLUMNS)
    return (
        Layer(
            name="product",
            op="matmul",
            nodes=("product",),
            input_shapes=((TINY_ROWS, TINY_INNER),),
            output_shapes=(shape,),
            flops=2 * TINY_ROWS * TINY_INNER * TINY_COLUMNS,
            variants=(rows, columns),
        ),
        Layer(
            name="scores",
            op="relu+mul",
            nodes=("relu", "half"),
            input_shapes=(shape,),
            output_shapes=(shape,),
            flops=2 * TINY_ROWS * TINY_COLUMNS,
            variants=(relu,),
        ),
    )


def machine_table() -> dict[str, Any]:
    """A machine's file as TOML reads it: 4 cores in 2 complexes, with round figures."""
    table: dict[str, dict[str, Any]] = {
        "processor": {
            "name": "made up",
            "cores": 4,
            "complexes": 2,
            "frequency_ghz": 2.0,
            "vector_lanes": 8,
            "fmas_per_cycle": 0.5,
        },
        "caches": {"l2_kib": 1024, "l3_mib": 4.0, "l3_core_gbps": 40.0},
        "memory": {"core_gbps": 10.0, "complex_gbps": 16.0, "total_gbps": 20.0},
        "launch": {"base_ns": 100.0, "core_ns": 50.0},
    }
    figures = [f"{section}.{name}" for section, fields in table.items() for name in fields]
    return {**table, "sources": dict.fromkeys(figures, "made up")}


def disturbed_profile() -> Profile:
    """The tiny model's, made up, at three levels.

    The product's first variant is the faster one at the first two, the second one at the last.
    """
    return Profile(
        machine={"cpu": "test"},
        cores=(1, 2),
        levels=(0.0, 0.4, 0.9),
        layer_ns=(
            (
                ((50_000, 60_000, 110_000), (30_000, 36_000, 66_000)),
                ((60_000, 65_000, 70_000), (35_000, 38_000, 41_000)),
            ),
            (((9_000, 9_500, 11_000), (7_000, 7_400, 8_600)),),
        ),
        model_ns=((60_000, 70_000, 122_000), (40_000, 46_000, 80_000)),
        interference=Interference(
            bubbles=1,
            footprint_bytes=1 << 25,
            bytes_per_s=(0, 2_000_000_000, 9_000_000_000),
            reference_bytes=1 << 23,
            highest=0.9,
            noise=0.02,
            measured_cores=1,
        ),
    )


def write_tiny_artifact(
    folder: Path,
    *,
    name: str = "tiny",
    seed: int = 0,
    **changes: Any,  # noqa: ANN401 # any field of the manifest
) -> Manifest:
    """Writes a complete artifact into `folder`: `tiny_reference` as two layers.

    Args:
        folder: the version's folder; made, with its parents. Its name is the version.
        name: the model's.
        seed: of the weights.
        changes: fields of the manifest to replace.
    """
    folder.mkdir(parents=True)
    files = {KERNELS_FILE: tiny_kernels(), WEIGHTS_FILE: tiny_weights(seed).tobytes()}
    for file_name, data in files.items():
        (folder / file_name).write_bytes(data)
    layers = changes.get("layers", tiny_layers())
    rows_ns = ((((50_000,), (30_000,)), ((60_000,), (35_000,))), (((9_000,), (7_000,)),))
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "name": name,
        "version": int(folder.name) if folder.name.isdigit() else 1,
        "producer": "tests",
        "isa": "x86-64-v3",
        "qos_ns": 20_000_000,
        "inputs": (TensorSpec(name="data", dtype="float32", shape=(TINY_ROWS, TINY_INNER)),),
        "outputs": (TensorSpec(name="scores", dtype="float32", shape=(TINY_ROWS, TINY_COLUMNS)),),
        "arena_bytes": 64 + 4 * TINY_ROWS * TINY_COLUMNS,
        "bordered_bytes": 0,
        "layers": layers,
        "profile": Profile(
            machine={"cpu": "test"},
            cores=(1, 2),
            levels=(0.0,),
            layer_ns=tuple(
                row_ns[: len(layer.variants)]
                for row_ns, layer in zip(rows_ns, layers, strict=False)
            ),
            model_ns=((60_000,), (40_000,)),
        ),
        "files": {
            file_name: FileDigest(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            for file_name, data in files.items()
        },
        **changes,
    }
    manifest = Manifest(**fields)
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
    return manifest


def write_slow_artifact(folder: Path, *, repeats: int, **changes: Any) -> Manifest:  # noqa: ANN401
    """Writes the tiny artifact with its product computed `repeats` times: the same answer, later.

    Args:
        folder: as for `write_tiny_artifact`.
        repeats: some 50 us each.
        changes: as for `write_tiny_artifact`.
    """
    product, scores = tiny_layers()
    products = [msgspec.structs.replace(product, name=f"product{i}") for i in range(repeats)]
    row_ns = (((50_000,), (30_000,)), ((60_000,), (35_000,)))
    fields: dict[str, Any] = {
        "name": folder.parent.name,
        "layers": (*products, scores),
        "qos_ns": repeats * 100_000,
        "profile": Profile(
            machine={"cpu": "test"},
            cores=(1, 2),
            levels=(0.0,),
            layer_ns=(*(row_ns for _ in products), (((9_000,), (7_000,)),)),
            model_ns=((repeats * 50_000,), (repeats * 30_000,)),
        ),
        **changes,
    }
    return write_tiny_artifact(folder, **fields)


def many_versions(
    *, layers: int = 4, versions: int = 3, levels: int = 3, seed: int = 0
) -> tuple[Manifest, SearchReport]:
    """A manifest and a search of it to look at; there are no kernels behind them.

    The samples are drawn; what follows from them (who is filtered, on the frontier, chosen, and how
    long the variants take) is worked out from them as the compiler does.

    Args:
        layers: how many.
        versions: the most that a layer keeps.
        levels: of interference.
        seed: of what is drawn.
    """
    random = np.random.default_rng(seed)
    slowdowns = tuple(round(0.3 * level, 3) for level in range(levels))
    made, found, layer_ns = [], [], []
    for number in range(layers):
        search = _drawn_search(f"stage{number}.conv", versions, random)
        chosen = [sample for sample in search.samples if sample.is_chosen]
        base = tiny_layers()[0]
        variants = tuple(
            msgspec.structs.replace(base.variants[0], id=s.id, tile_bytes=s.block_bytes)
            for s in chosen
        )
        made.append(msgspec.structs.replace(base, name=search.name, variants=variants))
        found.append(search)
        layer_ns.append(tuple(_drawn_times(sample, slowdowns) for sample in chosen))
    whole = np.asarray([layer[0] for layer in layer_ns]).sum(axis=0)
    profile = Profile(
        machine={"cpu": "test"},
        cores=(1, 2),
        levels=slowdowns,
        layer_ns=tuple(layer_ns),
        model_ns=tuple(tuple(int(ns) for ns in row) for row in whole),
        interference=None
        if levels == 1
        else Interference(
            bubbles=1,
            footprint_bytes=1 << 25,
            bytes_per_s=tuple(3_000_000_000 * level for level in range(levels)),
            reference_bytes=1 << 23,
            highest=slowdowns[-1],
            noise=0.02,
            measured_cores=1,
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_tiny_artifact(Path(folder) / "1")
    manifest = msgspec.structs.replace(manifest, layers=tuple(made), profile=profile)
    search_report = SearchReport(
        schema=SEARCH_SCHEMA,
        isa=manifest.isa,
        qos_ns=manifest.qos_ns,
        qos_share="flops",
        most_variants=versions,
        wall_ns=12_000_000_000,
        layers=tuple(found),
    )
    return manifest, search_report


def _drawn_search(name: str, versions: int, random: np.random.Generator) -> LayerSearch:
    share_ns = 400_000
    blocks = 2 ** random.integers(11, 20, 40)
    extents = 2 ** random.integers(2, 10, 40)
    slow = random.lognormal(12.3, 0.5, 40)
    times = [int(ns) for ns in slow]
    kept = [i for i in range(40) if times[i] <= share_ns] or [int(np.argmin(times))]
    frontier = [
        i for i in kept if not any(blocks[j] < blocks[i] and extents[j] < extents[i] for j in kept)
    ]
    by_block = sorted(frontier, key=lambda i: int(blocks[i]))
    count = min(int(random.integers(1, versions + 1)), len(by_block))
    chosen = {by_block[i * len(by_block) // count] for i in range(count)}
    samples = [
        Sample(
            id=f"conv3x3_direct_ic{int(blocks[i]) // 64}_p{int(extents[i])}_{i}",
            algorithm="direct",
            parallelism=int(extents[i]),
            block_bytes=int(blocks[i]),
            solo_ns=times[i],
            status="ok" if i in kept else "filtered",
            reason="" if i in kept else "slower than the layer's share of the QoS",
            is_frontier=i in frontier,
            is_chosen=i in chosen,
        )
        for i in range(40)
    ]
    failed = Sample(
        id="conv3x3_direct_ic9999_p1",
        algorithm="direct",
        parallelism=1,
        block_bytes=64,
        solo_ns=0,
        status="failed",
        reason="a wrong result: <NaN> & more",
    )
    flops = tiny_layers()[0].flops
    return LayerSearch(
        name=name,
        op="matmul",
        flops=flops,
        qos_share_ns=share_ns,
        dropped=100,
        samples=(*samples, failed),
    )


def _drawn_times(
    sample: Sample, slowdowns: tuple[float, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Larger blocks suffer more."""
    by_level = [round(sample.solo_ns * (1 + s * sample.block_bytes / 2**18)) for s in slowdowns]
    return tuple(by_level), tuple(ns * 6 // 10 for ns in by_level)

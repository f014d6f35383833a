"""Compiles a model by the whole pipeline and holds it to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.reference import TOLERANCE, random_inputs, relative_difference
from veltair.runtime.artifact import available_isa
from veltair.runtime.manifest import LANES, Isa
from veltair.runtime.model import Model


class Quiet:
    """A progress that nobody watches."""

    def stage(self, name: str, total: int) -> None: ...
    def step(self, what: str) -> None: ...


def options_alone(model: Path, **changes: Any) -> CompileOptions:  # noqa: ANN401 (of any field)
    """Options to compile a model beside itself, by cost models and for this machine."""
    options = CompileOptions(
        model=model,
        repository=model.parent / "repository",
        name="m",
        version=1,
        qos_ns=0,
        shapes={},
        isa=available_isa() or "x86-64-v3",
        jobs=1,
        force=False,
        shipped_logs=False,
        log=model.parent / "none.jsonl",
    )
    return replace(options, **changes)


def compiled(
    tmp_path: Path,
    model: onnx.ModelProto,
    isa: Isa,
    *,
    strict: bool = False,
    most_bytes: Mapping[str, int] | None = None,
    profiled: bool = True,
    jobs: int = 2,
) -> Model:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    options = CompileOptions(
        model=path,
        repository=tmp_path / "repository",
        name="m",
        version=1,
        qos_ns=0,
        shapes={},
        isa=isa,
        jobs=jobs,
        force=False,
        strict=strict,
        most_bytes=most_bytes or {},
        profiled=profiled,
    )
    compile_model(options, Quiet())
    return Model.load(options.target)


def check_outputs(
    tmp_path: Path, model: onnx.ModelProto, isa: Isa, *, profiled: bool = True, jobs: int = 2
) -> Model:
    """Compiles, runs, and compares; skips where this CPU lacks the instruction set."""
    if LANES[isa] > LANES[available_isa()]:
        pytest.skip(f"this CPU lacks {isa}")
    loaded = compiled(tmp_path, model, isa, profiled=profiled, jobs=jobs)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [o.name for o in session.get_outputs()]
    for seed in (1, 2):  # twice: the arena is no longer fresh
        feed = random_inputs(loaded.manifest.inputs, np.random.default_rng(seed))
        got = loaded.run(feed)
        expected = dict(zip(names, session.run(None, feed), strict=True))
        worst = {n: relative_difference(got[n], np.asarray(e)) for n, e in expected.items()}
        assert all(w <= TOLERANCE for w in worst.values()), worst
    return loaded

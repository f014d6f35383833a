"""The demo's network and its input: a recipe by name or any ONNX file, and something to feed it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from sklearn.datasets import load_sample_images

from veltair import compiler, models
from veltair.eval.images import preprocess
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import Manifest, TensorSpec, read_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Arrays = dict[str, "NDArray[np.generic]"]

VERSION = "1"


@dataclass(frozen=True, kw_only=True)
class DemoModel:
    """A compiled network.

    Attributes:
        name: as the server knows it.
        onnx: the file that it was compiled from.
        repository: the folder to serve.
        manifest: of the artifact.
    """

    name: str
    onnx: Path
    repository: Path
    manifest: Manifest


def veltair(*arguments: str | Path) -> None:
    """Runs the `veltair` command of this environment.

    Raises:
        subprocess.CalledProcessError: it failed, and has said why.
    """
    command = [sys.executable, "-m", "veltair.runtime.cli", *map(str, arguments)]
    subprocess.run(command, check=True)


def prepare(wanted: str, folder: Path, shapes: Sequence[str] = ()) -> DemoModel:
    """Exports `wanted` if it is a recipe, and compiles it, unless an earlier run has.

    Args:
        wanted: a recipe's name or the path of an ONNX file.
        folder: where the files may be left for the next run.
        shapes: `--shape` options of a network with symbolic dimensions; if there are none, images
            get the usual ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if wanted in (*models.names(), *models.trained_names()):
        name, path = wanted, folder / f"{wanted}.onnx"
        veltair("export", wanted, "-o", path, "--force")
        options = ["--qos-ms", str(models.qos_ms(wanted))]
    else:
        name, path = Path(wanted).stem, Path(wanted)
        options = [f"--shape={shape}" for shape in shapes or usual_shapes(path)]
    repository = folder / f"{name}-{_key(path, options)}"
    artifact = repository / name / VERSION
    if artifact.exists():
        print(f"{artifact}: compiled by an earlier run")
    else:
        veltair("compile", path, "-o", repository, "--name", name, *options)
    return DemoModel(name=name, onnx=path, repository=repository, manifest=read_manifest(artifact))


def sample(inputs: tuple[TensorSpec, ...]) -> tuple[Arrays, str]:
    """Returns a value for each input, and what it is.

    A single image input gets one of scikit-learn's two photographs, anything else random numbers.
    """
    (first, *others) = inputs
    match first.shape:
        case (batch, 3, height, width) if first.dtype == "float32" and not others:
            photograph = load_sample_images().images[0]
            image = preprocess(photograph, height, width)
            return {first.name: np.repeat(image, batch, axis=0)}, "a photograph of a temple"
    random = np.random.default_rng(0)
    return {spec.name: _random(spec, random) for spec in inputs}, "random numbers"


def _random(spec: TensorSpec, random: np.random.Generator) -> NDArray[np.generic]:
    if spec.dtype.startswith("float"):
        return random.standard_normal(spec.shape).astype(spec.dtype)
    return random.integers(0, 2, spec.shape).astype(spec.dtype)  # in range of any table or mask


def usual_shapes(path: Path) -> list[str]:
    """Fills in the symbolic dimensions of image inputs: a batch of one, 224 by 224.

    Returns:
        One `INPUT=D,D,D,D`, as `--shape` takes it, for each such input.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except FileNotFoundError:
        raise InputError(
            f"MODEL={path}: no such file, and no recipe; give an ONNX file or one of "
            f"{', '.join(models.names())}"
        ) from None
    except DecodeError:
        return []  # the compiler says what is wrong with the file
    weights = {weight.name for weight in graph.initializer}
    shapes = []
    for value in graph.input:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.name not in weights and len(dims) == 4 and not all(dims):
            filled = [d or usual for d, usual in zip(dims, (1, 3, 224, 224), strict=True)]
            shapes.append(f"{value.name}={','.join(map(str, filled))}")
    return shapes


def _key(path: Path, options: Sequence[str]) -> str:
    """Identifies a compile by model, options and compiler, so that a change compiles again."""
    hasher = hashlib.sha256(repr(options).encode())
    for source in sorted(Path(*compiler.__path__).rglob("*.py")):
        hasher.update(source.read_bytes())
    if path.is_file():
        hasher.update(path.read_bytes())
    return hasher.hexdigest()[:12]

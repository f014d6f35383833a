"""The process that hands models to ONNX and ONNX Runtime: `python -m veltair.compiler.onnx_child`.

It reads what to do with which file from its input, a line each time, and answers on its output. A
model on which one of them crashes takes this process with it and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from pathlib import Path

import onnx
import onnx.shape_inference
import onnxruntime

from veltair.compiler.search.dependents import depend_on

# It makes a Gemm of a product and its bias by flattening, which hides what follows from fusion.
_UNWANTED = ("MatMulAddFusion",)
_MOST_KEPT_BYTES = 256 << 20  # where it has used more, it ends and gives it back


def clean(before: Path, after: Path, *, large_bytes: int) -> None:
    """Writes what ONNX Runtime's basic optimisations make of a model.

    Args:
        before: the model's file.
        after: the file to write; large weights lie beside it, in one of its name and `.bin`.
        large_bytes: what is large.

    Raises:
        Exception: ONNX Runtime refuses the model; its exceptions share no other base.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(after)
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_file_name", f"{after.stem}.bin"
    )
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", str(large_bytes)
    )
    onnxruntime.InferenceSession(
        str(before),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(_UNWANTED),
    )


def infer(before: Path, after: Path, **options: bool) -> None:
    """Writes a model with the shapes that ONNX infers.

    Args:
        before: the model's file, with small weights only.
        after: the file to write.
        options: of `onnx.shape_inference.infer_shapes`.

    Raises:
        Exception: it refuses the model.
    """
    model = onnx.load(before, load_external_data=False)
    inferred = onnx.shape_inference.infer_shapes(model, **options)
    after.write_bytes(inferred.SerializeToString())


def most_used_bytes() -> int:
    """The most memory that this process has had.

    `getrusage` would say what its parent had, where that is more: Linux hands it down.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) << 10


def limit_cpu(most_s: int) -> None:
    """Has the system end this process (SIGXCPU) when it has taken so many more seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end_s = math.ceil(used.ru_utime + used.ru_stime) + most_s
    _, highest = resource.getrlimit(resource.RLIMIT_CPU)
    limit = end_s if highest == resource.RLIM_INFINITY else min(end_s, highest)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, highest))


def main() -> None:
    """Serves until the input ends, or until it has used much memory."""
    depend_on(os.getppid())
    for line in sys.stdin:
        what, before, after, options, most_s = json.loads(line)
        limit_cpu(most_s)
        refusal = ""
        try:
            (clean if what == "clean" else infer)(Path(before), Path(after), **options)
        except Exception as error:  # it is told to the parent, who knows the model
            refusal = str(error) or type(error).__name__
        ends = most_used_bytes() > _MOST_KEPT_BYTES
        print(json.dumps([refusal, ends]), flush=True)
        if ends:
            return


if __name__ == "__main__":
    main()

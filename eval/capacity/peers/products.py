"""MLServer, Ray Serve and LitServe: how each is started and asked."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.peers.environments import Environment
from veltair.eval.capacity.peers.http_client import Request
from veltair.eval.capacity.peers.whole_server import ALONE, Plan
from veltair.eval.ports import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray


class LitServe:
    """LitServe: raw tensors, one API whose workers hold every model."""

    environment = Environment(name="litserve", package="litserve")
    variables: Mapping[str, str] = {}
    ready_path = "/health"

    def command(self, plan: Plan, plan_file: Path) -> list[str]:
        """Runs its program."""
        return [str(self.environment.python), str(ALONE / "litserve_server.py"), str(plan_file)]

    def request(self, model: str, inputs: Mapping[str, NDArray[Any]]) -> Request:
        """Sends the tensors as they are."""
        return raw_request(model, inputs)


class RayServe:
    """Ray Serve: raw tensors, one deployment whose replicas hold every model."""

    environment = Environment(name="ray-serve", package="ray")
    # Its own settings for less latency; and nothing about its use is sent anywhere.
    variables: Mapping[str, str] = {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    ready_path = "/-/healthz"

    def command(self, plan: Plan, plan_file: Path) -> list[str]:
        """Runs its program."""
        return [str(self.environment.python), str(ALONE / "ray_server.py"), str(plan_file)]

    def request(self, model: str, inputs: Mapping[str, NDArray[Any]]) -> Request:
        """Sends the tensors as they are."""
        return raw_request(model, inputs)


class MlServer:
    """MLServer: the Open Inference Protocol, tensors as base64, each worker with every model.

    Its REST has no binary tensors; see `alone.mlserver_runtime`.
    """

    environment = Environment(name="mlserver", package="mlserver")
    variables: Mapping[str, str] = {}
    ready_path = "/v2/health/ready"

    def command(self, plan: Plan, plan_file: Path) -> list[str]:
        """Writes its repository of models and starts it there."""
        folder = plan_file.parent / "models"
        grpc_port = free_port(plan["port"])
        settings = {
            "host": HOST,
            "http_port": plan["port"],
            "grpc_port": grpc_port,
            "metrics_port": free_port(plan["port"], grpc_port),
            "parallel_workers": len(plan["places"]),
            "debug": False,
            "gzip_enabled": False,
        }
        _write(folder / "settings.json", settings)
        for name in plan["models"]:
            model = {
                "name": name,
                "implementation": "mlserver_runtime.EngineModel",
                "parameters": {"uri": str(plan_file)},
            }
            _write(folder / name / "model-settings.json", model)
        return [str(self.environment.python.with_name("mlserver")), "start", str(folder)]

    def request(self, model: str, inputs: Mapping[str, NDArray[Any]]) -> Request:
        """Sends the tensors as MLServer's own `base64` content."""
        import tritonclient.http as triton  # noqa: PLC0415 # slow to import

        tensors = []
        for name, array in inputs.items():
            tensor = triton.InferInput(name, [1], "BYTES")
            text = base64.b64encode(array.tobytes())
            tensor.set_data_from_numpy(np.array([text], dtype=object), binary_data=False)
            tensors.append(tensor)
        body, _ = triton.InferenceServerClient.generate_request_body(tensors)
        return Request(
            path=f"/v2/models/{model}/infer",
            body=body,
            headers={"Content-Type": "application/json"},
        )


def raw_request(model: str, inputs: Mapping[str, NDArray[Any]]) -> Request:
    """Returns a query whose body is the tensors, one after the other."""
    return Request(
        path=f"/infer?model={model}",
        body=b"".join(np.ascontiguousarray(array).tobytes() for array in inputs.values()),
        headers={"Content-Type": "application/octet-stream"},
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))

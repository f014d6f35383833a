"""A Ray Serve server: `ray_server.py PLAN`. One deployment, whose replicas hold every model."""

import json
import sys
import threading
from pathlib import Path

import ray
from ray import serve
from served import Worker
from starlette.requests import Request
from starlette.responses import Response

_STORE_BYTES = 2 << 30  # of shared memory, for bodies on their way


class Replica:
    """Reads, infers, answers: one query at a time in each replica."""

    def __init__(self, plan_file: str) -> None:
        """Loads the models."""
        self._worker = Worker(plan_file)

    async def __call__(self, request: Request) -> Response:
        """Runs the model that the request names."""
        body = await request.body()
        model = self._worker.models[request.query_params["model"]]
        return Response(model.answer(body), media_type="application/octet-stream")


def main() -> None:
    """Serves until the process is ended."""
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    replicas = len(plan["places"])
    ray.init(
        address="local",
        num_cpus=max(plan["cores"], replicas),
        object_store_memory=_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=True,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": plan["port"]})
    deployment = serve.deployment(
        num_replicas=replicas, ray_actor_options={"num_cpus": 1}, name="infer"
    )(Replica)
    serve.run(deployment.bind(sys.argv[1]), route_prefix="/infer")
    threading.Event().wait()


if __name__ == "__main__":
    main()

"""A LitServe server: `litserve_server.py PLAN`. One API, whose workers hold every model.

With an API a model, as many processes as models times workers would share the cores.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request, Response
from litserve import LitAPI, LitServer
from served import Worker


async def read(request: Request) -> tuple[str, bytes]:
    """Returns the model's name and the request's body as it came."""
    return request.query_params["model"], await request.body()


class Api(LitAPI):
    """Reads, infers, answers: one query at a time in each worker."""

    def __init__(self, plan_file: str) -> None:
        """Takes the plan's file."""
        super().__init__(api_path="/infer")
        self._plan_file = plan_file

    def setup(self, device: str) -> None:
        """Loads the models, in the worker."""
        self._worker = Worker(self._plan_file)

    def decode_request(self, request: Annotated[tuple[str, bytes], Depends(read)]) -> object:
        """Leaves the request as `read` made it."""
        return request

    def predict(self, query: tuple[str, bytes]) -> bytes:
        """Runs the model."""
        name, body = query
        answer: bytes = self._worker.models[name].answer(body)
        return answer

    def encode_response(self, output: bytes) -> Response:
        """Sends the tensors as they are."""
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    server = LitServer(
        Api(sys.argv[1]),
        accelerator="cpu",
        workers_per_device=len(plan["places"]),
        timeout=False,
        fast_queue=True,
    )
    server.run(
        host="127.0.0.1",
        port=plan["port"],
        log_level="warning",
        generate_client_file=False,
    )

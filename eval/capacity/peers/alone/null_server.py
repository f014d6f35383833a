"""An HTTP server that answers at once, to measure the client with: `null_server.py PLAN`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import cast

import uvloop

_ANSWER_BYTES = 4000  # a thousand scores
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
    + f"Content-Length: {_ANSWER_BYTES}\r\n\r\n".encode()
    + bytes(_ANSWER_BYTES)
)
_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"


class Connection(asyncio.Protocol):
    """Counts bytes until a request has ended; well-formed requests, one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._heading = b""
        self._left = 0

    def data_received(self, data: bytes) -> None:
        """Takes some bytes."""
        if self._left:
            self._left -= len(data)
        else:
            self._heading += data
            before, end, after = self._heading.partition(_END)
            if not end:
                return
            _, found, length = before.lower().partition(_LENGTH)
            self._left = (int(length.split(b"\r\n")[0]) if found else 0) - len(after)
            self._heading = b""
        if not self._left:
            self._transport.write(_ANSWER)


async def serve(port: int) -> None:
    """Serves until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(json.loads(Path(sys.argv[1]).read_bytes())["port"]))

"""The HTTP front end on a thread of its own, beside rank 0's control loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import uvloop

from veltair.runtime.server.front import serve

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from veltair.runtime.client import LocalClient
    from veltair.runtime.config import ServerConfig

_LOGGER = logging.getLogger(__name__)


class FrontThread:
    """Serves HTTP from the moment it is made until `stop`."""

    def __init__(
        self,
        client: LocalClient,
        config: ServerConfig,
        listener: socket.socket,
        on_listening: Callable[[str], None],
    ) -> None:
        """Starts the thread.

        Args:
            client: owned from here on.
            config: limits and timeouts.
            listener: bound; owned from here on.
            on_listening: called on the thread with the address once connections are accepted.
        """
        self._client = client
        self._config = config
        self._listener = listener
        self._on_listening = on_listening
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still serves or drains."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Begins the drain: accepted queries are answered, then the thread ends."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)

    def join(self, timeout_s: float) -> None:
        """Waits for the thread's end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(
                serve(self._client, self._config, self._listener, self._stop, self._on_listening)
            )
        except Exception:
            _LOGGER.exception("the HTTP front end failed")
        finally:
            self._client.close()
            self._loop.close()

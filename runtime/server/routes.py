"""The front end's addresses: which one a request names, and what the small ones answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from veltair.runtime.server.endpoint import Endpoint
from veltair.runtime.server.exchange import JSON_TYPE
from veltair.runtime.server.metrics import METRICS_TYPE, Metrics
from veltair.runtime.server.protocol import Signature
from veltair.runtime.server.refusals import (
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAVAILABLE,
    Refusal,
    bad_request,
    too_large,
)

if TYPE_CHECKING:
    from veltair.runtime.client import LocalClient, ModelInfo
    from veltair.runtime.server.exchange import Body, Exchange
    from veltair.runtime.server.infer import Inference

READ = (b"GET", b"HEAD")
WRITE = (b"POST",)
SMALL_BODY_BYTES = 64 * 1024

# Only what works: a client may take an entry here for a promise.
EXTENSIONS = ["binary_tensor_data"]


@dataclass(frozen=True, kw_only=True)
class Address:
    """An address of the front end, as a refusal and the documentation name it.

    Attributes:
        path: MODEL and VERSION stand for names; what is in brackets may be left out.
        methods: that it answers.
        says: what it answers, in a phrase.
    """

    path: str
    methods: tuple[bytes, ...]
    says: str


_MODEL = "/v2/models/MODEL[/versions/VERSION]"
SERVER = Address(
    path="/v2", methods=READ, says="the server's name, its version and the protocol's extensions"
)
LIVE = Address(path="/v2/health/live", methods=READ, says="200 as long as the server answers")
SERVER_READY = Address(
    path="/v2/health/ready",
    methods=READ,
    says="200 if it has loaded its models, has a worker and isn't stopping; 503 otherwise",
)
MODEL = Address(path=_MODEL, methods=READ, says="the model's versions, inputs and outputs")
MODEL_READY = Address(
    path=f"{_MODEL}/ready", methods=READ, says="200 if the model is ready, 503 and why otherwise"
)
INFER = Address(path=f"{_MODEL}/infer", methods=WRITE, says="the outputs for the request's inputs")
INDEX = Address(
    path="/v2/repository/index",
    methods=WRITE,
    says='each model\'s name, version, state and reason; of `{"ready": true}` the ready ones',
)
METRICS = Address(path="/metrics", methods=READ, says="counters, as Prometheus reads them")
ADDRESSES = (SERVER, LIVE, SERVER_READY, MODEL, MODEL_READY, INFER, INDEX, METRICS)

# Takes the request's body, returns the answer's body and content type.
Page = Callable[[bytes], tuple[bytes, bytes]]


class SmallBody:
    """The body of a request that is answered at once; most have none."""

    def __init__(self, exchange: Exchange, page: Page) -> None:
        """Takes the request and what answers it."""
        self._exchange = exchange
        self._page = page
        self._data = b""

    def feed(self, data: bytes) -> None:
        """Keeps the next bytes."""
        self._data += data
        if len(self._data) > SMALL_BODY_BYTES:
            raise too_large(
                "the body", f"{len(self._data)} or more", SMALL_BODY_BYTES, "send an empty one"
            )

    def window(self) -> memoryview | None:
        """Offers nothing: the body is small."""
        return None

    def advance(self, size_bytes: int) -> None:
        """Is never called, as there is no window."""
        raise AssertionError(size_bytes)

    def finish(self) -> None:
        """Answers."""
        body, content_type = self._page(self._data)
        self._exchange.respond(200, (body,), content_type)

    def abandon(self) -> None:
        """Has nothing to give back."""


class Routes:
    """The handler of all requests. On the event loop's thread.

    Attributes:
        draining: the server is stopping; what comes now is refused.
    """

    def __init__(self, client: LocalClient, inference: Inference) -> None:
        """Takes where the models' state comes from, and who runs their queries."""
        self.draining = False
        self._client = client
        self._inference = inference
        self._infos: tuple[ModelInfo, ...] = ()
        self._endpoints: dict[tuple[str, int], Endpoint] = {}
        self._infer_paths: dict[bytes, Endpoint] = {}
        self._metrics = Metrics(client)
        pages: tuple[tuple[Address, Page], ...] = (
            (SERVER, self._server),
            (LIVE, lambda _: (b"", JSON_TYPE)),
            (SERVER_READY, self._ready),
            (INDEX, self._index),
            (METRICS, self._metrics_page),
        )
        self._pages = {address.path.encode(): (address, page) for address, page in pages}
        self.refresh()

    def __call__(self, exchange: Exchange) -> Body:
        """Finds who takes a request.

        Raises:
            Refusal: nobody does.
        """
        request = exchange.request
        endpoint = self._infer_paths.get(request.path)
        if endpoint is not None and request.method == b"POST":
            return self._inference.begin(exchange, self._servable(endpoint))
        path = request.path.rstrip(b"/")
        page = self._pages.get(path)
        if page is not None:
            _check_method(exchange, page[0])
            return SmallBody(exchange, page[1])
        return self._model(exchange, unquote(path.decode("latin-1")))

    def refresh(self) -> None:
        """Takes the models as they are now."""
        infos = self._client.models()
        if infos == self._infos:
            return
        self._infos = infos
        endpoints = {}
        for info in infos:
            key = (info.name, info.version)
            endpoint = self._endpoints.get(key)
            if endpoint is None or not _same_signature(endpoint.info, info):
                signature = Signature(info.name, info.version, info.inputs, info.outputs)
                endpoint = Endpoint(info, signature)
            endpoint.info = info
            endpoints[key] = endpoint
        self._endpoints = endpoints
        self._infer_paths = {}
        for (name, version), endpoint in endpoints.items():
            path = f"/v2/models/{quote(name, safe='')}"
            self._infer_paths[f"{path}/versions/{version}/infer".encode()] = endpoint
            if endpoint is self._default(name):
                self._infer_paths[f"{path}/infer".encode()] = endpoint
        self._metrics.endpoints = tuple(endpoints.values())

    def _servable(self, endpoint: Endpoint) -> Endpoint:
        if self.draining:
            raise Refusal(
                UNAVAILABLE,
                "the server is stopping (draining); send the query to another server",
                close=True,
            )
        if endpoint.info.state != "ready":
            self.refresh()
            info = endpoint.info
            endpoint = self._endpoints.get((info.name, info.version), endpoint)
            _check_ready(endpoint.info)
        return endpoint

    def _default(self, name: str) -> Endpoint:
        """Returns the version that a request without one gets: the highest that is ready."""
        versions = [e for e in self._endpoints.values() if e.info.name == name]
        if not versions:
            served = ", ".join(sorted({info.name for info in self._infos})) or "none"
            raise Refusal(
                NOT_FOUND, f"model {name!r} is not served here; served: {served}; correct the name"
            )
        return max(versions, key=lambda e: (e.info.state == "ready", e.info.version))

    def _find(self, name: str, version: str | None) -> Endpoint:
        default = self._default(name)
        if version is None:
            return default
        endpoint = self._endpoints.get((name, int(version))) if version.isdecimal() else None
        if endpoint is None:
            served = ", ".join(str(v) for v in self._versions(name))
            raise Refusal(
                NOT_FOUND,
                f"version {version!r} of model {name!r} is not served here; served: {served}; "
                "correct the version or leave it out",
            )
        return endpoint

    def _versions(self, name: str) -> list[int]:
        return sorted(info.version for info in self._infos if info.name == name)

    def _model(self, exchange: Exchange, path: str) -> Body:
        """Handles `/v2/models/M[/versions/V][/ready|/infer]`."""
        self.refresh()
        parts = path.split("/")
        if parts[:3] != ["", "v2", "models"] or len(parts) < 4:
            raise _no_such_path(path)
        name, rest = parts[3], parts[4:]
        version = None
        if len(rest) >= 2 and rest[0] == "versions":
            version, rest = rest[1], rest[2:]
        endpoint = self._find(name, version)
        if rest == ["infer"]:
            _check_method(exchange, INFER)
            return self._inference.begin(exchange, self._servable(endpoint))
        pages: dict[tuple[str, ...], tuple[Address, Page]] = {
            (): (MODEL, lambda _: self._metadata(endpoint, version)),
            ("ready",): (MODEL_READY, lambda _: self._model_ready(endpoint)),
        }
        page = pages.get(tuple(rest))
        if page is None:
            raise _no_such_path(path)
        _check_method(exchange, page[0])
        return SmallBody(exchange, page[1])

    def _server(self, _: bytes) -> tuple[bytes, bytes]:
        return _json(
            {"name": "veltair", "version": package_version("veltair"), "extensions": EXTENSIONS}
        )

    def _ready(self, _: bytes) -> tuple[bytes, bytes]:
        self.refresh()
        stats = self._client.stats()
        loading = [info.name for info in self._infos if info.state == "loading"]
        why = ""
        if self.draining or stats.state != "serving":
            why = f"the server is {'draining' if self.draining else stats.state}"
        elif stats.workers_alive == 0:
            why = f"none of its {stats.workers} workers is alive"
        elif loading:
            why = f"it is loading {', '.join(loading)}"
        if why:
            raise Refusal(UNAVAILABLE, f"not ready: {why}; ask again later")
        return b"", JSON_TYPE

    def _metadata(self, endpoint: Endpoint, version: str | None) -> tuple[bytes, bytes]:
        if not endpoint.signature.inputs:
            _check_ready(endpoint.info)  # what it takes is not known before it is loaded
        versions = self._versions(endpoint.info.name) if version is None else [version]
        return _json({**endpoint.signature.metadata, "versions": [str(v) for v in versions]})

    def _model_ready(self, endpoint: Endpoint) -> tuple[bytes, bytes]:
        _check_ready(endpoint.info)
        return b"", JSON_TYPE

    def _index(self, body: bytes) -> tuple[bytes, bytes]:
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any]) if body.strip() else {}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_request(
                f'the body is not a JSON object: {error}; send {{}} or {{"ready": true}}'
            ) from error
        self.refresh()
        return _json(
            [
                {
                    "name": info.name,
                    "version": str(info.version),
                    "state": info.state.upper(),
                    "reason": info.reason,
                }
                for info in self._infos
                if info.state == "ready" or not asked.get("ready")
            ]
        )

    def _metrics_page(self, _: bytes) -> tuple[bytes, bytes]:
        self.refresh()
        return self._metrics.page(), METRICS_TYPE


def _json(value: object) -> tuple[bytes, bytes]:
    return msgspec.json.encode(value), JSON_TYPE


def _same_signature(old: ModelInfo, new: ModelInfo) -> bool:
    return (old.inputs, old.outputs, old.slots) == (new.inputs, new.outputs, new.slots)


def _check_method(exchange: Exchange, address: Address) -> None:
    method = exchange.request.method
    if method not in address.methods:
        names = " or ".join(name.decode() for name in address.methods)
        raise Refusal(
            METHOD_NOT_ALLOWED,
            f"{method.decode('latin-1')} is not answered at "
            f"{exchange.request.path.decode('latin-1')}; use {names}",
        )


def _check_ready(info: ModelInfo) -> None:
    if info.state != "ready":
        raise Refusal(
            UNAVAILABLE,
            f"model {info.name!r} version {info.version} is {info.state}: "
            f"{info.reason or 'no reason is known'}; see /v2/repository/index",
        )


def _no_such_path(path: str) -> Refusal:
    return Refusal(
        NOT_FOUND,
        f"{path!r} is not an address of this server; it has "
        + ", ".join(address.path for address in ADDRESSES),
    )

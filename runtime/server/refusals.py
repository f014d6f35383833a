"""What the HTTP front end answers instead of a result: a status and a sentence."""

from __future__ import annotations

from veltair.runtime.errors import RefusedError

BAD_REQUEST = 400
NOT_FOUND = 404
METHOD_NOT_ALLOWED = 405
REQUEST_TIMEOUT = 408
TOO_LARGE = 413
UNSUPPORTED_CODING = 415
HEAD_TOO_LARGE = 431
INTERNAL_ERROR = 500
UNAVAILABLE = 503


RAISE_LIMIT = "send less at once, or raise max_body_bytes under [server]"
SEND_BINARY = "leave white space out, or send the tensors as binary data"


class Refusal(Exception):
    """A request that gets an error answer.

    Attributes:
        status: HTTP status.
        message: the value that was refused, the rule, and the remedy.
        close: whether the connection can't go on, because its framing is lost or its body is not
            going to be read.
    """

    def __init__(self, status: int, message: str, *, close: bool = False) -> None:
        """Takes the attributes above."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.close = close


def bad_request(message: str) -> Refusal:
    """Returns the refusal of a request that breaks the protocol or the model's signature."""
    return Refusal(BAD_REQUEST, message)


def too_large(what: str, size_bytes: int | str, limit_bytes: int, remedy: str) -> Refusal:
    """Returns the refusal of a body over the limit; the rest of it is not read."""
    return Refusal(
        TOO_LARGE,
        f"{what} has {size_bytes} bytes, at most {limit_bytes} are taken; {remedy}",
        close=True,
    )


def unavailable(error: RefusedError) -> Refusal:
    """Returns the answer to a query that the server can't take now."""
    remedies = {
        "queue_full": "send it again later, or send fewer at once",
        "deadline": "send it again when the load is lower, or allow it more time",
        "draining": "send it to another server; this one is stopping",
        "unavailable": "see /v2/repository/index for the model's state",
    }
    remedy = remedies.get(error.reason, "send it again later")
    return Refusal(UNAVAILABLE, f"{error} ({error.reason}); {remedy}")

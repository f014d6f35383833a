"""How commands tell of damaged tuning logs: warnings, a line each."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator

from veltair.compiler.search.log import DamagedLogWarning


@contextlib.contextmanager
def told_warnings() -> Iterator[None]:
    """Prints warnings of tuning logs on stderr, a line each, when the block ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamagedLogWarning)
        try:
            yield
        finally:
            for each in caught:
                if issubclass(each.category, DamagedLogWarning):
                    print(f"veltair: warning: {each.message}", file=sys.stderr)

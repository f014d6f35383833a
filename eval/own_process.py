"""Runs one function in a process of its own.

Engines size their thread pools once in a process, by the processors that they then see, so each
comparison gets a fresh process that it may bind to exactly its processors. Its memory comes in huge
pages, as far as the system has them: see `allocator`.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from veltair.eval.allocator import starting_in_huge_pages
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from collections.abc import Callable

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def in_own_process(
    what: str,
    function: Callable[_Arguments, _Result],
    *args: _Arguments.args,
    **kwargs: _Arguments.kwargs,
) -> _Result:
    """Returns what `function` returns; what it raises, this raises.

    Args:
        what: it measures, for the message should the process die.
        function: of a module, as are its arguments: they cross to another process.
        args: of the function.
        kwargs: of the function.

    Raises:
        VeltairError: the process ended without a result.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
        try:
            with starting_in_huge_pages():
                result = executor.submit(function, *args, **kwargs)
            return result.result()
        except BrokenProcessPool as error:
            raise VeltairError(
                f"{what}: the measuring process ended without a result; the system's log may say "
                "why (out of memory, an instruction that this CPU lacks)"
            ) from error

"""Fuzzes the front end with atheris, led by coverage: `make fuzz`.

libFuzzer's options pass: `python tests/fuzz/fuzz_front.py -max_total_time=60 CORPUS`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from random import Random
from types import FunctionType

sys.path.insert(0, str(Path(__file__).parent.parent))

import atheris  # type: ignore[import-not-found] # the extra `fuzz`
from fuzz.mutation import mutated
from fuzz.seeds import seeds
from fuzz.target import read
from google.protobuf.message import DecodeError

from veltair.compiler import onnx_process

_RAW = 0.05  # share of inputs whose bytes are changed blindly


def change(data: bytes, most_bytes: int, seed: int) -> bytes:
    """What libFuzzer asks for: another input, made of one that it has."""
    random = Random(seed)
    if random.random() >= _RAW:
        # What was changed blindly has names that aren't text, which can't be written again; and
        # subgraphs that were put into each other again and again are deeper than can be copied.
        with contextlib.suppress(UnicodeError, TypeError, DecodeError):
            changed = mutated(data, random.choice(_SEEDS), random)
            if changed is not None and len(changed) <= most_bytes:
                return changed
    return bytes(atheris.Mutate(data, most_bytes))


def instrument() -> int:
    """Has the compiler's functions count what of them is executed; returns how many they are.

    Differs: atheris's own import hook finds nothing in a package that is installed editable.
    """
    count = 0
    for name, module in list(sys.modules.items()):
        if name.startswith("veltair.compiler"):
            for held in list(vars(module).values()):
                inside = vars(held).values() if isinstance(held, type) else ()
                for each in (held, *inside):
                    function = getattr(each, "fget", each)
                    if isinstance(function, FunctionType) and function.__module__ == name:
                        atheris.instrument_func(function)
                        count += 1
    return count


def run(data: bytes) -> None:
    """One execution; what it returns would be libFuzzer's to interpret."""
    read(data)


def main() -> None:
    """Writes the seeds into the corpus that is named last, and fuzzes until the time is over."""
    corpus = Path(sys.argv[-1])
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (corpus / name).write_bytes(data)
    print(f"{instrument()} functions count their coverage", file=sys.stderr)
    for crash in (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL):
        signal.signal(crash, signal.SIG_DFL)  # TVM's handler keeps libFuzzer's away
    # Below libFuzzer's own limit: what comes to no end is refused, and is no finding.
    onnx_process.MOST_CPU_S.update(clean=15, infer=15)
    # What TVM and ONNX Runtime say of each input is of no use; libFuzzer speaks on a copy.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    atheris.Setup(sys.argv, run, custom_mutator=change)
    atheris.Fuzz()


_SEEDS = list(seeds().values())

if __name__ == "__main__":
    main()

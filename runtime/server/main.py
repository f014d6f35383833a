"""`veltair-serve`: one rank of the server, started by `mpirun`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.server.fabric import (
    REPLACEMENT,
    Fabric,
    Replacement,
    rank_from_environment,
)
from veltair.runtime.server.guardian import enter_guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.config import ServeConfig
    from veltair.runtime.server.dispatcher import ServeOptions
    from veltair.runtime.server.fabric import Home
    from veltair.runtime.server.repository import ServedModel

LEAST_RANKS = 2


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing: of all ranks, only rank 0 speaks."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see veltair-serve --help")


def main() -> NoReturn:
    """Entry point of `veltair-serve`."""
    arguments = sys.argv[1:]
    rank, _ = rank_from_environment()
    if "--help" in arguments or "-h" in arguments:
        if rank == 0:
            _parser().print_help()
        sys.exit(0)
    if REPLACEMENT in arguments:
        _set_up_logging()
        code = _run_worker(Replacement(int(arguments[-1])))
    else:
        enter_guarded(ends_server=rank == 0)
        code = _serve(arguments)
    # Not sys.exit: what MPI and threads leave behind must not hold the process up.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="veltair-serve",
        description="One rank of a server: mpirun -n W+1 veltair-serve runs a dispatcher with the "
        "HTTP front end and W workers. `veltair serve` starts mpirun with the right options.",
    )
    parser.add_argument("--repository", type=Path, help="folder of <model>/<version>/ artifacts")
    parser.add_argument("--config", type=Path, help="serve.toml")
    parser.add_argument("--http-port", type=int, help="TCP port; 0 takes any free one")
    parser.add_argument("--proxy", help="models of the interference level, proxy.json")
    return parser


def _serve(arguments: Sequence[str]) -> int:
    _set_up_logging()
    rank, size = rank_from_environment()
    try:
        if size < LEAST_RANKS:
            raise InputError(
                f"{size} rank: a server needs at least {LEAST_RANKS}, a dispatcher and a worker; "
                "start it with `mpirun -n 3 veltair-serve ...` or with `veltair serve`"
            )
        prepared = _prepare(arguments) if rank == 0 else None
        error = ""
    except VeltairError as refused:
        prepared, error = None, str(refused)
    if error and size < LEAST_RANKS:
        return _refuse(error)
    # All ranks join MPI even if rank 0 has refused: with ULFM, `mpirun` would wait for the others.
    fabric = Fabric()
    if fabric.broadcast(error):
        fabric.has_left(timeout_s=5.0)
        return _refuse(error) if rank == 0 else 0
    if rank > 0:
        return _run_worker(fabric)
    assert prepared is not None
    return _run_dispatcher(fabric, prepared)


def _prepare(arguments: Sequence[str]) -> ServeOptions:
    """Checks all that can be checked before anything starts, and takes the port."""
    from veltair.runtime.config import load_config  # noqa: PLC0415 # workers don't need them
    from veltair.runtime.machine import cores_to_serve  # noqa: PLC0415
    from veltair.runtime.rendezvous import Rendezvous  # noqa: PLC0415
    from veltair.runtime.server.dispatcher import ServeOptions  # noqa: PLC0415
    from veltair.runtime.server.front import bind  # noqa: PLC0415
    from veltair.runtime.server.interference import read_sampling  # noqa: PLC0415
    from veltair.runtime.server.repository import (  # noqa: PLC0415
        check_policies,
        check_sources,
        read_models,
    )

    options = _parser().parse_args(arguments)
    config = load_config(
        options.config,
        {"server.http_port": options.http_port, "interference.proxy": options.proxy},
    )
    check_sources(options.repository, config)
    _check_cores(config)
    check_policies(config, len(cores_to_serve(config.engine)))
    repository = options.repository and options.repository.resolve()
    folder = options.config.parent if options.config else Path()
    models = read_models(repository, config, folder)
    sampling = read_sampling(config)
    listener = bind(config.server)
    return ServeOptions(
        config=config,
        models=models,
        listener=listener,
        rendezvous=Rendezvous(listener.getsockname()[1]),
        record=_begin_record(config, models),
        sampling=sampling,
    )


def _begin_record(config: ServeConfig, models: Sequence[ServedModel]) -> Path | None:
    from veltair.runtime.machine import cores_to_serve  # noqa: PLC0415 # as above
    from veltair.runtime.server.recording import begin_server_record  # noqa: PLC0415

    if not config.server.record:
        return None
    path = Path(config.server.record).absolute()
    _, size = rank_from_environment()
    cores = len(cores_to_serve(config.engine))
    begin_server_record(path, models, cores=cores, workers=size - 1)
    return path


def _check_cores(config: ServeConfig) -> None:
    usable = os.sched_getaffinity(0)
    for cpu in config.engine.cores:
        if cpu not in usable:
            raise InputError(
                f"[engine] cores: {cpu} is not a core that this process may use; it may use "
                f"{', '.join(map(str, sorted(usable)))}"
            )


def _run_dispatcher(fabric: Fabric, options: ServeOptions) -> int:
    from veltair.runtime.server.dispatcher import Dispatcher  # noqa: PLC0415 # as above

    return Dispatcher(fabric, options).run()


def _run_worker(home: Home) -> int:
    from veltair.runtime.server.worker import WorkerRank  # noqa: PLC0415 # rank 0 doesn't need it

    return WorkerRank(home).run()


def _refuse(error: str) -> int:
    print(f"veltair-serve: {' '.join(error.split())}", file=sys.stderr)
    return InputError.exit_code


def _set_up_logging() -> None:
    import logging  # noqa: PLC0415 # after the fork

    logging.basicConfig(level=logging.INFO, format="veltair-serve: %(message)s")


if __name__ == "__main__":
    main()

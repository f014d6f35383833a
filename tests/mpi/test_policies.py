"""Servers under each scheduling policy that their workers can follow: blocks, cores, answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from factories import tiny_input, tiny_reference

from mpi.serving import RunningServer, mpirun_command

QUERIES = 30


@pytest.mark.parametrize(
    "policy", ["layer", "block-2", "partition", "veltair-as", "veltair-ac", "veltair"]
)
def test_every_query_is_answered_right(repository: Path, tmp_path: Path, policy: str) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f'[scheduling]\npolicy = "{policy}"\n')
    command = mpirun_command(
        3, "--repository", str(repository), "--config", str(config), "--http-port", "0"
    )
    with RunningServer(command) as running, running.wait_ready().client() as client:
        sent: dict[int, np.ndarray] = {}
        for tag in range(QUERIES):
            slot = client.allocate("tiny", 1)
            sent[tag] = tiny_input(tag)
            slot.inputs["data"][...] = sent[tag]
            client.submit(slot, tag=tag)
        while sent:
            completions = client.wait(timeout_s=60)
            assert completions
            for completion in completions:
                assert completion.ok, completion.error
                expected = tiny_reference(sent.pop(completion.tag))
                np.testing.assert_allclose(
                    completion.slot.outputs["scores"], expected, rtol=1e-4, atol=1e-4
                )
                completion.slot.release()
        assert any(f"scheduling: {policy}" in line for line in running.lines)

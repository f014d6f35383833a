"""The fuzzer's seeds, and one change of each, through its target: without the fuzzer, and short."""

from __future__ import annotations

from random import Random

import pytest
from fuzz.mutation import mutated
from fuzz.seeds import seeds
from fuzz.target import read

SEEDS = seeds()


@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_is_read_or_refused(name: str) -> None:
    read(SEEDS[name])


@pytest.mark.parametrize("name", SEEDS)
def test_a_changed_seed_is_read_or_refused(name: str) -> None:
    random = Random(name)
    changed = mutated(SEEDS[name], random.choice(list(SEEDS.values())), random)
    if changed is not None:
        read(changed)


def test_the_target_tells_good_from_bad() -> None:
    assert not read(SEEDS["relu"])
    assert "Frobnicate" in read(SEEDS["bad-unknown_operator"])

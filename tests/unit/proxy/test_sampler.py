"""The sampler, step by step: what blocks took, a source beside them, one that fails."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

import pytest
from proxy_models import count, linear_model, proxy_file, reading, term

from veltair.proxy import sampler
from veltair.proxy.features import features
from veltair.proxy.sampler import LevelSampler, Sampling, next_look_ns, place_names
from veltair.proxy.sources.choice import Chosen
from veltair.proxy.sources.computer import Computer
from veltair.runtime._native import ipc, sched
from veltair.runtime.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.proxy.proxy_file import ProxyFile
    from veltair.proxy.sources.reading import Reading

MS = 1_000_000
PROFILE = sched.ModelProfile(
    qos_ns=0, cores=[1], levels=1, model_ns=[MS], variants=[1], layer_ns=[MS]
)


# Of ten blocks that are as sensitive as the level itself: their noise of 5 %, and a drift of 3 %.
BELIEVED = 1 / (1 + (math.hypot(0.05 / math.sqrt(10), 0.03) / 0.1) ** 2)


class Node:
    """A segment whose one worker's blocks take what the test says."""

    def __init__(self, complexes: Sequence[int] = (0,)) -> None:
        self.segment = ipc.Segment.create(
            cpus=range(len(complexes)),
            complexes=complexes,
            workers=1,
            policies=ipc.Policies(measured=True),
            models=[
                ipc.ModelSpec(
                    name="m",
                    version=1,
                    input_bytes=[1],
                    output_bytes=[1],
                    slots=2,
                    qos_ns=0,
                    needed_cores=1,
                    expected_ns=MS,
                    metadata=b"",
                )
            ],
        )
        self.complexes = complexes
        self.board = ipc.Board(self.segment)
        self.board.set_model_state(0, ipc.ModelState.READY, "")
        self.board.set_state(ipc.ServerState.SERVING)
        self.board.join(0, 1, 0)
        self.scheduler = ipc.Scheduler("model", len(complexes), [PROFILE])
        self.client = ipc.Client(self.segment)
        self.now_ns = 0

    def run(
        self,
        level: float,
        blocks: int = 10,
        core: int = 0,
        sensitivity_ns: int = MS,
        at_ns: int = 0,
    ) -> None:
        """Runs blocks of 1 ms alone that take 1 ms longer at a slow-down of 1."""
        for _ in range(blocks):
            _, query = self.client.allocate(0)
            assert self.client.submit(query, 0, 0, 0).ok
            assert self.board.take(0, self.scheduler, 0) is not None
            took = ipc.BlockSample(
                core=core,
                took_ns=round(MS * (1 + level)),
                alone_ns=MS,
                sensitivity_ns=sensitivity_ns,
                highest_slowdown=1.0,
            )
            self.board.complete(0, "", at_ns, took)
            self.client.poll(1)
            self.client.release(query)

    def sampler(self, source: str = "auto", file: ProxyFile | None = None) -> LevelSampler:
        sampling = Sampling(
            cpus=range(len(self.complexes)),
            complexes=self.complexes,
            computer=Computer(),
            source=source,
            file=file,
        )
        return LevelSampler(self.segment, sampling, lambda: self.now_ns)

    def pass_ms(self, time_ms: int) -> None:
        self.now_ns += time_ms * MS


class FakeSource:
    """Gives what it is told, and fails where that is a text."""

    def __init__(self, name: str, given: list[float | str]) -> None:
        self.name = name
        self.given = given
        self.is_open = True

    def read(self) -> Reading:
        told = self.given.pop(0)
        if isinstance(told, str):
            raise SourceError(told)
        return reading(count("probe_step", told))

    def close(self) -> None:
        self.is_open = False


FILE = proxy_file(
    linear_model(term("probe_step", mean=100, scale=100, high=300), sources=("probe",)),
    linear_model(term("probe_step", mean=100, scale=100, high=300), sources=("resctrl",), r2=0.5),
)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeSource]:
    """What there is to open, best first."""
    there: dict[str, FakeSource] = {}

    def best(
        _cores: Sequence[int],
        _pids: Sequence[int],
        _computer: Computer,
        names: Sequence[str],
    ) -> Chosen:
        for name in names:
            if name in there:
                return Chosen(source=there[name], passed_over={})
        raise SourceError("none works")

    def named(
        name: str, _cores: Sequence[int], _pids: Sequence[int], _computer: Computer
    ) -> FakeSource:
        return there[name]

    monkeypatch.setattr(sampler, "open_best", best)
    monkeypatch.setattr(sampler, "open_source", named)
    return there


def test_own_blocks_tell_the_level() -> None:
    node = Node()
    sampling = node.sampler()
    assert sampling.source == "self"
    node.pass_ms(20)
    node.run(0.25)
    assert sampling.sample().level == pytest.approx(0.25, abs=0.001)
    told = node.segment.level()
    assert told.slowdown == pytest.approx(250_000, abs=1000)
    assert told.confidence == pytest.approx(BELIEVED * ipc.MILLION, abs=1)
    assert (told.time_ns, node.segment.complex_level(0).slowdown) == (node.now_ns, told.slowdown)
    assert node.board.level_report().source == "self"
    # Within 50 ms of a step.
    for _ in range(2):
        node.pass_ms(20)
        node.run(0.75)
        found = sampling.sample()
    assert found.level > 0.65
    # Blocks that were faster than alone.
    for _ in range(5):
        node.pass_ms(20)
        node.run(-0.1)
        sampling.sample()
    assert 0 <= node.segment.level().slowdown < 0.01 * ipc.MILLION


def test_confidence_falls_while_no_block_ends() -> None:
    node = Node()
    sampling = node.sampler()
    node.run(0.25)
    assert node.segment.level().confidence == 0
    node.pass_ms(20)
    assert sampling.sample().confidence == pytest.approx(BELIEVED)
    for _ in range(5):
        node.pass_ms(20)
        sampling.sample()
    assert node.segment.level().confidence < 0.05 * ipc.MILLION
    assert not node.segment.level().is_known(node.now_ns)


def test_core_complexes_have_levels_of_their_own() -> None:
    node = Node(complexes=[0, 0, 1])
    assert place_names(range(3), [0, 0, 1]) == ["cores 0-1", "cores 2"]
    sampling = node.sampler()
    node.pass_ms(20)
    node.run(0.1, core=1)
    node.run(0.5, core=2)
    assert sampling.sample().level == pytest.approx(0.3, abs=0.01)
    assert node.segment.complex_level(0).slowdown == pytest.approx(100_000, abs=1000)
    assert node.segment.complex_level(1).slowdown == pytest.approx(500_000, abs=1000)


def test_a_trained_source_is_read(sources: dict[str, FakeSource]) -> None:
    sources["probe"] = FakeSource("probe", [100, 200, 200, 200])
    node = Node()
    sampling = node.sampler(file=FILE)
    assert sampling.source == "probe"
    node.pass_ms(20)
    assert sampling.sample().level == pytest.approx(1.0)
    node.pass_ms(100)
    assert sampling.sample().level == pytest.approx(1.5, abs=0.01)
    # What was counted while the server was idle tells nothing of now.
    node.pass_ms(101)
    node.run(0.0)
    assert sampling.sample().level < 0.1
    sampling.stop()
    assert not sources["probe"].is_open


def test_sources_that_nothing_was_trained_for_are_not_opened(
    sources: dict[str, FakeSource],
) -> None:
    sources["perf-task"] = FakeSource("perf-task", [])
    assert Node().sampler(file=FILE).source == "self"
    sources["probe"] = FakeSource("probe", [])
    assert Node().sampler(file=FILE).source == "probe"
    assert Node().sampler(source="self", file=FILE).source == "self"
    assert Node().sampler(source="probe", file=FILE).source == "probe"
    assert Node().sampler().source == "self"


OWN_MODEL = linear_model(
    term("block_level", mean=0.0, scale=1.0, coefficient=0.8, low=-9, high=9),
    term("block_slowdown", mean=0.0, scale=1.0, coefficient=0.4, low=-9, high=9),
    sources=("self",),
    r2=0.9,
)


def test_a_trained_model_of_own_blocks_is_read_without_another_source(
    sources: dict[str, FakeSource],
) -> None:
    probe = linear_model(term("probe_step"), sources=("probe",), r2=0.5)
    sources["probe"] = FakeSource("probe", [])
    node = Node()
    sampling = node.sampler(file=proxy_file(OWN_MODEL, probe))
    assert sampling.source == "self"  # the probe's model is worse
    node.pass_ms(20)
    node.run(0.25)
    found = sampling.sample()
    blocks, slowdown = ipc.own_features(
        ipc.BlockTotals(
            blocks=10, took_ns=12.5 * MS, alone_ns=10 * MS, excess=2.5 * MS**2, weight=10 * MS**2
        )
    )
    assert (blocks.value, slowdown.value) == (pytest.approx(0.25), pytest.approx(0.25))
    expected = OWN_MODEL.estimate(features([reading_of(blocks, slowdown)]))
    assert found.level == pytest.approx(expected.level, abs=1e-6)
    assert found.level == pytest.approx(OWN_MODEL.intercept + (0.8 + 0.4) * 0.25)
    assert found.confidence == pytest.approx(0.9 * BELIEVED)
    # A block that nobody knows to be sensitive says nothing by this model, nor by itself.
    node.pass_ms(200)
    node.run(0.25, sensitivity_ns=0)
    assert sampling.sample().confidence < 0.01


def reading_of(blocks: ipc.LevelFeature, slowdown: ipc.LevelFeature) -> Reading:
    return reading(
        count("block_level", blocks.value, confidence=blocks.confidence),
        count("block_slowdown", slowdown.value, confidence=slowdown.confidence),
    )


def test_noise_around_nothing_evens_out() -> None:
    node = Node()
    sampling = node.sampler()
    node.pass_ms(20)
    for look in range(40):
        node.pass_ms(1)
        node.run(0.2 if look % 2 else -0.2)
        sampling.sample()
    assert node.segment.level().slowdown < 0.02 * ipc.MILLION


def test_a_source_that_fails_is_replaced_once(
    sources: dict[str, FakeSource], caplog: pytest.LogCaptureFixture
) -> None:
    sources["probe"] = FakeSource("probe", [100, "its core went offline"])
    sources["resctrl"] = FakeSource("resctrl", [200, 200, "unmounted"])
    node = Node()
    sampling = node.sampler(source="probe", file=FILE)
    with caplog.at_level(logging.WARNING):
        for _ in range(7):
            node.pass_ms(20)
            node.run(0.5)
            sampling.sample()
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split("; ")[-1] for message in messages] == [
        "resctrl is read from here on",
        "self is read from here on",
    ]
    assert "probe" in messages[0]
    assert "its core went offline" in messages[0]
    assert not sources["probe"].is_open
    assert not sources["resctrl"].is_open
    assert node.board.level_report().source == "self"
    assert node.segment.level().slowdown == pytest.approx(500_000, rel=0.1)


def test_a_replaced_worker_is_watched(
    sources: dict[str, FakeSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources["probe"] = FakeSource("probe", [100] * 9)
    node = Node()
    sampling = node.sampler(file=FILE)
    opened: list[Sequence[int]] = []
    given = sampler.open_best

    def best(
        cores: Sequence[int],
        pids: Sequence[int],
        computer: Computer,
        names: Sequence[str],
    ) -> Chosen:
        opened.append(pids)
        return given(cores, pids, computer, names)

    monkeypatch.setattr(sampler, "open_best", best)
    sampling.sample()
    node.board.remove_worker(0)
    node.board.join(0, 77, 0)
    sampling.sample()
    sampling.sample()
    assert opened == [(77,)]


def test_a_steady_level_is_looked_at_less_often() -> None:
    assert next_look_ns(0.06) == 10_000_000
    assert next_look_ns(-0.06) == 10_000_000
    assert next_look_ns(0.04) == 30_000_000


def test_workers_look_as_they_end_blocks() -> None:
    node = Node()
    sampling = node.sampler()
    sampling.start()
    for step in (1, 9):  # none has ended within ten
        assert node.segment.level().confidence == 0
        node.pass_ms(step)
        node.run(0.25, blocks=9 if step == 1 else 1, at_ns=node.now_ns)
    told = node.segment.level()
    assert told.slowdown == pytest.approx(250_000, abs=1000)
    assert told.confidence == pytest.approx(BELIEVED * ipc.MILLION, abs=1)
    # Within 50 ms of a step.
    for _ in range(4):
        node.pass_ms(10)
        node.run(0.75, at_ns=node.now_ns)
    assert node.segment.level().slowdown > 650_000
    assert node.board.check() == ""
    sampling.stop()


def test_a_thread_looks_where_another_source_is_read(sources: dict[str, FakeSource]) -> None:
    sources["probe"] = FakeSource("probe", [100.0] * 1000 + ["gone"])
    node = Node()
    sampling = node.sampler(file=FILE)
    sampling.start()
    try:
        end_s = time.monotonic() + 10
        while node.segment.level().confidence == 0 and time.monotonic() < end_s:
            node.pass_ms(1)
            node.run(0.25, blocks=1)
            time.sleep(0.001)
    finally:
        sampling.stop()
    assert node.segment.level().slowdown == pytest.approx(1_000_000, abs=10_000)
    assert not sampling._thread.is_alive()


def test_models_that_no_segment_holds_are_refused() -> None:
    board = Node().board
    line = ipc.LevelLine(intercept=0, highest=1, trust=1)
    with pytest.raises(ValueError, match="two terms at most"):
        ipc.OwnModel(line, [ipc.OwnFeature.LEVEL], [])
    with pytest.raises(ValueError, match="at most 4 models"):
        board.measure_by_blocks([ipc.OwnModel(line, [], [])] * 5, 0, 0)
    with pytest.raises(ValueError, match="a period from 0"):
        board.measure_by_blocks([], -1, 0)

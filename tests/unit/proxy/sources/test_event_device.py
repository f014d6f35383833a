"""Linux's descriptions of units that count: formats, named events, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine_trees import planted

from veltair.proxy.sources.event_device import EventCode, EventDevice, devices_named
from veltair.runtime.errors import SourceError


def device(machine: str, name: str, root: Path) -> EventDevice:
    return EventDevice(planted(machine, root).devices / name)


def test_fields_go_where_the_format_says(tmp_path: Path) -> None:
    l3 = device("amd_zen4", "amd_l3", tmp_path)
    assert l3.encode("event=0x04,umask=0xff") == EventCode(type=15, config=0xFF04)
    assert l3.encode("event=4,enallcores,threadmask=3").config == 0x4 | 1 << 47 | 3 << 56


def test_a_field_may_lie_in_several_places(tmp_path: Path) -> None:
    cha = device("intel_icelake_sp", "uncore_cha_2", tmp_path)
    assert cha.encode("event=0x35,umask=0xc001fe01") == EventCode(
        type=42, config=0x35 | 0x01 << 8 | 0xC001FE << 32
    )


def test_a_field_may_lie_in_another_word(tmp_path: Path) -> None:
    cha = device("intel_skylake_sp", "uncore_cha_0", tmp_path)
    code = cha.encode("event=0x35,umask=0x21,filter_loc,filter_not_nm")
    assert code == EventCode(type=40, config=0x2135, config1=1 << 32 | 1 << 37)


def test_whole_words_are_taken_as_they_are(tmp_path: Path) -> None:
    assert device("virtual", "software", tmp_path).encode("config=0x2") == EventCode(
        type=1, config=2
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [("event=0x135", "doesn't fit into its 8 bits"), ("edge=1", "no usable format of the field")],
)
def test_what_a_unit_cannot_say(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(SourceError, match=part):
        device("amd_zen2", "amd_l3", tmp_path).encode(text)


@pytest.mark.parametrize("content", ["", "config:", "config3:0-7", "config:0-x"])
def test_a_format_that_is_none(tmp_path: Path, content: str) -> None:
    l3 = device("amd_zen4", "amd_l3", tmp_path)
    (planted("amd_zen4", tmp_path).devices / "amd_l3/format/event").write_text(content)
    with pytest.raises(SourceError, match="no usable format"):
        l3.encode("event=1")


def test_named_events_have_scale_and_unit(tmp_path: Path) -> None:
    channel = device("intel_icelake_sp", "uncore_imc_1", tmp_path)
    assert channel.names() == ("cas_count_read", "cas_count_write", "clockticks")
    read = channel.named("cas_count_read")
    assert read is not None
    assert (read.text, read.unit) == ("event=0x04,umask=0x0f", "MiB")
    assert read.scale * (1 << 20) == 64
    ticks = channel.named("clockticks")
    assert ticks is not None
    assert (ticks.scale, ticks.unit) == (1.0, "")
    assert channel.named("none") is None


def test_units_come_by_number(tmp_path: Path) -> None:
    root = planted("intel_icelake_sp", tmp_path).devices
    (root / "uncore_cha_10").mkdir()
    (root / "uncore_cha_10/type").write_text("77\n")
    found = devices_named(root, r"uncore_cha_\d+")
    assert [each.type for each in found] == [40, 41, 42, 77]
    assert found[0].cpus() == (0, 4)
    assert found[3].cpus() == ()
    assert devices_named(tmp_path / "none", ".*") == []


def test_a_unit_without_a_type(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="its type can't be read"):
        EventDevice(tmp_path)

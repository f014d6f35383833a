"""Measured points are found again by all that they depend on, and by nothing less."""

from __future__ import annotations

from pathlib import Path

from veltair.eval.points import PointStore, circumstances


def test_a_point_is_found_by_its_whole_key(tmp_path: Path) -> None:
    store = PointStore(tmp_path / "new" / "points")
    key = {"policy": "model", "load": 0.5, "cores": (0, 1)}
    assert store.get(key) is None
    store.put(key, {"share": 0.75})
    again = PointStore(tmp_path / "new" / "points")
    assert again.get({"load": 0.5, "cores": [0, 1], "policy": "model"}) == {"share": 0.75}
    assert again.get(key | {"load": 0.6}) is None


def test_a_damaged_point_is_measured_again(tmp_path: Path) -> None:
    store = PointStore(tmp_path)
    store.put({"load": 1}, {"share": 1.0})
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(file.read_bytes()[:-10])
    assert store.get({"load": 1}) is None


def test_forgetting_leaves_nothing(tmp_path: Path) -> None:
    store = PointStore(tmp_path)
    store.put({"load": 1}, {"share": 1.0})
    store.clear()
    assert store.get({"load": 1}) is None


def test_points_depend_on_the_code_and_the_machine() -> None:
    found = circumstances()
    assert set(found) >= {"machine", "revision", "native"}
    assert found == circumstances()

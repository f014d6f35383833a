"""Which machine's records count, and what the others' are good for."""

from __future__ import annotations

from unit.compiler.search.test_log import record

from veltair.compiler.search.known import Known, by_layer
from veltair.compiler.search.log import Record

HERE = "a machine"


def elsewhere(trial: int, ns: int, machine: str = "another") -> Record:
    return record(trial, machine=machine, ns={1: ns, 8: ns // 4})


def known(*records: Record) -> Known:
    return by_layer(records, HERE).get("layer", Known())


def test_records_are_told_apart_by_layer_and_machine() -> None:
    mine, theirs, third = record(0), elsewhere(0, 50), elsewhere(1, 70, "third")
    other_layer = record(0, key="other")
    more = elsewhere(2, 40, "third")
    found = by_layer([mine, theirs, third, other_layer, more], HERE)
    assert found == {
        "layer": Known(own=(mine,), others=((third, more), (theirs,))),
        "other": Known(own=(other_layer,)),
    }


def test_two_samples_from_here_count_more_than_any_number_from_elsewhere() -> None:
    theirs = [elsewhere(i, 100) for i in range(9)]
    assert known(*theirs).counting == tuple(theirs)
    assert known(*theirs, record(0)).counting == tuple(theirs)
    failed = record(1, status="failed", ns={}, reason="build: no")
    assert known(*theirs, record(0), failed).counting == tuple(theirs)
    mine = (record(0), record(1))
    assert known(*theirs, *mine).counting == mine


def test_of_other_machines_the_one_with_most_counts() -> None:
    few, many = [elsewhere(0, 9)], [elsewhere(i, 100, "third") for i in range(3)]
    assert known(*few, *many).counting == tuple(many)
    assert known(record(0)).counting == (record(0),)
    assert known().counting == ()


def test_a_second_measurement_corrects_the_first() -> None:
    again = record(0, ns={1: 90})
    assert known(record(0), record(1), again).own == (again, record(1))
    slower = [elsewhere(0, 10), elsewhere(1, 20), elsewhere(0, 90)]
    assert known(*slower).hints == (slower[1].choice, slower[0].choice)


def test_hints_are_each_machines_best_in_turn() -> None:
    one = [elsewhere(0, 300), elsewhere(1, 100), elsewhere(2, 200)]
    two = [elsewhere(1, 9, "third"), elsewhere(5, 7, "third")]
    failed = record(7, machine="another", status="failed", ns={}, reason="hung")
    hints = known(*one, *two, failed, record(9)).hints
    choices = [one[1].choice, two[1].choice, one[2].choice, one[0].choice]
    assert list(hints) == choices


def test_there_are_no_more_hints_than_are_worth_a_try() -> None:
    records = [elsewhere(i, 1000 - i) for i in range(40)]
    hints = known(*records).hints
    assert len(hints) == 16
    assert hints[0] == records[-1].choice
    assert known(record(0), record(1)).hints == ()

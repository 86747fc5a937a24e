"""The playground: transactions step by step."""

from __future__ import annotations

import pytest

import contend
from contend.hermitage import SCRIPTS, outcome


def test_write_skew_is_shown_by_snapshot_isolation() -> None:
    play = contend.Playground("si", {"x": 100, "y": 100})
    t1, t2 = play.begin(), play.begin()
    assert t1.read("x").value == 100 and t2.read("y").value == 100
    t1.write("y", 0)
    t2.write("x", 0)
    assert repr(t1.commit()) == "T1 commit: done" and not t2.commit().waits
    verdict = play.verdict()
    assert verdict.ok and verdict.anomaly == "G2-item" and "allowed by si" in repr(verdict)
    assert (play.svg() or "").startswith("<svg") and ">T1<" in (play.svg() or "")


def test_a_step_that_waits_goes_on() -> None:
    play = contend.Playground("2pl-waitdie", {"x": 1})
    old, young = play.begin(), play.begin()
    young.write("x", 2)
    step = old.read("x")
    assert step.waits and old.waits and step.value is None
    assert step.waits_for == [2] and repr(step) == "T1 read x: waits for T2"
    with pytest.raises(contend.InputError, match="waits for T2"):
        old.commit()
    young.commit()
    assert not step.waits and step.value == 2 and step.waits_for == []
    old.commit()
    assert play.verdict().anomaly is None and play.verdict().transactions == 2


def test_a_step_names_each_transaction_that_alone_would_hold_it_up() -> None:
    play = contend.Playground("2pl-waitdie", {"x": 1, "y": 1})
    first, second, third, fourth = (play.begin() for _ in range(4))
    second.read("x"), third.read("x"), fourth.read("y")
    step = first.write("x", 2)
    assert step.waits_for == [2, 3] and "waits for T2 and T3" in repr(play)
    second.rollback()
    assert step.waits_for == [3]
    third.commit()
    assert not step.waits and step.waits_for == []


def test_in_each_script_of_hermitage_a_wait_is_for_a_transaction_that_runs() -> None:
    waits = 0
    for protocol in contend.protocols()["name"]:
        for script in SCRIPTS.values():
            play = contend.Playground(protocol, {"x": 10, "y": 20})
            running = {number: play.begin() for number in sorted({number for number, _ in script})}
            for number, text in script:
                transaction = running[number]
                if transaction.waits or transaction.has_ended:
                    continue
                key, _, value = text.partition("=")
                ends = {"commit": transaction.commit, "rollback": transaction.rollback}
                step = ends[text]() if text in ends else transaction.write(key, int(value)) if value else transaction.read(key)
                for holder in step.waits_for:
                    assert holder != number and not running[holder].has_ended, repr(play)
                waits += len(step.waits_for)
    assert waits > 5


def test_what_the_protocol_aborts_has_ended() -> None:
    play = contend.Playground("2pl-nowait", {"x": 1})
    t1, t2 = play.begin(), play.begin()
    t1.write("x", 2)
    step = t2.write("x", 3)
    assert step.aborted is not None and t2.has_ended and "aborted" in repr(step)
    with pytest.raises(contend.InputError, match="has ended"):
        t2.commit()
    assert t1.rollback().aborted is None and t1.has_ended
    assert play.begin().read("x").value == 1


@pytest.mark.parametrize(
    ("protocol", "rows", "valid"),
    [("sillo", {"x": 1}, "silo"), ("silo", {}, "1 to 64"), ("silo", {"x": 1.5}, "whole"), ("silo", {"x": 2**63}, "64 bits")],
)
def test_a_playground_refuses_bad_input(protocol: str, rows: dict[str, int], valid: str) -> None:
    with pytest.raises(contend.InputError, match=valid):
        contend.Playground(protocol, rows)


def test_a_step_that_is_refused_was_not_taken() -> None:
    play = contend.Playground("silo", {"x": 1})
    t1 = play.begin()
    with pytest.raises(contend.InputError, match="valid: x"):
        t1.read("z")
    with pytest.raises(contend.InputError, match="64 bits"):
        t1.write("x", True)
    assert len(play.steps) == 1 and t1.read("x").value == 1
    many = contend.Playground("silo", {"x": 1})
    for _ in range(16):
        many.begin()
    with pytest.raises(contend.InputError, match="at most 16"):
        many.begin()
    assert len(many.steps) == 16


def test_the_anomalies_of_hermitage_come_out_as_promised() -> None:
    skew, lost = "G2-item write skew", "P4 lost update"
    assert outcome("si", skew) == "shown" and outcome("si", lost) == "prevented"
    assert outcome("si", "G1c circular information") == "prevented", "a weaker anomaly is another row's"
    assert outcome("none", lost) == "shown"
    table = contend.Playground.hermitage(["silo", "2pl-woundwait"])
    assert table["protocol"] == ["silo", "2pl-woundwait"]
    assert all(table[anomaly][0] == "prevented" for anomaly in SCRIPTS)
    assert "waits" in table.rows()[1].values() and "shown" not in table.rows()[1].values()

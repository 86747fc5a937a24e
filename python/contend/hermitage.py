"""The anomalies of the Hermitage suite, run under each protocol.

The names and scripts follow Kleppmann's Hermitage (2014), and Adya, Liskov and O'Neil (ICDE 2000).
A script is a list of steps: the transaction, and what it does. A transaction that waits takes its
next steps once it goes on; one that was aborted takes none.
"""

from __future__ import annotations

from contend.frame import Frame, Row, of_rows
from contend.playground import Playground, Step, Transaction

# Key and value of a write, or the key of a read.
_Step = tuple[int, str]

SCRIPTS: dict[str, list[_Step]] = {
    "G0 dirty write": [(1, "x=11"), (2, "x=12"), (1, "y=21"), (1, "commit"), (2, "y=22"), (2, "commit")],
    "G1a aborted read": [(1, "x=101"), (2, "x"), (1, "rollback"), (2, "x"), (2, "y=1"), (2, "commit")],
    "G1b intermediate read": [(1, "x=101"), (2, "x"), (1, "x=11"), (1, "commit"), (2, "x"), (2, "y=1"), (2, "commit")],
    "G1c circular information": [(1, "x=11"), (2, "y=22"), (1, "y"), (2, "x"), (1, "commit"), (2, "commit")],
    "OTV vanishing transaction": [
        (1, "x=11"), (1, "y=19"), (2, "x=12"), (1, "commit"), (3, "x"), (2, "y=18"), (3, "y"), (2, "commit"), (3, "commit"),
    ],
    "P4 lost update": [(1, "x"), (2, "x"), (1, "x=11"), (2, "x=12"), (1, "commit"), (2, "commit")],
    "G-single read skew": [(1, "x"), (2, "x"), (2, "y"), (2, "x=12"), (2, "y=18"), (2, "commit"), (1, "y"), (1, "commit")],
    "G2-item write skew": [
        (1, "x"), (1, "y"), (2, "x"), (2, "y"), (1, "x=11"), (2, "y=21"), (1, "commit"), (2, "commit"),
    ],
}

# The classes of Adya, and of Bailis and others (OTV), the worst first.
_CLASSES = ["internal", "G0", "G1a", "G1b", "G1c", "OTV", "G-single", "G-nonadjacent", "G2-item", "G2"]
# The class of an anomaly whose name does not begin with it.
_CLASS_OF = {"P4 lost update": "G-single"}


def table(protocols: list[str] | None) -> Frame:
    """A row for each protocol, with what became of each anomaly."""
    import contend

    names = protocols if protocols is not None else contend.protocols()["name"]
    rows: list[Row] = [
        {"protocol": name, **{anomaly: outcome(name, anomaly) for anomaly in SCRIPTS}} for name in names
    ]
    return of_rows(rows, ["protocol", *SCRIPTS])


def outcome(protocol: str, anomaly: str) -> str:
    """`shown` if the committed transactions have this anomaly or a worse one. Else `waits` if a transaction had to wait and none
    was aborted; `prevented` otherwise.
    """
    script = SCRIPTS[anomaly]
    play = Playground(protocol, {"x": 10, "y": 20})
    running = {number: play.begin() for number in sorted({number for number, _ in script})}
    rest = list(script)
    has_waited = any(transaction.waits for transaction in running.values())
    while rest:
        place = next((at for at, (number, _) in enumerate(rest) if not running[number].waits), None)
        if place is None:
            break
        number, text = rest.pop(place)
        if not running[number].has_ended:
            has_waited |= _take(running[number], text).waits
    found = play.verdict().anomaly
    if found is not None and _CLASSES.index(found) <= _CLASSES.index(_CLASS_OF.get(anomaly, anomaly.split()[0])):
        return "shown"
    is_aborted = any(step.aborted is not None for step in play.steps)
    return "waits" if has_waited and not is_aborted else "prevented"


def _take(transaction: Transaction, text: str) -> Step:
    if text in ("commit", "rollback"):
        return transaction.commit() if text == "commit" else transaction.rollback()
    key, _, value = text.partition("=")
    return transaction.write(key, int(value)) if value else transaction.read(key)

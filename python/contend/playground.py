"""A few transactions, taken step by step: what does a protocol let happen?"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from contend import _contend
from contend.frame import Frame


class Step:
    """What became of a step. A step that waits changes when another transaction lets it go on."""

    def __init__(self, transaction: int, text: str) -> None:
        self._transaction = transaction
        self._text = text
        self._outcome: Any = "waits"
        self._waits_for: list[int] = []

    @property
    def value(self) -> int | None:
        """The value that a read has found."""
        return self._outcome["done"] if isinstance(self._outcome, dict) and "done" in self._outcome else None

    @property
    def waits(self) -> bool:
        """Whether the transaction waits for another in this step."""
        return bool(self._outcome == "waits")

    @property
    def waits_for(self) -> list[int]:
        """The numbers of the transactions for which this step waits, any one of which alone would hold it up. Empty if it does not
        wait, or if none alone holds it up.
        """
        return list(self._waits_for)

    @property
    def aborted(self) -> str | None:
        """Why the protocol has aborted the transaction in this step; None if it has not."""
        return self._outcome.get("aborted") if isinstance(self._outcome, dict) else None

    def __repr__(self) -> str:
        if self.waits:
            became = "waits"
            if self._waits_for:
                became += f" for {' and '.join(f'T{number}' for number in self._waits_for)}"
        elif self.aborted is not None:
            became = f"aborted: {self.aborted}"
        else:
            became = "done" if self.value is None else str(self.value)
        return f"T{self._transaction} {self._text}: {became}"


class Transaction:
    """A transaction of a playground."""

    def __init__(self, playground: Playground, number: int) -> None:
        self._playground = playground
        self._number = number
        self._last: Step | None = None
        self._has_ended = False

    def read(self, key: str) -> Step:
        """Reads a value."""
        return self._take({"read": self._playground._place(key)}, f"read {key}")

    def write(self, key: str, value: int) -> Step:
        """Replaces a value without reading it."""
        return self._take({"write": [self._playground._place(key), _integer(key, value)]}, f"write {key} = {value}")

    def commit(self) -> Step:
        """Commits the transaction."""
        return self._take("commit", "commit", ends=True)

    def rollback(self) -> Step:
        """Gives the transaction up."""
        return self._take("rollback", "rollback", ends=True)

    @property
    def waits(self) -> bool:
        """Whether its last step waits."""
        return self._last is not None and self._last.waits

    @property
    def has_ended(self) -> bool:
        """Whether it has committed, was given up, or was aborted by the protocol."""
        aborted = self._last is not None and self._last.aborted is not None
        return aborted or self._has_ended and not self.waits

    def _take(self, action: Any, text: str, ends: bool = False) -> Step:
        name = f"transaction {self._number}"
        if self.has_ended:
            raise _contend.InputError(f"{name} has ended ({self._last}); valid: a new one, from begin()")
        if self.waits:
            raise _contend.InputError(f"{name} waits ({self._last}); valid: a step of another transaction, which lets it go on")
        step = self._playground._play(self._number, action, text)
        self._last, self._has_ended = step, ends
        return step

    def __repr__(self) -> str:
        return f"transaction {self._number}: {self._last or 'has begun'}"


class Judgement:
    """What the committed transactions of a playground amount to."""

    def __init__(self, played: Mapping[str, Any], protocol: str) -> None:
        verification = played["verification"]
        self.protocol = protocol
        #: The isolation level that the protocol promises.
        self.level: str = played["isolation"]
        #: Whether the promise is kept.
        self.ok: bool = verification["passed"]
        #: The class of the worst anomaly, also if the promise allows it.
        self.anomaly: str | None = verification["anomaly"]
        #: The anomaly, step by step.
        self.explanation: str | None = verification["explanation"]
        #: The transactions that have committed.
        self.transactions: int = verification["transactions"]
        self._picture: str | None = played["picture"]

    def svg(self) -> str | None:
        """The cycle of the anomaly as a picture; None without one."""
        return self._picture

    def __repr__(self) -> str:
        if self.anomaly is None:
            return f"nothing wrong: the {self.transactions} committed transactions are serializable"
        kept = f"allowed by {self.protocol} ({self.level})" if self.ok else f"{self.protocol} BREAKS ITS PROMISE ({self.level})"
        return f"{kept}: {self.anomaly}\n{self.explanation or ''}".rstrip()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>{self._picture or ''}"


class Playground:
    """Transactions of one protocol on a table of integers.

    >>> play = Playground("si", {"x": 100, "y": 100})
    >>> t1, t2 = play.begin(), play.begin()
    >>> t1.read("x")
    T1 read x: 100

    The steps run on the explorer's machine: always the same, with nothing going on beside them.
    """

    def __init__(self, protocol: str, rows: Mapping[str, int]) -> None:
        self._protocol = protocol
        self._rows = {str(key): _integer(key, value) for key, value in rows.items()}
        self._places = {key: place for place, key in enumerate(self._rows)}
        self._steps: list[Step] = []
        self._script: list[dict[str, Any]] = []
        self._begun = 0
        self._replay()

    def begin(self) -> Transaction:
        """Begins a transaction."""
        transaction = Transaction(self, self._begun + 1)
        transaction._last = self._play(self._begun + 1, "begin", "begin")
        self._begun += 1
        return transaction

    @property
    def steps(self) -> list[Step]:
        """All steps so far, with what became of each."""
        return list(self._steps)

    def verdict(self) -> Judgement:
        """Judges the transactions that have committed."""
        return Judgement(self._replay(), self._protocol)

    def svg(self) -> str | None:
        """The cycle of the anomaly as a picture; None without one."""
        return self.verdict().svg()

    @classmethod
    def hermitage(cls, protocols: list[str] | None = None) -> Frame:
        """Which anomalies each protocol prevents, shows, or holds up by waits. Made from runs, as the Hermitage suite does it for
        databases.
        """
        from contend.hermitage import table

        return table(protocols)

    def _place(self, key: str) -> int:
        if key not in self._places:
            raise _contend.InputError(f"no key {key!r}; valid: {', '.join(self._places)}")
        return self._places[key]

    def _play(self, transaction: int, action: Any, text: str) -> Step:
        self._script.append({"transaction": transaction, "action": action})
        self._steps.append(Step(transaction, text))
        try:
            self._replay()
        except BaseException:
            # The step has not been taken.
            del self._script[-1], self._steps[-1]
            raise
        return self._steps[-1]

    def _replay(self) -> dict[str, Any]:
        """Runs all steps from the beginning: the same steps always do the same."""
        script = {"protocol": self._protocol, "keys": list(self._rows.items()), "steps": self._script}
        played: dict[str, Any] = json.loads(_contend.play(json.dumps(script)))
        for step, outcome, waits_for in zip(self._steps, played["outcomes"], played["waits_for"], strict=True):
            step._outcome, step._waits_for = outcome, waits_for
        return played

    def __repr__(self) -> str:
        return "\n".join([f"a playground of {self._protocol}", *map(repr, self._steps)])


def _integer(key: object, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    raise _contend.InputError(f"{key}: {value!r} is no value; valid: a whole number of 64 bits")

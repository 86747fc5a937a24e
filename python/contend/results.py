"""What the verbs return: the result's JSON, and frames that are made from it."""

from __future__ import annotations

import csv
import html
import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from contend import _contend
from contend.frame import Frame, Row, of_rows

# The height of a report in a notebook, in pixels. It scrolls.
_HEIGHT = 640
# The points of a latency curve.
_QUANTILES = 1000
# The quantiles that a result file has, with the names of their fields.
_FIELDS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}


class Found:
    """What a verb has found. `data` is the JSON that the command line writes."""

    def __init__(self, answer: _contend.Answer) -> None:
        self._answer = answer

    @cached_property
    def data(self) -> Any:
        """The JSON, parsed."""
        return json.loads(self._answer.json())

    @property
    def ok(self) -> bool:
        """Whether no check has failed."""
        return not self._answer.failed

    @property
    def partial(self) -> bool:
        """Whether it was stopped before its end."""
        return self._answer.partial

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON. The file is written as a whole, or left as it was."""
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            part.write_text(self._answer.json(), encoding="utf-8")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return self._answer.text().rstrip("\n")

    def _repr_html_(self) -> str:
        page = self._answer.page()
        if page is None:
            return f"<pre>{html.escape(repr(self))}</pre>"
        # The page has its own style, and no scripts: it stands in a frame of its own.
        return f'<iframe sandbox title="report" style="width:100%;height:{_HEIGHT}px;border:0" srcdoc="{html.escape(page)}"></iframe>'


class Table(Found):
    """What a verb has found about several entries: itself a table, an entry a row."""

    @cached_property
    def table(self) -> Frame:
        """The entries."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """The entries, a dict each."""
        return self.table.rows()

    def columns(self) -> dict[str, list[Any]]:
        """The columns, a list each."""
        return self.table.columns()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """The entries for whatever reads Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)

    def to_polars(self) -> Any:
        """The entries as a `polars.DataFrame`."""
        return self.table.to_polars()

    def to_pandas(self) -> Any:
        """The entries as a `pandas.DataFrame`."""
        return self.table.to_pandas()

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.table)


class Result(Table):
    """The result of `run` and `compare`. An entry that failed a check has no figures."""

    @property
    def finding(self) -> str:
        """The conclusion, in a sentence or two."""
        return str(self.data["finding"])

    @property
    def recommendation(self) -> list[str]:
        """Which protocol to take, what it costs, what to try next, and what was not tested."""
        return list(self.data["recommendation"])

    @property
    def failures(self) -> dict[str, str]:
        """The entries that failed a check, each with what was wrong."""
        return {entry["protocol"]: why for entry in self._entries if (why := _failure(entry)) is not None}

    @cached_property
    def table(self) -> Frame:
        """The entries, the fastest first."""
        return of_rows([_row(entry) for entry in self._entries], _COLUMNS)

    @cached_property
    def windows(self) -> Frame:
        """Every measuring window."""
        rows = [
            {"protocol": name, **window} for name, measured in self._measured for window in measured["windows"]
        ]
        return of_rows(rows, ["protocol", "round", "seconds", "commits", "aborts", "throughput_tps", *_LATENCIES[:1],
                              *_LATENCIES[2:4], _LATENCIES[5]])

    @cached_property
    def latency(self) -> Frame:
        """Quantiles of the latencies in nanoseconds. The kind `all` has a thousand of them, unless the result was loaded
        from a file; each type of transaction has six.
        """
        histograms = dict(self._answer.latencies())
        rows: list[Row] = []
        for name, measured in self._measured:
            curve = _curve(histograms.get(name, [])) or _quantiles(measured)
            kinds = [("all", curve)] + [(kind["kind"], _quantiles(kind)) for kind in measured["kinds"]]
            rows += [
                {"protocol": name, "kind": kind, "quantile": quantile, "latency_ns": latency}
                for kind, points in kinds
                for quantile, latency in points
            ]
        return of_rows(rows, ["protocol", "kind", "quantile", "latency_ns"])

    @cached_property
    def aborts(self) -> Frame:
        """Aborted tries by type of transaction and reason."""
        rows = [
            {"protocol": name, "kind": kind["kind"], "reason": reason, "count": count}
            for name, measured in self._measured
            for kind in measured["kinds"]
            for reason, count in kind["aborts_by_reason"].items()
        ]
        return of_rows(rows, ["protocol", "kind", "reason", "count"])

    @cached_property
    def breakdown(self) -> Frame:
        """Where the time went, in two divisions: `category` and `operation`. Empty without
        `breakdown=True`, but on a simulated chip.
        """
        rows: list[Row] = []
        for name, measured in self._measured:
            breakdown = measured["breakdown"]
            if breakdown is None:
                continue
            categories = {part: breakdown[part] for part in _CATEGORIES}
            for division, parts in [("category", categories), ("operation", breakdown["operations"])]:
                rows += [
                    {"protocol": name, "division": division, "part": part, "share": share}
                    for part, share in parts.items()
                ]
        return of_rows(rows, ["protocol", "division", "part", "share"])

    @cached_property
    def history(self) -> History | None:
        """The recorded history, after `run(history=True)`."""
        lines = self._answer.history()
        return None if lines is None else History(lines, self._answer)

    @property
    def _entries(self) -> list[dict[str, Any]]:
        return list(self.data["protocols"])

    @property
    def _measured(self) -> list[tuple[str, dict[str, Any]]]:
        return [(entry["protocol"], entry["measured"]) for entry in self._entries if entry["measured"] is not None]


_LATENCIES = [f"latency_ns_{field}" for field in _FIELDS]
_CATEGORIES = ["useful", "abort", "timestamp", "index", "wait", "manager"]
_COLUMNS = [
    "protocol",
    "isolation",
    "group",
    "throughput_tps",
    "throughput_tps_min",
    "throughput_tps_max",
    "to_first",
    "to_none",
    "commits",
    "aborts",
    "abort_rate",
    *_LATENCIES,
    "memory_bytes",
    "memory_bytes_per_record",
    "verdict",
    "failed",
]


def _row(entry: dict[str, Any]) -> Row:
    measured = entry["measured"] or {}
    spread = measured.get("throughput_tps") or {}
    verification = entry["verification"]
    row = {name: measured.get(name) for name in _COLUMNS}
    row |= {
        "protocol": entry["protocol"],
        "isolation": entry["isolation"],
        "throughput_tps": spread.get("median"),
        "throughput_tps_min": spread.get("min"),
        "throughput_tps_max": spread.get("max"),
        "verdict": None if verification is None else verification["verdict"],
        "failed": _failure(entry) is not None,
    }
    for ratio in ["to_first", "to_none"]:
        row[ratio] = (measured.get(ratio) or {}).get("estimate")
    return row


def _failure(entry: dict[str, Any]) -> str | None:
    verification, check = entry["verification"], entry["check"]
    if verification is not None and not verification["passed"]:
        return str(verification["verdict"])
    if check is not None and not check["passed"]:
        return str(check["text"])
    return None


def _quantiles(figures: dict[str, Any]) -> list[tuple[float, int]]:
    """The quantiles of a file, without those that older files lack."""
    points = [(quantile, int(figures[f"latency_ns_{field}"])) for field, quantile in _FIELDS.items()]
    return [(quantile, latency) for quantile, latency in points if latency > 0]


def _curve(histogram: list[tuple[int, int]]) -> list[tuple[float, int]]:
    """The quantiles 0.001, 0.002, ... 1 of a histogram in ascending order."""
    total = sum(count for _, count in histogram)
    points: list[tuple[float, int]] = []
    below = 0
    for latency, count in histogram:
        below += count
        while len(points) < _QUANTILES and (len(points) + 1) * total <= below * _QUANTILES:
            points.append(((len(points) + 1) / _QUANTILES, latency))
    return points


class Saturation(Table):
    """The result of `saturate`."""

    @property
    def finding(self) -> str:
        """The conclusion."""
        return str(self.data["finding"])

    @cached_property
    def table(self) -> Frame:
        """The highest rate that passes and the lowest that fails, by entry."""
        return of_rows(self.data["protocols"], ["protocol", "passes", "fails", "closed_tps"])

    @cached_property
    def probes(self) -> Frame:
        """Every rate that was tried."""
        rows = [{"protocol": it["protocol"], **probe} for it in self.data["protocols"] for probe in it["probes"]]
        return of_rows(rows, list(dict.fromkeys(name for row in rows for name in row)) or ["protocol"])


class Advice(Table):
    """The result of `advise`."""

    @property
    def advice(self) -> str:
        """Which protocol to take."""
        return str(self.data["advice"])

    @property
    def reasons(self) -> list[str]:
        """The evidence, a sentence each."""
        return list(self.data["reasons"])

    @cached_property
    def table(self) -> Frame:
        """The finalists, the fastest first."""
        rows = [
            {**it["measured"], **it, "throughput_tps": it["measured"]["throughput_tps"]["median"]}
            for it in self.data["finalists"]
        ]
        return of_rows(rows, ["entry", "throughput_tps", "abort_rate", "latency_ns_p50", "latency_ns_p99", "is_best"])


class Levels(Table):
    """The result of `sql`: the isolation levels of a database."""

    @cached_property
    def table(self) -> Frame:
        """A row for each level."""
        return of_rows(
            [_level(of) for of in self.data["sql"]["levels"]],
            ["level", "promise", "ok", "throughput_tps", "abort_rate", "anomaly", "anomalies", "transactions", "lost_writes",
             "failed_invariants"],
        )

    @property
    def server(self) -> str:
        """The server's name and version."""
        return str(self.data["sql"]["server"])

    @property
    def error(self) -> str | None:
        """Why the run failed when it had figures: the level, and the database's words."""
        error = self.data["sql"]["error"]
        return None if error is None else str(error)

    @cached_property
    def latency(self) -> Frame:
        """The latency of each type of transactions at each level, in microseconds."""
        rows = [{**kind, "level": of["level"]["name"]} for of in self.data["sql"]["levels"] for kind in of["measured"]["kinds"]]
        return of_rows(rows, ["level", "kind", "commits", "p50_us", "p99_us", "p999_us"])


def _level(of: dict[str, Any]) -> Row:
    measured = of["measured"]
    # A level that was measured when the run ended may not have been judged.
    verified = of["verified"] or {"worst": None, "anomalies": None, "commits": 0, "losses": {"count": None}, "failed_invariants": []}
    worst = verified["worst"]
    return {
        "level": of["level"]["name"],
        "promise": of["level"]["promise"],
        "ok": verified["kept"] and verified["losses"]["count"] == 0 if of["verified"] else None,
        "throughput_tps": measured["throughput_tps"],
        "abort_rate": measured["abort_rate"],
        "anomaly": worst["class"] if worst else None,
        "anomalies": verified["anomalies"],
        "transactions": verified["commits"],
        "lost_writes": verified["losses"]["count"],
        "failed_invariants": len(measured["failed_invariants"]) + len(verified["failed_invariants"]),
    }


class Explorations(Table):
    """The result of `explore`."""

    @cached_property
    def table(self) -> Frame:
        """A row for each protocol on each workload."""
        names = ["protocol", "workload", "isolation", "executions", "distinct", "livelocks", "commits", "aborts", "violated",
                 "permitted", "verdict"]
        return of_rows(self.data, names)

    @property
    def violations(self) -> list[dict[str, Any]]:
        """The explorations that found a broken promise, with its steps and the command that replays it."""
        return [explored for explored in self.data if explored["violated"]]


class Sweep(Table):
    """The result of `sweep`. After a part of a sweep (`shard`, `point`) it has no experiments: nothing was drawn."""

    @cached_property
    def table(self) -> Frame:
        """The assertions."""
        return self.assertions

    @cached_property
    def assertions(self) -> Frame:
        """What the papers claim, and whether it came out here."""
        rows = [
            {"experiment": it["id"], "assertion": assertion["id"], **assertion}
            for it in self.data["experiments"]
            for assertion in it["assertions"]
        ]
        return of_rows(rows, ["experiment", "assertion", "verdict", "paper", "expression", "numbers", "why"])

    @cached_property
    def points(self) -> Frame:
        """The points of all curves; figures that a point does not have are None."""
        rows: list[Row] = []
        names: list[str] = []
        for experiment in self.data["experiments"]:
            with open(Path(self.data["out"], experiment["id"], "points.csv"), newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                names = list(reader.fieldnames or [])
                rows += [{"experiment": experiment["id"], **_figures(row)} for row in reader]
        return of_rows(rows, ["experiment", *names])

    def chart(self, experiment: str | None = None) -> Any:
        """The curves of an experiment as a chart of Altair."""
        from contend import charts

        return charts.curves(self, experiment)


def _figures(row: dict[str, str]) -> Row:
    return {name: text if name == "series" else _figure(text) for name, text in row.items()}


def _figure(text: str) -> float | str | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return text


class Verdict(Found):
    """The judgement on a history."""

    @property
    def level(self) -> str:
        """The isolation level by which it was judged."""
        return str(self.data["isolation"])

    @property
    def anomaly(self) -> str | None:
        """The class of the worst anomaly, also if the level allows it."""
        anomalies = self.data["report"]["anomalies"]
        return str(anomalies[0]["class"]) if anomalies else None

    @property
    def transactions(self) -> int:
        """The transactions of the history."""
        return int(self.data["report"]["transactions"])

    @property
    def explanation(self) -> str:
        """The judgement in words, with the transactions of each anomaly."""
        return repr(self)

    def svg(self) -> str | None:
        """The cycle of the worst anomaly as a picture; None if it is no cycle of 2 to 8 transactions."""
        return self._answer.picture()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>{self.svg() or ''}"


class History:
    """What each transaction has read and written."""

    def __init__(self, lines: str, answer: _contend.Answer) -> None:
        self._lines = lines
        self._answer = answer

    def check(self, isolation: str = "serializable") -> Verdict:
        """Judges the history by an isolation level."""
        return Verdict(self._answer.judge(isolation))

    def transactions(self) -> list[dict[str, Any]]:
        """The committed transactions, as docs/history.md describes them."""
        return [json.loads(line) for line in self._lines.splitlines()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the history as JSON lines, which `check` reads."""
        Path(path).write_text(self._lines, encoding="utf-8")

    def __len__(self) -> int:
        return self._lines.count("\n")

    def __repr__(self) -> str:
        return f"a history of {len(self)} transaction{'' if len(self) == 1 else 's'}"

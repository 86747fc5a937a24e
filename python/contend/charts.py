"""Charts of Altair, made from results: pip install 'contend[charts]'."""

from __future__ import annotations

from typing import Any

from contend.frame import Frame, package
from contend.results import Result, Sweep


def offline() -> None:
    """Lets notebooks draw charts without a network: as SVG."""
    _altair().renderers.enable("svg")


def throughput(result: Result) -> Any:
    """The throughput of each entry in all of its windows, the fastest first."""
    order = result.columns()["protocol"]
    return (
        _chart(result.windows)
        .mark_boxplot(extent="min-max")
        .encode(
            x=_altair().X("throughput_tps:Q", title="transactions a second", scale=_altair().Scale(zero=False)),
            y=_altair().Y("protocol:N", title=None, sort=order),
        )
    )


def latency(result: Result, kind: str = "all") -> Any:
    """The quantiles of latency. The axis shows 1 - quantile, so that rare cases have room."""
    rows = [{**row, "rest": 1 - row["quantile"]} for row in result.latency.where(kind=kind) if row["quantile"] < 1]
    return (
        _chart(Frame([*result.latency.names, "rest"], rows))
        .mark_line()
        .encode(
            x=_altair().X("rest:Q", title="1 - quantile", scale=_altair().Scale(type="log", reverse=True)),
            y=_altair().Y("latency_ns:Q", title="latency in ns", scale=_altair().Scale(type="log")),
            color=_altair().Color("protocol:N", title=None),
            strokeDash=_altair().StrokeDash("protocol:N", title=None),
        )
    )


def breakdown(result: Result, division: str = "category") -> Any:
    """Where the time of each entry went, stacked."""
    return (
        _chart(result.breakdown.where(division=division))
        .mark_bar()
        .encode(
            x=_altair().X("share:Q", title="share of the time", stack="normalize"),
            y=_altair().Y("protocol:N", title=None),
            color=_altair().Color("part:N", title=None),
        )
    )


def curves(sweep: Sweep, experiment: str | None = None) -> Any:
    """The throughput of each series of an experiment of a sweep; of the first, if none is named."""
    name = experiment or sweep.data["experiments"][0]["id"]
    return (
        _chart(sweep.points.where(experiment=name))
        .mark_line(point=True)
        .encode(
            x=_altair().X("x:Q", scale=_altair().Scale(type="log", base=2)),
            y=_altair().Y("throughput_per_second_median:Q", title="a second"),
            color=_altair().Color("series:N", title=None),
            shape=_altair().Shape("series:N", title=None),
        )
    )


def _altair() -> Any:
    return package("altair")


def _chart(frame: Frame) -> Any:
    return _altair().Chart(_altair().Data(values=frame.rows()))

"""The verbs. Their arguments are the flags of the command line, which checks them."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from contend import _contend
from contend.frame import Frame, of_rows
from contend.progress import Callback, reporter
from contend.results import Advice, Explorations, Levels, Result, Saturation, Sweep, Verdict

Names = str | Sequence[str]
Options = Mapping[str, object]
File = str | os.PathLike[str]
Number = int | str
Seconds = float | int | str
Progress = bool | Callback | None

_T = TypeVar("_T")

# Flags that may be given more than once; a list of another flag is one value.
_REPEATED = {"file"}


def compare(
    workload: File | None = None,
    *,
    protocols: Names | None = None,
    machine: str | None = None,
    threads: Number | None = None,
    index: str | None = None,
    set: Options | None = None,
    seed: Number | None = None,
    seconds: Seconds | None = None,
    windows: Number | None = None,
    warmup: Seconds | None = None,
    precision: str | None = None,
    rate: Number | None = None,
    ramp: str | None = None,
    arrivals: str | None = None,
    late: str | None = None,
    every: str | None = None,
    breakdown: bool = False,
    limit: bool = False,
    no_verify: bool = False,
    verify_transactions: Number | None = None,
    from_: File | None = None,
    file: Names | None = None,
    schema: File | None = None,
    rows: Mapping[str, object] | None = None,
    progress: Progress = None,
) -> Result:
    """Compares protocols on a workload: proves each right, measures them in turns, ranks them.

    A protocol that breaks its promise raises nothing: it is a finding. `ok` and `failures` tell.
    """
    return _call("compare", locals(), Result)


def run(
    workload: File | None = None,
    *,
    protocol: str | None = None,
    machine: str | None = None,
    threads: Number | None = None,
    index: str | None = None,
    set: Options | None = None,
    seed: Number | None = None,
    seconds: Seconds | None = None,
    windows: Number | None = None,
    warmup: Seconds | None = None,
    rate: Number | None = None,
    ramp: str | None = None,
    arrivals: str | None = None,
    late: str | None = None,
    every: str | None = None,
    breakdown: bool = False,
    limit: bool = False,
    verify: bool = False,
    verify_transactions: Number | None = None,
    history: bool = False,
    dir: File | None = None,
    from_: File | None = None,
    file: Names | None = None,
    schema: File | None = None,
    rows: Mapping[str, object] | None = None,
    progress: Progress = None,
) -> Result:
    """Runs one protocol on a workload. With `history`, the result's `history` has what each transaction did."""
    arguments = dict(locals())
    arguments["history"] = "-" if history else None
    return _call("run", arguments, Result)


def saturate(
    workload: File | None = None,
    *,
    protocols: Names | None = None,
    machine: str | None = None,
    threads: Number | None = None,
    index: str | None = None,
    set: Options | None = None,
    seed: Number | None = None,
    p99: str | None = None,
    p999: str | None = None,
    precision: str | None = None,
    transactions: Number | None = None,
    arrivals: str | None = None,
    no_verify: bool = False,
    verify_transactions: Number | None = None,
    file: Names | None = None,
    schema: File | None = None,
    rows: Mapping[str, object] | None = None,
    progress: Progress = None,
) -> Saturation:
    """Searches for the highest rate of arrivals that each protocol keeps up with."""
    return _call("saturate", locals(), Saturation)


def advise(
    workload: File | None = None,
    *,
    budget: Seconds | None = None,
    isolation: str | None = None,
    durable: bool = False,
    p99: str | None = None,
    cores: Sequence[int] | Names | None = None,
    machine: str | None = None,
    threads: Number | None = None,
    index: str | None = None,
    set: Options | None = None,
    seed: Number | None = None,
    no_verify: bool = False,
    verify_transactions: Number | None = None,
    file: Names | None = None,
    schema: File | None = None,
    rows: Mapping[str, object] | None = None,
    progress: Progress = None,
) -> Advice:
    """Advises which protocol, with which options, suits a workload on this machine."""
    return _call("advise", locals(), Advice)


def explore(
    protocol: Names | None = None,
    workload: Names | None = None,
    *,
    schedules: Number | None = None,
    budget: Seconds | None = None,
    strategy: str | None = None,
    transactions: Number | None = None,
    cores: Number | None = None,
    seed: Number | None = None,
    replay: str | None = None,
    show: bool = False,
    all_steps: bool = False,
    index: str | None = None,
    set: Options | None = None,
    file: Names | None = None,
    schema: File | None = None,
    rows: Mapping[str, object] | None = None,
    progress: Progress = None,
) -> Explorations:
    """Looks for an interleaving of a few transactions under which a protocol breaks its promise."""
    return _call("explore", locals(), Explorations)


def sweep(
    files: File | Sequence[File],
    *,
    out: File | None = None,
    seeds: Number | None = None,
    jobs: Number | None = None,
    allow: File | None = None,
    shard: str | None = None,
    point: str | None = None,
    retry_failed: bool = False,
    anonymous: bool = False,
    mixed: bool = False,
    progress: Progress = None,
) -> Sweep:
    """Runs experiments from files: measures every point that is missing, draws the figures, judges the assertions."""
    return _call("sweep", locals(), Sweep)


def sql(
    file: File,
    *,
    url: str,
    isolation: Names | None = None,
    clients: Number | None = None,
    seconds: Seconds | None = None,
    rate: Number | None = None,
    verify_transactions: Number | None = None,
    reconnect: str | None = None,
    beside: Names | None = None,
    set: Options | None = None,
    seed: Number | None = None,
    progress: Progress = None,
) -> Levels:
    """Runs a workload file on PostgreSQL, MySQL, MariaDB or SQLite, and judges each isolation level by its own promise."""
    if url == "-":
        raise _contend.InputError("a URL is not read from stdin here; valid: the URL itself")
    return _call("sql", locals(), Levels)


def check(history: File, *, format: str | None = None, isolation: str | None = None) -> Verdict:
    """Judges a history in a file, also of another system: is it serializable, and if not, why?"""
    if os.fspath(history) == "-":
        raise _contend.InputError("a history is read from a file here; valid: its path")
    return _call("check", locals(), Verdict)


def load(path: File) -> Result:
    """Reads a result: a file that `save` or the command line has written, or the folder of a run."""
    return Result(_contend.load(os.fspath(path)))


def protocols() -> Frame:
    """The protocols: name, promised isolation level, meaning, paper."""
    return _list("protocols", ["name", "isolation", "meaning", "paper"])


def workloads() -> Frame:
    """The workloads and presets: name, meaning, source, and the options that a preset sets."""
    return _list("workloads", ["name", "meaning", "source", "sets"])


def machines() -> Frame:
    """The machines: this one, and simulated chips."""
    return _list("machines", ["name", "threads", "meaning", "source"])


def options(protocol: str | None = None) -> Frame:
    """The options for `set`, with default, valid values and meaning; those of one protocol, or all."""
    return _list("options", ["name", "short", "default", "valid", "meaning", "of"], protocol=protocol)


def arguments_of(verb: str, values: Mapping[str, object]) -> list[str]:
    """The arguments of the command line that say the same as these of Python."""
    positional = {name for name, _, _, is_positional in _contend.flags(verb) if is_positional}
    flags: list[str] = []
    places: list[str] = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        flag = name.rstrip("_").replace("_", "-")
        if flag in positional:
            several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            places += [_text(each) for each in several]
        elif value is True:
            flags.append(f"--{flag}")
        elif isinstance(value, Mapping):
            flags += [f"--{flag}={key}={_text(each)}" for key, each in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            texts = [_text(each) for each in value]
            flags += [f"--{flag}={each}" for each in (texts if flag in _REPEATED else [",".join(texts)])]
        else:
            flags.append(f"--{flag}={_text(value)}")
    return [verb, *flags, *(["--", *places] if places else [])]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _call(verb: str, values: Mapping[str, object], kind: Callable[[_contend.Answer], _T]) -> _T:
    values = dict(values)
    report = reporter(values.pop("progress", None), prints_windows=values.get("every") is not None)  # type: ignore[arg-type]
    try:
        answer, interrupted = _contend.call(arguments_of(verb, values), report)
    finally:
        report.close()
    if not interrupted:
        assert answer is not None
        return kind(answer)
    error = _contend.Interrupted("the run was interrupted; .result has what was measured until then")
    error.result = None if answer is None else kind(answer)
    raise error


def _list(what: str, names: Sequence[str], **flags: object) -> Frame:
    answer, _ = _contend.call(["list", "--json", *arguments_of("list", flags)[1:], "--", what])
    assert answer is not None
    return of_rows(json.loads(answer.json())[what], names)


def _document() -> None:
    """Adds the meaning of each argument to the functions' documentation, from the command line's help."""
    functions: list[Callable[..., object]] = [compare, run, saturate, advise, explore, sweep, sql, check]
    for function in functions:
        meanings = {name.replace("-", "_"): meaning for name, meaning, _, _ in _contend.flags(function.__name__)}
        names = {name: name.rstrip("_") for name in inspect.signature(function).parameters}
        lines = [f"    {name}: {' '.join(meanings[flag].split())}" for name, flag in names.items() if flag in meanings]
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Arguments:", *lines])


_document()

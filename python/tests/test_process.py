"""A run in a process that does other things: signals, threads, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from conftest import SHORT

import contend

# Longer than any test may take: only an interrupt ends it.
LONG: dict[str, Any] = {"seconds": 60, "windows": 1, "warmup": 0, "threads": 1}


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_raises_with_what_was_measured() -> None:
    def when_measuring(what: str, done: int, total: int) -> None:
        if what == "measuring" and done * 60 > total:
            interrupt()

    with pytest.raises(contend.Interrupted) as interrupted:
        contend.compare(
            "bank", protocols=["silo"], no_verify=True, progress=when_measuring, seconds=0.05, windows=1200, warmup=0
        )
    result = interrupted.value.result
    assert isinstance(interrupted.value, KeyboardInterrupt) and result.partial
    assert len(result.windows) >= 1
    assert contend.run("bank", **SHORT).ok, "the next run works"


def test_ctrl_c_before_the_first_window_has_no_result() -> None:
    def at_once(what: str, done: int, total: int) -> None:
        interrupt()

    with pytest.raises(contend.Interrupted) as interrupted:
        contend.run("bank", progress=at_once, **LONG)
    assert interrupted.value.result is None


def test_what_progress_raises_ends_the_run() -> None:
    def fail(what: str, done: int, total: int) -> None:
        raise ZeroDivisionError(what)

    with pytest.raises(ZeroDivisionError):
        contend.run("bank", progress=fail, **LONG)
    assert contend.run("bank", **SHORT).ok


def test_one_run_at_a_time_and_others_threads_go_on() -> None:
    refusals: list[str] = []
    counted = 0

    def beside(what: str, done: int, total: int) -> None:
        nonlocal counted
        if refusals:
            return
        # A thread of Python's goes on: the interpreter's lock is free.
        other = threading.Thread(target=run_beside)
        other.start()
        other.join()

    def run_beside() -> None:
        nonlocal counted
        counted += 1
        assert "silo" in contend.protocols()["name"], "lists are there meanwhile"
        try:
            contend.run("bank", **SHORT)
        except contend.RunError as error:
            refusals.append(str(error))

    contend.run("bank", protocol="silo", seconds=0.3, windows=1, warmup=0, threads=1, progress=beside)
    assert counted >= 1 and all("under way" in refusal for refusal in refusals) and refusals


def test_a_thread_counts_during_a_run() -> None:
    stop = threading.Event()
    counts = [0]

    def count() -> None:
        while not stop.is_set():
            counts[0] += 1

    counter = threading.Thread(target=count)
    during = 0

    def look(what: str, done: int, total: int) -> None:
        nonlocal during
        during = counts[0]

    counter.start()
    contend.run("bank", protocol="silo", seconds=0.3, windows=1, warmup=0, threads=1, progress=look)
    stop.set()
    counter.join()
    assert during > 0


def test_the_callers_cores_are_as_before() -> None:
    before = os.sched_getaffinity(0)
    contend.run("bank", seconds=0.02, windows=1, warmup=0, threads=2, progress=False)
    assert os.sched_getaffinity(0) == before


FORKED = """
import os, contend
child = os.fork()
if child == 0:
    assert "silo" in contend.protocols()["name"]
    try:
        contend.run("bank")
    except contend.RunError as error:
        os._exit(7 if "spawn" in str(error) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_process_is_refused() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, env={**os.environ})


def test_a_script_that_is_interrupted_ends_with_a_traceback_of_python() -> None:
    code = (
        "import contend, os, signal\n"
        "contend.run('bank', seconds=60, windows=1, progress=lambda *_: os.kill(os.getpid(), signal.SIGINT))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert ended.returncode != 0 and "contend.Interrupted" in ended.stderr and "panicked" not in ended.stderr


def test_a_line_for_each_window_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    contend.run("bank", protocol="silo", every="20ms", windows=3, warmup=0, threads=1, progress=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.startswith("silo") for line in lines)

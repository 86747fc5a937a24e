"""How the progress of a run is shown."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from contend import _contend

Callback = Callable[[str, int, int], object]


class Reporter(Protocol):
    """What a run reports to: a step with its units, or a window with its line and None."""

    def __call__(self, what: str, done: Any, total: int | None, /) -> None: ...

    def close(self) -> None:
        """The run has ended."""


def reporter(progress: bool | Callback | None, prints_windows: bool) -> Reporter:
    """The reporter that the argument `progress` of a verb asks for. The line of each window is printed if that was asked for."""
    shown = _reporter(progress)
    return shown if prints_windows else _WithoutWindows(shown)


def _reporter(progress: bool | Callback | None) -> Reporter:
    if callable(progress):
        return _Called(progress)
    if not isinstance(progress, bool | None):
        raise _contend.InputError(f"progress: {progress!r}; valid: True, False, or a function of what, done and total")
    if progress is None:
        progress = sys.stderr.isatty() or _is_notebook()
    if not progress:
        return _Called(None)
    try:
        return _Bar(importlib.import_module("tqdm.auto").tqdm)
    except ModuleNotFoundError:
        return _Lines()


def _is_notebook() -> bool:
    """Whether the cell of a notebook shows what is printed."""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def _print_window(entry: str, line: str) -> None:
    print(f"{entry:<16} {line}", flush=True)


class _WithoutWindows:
    """Leaves the windows out."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner
        self.close = inner.close

    def __call__(self, what: str, done: Any, total: int | None, /) -> None:
        if total is not None:
            self._inner(what, done, total)


class _Called:
    """Calls a function of the user's."""

    def __init__(self, callback: Callback | None) -> None:
        self._callback = callback

    def __call__(self, what: str, done: Any, total: int | None, /) -> None:
        if total is None:
            _print_window(what, done)
        elif self._callback is not None:
            self._callback(what, done, total)

    def close(self) -> None:
        pass


class _Lines:
    """A line a second at most, to stderr."""

    def __init__(self) -> None:
        self._next = 0.0
        self._what = ""

    def __call__(self, what: str, done: Any, total: int | None, /) -> None:
        if total is None:
            _print_window(what, done)
            return
        now = time.monotonic()
        if now < self._next and what == self._what:
            return
        self._next, self._what = now + 1.0, what
        share = f" {done / total:.0%}" if total > 1 else ""
        print(f"contend: {what}{share}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class _Bar:
    """A bar of tqdm for each step."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None
        self._what = ""

    def __call__(self, what: str, done: Any, total: int | None, /) -> None:
        if total is None:
            self._tqdm.write(f"{what:<16} {done}")
            return
        if self._bar is None or what != self._what:
            self.close()
            self._what = what
            self._bar = self._tqdm(total=total, desc=what, leave=False, bar_format="{desc} {bar} {percentage:3.0f}%")
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

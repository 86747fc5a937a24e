"""Sweeps in parts, by any executor: of submitit (Slurm, or processes of this machine), or of `concurrent.futures`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from contend import _contend
from contend.verbs import File, sweep


def submit(files: File | Sequence[File], executor: Any, *, shards: int, out: File, jobs: int | None = None) -> list[Any]:
    """Submits each shard of a sweep to an executor, and returns its jobs.

    `out` is a folder that all of them reach. `jobs` is how many simulated points a shard measures at once; native points are
    measured one at a time, and need a machine of their own. A further submission to the same folder goes on with what is missing, also
    beside the first one: a point that another job measures at the moment is left to that job, and is measured here only if that job
    was stopped. When all jobs have ended, `contend.sweep(files, out=out)` draws the
    figures, and measures nothing again.
    """
    if shards < 1:
        raise _contend.InputError(f"{shards} shards; valid: 1 or more")
    return [executor.submit(_measure, files, os.fspath(out), f"{shard}/{shards}", jobs) for shard in range(1, shards + 1)]


def _measure(files: File | Sequence[File], out: str, shard: str, jobs: int | None) -> str:
    return repr(sweep(files, out=out, shard=shard, jobs=jobs, progress=False))

"""What the tests share: small, fast runs."""

from __future__ import annotations

from typing import Any

import pytest

import contend

# A run on small tables, of one short window.
SHORT: dict[str, Any] = {"seconds": 0.02, "windows": 1, "warmup": 0, "threads": 1, "progress": False}


@pytest.fixture(scope="session")
def compared() -> contend.Result:
    """A comparison of two protocols."""
    return contend.compare(
        "bank", protocols=["silo", "2pl-nowait"], seconds=0.02, windows=2, warmup=0.01, threads=2, progress=False
    )

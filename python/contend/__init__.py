"""Compare concurrency-control protocols, and prove each of them right.

Each function is a verb of the command line, and its arguments are the flags of that verb:

    >>> import contend
    >>> result = contend.compare("bank", protocols=["silo", "2pl-nowait"], seconds=0.1, windows=3)
    >>> result.ok
    True

Bad input raises `InputError`, which says what is valid. Ctrl-C raises `Interrupted`, whose
`result` is what was measured until then.
"""

from contend._contend import InputError, Interrupted, RunError, __version__
from contend.frame import Frame
from contend.playground import Playground, Step
from contend.results import Advice, Explorations, History, Levels, Result, Saturation, Sweep, Verdict
from contend.verbs import (
    advise,
    check,
    compare,
    explore,
    load,
    machines,
    options,
    protocols,
    run,
    saturate,
    sql,
    sweep,
    workloads,
)

__all__ = [
    "Advice",
    "Explorations",
    "Frame",
    "History",
    "InputError",
    "Interrupted",
    "Levels",
    "Playground",
    "Result",
    "RunError",
    "Saturation",
    "Step",
    "Sweep",
    "Verdict",
    "__version__",
    "advise",
    "check",
    "compare",
    "explore",
    "load",
    "machines",
    "options",
    "protocols",
    "run",
    "saturate",
    "sql",
    "sweep",
    "workloads",
]

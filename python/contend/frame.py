"""Tables of figures that need no other package."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import _contend

Row = dict[str, Any]

# The rows of a long table that are shown.
_SHOWN = 20


class Frame:
    """A table: rows that have the same columns.

    `rows()` and `columns()` need nothing. What reads Arrow takes it as it is. `to_polars()` and `to_pandas()` need that package.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Row]) -> None:
        self._names = tuple(names)
        self._rows = list(rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._names

    def rows(self) -> list[Row]:
        """The rows, a dict each. A missing figure is None."""
        return [dict(row) for row in self._rows]

    def columns(self) -> dict[str, list[Any]]:
        """The columns, a list each."""
        return {name: self[name] for name in self._names}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._names:
            raise KeyError(f"no column {name!r}; valid: {', '.join(self._names)}")
        return [row[name] for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    def where(self, **values: object) -> Frame:
        """The rows that have these values, as in `where(protocol="silo")`."""
        for name in values:
            self[name]
        rows = [row for row in self._rows if all(row[name] == value for name, value in values.items())]
        return Frame(self._names, rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """The table for whatever reads Arrow, as in `polars.DataFrame(frame)` and `pyarrow.table(frame)`."""
        # The wish for other types is one that the interface lets a table ignore.
        del requested_schema
        return _contend.arrow_stream([(name, self[name]) for name in self._names])

    def to_polars(self) -> Any:
        """The table as a `polars.DataFrame`."""
        return package("polars").DataFrame(self.columns(), strict=False)

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`."""
        return package("pandas").DataFrame(self.columns())

    def __repr__(self) -> str:
        cells = [list(self._names)]
        cells += [[_shown(row[name]) for name in self._names] for row in self._rows[:_SHOWN]]
        widths = [max(len(line[column]) for line in cells) for column in range(len(self._names))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
        return "\n".join(lines + self._rest())

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(row[name]))}</td>" for name in self._names) + "</tr>"
            for row in self._rows[:_SHOWN]
        )
        rest = "".join(f"<p>{line}</p>" for line in self._rest())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"

    def _rest(self) -> list[str]:
        more = len(self._rows) - _SHOWN
        return [f"... and {more} more rows"] if more > 0 else []


def of_rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Frame:
    """A frame with these columns; what a row does not have is None."""
    return Frame(names, [{name: row.get(name) for name in names} for row in rows])


def package(name: str) -> Any:
    """Imports a package that is not a dependency, or says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.split(".")[0]:
            raise
        raise ModuleNotFoundError(f"this needs the package {name}: pip install {name}", name=name) from None


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)

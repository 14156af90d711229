"""Reads the tables of published numbers in the folder tables/."""

import dataclasses
import functools
import json
import pathlib
from typing import Any

from ..errors import Error

FOLDER = pathlib.Path(__file__).resolve().parent / "tables"
PACKS = (*(f"P{number}" for number in range(1, 15)), "second_hand", "llama_cpp_3649")
REQUIRED = ("pack", "source", "title", "second_hand", "form", "key", "columns", "rows")
OPTIONAL = ("units", "printed_to", "printed_to_of", "tolerance", "uses", "shape")


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a table: the published numbers by column.

    printed_to: {column: one unit of the last printed digit}. A number that was printed as 3.4 has 0.1 here: it may be
    anything from 3.35 to 3.45. In a table's file, printed_to_of is {label: {column: value}} for rows that were printed with another number of digits.
    tolerance: how far a prediction may be off, as a fraction. shape: the shape of the target, as keywords of
    theory.DecoderShape.
    """

    label: str
    values: dict[str, Any]
    printed_to: dict[str, float]
    tolerance: float = 0.0
    shape: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def get(self, column: str) -> Any:
        return self.values.get(column)

    def low(self, column: str) -> float:
        """The smallest number that is printed as this one."""
        return float(self.values[column] - self.printed_to.get(column, 0.0) / 2)

    def high(self, column: str) -> float:
        return float(self.values[column] + self.printed_to.get(column, 0.0) / 2)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of published numbers and what is known about it.

    pack: P1 to P14, second_hand or llama_cpp_3649. second_hand: the numbers were not read in the source itself.
    form: the closed form that applies to its rows, a name in anchors.FORMS.
    """

    name: str
    pack: str
    source: str
    title: str
    second_hand: bool
    form: str
    units: dict[str, str]
    columns: list[str]
    rows: list[Row]


def labels(data: dict[str, Any]) -> list[str]:
    places = [data["columns"].index(column) for column in data["key"]]
    return [", ".join(f"{row[place]}" for place in places) for row in data["rows"]]


def read_table(text: str, name: str) -> dict[str, Any]:
    """The checked content of a table's file. Throws Error for a missing or unknown key, an unknown
    pack, a row of the wrong length, and two rows with one label."""
    data: dict[str, Any] = json.loads(text)
    missing = [key for key in REQUIRED if key not in data]
    unknown = [key for key in data if key not in (*REQUIRED, *OPTIONAL)]
    if missing or unknown:
        raise Error(f"{name}: missing keys {missing}, unknown keys {unknown}")
    if data["pack"] not in PACKS:
        raise Error(f"{name}: pack is {data['pack']}, expected one of: {', '.join(PACKS)}")
    for row in data["rows"]:
        if len(row) != len(data["columns"]):
            raise Error(f"{name}: a row has {len(row)} values, expected {len(data['columns'])}: {row}")
    if len(set(labels(data))) != len(data["rows"]):
        raise Error(f"{name}: two rows have the same label. Name more columns in `key`.")
    return data


def rows_of(data: dict[str, Any], other: dict[str, Any] | None = None) -> list[Row]:
    """The rows of a table. other: the table that `uses` names.

    uses.key names columns that both tables have. Each row also gets the numbers of one row of `other`: the row with
    the same values in these columns.
    """
    found = []
    for label, numbers in zip(labels(data), data["rows"], strict=True):
        values = dict(zip(data["columns"], numbers, strict=True))
        if other is not None:
            key = data["uses"]["key"]
            whole = [dict(zip(other["columns"], row, strict=True)) for row in other["rows"]]
            values = next(one for one in whole if all(one[name] == values[name] for name in key)) | values
        digits = data.get("printed_to", {}) | data.get("printed_to_of", {}).get(label, {})
        found.append(Row(label, values, digits, data.get("tolerance", 0.0), data.get("shape", {})))
    return found


@functools.cache
def tables() -> list[Table]:
    """All tables, in the order of their packs."""
    read = {
        file.stem: read_table(file.read_text(encoding="utf-8"), file.name) for file in sorted(FOLDER.glob("*.json"))
    }
    if not read:
        raise Error(f"{FOLDER}: no tables. Install the package again.")
    found = []
    for name, data in read.items():
        other = read[data["uses"]["table"]] if "uses" in data else None
        about = {key: data[key] for key in ("pack", "source", "title", "second_hand", "form", "columns")}
        found.append(Table(name, **about, units=data.get("units", {}), rows=rows_of(data, other)))
    return sorted(found, key=lambda table: (PACKS.index(table.pack), table.name))

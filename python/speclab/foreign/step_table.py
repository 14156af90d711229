"""CSV with one row for each step: the plainest form for results of any program.

Columns: `accepted` (drafted tokens that were kept) or `emitted` (tokens of the step, with the bonus token), and, as far as they are known,
`drafted`, `seconds` (of the step) or `clock` (seconds at the end of the step, on one clock for a text), `draft_seconds` and
`target_seconds` (the parts of the step that drafting and the target's forward took), `text` (the default is one text), `case` and
`category`. A text's rows are in the order of its steps.
"""

import csv
import io
from typing import Any

from ..errors import Error
from .reading import Problem, count, seconds
from .text import Text

NAME = "CSV of steps"
TIMES = "sum over the steps"
PARTS = ("draft_seconds", "target_seconds")
COLUMNS = ("case", "text", "category", "accepted", "emitted", "drafted", "seconds", "clock", *PARTS)


def is_one(text: str) -> bool:
    header = next(csv.reader(io.StringIO(text)), [])
    return any(name.strip() in ("accepted", "emitted") for name in header)


def _number(cell: str, name: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise Error(f"{name} is {cell!r}, expected a number") from None


def texts_of(text: str, file: str, problems: list[Problem]) -> list[Text]:
    """The texts of a table. A row with a bad count ends its text before that row, because the later steps would be in the wrong place.

    If only the time of a row is not usable, the counts of its step are kept, and the text has no time.
    """
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    names = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = names
    unknown = [name for name in names if name not in COLUMNS]
    repeated = [name for name in names if names.count(name) > 1]
    if unknown or repeated:
        raise Error(f"column {(unknown or repeated)[0]!r}, expected each column once, out of {', '.join(COLUMNS)}")
    if ("accepted" in names) == ("emitted" in names) or {"seconds", "clock"} <= set(names):
        raise Error("expected one of the columns accepted and emitted, and at most one of seconds and clock")
    found: dict[tuple[str, str], Text] = {}
    clocks: dict[tuple[str, str], float] = {}
    parts: dict[tuple[str, str], dict[str, float | None]] = {}  # sums of PARTS; None: unusable in a row of the text
    ended: set[tuple[str, str]] = set()
    timed = "seconds" in names or "clock" in names
    for row in reader:
        key = (row.get("case") or "", row.get("text") or "1")
        if key in ended:
            continue
        try:
            emitted, drafted = _counts(row)
        except Error as error:
            ended.add(key)
            problems.append(Problem(file, reader.line_num, f"{error}. The text {key[1]} ends before this step."))
            continue
        one = found.setdefault(
            key, Text(*key, where=f"{file}: line {reader.line_num}", category=row.get("category") or "", emitted=[])
        )
        assert one.emitted is not None
        one.emitted.append(emitted)
        if "drafted" in names:
            one.drafted = [*(one.drafted or []), drafted]
        if timed:
            try:
                time = _time(row, clocks, key)
            except Error as error:
                time = None
                problems.append(Problem(file, reader.line_num, f"{error}. The step has no time."))
            one.step_seconds = [*(one.step_seconds or []), time]
        none_yet: dict[str, float | None] = {name: 0.0 for name in PARTS if name in names}
        sums = parts.setdefault(key, none_yet)
        for name, sum_before in sums.items():
            try:
                part = seconds(_number(row[name], name), name)
                sums[name] = None if sum_before is None else sum_before + part
            except Error as error:
                sums[name] = None
                problems.append(Problem(file, reader.line_num, f"{error}. The text {key[1]} has no {name}."))
    for key, one in found.items():
        one.draft_seconds, one.target_seconds = (parts[key].get(name) for name in PARTS)
        one.tokens = one.in_steps
        if one.step_seconds is not None and None not in one.step_seconds:
            one.seconds = sum(time for time in one.step_seconds if time is not None)
        one.unclear = frozenset({one.steps - 1})
    return list(found.values())


def _counts(row: dict[str, Any]) -> tuple[int, int]:
    """(emitted, drafted) of a step; drafted is 0 if the table has no such column."""
    if None in row or None in row.values():
        raise Error(f"{sum(value is not None for value in row.values())} cells, expected one for each column")
    name = "accepted" if "accepted" in row else "emitted"
    value = count(_number(row[name], name), name)
    emitted = value + 1 if name == "accepted" else value
    drafted = count(_number(row["drafted"], "drafted"), "drafted") if "drafted" in row else 0
    if emitted == 0:
        raise Error("emitted is 0, but a step emits at least one token")
    if "drafted" in row and emitted - 1 > drafted:
        raise Error(f"{emitted - 1} accepted tokens of {drafted} drafted ones")
    return emitted, drafted


def _time(row: dict[str, Any], clocks: dict[tuple[str, str], float], key: tuple[str, str]) -> float:
    """The time of a step. The first reading of a clock has no earlier one, so it counts from 0."""
    if "seconds" in row:
        return seconds(_number(row["seconds"], "seconds"), "seconds")
    now = seconds(_number(row["clock"], "clock"), "clock")
    before, clocks[key] = clocks.get(key, 0.0), now
    if now < before:
        raise Error(f"clock falls from {before:g} to {now:g}: the clock ran backwards")
    return now - before

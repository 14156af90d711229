"""Reads lines and checks numbers of other programs' files."""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from ..errors import Error

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A part of a file that was left out, and why."""

    file: str
    line: int
    problem: str


def read_text(file: PathLike) -> str:
    try:
        return pathlib.Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Error(f"{file}: {error.strerror}. Give a file of results.") from error
    except UnicodeDecodeError as error:
        raise Error(
            f"{file}: not UTF-8 text ({error.reason} at byte {error.start}). Give the file as it was written."
        ) from error


def json_lines(file: PathLike, text: str, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """(line number, value) of each line that is a JSON object.

    If one JSON object fills the file, it counts as line 1. If one JSON list fills the file, entry n counts as line n.
    A line that begins with "{" but is no JSON becomes a problem. A line that begins otherwise is passed over, because some programs write logs around their
    results.
    """
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, list):
        yield from enumerate(whole, 1)
        return
    if isinstance(whole, dict):
        yield 1, whole
        return
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("{"):
            continue
        try:
            yield number, json.loads(line)
        except ValueError as error:
            cut = " The file was cut off here." if number == len(lines) else ""
            problems.append(Problem(str(file), number, f"not JSON ({error}).{cut}"))


def field(value: Any, *path: str | int) -> Any:
    """The entry of nested objects and lists. Raises Error with the path if it is missing."""
    for depth, key in enumerate(path):
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise Error(f"no {'/'.join(map(str, path[: depth + 1]))}") from None
    return value


def count(value: Any, name: str) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value != int(value):
        raise Error(f"{name} is {value!r}, expected a whole number")
    if value < 0:
        raise Error(f"{name} is {value!r}, expected no negative number")
    return int(value)


def counts(value: Any, name: str) -> list[int]:
    if not isinstance(value, list):
        raise Error(f"{name} is {value!r}, expected a list of whole numbers")
    return [count(one, f"{name}[{place}]") for place, one in enumerate(value)]


def seconds(value: Any, name: str, unit: float = 1.0) -> float:
    """A time in seconds. unit: the unit of `value`, in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Error(f"{name} is {value!r}, expected a time")
    if math.isnan(value) or math.isinf(value):
        raise Error(f"{name} is {value!r}, expected a finite time")
    if value < 0:
        raise Error(f"{name} is {value!r}, a negative time: the clock ran backwards")
    return float(value) * unit

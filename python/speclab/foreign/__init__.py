"""Results of other programs in one common form: `speclab.load_foreign`.

Each module describes one format and names the source of its description. A new format is a module with NAME, TIMES, is_one and texts_of,
and an entry in BY_LINE.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import Error
from . import ik_llama, prometheus, spec_bench, specdecode_bench, step_table, vllm
from .reading import PathLike, Problem, json_lines, read_text
from .results import Foreign, Ratio
from .text import Text

__all__ = ["Foreign", "Ratio", "load_foreign"]

BY_LINE = (spec_bench, vllm, ik_llama, specdecode_bench)  # formats with one JSON value on each line
EXPECTED = ", ".join(module.NAME for module in (*BY_LINE, prometheus, step_table))


def load_foreign(files: PathLike | Sequence[PathLike], *, gamma: int | None = None, strict: bool = False) -> Foreign:
    """Reads results of another program. The format is recognised by the content.

    files: a file or several of one format: a Spec-Bench answer file, vLLM responses with per-request metrics (a line each, or one JSON
    value), the pages /metrics of a vLLM server (one, or one before and one after the requests), JSONL of ik_llama.cpp's llama-spec-bench, a
    SpecDecode-Bench trace, or CSV with a row for each step (step_table.py lists its columns).
    gamma: the draft length in tokens, where the source does not tell it (Spec-Bench, SpecDecode-Bench, CSV without `drafted`). Estimates
    of alpha need it. A SpecDecode-Bench trace is decoded with drafts of this length.
    strict: if True, any problem raises Error. If False, a line that cannot be used is left out, a warning gives the number
    of problems, and `Foreign.problems` lists them. Raises Error if nothing is usable.
    """
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    if not paths:
        raise Error("load_foreign: no file. Give one or more files of results.")
    if gamma is not None and gamma < 1:
        raise Error(f"gamma is {gamma}, expected a draft length of 1 or more")
    read = {str(path): read_text(path) for path in paths}
    problems: list[Problem] = []
    pages = {file: prometheus.is_one(text) for file, text in read.items()}
    if all(pages.values()):
        found = _guarded(
            problems,
            " and ".join(read),
            1,
            lambda: prometheus.texts_of([prometheus.page_of(one) for one in read.values()], " and ".join(read)),
        )
        format: Any = prometheus
    elif any(pages.values()):
        mixed = next(file for file, page in pages.items() if not page)
        raise Error(f"{mixed}: no counters of vLLM, unlike the other files. Give files of one format.")
    else:
        format, found = _by_line(read, gamma, problems)
    texts = _distinct(found, problems)
    if strict and problems:
        raise Error(f"{problems[0].file}: line {problems[0].line}: {problems[0].problem}")
    if not texts:
        first = f" The first problem is in line {problems[0].line}: {problems[0].problem}" if problems else ""
        raise Error(f"{', '.join(read)}: no usable results of {format.NAME}.{first}")
    if problems:
        warnings.warn(f"{', '.join(read)}: {len(problems)} problems; `problems` lists what was left out", stacklevel=2)
    return Foreign(format.NAME, format.TIMES, texts, problems, gamma)


def _by_line(read: dict[str, str], gamma: int | None, problems: list[Problem]) -> tuple[Any, list[Text]]:
    """(module of the format, texts) of files with one result on each line. The first line that has a known form decides the format."""
    format: Any = None
    found: list[Text] = []
    for file, text in read.items():
        if step_table.is_one(text):
            if format not in (None, step_table):
                raise Error(
                    f"{file}: {step_table.NAME}, but the other files are {_name(format)}. Give files of one format."
                )
            format = step_table
            found += _guarded(problems, file, 1, lambda: step_table.texts_of(text, file, problems))
            continue
        for number, value in json_lines(file, text, problems):
            own = next((module for module in BY_LINE if module.is_one(value)), None)
            format = format or own
            if own is None:
                reason = "the line is of no known format"
            elif own is not format:
                reason = f"mixed records: {own.NAME} among {_name(format)}"
            else:
                where = f"{file}: line {number}"
                more = {"gamma": gamma} if own is specdecode_bench else {}
                found += _guarded(problems, file, number, lambda: own.texts_of(value, where, **more))
                continue
            problems.append(Problem(file, number, reason))
    if format is None:
        first = f" Line {problems[0].line}: {problems[0].problem}" if problems else ""
        raise Error(f"{', '.join(read)}: not recognised. Expected one of: {EXPECTED}.{first}")
    return format, found


def _name(module: Any) -> str:
    return str(module.NAME)


def _guarded(problems: list[Problem], file: str, line: int, texts: Callable[[], Iterable[Text]]) -> list[Text]:
    """The texts. If they cannot be made, adds a problem and returns none."""
    try:
        return list(texts())
    except Error as error:
        problems.append(Problem(file, line, str(error)))
    except (TypeError, AttributeError, ValueError, KeyError) as error:
        problems.append(Problem(file, line, f"a value is missing or is not as the format says ({error})"))
    return []


def _distinct(texts: list[Text], problems: list[Problem]) -> list[Text]:
    """The texts. Of several with the same case and name only the last is kept, as in Spec-Bench's own scripts."""
    last = {(one.case, one.name): one for one in texts}
    for one in texts:
        if last[one.case, one.name] is not one:
            file, _, line = one.where.rpartition(": line ")
            number = int(line) if line.isdigit() else 1
            problems.append(
                Problem(file or one.where, number, f"{one.name} of {one.case} occurs again later; the last one counts")
            )
    return list(last.values())

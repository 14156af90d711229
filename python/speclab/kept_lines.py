"""Keeps the raw lines of a committed run as lines.jsonl.xz beside its summary.json, so that a new metric needs no new run.

The first line is {"form": "full"} or {"form": "slim"}. Then each file of the run folder follows (cases/*.jsonl, calibration.jsonl,
teacher.jsonl, bounds.jsonl): one line {"file": NAME, "lines": N} and its N lines. A full record has these lines byte for byte; `restore` makes the
files from it again. A slim record has totals, counts and hashes in place of each line's steps and tokens. It leaves out
bounds.jsonl, and has each distinct text once, in the part {"file": "texts"}. The same lines give the same bytes (with the same version of liblzma).
"""

import collections
import json
import lzma
import pathlib
import shutil
from typing import Any

from .record import BadRun

NAME = "lines.jsonl.xz"
MOST_BYTES = 1_000_000  # largest full record; a larger run is kept slim
BESIDE = ("calibration.jsonl", "teacher.jsonl", "bounds.jsonl")


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def raw_files(folder: pathlib.Path) -> dict[str, list[str]]:
    """{name within the run folder: its finished lines, without their newlines}"""
    paths = [*sorted(folder.glob("cases/*.jsonl")), *(folder / name for name in BESIDE)]
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8").split("\n")[:-1]
        for path in paths
        if path.exists()
    }


def text_of(form: str, parts: dict[str, list[str]]) -> str:
    lines = [compact({"form": form})]
    for name, content in parts.items():
        lines += [compact({"file": name, "lines": len(content)}), *content]
    return "".join(f"{line}\n" for line in lines)


def compress(text: str) -> bytes:
    return lzma.compress(text.encode("utf-8"), preset=9)


def totals(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the steps of a line."""
    out: dict[str, Any] = {"steps": len(steps)}
    for name in ("drafted", "accepted", "emitted", "rows", "nodes", "draft_calls"):
        out[name] = sum(step.get(name, 0) for step in steps)
    out["ns"] = [sum(times) for times in zip(*(step["ns"] for step in steps))]
    for name in ("ended_by", "source"):
        out[name] = dict(sorted(collections.Counter(step.get(name, "") for step in steps).items()))
    return out


def slim_line(line: dict[str, Any]) -> dict[str, Any]:
    """A line of a case without the fields that grow with its text."""
    dropped = ("steps", "tokens", "row_hashes", "target_entropy", "pieces", "text", "drift", "probes")
    out = {key: value for key, value in line.items() if key not in dropped}
    if "steps" in line:
        out["totals"] = totals(line["steps"])
        out["tokens"] = len(line["tokens"])
        out["turns"] = [{key: value for key, value in turn.items() if key != "context"} for turn in line["turns"]]
    if "drift" in line:
        out["drift"] = {"forwards": len(line["drift"]), "ns": sum(ns for _, ns in line["drift"])}
    if "probes" in line:
        memory, arithmetic = (sum(times) for times in zip(*line["probes"]))
        out["probes"] = {"probes": len(line["probes"]), "ns": [memory, arithmetic]}
    return out


def slim(parts: dict[str, list[str]]) -> dict[str, list[str]]:
    texts: dict[str, str] = {}
    out: dict[str, list[str]] = {}
    for name, content in parts.items():
        if name == "bounds.jsonl":
            continue  # grows with the texts
        if not name.startswith("cases/"):
            out[name] = content
            continue
        lines = [json.loads(line) for line in content]
        for line in lines:
            if "text" in line:
                texts.setdefault(line["output_hash"], line["text"])
        out[name] = [compact(slim_line(line)) for line in lines]
    out["texts"] = [compact({"output_hash": key, "text": text}) for key, text in sorted(texts.items())]
    return out


def pack(folder: pathlib.Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of lines.jsonl.xz for a finished run."""
    parts = raw_files(folder)
    full = compress(text_of("full", parts))
    return full if len(full) <= most_bytes else compress(text_of("slim", slim(parts)))


def read(file: pathlib.Path) -> tuple[str, dict[str, list[str]]]:
    """Reads a packed record: (form, {name: lines})."""
    try:
        lines = iter(lzma.decompress(file.read_bytes()).decode("utf-8").split("\n")[:-1])
        form = json.loads(next(lines))["form"]
        parts: dict[str, list[str]] = {}
        for line in lines:
            head = json.loads(line)
            parts[head["file"]] = [next(lines) for _ in range(head["lines"])]
    except (OSError, lzma.LZMAError, ValueError, KeyError, StopIteration) as error:
        raise BadRun(f"{file}: not a record of lines ({error or 'it ends too early'}). Check it out again.") from error
    return form, parts


def restore(baseline: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes a run folder with raw lines from a committed record."""
    file = baseline / NAME
    if not file.exists():
        raise BadRun(f"{baseline}: no {NAME}. This record was kept without its raw lines.")
    if folder.exists() and any(folder.iterdir()):
        raise BadRun(f"{folder}: not empty. Name a new folder.")
    form, parts = read(file)
    if form != "full":
        raise BadRun(f"{file}: a {form} record, which has totals in place of steps. No run folder can be made from it.")
    (folder / "cases").mkdir(parents=True)
    for name, lines in parts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for path in baseline.glob("*.json"):
        shutil.copy(path, folder)

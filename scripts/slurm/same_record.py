#!/usr/bin/env python3
"""Compares two run folders as records of the same run: everything but times must be equal. Prints the differences.

    same_record.py RUN OTHER          exit status 1: the records differ
    same_record.py --kept RUN OTHER   every finished line of RUN must stand in OTHER, byte for byte and at the same place of its file

The script compares config.json, and line by line the files of cases/, teacher.jsonl and bounds.jsonl. It ignores
times: the fields in TIMES (among them the number of calibration rounds before a line) and the file calibration.jsonl.
"""

import json
import pathlib
import sys

TIMES = {
    "wall_ns",
    "cpu_ns",
    "prefill_ns",
    "draft_prefill_ns",
    "observe_prompt_ns",
    "decode_ns",
    "phase_ns",
    "ns",
    "gpu",
}
TIMES |= {"drift", "probes", "calibration_rounds", "stamped_ns"}


def finished_lines(file):
    """The lines of a file that end in a newline. Empty without a file."""
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(part) for name, part in value.items() if name not in TIMES}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def files_of(run):
    return sorted(
        file.relative_to(run) for file in (*run.glob("cases/*.jsonl"), run / "teacher.jsonl", run / "bounds.jsonl")
    )


def differences(run, other):
    if json.loads((run / "config.json").read_bytes()) != json.loads((other / "config.json").read_bytes()):
        yield "config.json differs"
    for file in sorted({*files_of(run), *files_of(other)}):
        ours, theirs = (
            [without_times(json.loads(line)) for line in finished_lines(folder / file)] for folder in (run, other)
        )
        if len(ours) != len(theirs):
            yield f"{file} has {len(ours)} and {len(theirs)} lines"
        for number, (one, two) in enumerate(zip(ours, theirs), 1):
            if json.dumps(one, sort_keys=True) != json.dumps(two, sort_keys=True):
                yield f"{file}: line {number} differs"


def lost(run, other):
    for file in sorted({*files_of(run), pathlib.Path("calibration.jsonl")}):
        ours, theirs = finished_lines(run / file), finished_lines(other / file)
        if theirs[: len(ours)] != ours:
            yield f"{file}: not all of its {len(ours)} finished lines are kept"


if __name__ == "__main__":
    kept = sys.argv[1:2] == ["--kept"]
    folders = [pathlib.Path(folder) for folder in sys.argv[2 if kept else 1 :]]
    if len(folders) != 2 or not all(folder.is_dir() for folder in folders):
        sys.exit(f"same_record: two run folders are expected\n{__doc__}")
    found = list((lost if kept else differences)(*folders))
    print("\n".join(found) if found else "same record")
    sys.exit(1 if found else 0)

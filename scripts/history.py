#!/usr/bin/env python3
"""Keeps the history of measured runs, results/history.jsonl, and writes the page of trends, results/trend.md.

    .venv/bin/python scripts/history.py append RUN [RUN ...]
    .venv/bin/python scripts/history.py page
    .venv/bin/python scripts/history.py check

append  adds a line for each run, and writes the page. RUN is a run folder, a committed record, or COMMIT:FOLDER for a record that was
        committed earlier. A run that is in the history already, is not complete, has errors or is not of a Release build is refused.
page    writes the page again.
check   exits with 1 if the page is not what `page` would write.

A line of the history holds ratios of times and no times, because times of two machines cannot be compared.
results/SCHEMA.md describes the lines.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent / folder) for folder in ("", "pages", "../python")]

import history_page

from speclab.record import BadRun, Ladder, Run

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCHEMA_VERSION = 1
HISTORY, PAGE = "results/history.jsonl", "results/trend.md"
# The values of a case, in this order: name in the history -> metric
VALUES = {
    **{
        "speedup": "speedup",
        "speedup_lo": "speedup",
        "speedup_hi": "speedup",
        "tau": "tau",
        "alpha": "alpha",
        "c": "c",
    },
    **{"rows": "target_rows", "calls": "target_calls", "drafts": "draft_calls", "flops": "flops"},
}
T_ROWS = ("2", "4", "8", "16", "32")


def digits(value, count):
    """The value with `count` significant digits. A whole number becomes an int, which is shorter in JSON."""
    rounded = None if value is None else float(f"{value:.{count}g}")
    return int(rounded) if rounded is not None and rounded.is_integer() else rounded


def workload_of(run):
    """A name for what the run decodes: target, prompts with their chat template and system message, seeds and the length of texts.
    Runs of one workload have comparable cases.

    The options of the cases are not part of the name, except for the length of texts. The id of a case says what the
    case does. The defaults of its options may change from commit to commit, and the history is to show the effect of
    such changes.
    """
    config = json.loads((run.folder / "config.json").read_text(encoding="utf-8"))
    target = run.environment["models"]["target"]
    parts = [
        [target["sha256"], target["weight_bytes"]],
        [[prompt["id"], prompt["turns"], prompt["options"]] for prompt in config["prompts"]],
        [config["chat_template"], config["system"], config["seeds"]],
        [case["options"].get("max_tokens") for case in config["cases"][:1]],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def case_of(case):
    """The values of a case, in the order of VALUES. Values at the end that do not exist are left out."""
    found = []
    for name, metric in VALUES.items():
        ends = case.metric(f"{metric}_ci95") or [None, None]
        value = {"speedup_lo": ends[0], "speedup_hi": ends[1]}.get(name, case.metric(metric))
        found.append(digits(value, 4 if name.startswith("speedup") or name == "c" else 6))
    while found and found[-1] is None:
        found.pop()
    return found


def line_of(run):
    """The line of the history for a run."""
    environment, summary = run.environment, run.summary
    target = environment["models"]["target"]
    times = {n: ns / t["1"] for t in [(summary["calibration"] or {}).get("t_n_ns") or {"1": 1}] for n, ns in t.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "config": summary["name"],
        "workload": workload_of(run),
        "target": target["name"],
        "prompts": max((case.data["prompts"] for case in run.cases), default=0),
        "commit": environment["commit"][:12],
        "dirty": bool(environment.get("dirty")),
        "date": environment["date"],
        "machine": {
            "device": environment.get("device") or environment["cpu"]["model"],
            "cache_mib": ((environment["cpu"].get("cache") or {}).get("L3_bytes") or 0) >> 20 or None,
            "threads": environment["threads"],
            "numerics": environment["numerics"],
        },
        "busy": run.busy,
        "ratio_noise": digits(summary.get("ratio_noise"), 4),
        "t": {n: digits(times[n], 4) for n in T_ROWS if n in times},
        "cases": {case.id: case_of(case) for case in run.cases},
    }


def same_run(one, other):
    return all(one[name] == other[name] for name in ("config", "workload", "commit", "date", "machine"))


def read(file):
    """The lines of the history, oldest first, with {name: value} for each case."""
    if not file.exists():
        return []
    lines = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise BadRun(f"{file}: line {number}: not JSON ({error}). Check the file out again, then append your runs.")
        version = line.get("schema_version") if isinstance(line, dict) else None
        if version != SCHEMA_VERSION:
            raise BadRun(
                f"{file}: line {number}: schema_version {version}, expected {SCHEMA_VERSION}. Use the scripts of its version."
            )
        lines.append({**line, "cases": {case: dict(zip(VALUES, found)) for case, found in line["cases"].items()}})
    return sorted(lines, key=lambda line: line["date"])


def checked(run, name):
    if not run.summary["complete"] or run.summary["errors"]:
        raise BadRun(f"{name}: the run is not complete or has errors. Finish it with `speclab run --resume`.")
    if run.environment["build_type"] != "Release":
        raise BadRun(f"{name}: a {run.environment['build_type']} build. Only Release builds are kept in the history.")
    return run


def lines_of(name, root):
    """The lines for RUN of the command line. A run with several targets has one line for each of them."""
    commit, _, path = name.partition(":")
    if path and not pathlib.Path(name).exists():
        with tempfile.TemporaryDirectory() as folder:
            packed = pathlib.Path(folder) / "record.tar"
            done = subprocess.run(
                ["git", "archive", "-o", packed, commit, path], cwd=root, capture_output=True, text=True
            )
            if done.returncode != 0:
                raise BadRun(f"{name}: {done.stderr.strip()}. Give COMMIT:FOLDER with a folder of that commit.")
            with tarfile.open(packed) as archive:
                archive.extractall(folder, filter="data")
            return [line_of(checked(Run(pathlib.Path(folder) / path), name))]
    folder = pathlib.Path(name)
    runs = Ladder(folder).runs.values() if Ladder.is_one(folder) else [Run(folder)]
    return [line_of(checked(run, str(run.folder))) for run in runs]


def append(root, names):
    """Adds the runs, all of them or none."""
    file = root / HISTORY
    read(file)
    known = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    for name in names:
        for line in lines_of(name, root):
            if any(same_run(line, other) for other in known):
                raise BadRun(f"{name}: is in {HISTORY} already ({line['config']} of {line['date']}).")
            known.append(line)
    known.sort(key=lambda line: (line["date"], line["config"], line["workload"]))
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in known)
    file.write_text(text, encoding="utf-8")
    write_page(root)


def holds(root, folder):
    """True if the record in this folder is in the history."""
    (line,) = lines_of(str(folder), root)
    return any(same_run(line, other) for other in read(root / HISTORY))


def write_page(root):
    (root / PAGE).write_text(history_page.page(read(root / HISTORY)), encoding="utf-8")


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("append").add_argument("runs", metavar="RUN", nargs="+")
    commands.add_parser("page")
    commands.add_parser("check")
    options = parser.parse_args(arguments)
    try:
        if options.command == "append":
            append(root, options.runs)
        elif options.command == "page":
            write_page(root)
        else:
            page = root / PAGE
            if not page.exists() or page.read_text(encoding="utf-8") != history_page.page(read(root / HISTORY)):
                print(f"history: {PAGE} does not match {HISTORY}. Run scripts/history.py page.", file=sys.stderr)
                return 1
    except BadRun as error:
        print(f"history: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

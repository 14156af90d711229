#!/usr/bin/env python3
"""Adds a run of a fuzzer to a record and prints it as a line: fuzz_record.py TARGET RECORD.json COVERAGE.json LOG...

TARGET is the name of a fuzzer in scripts/fuzz.sh. RECORD.json lists the runs of fuzzers of one day.
COVERAGE.json is the output of `llvm-cov export -summary-only` for the whole corpus, or "-". Several logs count as one run.
"""

import json
import pathlib
import re
import subprocess
import sys


def parse(text):
    """The statistics that libFuzzer prints with -print_final_stats=1."""
    stats = {name: int(value) for name, value in re.findall(r"^stat::(\w+):\s+(\d+)", text, re.MULTILINE)}
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
    done = re.search(r"^Done \d+ runs in (\d+) second", text, re.MULTILINE)
    finding = re.search(r"^finding: .*|^SUMMARY: .*|^==\d+== ?ERROR: .*", text, re.MULTILINE)
    return {
        "executions": stats.get("number_of_executed_units", 0),
        "seconds": int(done.group(1)) if done else 0,
        "edges": int(covered[-1][0]) if covered else 0,
        "features": int(covered[-1][1]) if covered else 0,
        "corpus": int(covered[-1][2]) if covered else 0,
        "peak_rss_mb": stats.get("peak_rss_mb", 0),
        "finding": finding.group(0) if finding else None,
    }


def together(pieces):
    """Joins what parse() found in the logs of one run."""
    sums = {key: sum(piece[key] for piece in pieces) for key in ("executions", "seconds")}
    most = {key: max(piece[key] for piece in pieces) for key in ("edges", "features", "corpus", "peak_rss_mb")}
    findings = [piece["finding"] for piece in pieces if piece["finding"]]
    per_second = sums["executions"] // sums["seconds"] if sums["seconds"] else None
    return {**sums, "executions_per_second": per_second, **most, "finding": "; ".join(findings) or None}


def line_coverage(export, target):
    """The share of lines of each file of the parser (core/model/files/TARGET*.cpp) that were executed, in per cent."""
    files = [file for data in export["data"] for file in data["files"]]
    lines = {pathlib.PurePath(file["filename"]).name: file["summary"]["lines"]["percent"] for file in files}
    return {name: round(lines[name], 1) for name in sorted(lines) if name.startswith(target) and name.endswith(".cpp")}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main():
    target, record, coverage, logs = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    run = {
        "target": target,
        "commit": output_of("git", "rev-parse", "--short", "HEAD"),
        "compiler": output_of("clang++-16", "--version").splitlines()[0],
        **together([parse(pathlib.Path(log).read_text(errors="replace")) for log in logs]),
    }
    if coverage != "-":
        run["line_coverage"] = line_coverage(json.loads(pathlib.Path(coverage).read_text()), target)
    runs = json.loads(record.read_text())["runs"] if record.exists() else []
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"runs": [*runs, run]}, indent=1) + "\n")
    lines = "".join(f", {name} {percent} %" for name, percent in run.get("line_coverage", {}).items())
    print(
        f"{target}: {run['executions']} executions, {run['features']} features, finding: {run['finding'] or 'none'}{lines}"
    )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Adds one run of a fuzzer to a record: fuzz_record.py TARGET LOG RECORD.json, and prints it as a line."""

import json
import pathlib
import re
import subprocess
import sys


def parse(text):
    """What libFuzzer says with -print_final_stats=1."""
    stats = {name: int(value) for name, value in re.findall(r"^stat::(\w+):\s+(\d+)", text, re.MULTILINE)}
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
    done = re.search(r"^Done \d+ runs in (\d+) second", text, re.MULTILINE)
    finding = re.search(r"^finding: .*|^SUMMARY: .*|^==\d+== ?ERROR: .*", text, re.MULTILINE)
    return {
        "executions": stats.get("number_of_executed_units", 0),
        "executions_per_second": stats.get("average_exec_per_sec", 0),
        "seconds": int(done.group(1)) if done else None,
        "edges": int(covered[-1][0]) if covered else 0,
        "features": int(covered[-1][1]) if covered else 0,
        "corpus": int(covered[-1][2]) if covered else 0,
        "peak_rss_mb": stats.get("peak_rss_mb", 0),
        "finding": finding.group(0) if finding else None,
    }


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main():
    target, log, record = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    run = {
        "target": target,
        "commit": output_of("git", "rev-parse", "--short", "HEAD"),
        "compiler": output_of("clang++", "--version").splitlines()[0],
        **parse(log.read_text(errors="replace")),
    }
    runs = json.loads(record.read_text())["runs"] if record.exists() else []
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"runs": [*runs, run]}, indent=1) + "\n")
    print(f"{target}: {run['executions']} executions, {run['features']} features, finding: {run['finding'] or 'none'}")


if __name__ == "__main__":
    main()

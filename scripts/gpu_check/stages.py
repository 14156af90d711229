"""Reads the records that gpu_check.sh leaves in the folder of a device: check-part1.json to check-part3.json (record.sh)."""

import json

PARTS = (1, 2, 3)
SCHEMA = 2
SUITE = "tests_"  # the name of a stage that runs one suite of the tests begins with this


class BadRecord(Exception):
    """Raised for a file under results/gpu that does not hold a measurement on a GPU."""


def record_files(folder):
    return [file for part in PARTS if (file := folder / f"check-part{part}.json").exists()]


def read_record(file):
    try:
        record = json.loads(file.read_text(encoding="utf-8", errors="replace"))
        if record["schema_version"] != SCHEMA or not isinstance(record["stages"], dict):
            raise KeyError
    except (ValueError, KeyError, TypeError):
        raise BadRecord(f"{file}: damaged, or not written by gpu_check.sh. Remove the file.") from None
    return record


def all_tests(suites):
    """The stages tests_* as one stage: the sums of their tests and seconds, their worst status, and the reasons of all that are not ok."""
    problems = [
        f"{stage['stage']}: {stage['status']}, {stage['reason']}" for stage in suites if stage["status"] != "ok"
    ]
    statuses = {stage["status"] for stage in suites}
    worst = next(status for status in ("failed", "capped", "unavailable", "ok") if status in statuses)
    first = suites[0]
    counts = {
        name: sum((stage["data"] or {}).get(name, 0) for stage in suites)
        for name in ("tests", "passed", "failed", "skipped", "not_run")
    }
    return {
        "stage": "tests",
        "status": worst,
        "reason": "; ".join(problems),
        "seconds": sum(stage["seconds"] for stage in suites),
        "cap_seconds": sum(stage["cap_seconds"] for stage in suites),
        "backend": first["backend"],
        "dry_run": first["dry_run"],
        "date": first.get("date", ""),
        "data": counts if any(stage["data"] for stage in suites) else None,
    }


def load_stages(folder, dry_run=False):
    """The stages of a folder by name, in the order of the parts. If several parts have a stage, such as "machine", the first part counts.
    "tests" sums up the stages tests_*.

    Raises BadRecord for a damaged file, and for a dry run unless `dry_run`.
    """
    stages = {}
    for file in record_files(folder):
        for name, stage in read_record(file)["stages"].items():
            if not dry_run and (stage["dry_run"] or stage["backend"] != "cuda"):
                raise BadRecord(f"{file}: a dry run ({stage['backend']}) is no result of a GPU. Remove the file.")
            stages.setdefault(name, stage)
    suites = [stage for name, stage in stages.items() if name.startswith(SUITE)]
    return {"tests": all_tests(suites), **stages} if suites else stages

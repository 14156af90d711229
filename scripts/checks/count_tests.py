#!/usr/bin/env python3
"""Prints "N passed, N failed, N skipped" from a JUnit file of CTest; exits with 1 when a test failed or none passed.

CTest calls a test "not run" both when it skipped itself (GTEST_SKIP, exit code 77) and when its program is missing;
only the first is a skip. A disabled test counts as skipped too.
"""

import sys
import xml.etree.ElementTree as xml


def outcome(case):
    status = case.get("status")
    if status == "run":
        return "passed"
    skipped = case.find("skipped")
    message = (skipped.get("message") or "") if skipped is not None else ""
    if status == "notrun" and message.startswith(("SKIP_", "Skipped")) or status == "disabled":
        return "skipped"
    return "failed"


def main(path):
    counts = dict(passed=0, failed=0, skipped=0)
    try:
        for case in xml.parse(path).getroot().iter("testcase"):
            counts[outcome(case)] += 1
    except (OSError, xml.ParseError) as error:
        print(f"count_tests: {path}: {error}. The tests did not finish.", file=sys.stderr)
        counts["failed"] += 1
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

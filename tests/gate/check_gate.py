#!/usr/bin/env python3
"""Compares the acceptance of this build with a committed record; a CTest entry.

    check_gate.py SPECLAB OUT [ROOT]

Runs configs/gate.json in numerics class f32-kv16 with the binary SPECLAB, into the new folder OUT. Then compares tokens per
step, alpha, rows and calls of every case with results/baselines/any/gate, exactly. In this class these numbers are the same on every x86 machine.

Exit codes: 0 equal; 1 a count differs, or one of the commands failed; 77 skipped (CTest's SKIP_RETURN_CODE): the machine is no x86 machine,
or the target model or the record is missing. CONTRIBUTING.md says how to make the record again after an intended change.
"""

import json
import pathlib
import platform
import shutil
import subprocess
import sys

SKIPPED = 77
NUMERICS, GATES = "f32-kv16", "tau,alpha,rows,calls"
CONFIG, RECORD = pathlib.Path("configs/gate.json"), pathlib.Path("results/baselines/any/gate")


def reason_to_skip(root):
    """Why the gate cannot be checked here; "" if it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"the record holds for x86 machines, and this is {platform.machine()}"
    target = json.loads((root / CONFIG).read_text(encoding="utf-8"))["target"]
    if not (root / target).exists():
        return f"{target} is missing. scripts/get_model.sh downloads it"
    if not (root / RECORD / "summary.json").exists():
        return f"there is no record {RECORD} yet. The section on the gate in CONTRIBUTING.md says how to make it"
    return ""


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__)
        return 2
    speclab, out = arguments[0], pathlib.Path(arguments[1]).resolve()
    root = pathlib.Path(arguments[2] if len(arguments) == 3 else pathlib.Path(__file__).parents[2]).resolve()
    reason = reason_to_skip(root)
    if reason:
        print(f"gate: skipped, because {reason}.")
        return SKIPPED
    shutil.rmtree(out, ignore_errors=True)
    run = [speclab, "run", str(CONFIG), "--numerics", NUMERICS, "--out", str(out), "--quiet"]
    compare = [speclab, "compare", str(RECORD), str(out), "--gate", GATES]
    for command in (run, compare):
        print("gate:", " ".join(command), flush=True)
        code = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL).returncode
        if code != 0:
            print(
                f"gate: this command ended with exit code {code}. If the change is intended, make the record anew (CONTRIBUTING.md)."
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

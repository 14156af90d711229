#!/usr/bin/env python3
"""Checks whether a table of times that one machine exported predicts speedups from the acceptance that another machine counted.

    .venv/bin/python scripts/validate_devices.py A B [--limit .05] [--keep NAME] [--json]

A, B: runs of one config, on different machines, numbers of threads or numerics classes, or of a model and its inflated
twin (the model embedded in a larger shape, which computes the same function). The test goes both ways. The calibration
of one run is exported as a device (speclab simulate RUN --export). The steps of the other run get their times from this
device (speclab simulate OTHER --device FILE). The predicted speedups are compared with the speedups that the
exporting run measured. No measured speedup enters a prediction. Prints a section in Markdown. Exit code 1: some
speedup is off by more than the limit, 5 % by default. Two runs that differ in models, cases, prompts or seeds are
refused.

--keep NAME writes results/devices/NAME.json, which scripts/pages/devices_page.py shows. --json prints the same JSON
in place of the section.

KINDS lists the kinds of pairs that shall be validated. A pair has one arithmetic, and its runs differ in the number of
threads (1 and 2) or in the model (a model and its twin). results/devices.md lists the kinds. For each kind without a
committed validation, it shows the commands that measure and keep one. Other pairs can be validated too. These commands
compare two numerics classes on one processor:

    build/release/speclab run configs/gamma_sweep.json --numerics f32-kv16 --threads 2 --out results/runs/f32-kv16-2t
    build/release/speclab run configs/gamma_sweep.json --numerics avx512-bf16 --threads 2 --out results/runs/avx512-bf16-2t
    .venv/bin/python scripts/validate_devices.py results/runs/f32-kv16-2t results/runs/avx512-bf16-2t --keep f32-kv16-avx512-bf16

Uses the binary SPECLAB_BINARY (default: build/release/speclab) and the standard library only.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "python")]

from speclab.record import BadRun, Run

KEPT = pathlib.Path("results/devices")  # folder of results, below the root
LIMIT = 0.05
# The kinds of arithmetic, each with its numerics class. "AVX2 alone" is a processor without AVX-512.
AVX2_ALONE = "AVX2 alone"
NUMERICS = {AVX2_ALONE: "f32-kv16", "AVX-512 bf16": "avx512-bf16", "AMX": "amx-bf16"}
THREADS, TWINS = "1 and 2 threads", "SmolLM2-135M and its twins"
# What shall be validated, one validation each: two runs with one arithmetic that differ in one thing.
KINDS = [(arithmetic, pair) for arithmetic in NUMERICS for pair in (THREADS, TWINS)]


def call(*words):
    """What a command of the binary prints, as JSON."""
    binary = os.environ.get("SPECLAB_BINARY", str(ROOT / "build/release/speclab"))
    try:
        done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True, cwd=ROOT)
    except OSError as error:
        raise BadRun(f"{binary}: {error.strerror}. Build SpecLab, or set SPECLAB_BINARY.") from error
    if done.returncode != 0:
        message = done.stderr.strip().split("\n")[-1]
        raise BadRun(message.removeprefix("error: ") or f"speclab {words[0]} ended with exit code {done.returncode}.")
    return json.loads(done.stdout)


def machine(run):
    environment = run.environment
    words = [environment.get("device", "an unknown machine"), f"{environment.get('threads')} threads"]
    return ", ".join([*words, environment.get("numerics", "unknown numerics")])


def models(run):
    """What two runs must have in common. The shape of an inflated twin may differ: it computes the same function."""
    return {
        role: (model.get("sha256"), model.get("layers")) for role, model in run.environment.get("models", {}).items()
    }


def shape(run):
    """The shape of the target as a text; "" for a model that is not inflated."""
    inflated = run.environment.get("models", {}).get("target", {}).get("inflated")
    return "" if not inflated else f", inflated to hidden size {inflated['to'].get('hidden')}"


def arithmetic(run):
    """A key of NUMERICS, or "" for any other arithmetic, such as class f32-kv16 on a processor with AVX-512."""
    numerics = run.environment.get("numerics")
    for name, its_class in NUMERICS.items():
        if numerics == its_class:
            wide = "avx512f" in run.environment.get("cpu", {}).get("flags", [])
            return "" if name == AVX2_ALONE and wide else name
    return ""


def kind_of(result):
    """The entry of KINDS that a result covers, or None."""
    first, second = result["runs"]
    if first["arithmetic"] != second["arithmetic"] or not first["arithmetic"]:
        return None
    inflated, threads = (first["inflated"], second["inflated"]), (first["threads"], second["threads"])
    if sorted(inflated) == [False, True] and threads[0] == threads[1]:
        return first["arithmetic"], TWINS
    if not any(inflated) and sorted(threads) == [1, 2]:
        return first["arithmetic"], THREADS
    return None


def commands_of(kind):
    """The commands that measure and keep the validations of an entry of KINDS, on a processor that has its arithmetic."""
    name, pair = kind
    numerics = NUMERICS[name]
    keep = ".venv/bin/python scripts/validate_devices.py"
    if pair == THREADS:
        folders = {threads: f"results/runs/{numerics}-{threads}t" for threads in (1, 2)}
        return [
            *(
                f"build/release/speclab run configs/gamma_sweep.json --numerics {numerics} --threads {threads} --out {folder}"
                for threads, folder in folders.items()
            ),
            f"{keep} {folders[1]} {folders[2]} --keep {numerics}-1t-2t",
        ]
    ladder = f"results/runs/{numerics}-ladder"
    return [
        f"build/release/speclab run configs/scale_ladder.json --numerics {numerics} --out {ladder}",
        *(f"{keep} {ladder}/135M {ladder}/{twin} --keep {numerics}-135M-{twin}" for twin in ("500M", "1B")),
    ]


def config(run):
    try:
        return json.loads((run.folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRun(f"{run.folder / 'config.json'}: {error}. Give the folder that `speclab run` wrote.") from error


def require_same_experiment(first, second):
    """Raises BadRun unless the two runs have the same models, cases, seeds and prompts."""
    ours, theirs = models(first), models(second)
    for role in sorted(ours.keys() | theirs.keys()):
        if ours.get(role) != theirs.get(role):
            raise BadRun(
                f"{second.folder}: {role} is another model than in {first.folder}. Acceptance counted on one pair of models says nothing about another."
            )
    for (what, here), (_, there) in zip(planned(first), planned(second)):
        if here != there:
            raise BadRun(f"{second.folder}: other {what} than {first.folder}. Compare two runs of one config.")


def planned(run):
    """What the config of a run planned, without the machine: [(name, value)]."""
    content = config(run)
    try:
        return [
            ("cases", {case["id"]: case["options"] for case in content["cases"]}),
            ("prompts", {prompt["id"]: prompt.get("turns") for prompt in content["prompts"]}),
            ("seeds", content["seeds"]),
        ]
    except (KeyError, TypeError) as error:
        raise BadRun(f"{run.folder / 'config.json'}: no {error}. Give the folder that `speclab run` wrote.") from error


def within(predicted, measured, interval, limit):
    """Whether a prediction is within the limit of the measurement: "yes", "no", or "unclear" if it is not, but is
    within the limit of another value in the interval of the measurement."""
    if abs(predicted / measured - 1) <= limit:
        return "yes"
    if interval and None not in interval and interval[0] * (1 - limit) <= predicted <= interval[1] * (1 + limit):
        return "unclear"
    return "no"


def predicted_cases(counts, times, limit):
    """The steps of the run `counts` at the times of the run `times`, beside what `times` measured. A case without
    a problem and without a measured speedup has no entry."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "device.json"
        file.write_text(json.dumps(call("simulate", times.folder.resolve(), "--export")), encoding="utf-8")
        simulation = call("simulate", counts.folder.resolve(), "--device", file, "--json")[0]
    measured = {case.id: case for case in times.cases}
    counted = {case.id: case for case in counts.cases}
    found = []
    for row in simulation["cases"]:
        case = measured[row["case"]]
        speedup, interval = case.metric("speedup"), case.metric("speedup_ci95")
        entry = {"case": row["case"], "label": case.label(without=()), "problem": row["problem"]}
        if row["problem"] is None and speedup is not None:
            entry |= {
                "predicted": row["speedup"],
                "measured": speedup,
                "measured_ci95": interval,
                "error": row["speedup"] / speedup - 1,
                "within": within(row["speedup"], speedup, interval, limit),
                "measured_with_the_counts": counted[row["case"]].metric("speedup"),
                "tau_counted": row["tau"],
                "tau_measured": case.metric("tau"),
            }
            found.append(entry)
        elif row["problem"] is not None:
            found.append(entry)
    return found


def validate(folders, limit):
    """The result of both ways, as it is kept."""
    runs = [Run(folder) for folder in folders]
    require_same_experiment(*runs)
    described = [
        {
            "folder": run.folder.name,
            "machine": machine(run) + shape(run),
            "arithmetic": arithmetic(run),
            "threads": run.environment.get("threads"),
            "inflated": bool(shape(run)),
            "config": run.summary["name"],
            "commit": run.environment.get("commit", "")[:10],
            "date": run.environment.get("date", "")[:10],
            "busy": (run.summary.get("machine") or {}).get("text", ""),
        }
        for run in runs
    ]
    ways = [
        {"counts": counts, "times": times, "cases": predicted_cases(runs[counts], runs[times], limit)}
        for counts, times in ((0, 1), (1, 0))
    ]
    for way in ways:
        if not any("error" in case for case in way["cases"]):
            problems = [case["problem"] for case in way["cases"] if case["problem"]]
            raise BadRun(
                f"{folders[way['times']]}: no case has a measured and a predicted speedup. {' '.join(problems[:1])}".strip()
            )
    return {"schema_version": 1, "limit": limit, "runs": described, "ways": ways}


def compared(way):
    return [case for case in way["cases"] if "error" in case]


def verdict(way, limit):
    """One sentence about the errors of a way."""
    cases = compared(way)
    errors = [abs(case["error"]) for case in cases]
    good = sum(case["within"] == "yes" for case in cases)
    numbers = f"largest error {100 * max(errors):.1f} %, median {100 * statistics.median(errors):.1f} %"
    if good == len(cases):
        return f"All {good} cases are within {100 * limit:g} %: {numbers}."
    unclear = sum(case["within"] == "unclear" for case in cases)
    return (
        f"**{good} of {len(cases)} cases are within {100 * limit:g} %**, {unclear} unclear (only the interval of the "
        f"measurement reaches the limit): {numbers}."
    )


def holds(result):
    return all(case["within"] == "yes" for way in result["ways"] for case in compared(way))


def section(result, heading="###"):
    """The section of a page for a result."""
    runs = result["runs"]
    lines = [f"{heading} {runs[0]['machine']}, and {runs[1]['machine']}", ""]
    lines.append(
        f"Config `{runs[0]['config']}`; "
        + "; ".join(f"`{run['folder']}`: commit {run['commit']}, {run['date']}" for run in runs)
        + "."
    )
    lines += [f"\n**{run['folder']}: {run['busy']}**" for run in runs if run["busy"]]
    for way in result["ways"]:
        lines += [
            "",
            f"Acceptance of `{runs[way['counts']]['folder']}`, times exported by `{runs[way['times']]['folder']}`. {verdict(way, result['limit'])}",
            "",
            f"| case | τ counted | τ measured | simulated speedup | measured there [95 %] | error | within {100 * result['limit']:g} % | measured where τ was counted |",
            "|---" * 8 + "|",
        ]
        for case in compared(way):
            interval = case["measured_ci95"]
            shown = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval and None not in interval else ""
            other = case["measured_with_the_counts"]
            cells = [case["label"], f"{case['tau_counted']:.2f}", f"{case['tau_measured']:.2f}"]
            cells += [f"{case['predicted']:.2f}", f"{case['measured']:.2f}{shown}", f"{100 * case['error']:+.1f} %"]
            cells += [case["within"], "" if other is None else f"{other:.2f}"]
            lines.append("| " + " | ".join(cells) + " |")
        lines += [f"\nNot priced: {case['label']}: {case['problem']}" for case in way["cases"] if case["problem"]]
    return "\n".join(lines) + "\n"


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=pathlib.Path, metavar="A")
    parser.add_argument("second", type=pathlib.Path, metavar="B")
    parser.add_argument("--limit", type=float, default=LIMIT, help="largest error of a speedup, as a fraction")
    parser.add_argument("--keep", metavar="NAME", help="write results/devices/NAME.json")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    try:
        if not 0 < options.limit < 1:
            raise BadRun(f"--limit: got {options.limit}, expected a fraction between 0 and 1.")
        if options.keep and not re.fullmatch(r"[\w.-]+", options.keep):
            raise BadRun(f"--keep: got '{options.keep}', expected a name of letters, digits, '.', '-' and '_'.")
        result = validate((options.first, options.second), options.limit)
    except BadRun as error:
        print(f"validate_devices: {error}", file=sys.stderr)
        return 2
    if options.keep:
        folder = root / KEPT
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        (folder / f"{options.keep}.json").write_text(text, encoding="utf-8")
    print(json.dumps(result, indent=1, ensure_ascii=False) if options.json else section(result).rstrip())
    return 0 if holds(result) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Proves `speclab compare` on real runs: planted faults are found and attributed, equal runs raise no alarm.

    scripts/studies/compare_proof.py DIR [--pairs N] [--share S] [--alpha-loss A] [--config FILE] [--set NAME=VALUE] [--run-option WORD]
    scripts/studies/compare_proof.py DIR --second
    scripts/studies/compare_proof.py DIR --keep

The first command measures everything into DIR and writes DIR/proof.json and the page DIR/proof.md. When it is
interrupted, the same command goes on. It makes four comparisons with a planted fault and N comparisons of equal runs.
Each comparison is of two runs, BASE and NEW, that are made one after the other. The last run without a fault before
them is the A/A run (`--aa`), from which the noise floor comes. Cases that seem slower are measured again (`--rerun`).
The comparisons with a fault are spread over the others.

The four faults are a delay that costs the share S of a step, in drafting, in verification or in bookkeeping, and a loss
of alpha by A. For this loss, drafted tokens are replaced at random with probability A / alpha. alpha is the mean over
those cases of the first run that have one. The program speclab_planted plants them (tests/planted/plant.h); it is built with the tests.
It also makes the runs without a fault, because an A/A run must have the same binary.

--second measures one more run and compares it with the first one of DIR, which must be at least an hour old. The
speedups must agree within 1 %.
--keep copies the numbers and the page to results/compare_proof.json and results/compare_proof.md.

A run on a busy machine is moved aside and measured again, at most twice. Let nothing else run on the machine.
Exit code 1: a fault was not found or not attributed, a case without the fault was called slower, equal runs raised an
alarm or got no verdict, the ratio of paired steps of a case with a draft has more than a quarter of the variance of the unpaired
ratio, or the speedups of --second do not agree.
Uses the standard library only.
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import compare_proof_page as judge
from compare_proof_runs import ROOT, Interrupted, Refused, Runs, read, write

FORMAT = "speclab compare proof 1"
BINARY = ROOT / "build/release/tests/speclab_planted"
CONFIG = "configs/compare_proof.json"
FAULTS = tuple(judge.PART_OF)
HOUR = 3600  # s


def order_of(pairs):
    """The comparisons in the order in which they are made: a fault, or None for two equal runs."""
    found = []
    for place in range(len(FAULTS)):
        begin, end = place * pairs // len(FAULTS), (place + 1) * pairs // len(FAULTS)
        found += [FAULTS[place], *[None] * (end - begin)]
    return found


def beginning(environment):
    """When a run began."""
    return datetime.datetime.fromisoformat(environment["date"].replace("Z", "+00:00"))


class Proof(Runs):
    """The comparisons of the study, and what they show."""

    def numbers(self):
        """The comparisons with their faults: [(number, fault)]."""
        return [(f"{place:02}", fault) for place, fault in enumerate(order_of(self.plan["pairs"]), 1)]

    def measure_all(self):
        self.planned = 1 + 2 * len(self.numbers())
        self.measure("first")
        self.rate()  # raises if the loss of alpha is impossible, before more is measured
        self.progress(1)
        floor = "first"
        for place, (number, fault) in enumerate(self.numbers()):
            base, new = f"{number}-base", f"{number}-new"
            self.measure(base)
            self.progress(2 + 2 * place)
            self.measure(new, fault)
            self.progress(3 + 2 * place)
            self.compare(number, base, new, fault, floor)
            floor = base if fault else new
            self.write_pages()

    def measure_second(self):
        if self.summary("first") is None:
            raise Refused(f"{self.folder}: no finished first run. Measure it first, without --second.")
        began = beginning(read(self.run_folder("first") / "environment.json"))
        seconds = (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds()
        if self.summary("second") is None and seconds < HOUR:
            raise Refused(
                f"--second: the first run began {seconds / 60:.0f} minutes ago. Wait until an hour has passed."
            )
        self.measure("second")
        self.compare("second", "first", "second")

    def planted(self):
        found = []
        for number, fault in self.numbers():
            file = self.folder / "comparisons" / f"{number}.json"
            if fault is None or not file.exists():
                continue
            one = judge.judged_plant(fault, read(file))
            report = self.folder / "reports" / f"{number}-new.json"
            if fault != "acceptance" and report.exists():
                counts = read(report)
                one["planted"] = counts["delay_ns"] / counts["step_ns"] if counts["step_ns"] else None
            if fault == "acceptance":
                one["alpha"] = [self.alpha(f"{number}-{which}") for which in ("base", "new")]
                one["alpha"] = None if None in one["alpha"] else one["alpha"]
            found.append(one)
        return found

    def alpha(self, name):
        """Mean alpha of the cases that have one."""
        alphas = [case["metrics"].get("alpha") for case in self.summary(name)["cases"]]
        known = [alpha for alpha in alphas if alpha is not None]
        return sum(known) / len(known) if known else None

    def proof(self):
        environment = read(self.run_folder("first") / "environment.json")
        file = lambda name: self.folder / "comparisons" / f"{name}.json"
        second = None
        if file("second").exists():
            later = read(self.run_folder("second") / "environment.json")
            apart = beginning(later) - beginning(environment)
            second = judge.judged_second(read(file("second")), apart.total_seconds() / HOUR)
        found = {
            "format": FORMAT,
            **{name: self.plan[name] for name in ("config", "settings", "run_options", "share", "alpha_loss")},
            "planned_pairs": self.plan["pairs"],
            "rate": self.rate(),
            "machine": f"{environment['cpu']['model']}, {environment['threads']} threads, {environment['numerics']}",
            **{name: environment[name] for name in ("commit", "dirty", "date")},
            "planted": self.planted(),
            "pairs": [
                judge.judged_pair(read(file(number)))
                for number, fault in self.numbers()
                if fault is None and file(number).exists()
            ],
            "second": second,
        }
        return {**found, "summary": judge.summary_of(found)}

    def write_pages(self):
        found = self.proof()
        write(self.folder / "proof.json", found)
        write(self.folder / "proof.md", judge.page(found))
        return found


def plan_of(options, binary):
    """The settings of the study. They are fixed when the folder is made; later options may not change them."""
    file = options.folder / "plan.json"
    sha256 = hashlib.sha256(binary.read_bytes()).hexdigest()
    asked = {
        **{"config": options.config, "settings": options.settings, "run_options": options.run_options},
        **{"pairs": options.pairs, "share": options.share, "alpha_loss": options.alpha_loss},
    }
    defaults = {"config": CONFIG, "settings": [], "run_options": [], "pairs": 20, "share": 0.03, "alpha_loss": 0.02}
    if not file.exists():
        if options.second or options.keep:
            raise Refused(f"{options.folder}: no study. Measure it first, without --second and --keep.")
        plan = {"format": FORMAT, "binary_sha256": sha256}
        plan |= {name: defaults[name] if value is None else value for name, value in asked.items()}
        write(file, plan)
        return plan
    plan = read(file)
    if plan.get("format") != FORMAT:
        raise Refused(f'{file}: format {plan.get("format")!r}, expected "{FORMAT}". Choose another DIR.')
    for name, value in asked.items():
        if value is not None and value != plan[name]:
            raise Refused(
                f"{options.folder}: was begun with {name} {plan[name]}, not {value}. Leave the option out, or choose another DIR."
            )
    if plan["binary_sha256"] != sha256 and not options.keep:
        raise Refused(
            f"{binary}: not the program that began {options.folder}. Equal runs need one program; choose another DIR."
        )
    return plan


def number_above_0(text):
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("expected a number above 0")
    return value


def count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected a number from 1 on")
    return value


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--pairs", type=count, help="comparisons of equal runs, default 20")
    parser.add_argument("--share", type=number_above_0, help="cost of a delay as a share of a step, default 0.03")
    parser.add_argument("--alpha-loss", type=number_above_0, help="loss of alpha, default 0.02")
    parser.add_argument("--config", help=f"the config of all runs, relative to the project, default {CONFIG}")
    parser.add_argument("--set", dest="settings", action="append", metavar="NAME=VALUE", help="as `speclab run --set`")
    parser.add_argument(
        "--run-option",
        dest="run_options",
        action="append",
        metavar="WORD",
        help="another word for `speclab run`, such as --run-option=--threads=2",
    )
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path(os.environ.get("SPECLAB_PLANTED", BINARY)))
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--second", action="store_true", help="one more run, at least an hour after the first")
    what.add_argument("--keep", action="store_true", help="copy the results to results/compare_proof.json and .md")
    return parser.parse_args(arguments)


def keep(proof, found, root):
    """Copies the results to the folder of results."""
    proof.say(f"kept in {root / 'results'}: compare_proof.json, compare_proof.md")
    for end in ("json", "md"):
        shutil.copyfile(proof.folder / f"proof.{end}", root / f"results/compare_proof.{end}")
    return found


def main(arguments=None, root=ROOT):
    options = options_of(arguments)
    options.folder, binary = options.folder.resolve(), options.binary.resolve()
    try:
        if not binary.is_file():
            raise Refused(f"{binary}: no such program. Build the tests, or name it with --binary or SPECLAB_PLANTED.")
        proof = Proof(options.folder, binary, plan_of(options, binary))
        if options.second:
            proof.measure_second()
        elif not options.keep:
            proof.measure_all()
        if proof.summary("first") is None:
            raise Refused(f"{options.folder}: nothing is measured yet.")
        found = proof.write_pages()
        if options.keep:
            keep(proof, found, root)
        print(judge.verdict_text(found["summary"], found))
        print(f"Page: {options.folder / 'proof.md'}")
        return 1 if found["summary"]["passed"] is False else 0
    except Refused as error:
        print(f"compare_proof: {error}", file=sys.stderr)
        return 2
    except (Interrupted, KeyboardInterrupt):
        print("compare_proof: interrupted. The same command goes on.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

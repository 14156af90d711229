"""The runs and comparisons of scripts/studies/compare_proof.py, each made once. A run or comparison that exists is not
made again."""

import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRIES = 3  # of a run on a busy machine


class Refused(Exception):
    """A message for the user."""


class Interrupted(Exception):
    """The program was interrupted and kept its finished lines."""


def read(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{file}: {error}. Delete the folder {file.parent} and measure it again.") from error


def write(file, content):
    """Replaces a file in one go, so that an interruption leaves no half file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
    made = file.with_name(file.name + ".part")
    made.write_text(text, encoding="utf-8")
    made.replace(file)


class Runs:
    """The folder of the study. `plan`: the settings that all its runs share."""

    def __init__(self, folder, binary, plan):
        self.folder, self.binary, self.plan = folder, binary, plan
        self.measured, self.seconds, self.planned = 0, 0.0, 0  # runs of this call, their time, and how many are planned

    def call(self, words, codes):
        """Runs the program; its exit code must be one of `codes`."""
        try:
            done = subprocess.run(
                [self.binary, *map(str, words)], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
        except OSError as error:
            raise Refused(
                f"{self.binary}: {error.strerror}. Build the tests, or name the program with --binary."
            ) from error
        if done.returncode == 130:
            raise Interrupted
        if done.returncode not in codes:
            last = (done.stderr.strip().split("\n")[-1] or f"exit code {done.returncode}").removeprefix("error: ")
            raise Refused(f"{' '.join(map(str, words[:4]))} ...: {last}")
        return done.stdout

    def plant_of(self, fault):
        """The options that plant a fault; none for no fault."""
        if fault is None:
            return []
        return ["--plant", f"{fault}={self.rate() if fault == 'acceptance' else self.plan['share']:g}"]

    def run_folder(self, name):
        return self.folder / "runs" / name

    def summary(self, name):
        """The summary of a finished run; None if it is not finished."""
        file = self.run_folder(name) / "summary.json"
        found = read(file) if file.exists() else None
        return found if found and found["complete"] else None

    def measure(self, name, fault=None):
        """Measures a run unless it is finished. Moves a run on a busy machine aside and measures it again."""
        folder = self.run_folder(name)
        for attempt in range(1, TRIES + 1):
            aside = folder.with_name(f"{name}-busy{attempt}")
            if aside.exists():
                continue
            if self.summary(name) is None:
                begun = time.monotonic()
                report = self.folder / "reports" / f"{name}.json"
                report.parent.mkdir(parents=True, exist_ok=True)
                words = [*self.plant_of(fault), "--plant-report", report, "run"]
                if (folder / "config.json").exists():
                    self.call([*words, "--resume", folder, "-q"], (0,))
                else:
                    options = [word for setting in self.plan["settings"] for word in ("--set", setting)]
                    options += self.plan["run_options"]
                    self.call([*words, self.plan["config"], "--out", folder, "-q", *options], (0,))
                self.measured, self.seconds = self.measured + 1, self.seconds + time.monotonic() - begun
            machine = self.summary(name)["machine"]
            if not machine["busy"] or attempt == TRIES:
                return
            self.say(f"{name}: {machine['text'].strip()} It is measured again.")
            folder.rename(aside)

    def rate(self):
        """The probability with which a drafted token is replaced."""
        alphas = [case["metrics"].get("alpha") for case in self.summary("first")["cases"]]
        known = [alpha for alpha in alphas if alpha]
        if not known:
            raise Refused(
                "the config has no case with an alpha. Use one with a draft and a rule that judges token by token."
            )
        rate = self.plan["alpha_loss"] / (sum(known) / len(known))
        if rate > 1:
            raise Refused(
                f"--alpha-loss {self.plan['alpha_loss']}: alpha is {sum(known) / len(known):.3f}, so it cannot fall by that much."
            )
        return round(rate, 6)

    def say(self, text):
        print(f"compare_proof: {text}", file=sys.stderr, flush=True)

    def progress(self, done):
        left = self.planned - done
        rest = "" if not self.measured else f", about {left * self.seconds / self.measured / 60:.0f} min left"
        self.say(f"run {done} of {self.planned}{rest}")

    def compare(self, name, base, new, fault=None, floor=None):
        """The comparison of two runs, made once."""
        file = self.folder / "comparisons" / f"{name}.json"
        if not file.exists():
            folders = [self.run_folder(base), self.run_folder(new)]
            words = [*self.plant_of(fault), "compare", *folders, "--json", "-q"]
            if floor is not None:
                words += ["--aa", self.run_folder(floor), "--rerun", self.folder / "reruns" / name]
            try:
                found = json.loads(self.call(words, (0, 1)))
            except Refused as error:
                found = {"error": str(error)}
            write(file, found)
        return read(file)

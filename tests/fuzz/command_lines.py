#!/usr/bin/env python3
"""Runs the real binary on random command lines and on damaged run folders, often as a user without permissions.

    tests/fuzz/command_lines.py --binary build/release/speclab [--seconds S | --count N] [--seed N] [--findings DIR]

Every command must end with exit code 0, 1 or 2. With exit code 2 it must print a line that contains "error: ". Exit
code 3, a signal, and a reading command that takes more than a minute are findings. The folder of findings keeps the
words of the command and its run folder. Random numbers come from the seed alone. Exit code 1: there is a finding.
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python/pages"))
from tiny_model import write_tiny_model

NOBODY = 65534
READERS = ("report", "explain", "compare", "lookahead", "theory", "list", "describe", "model")
CONFIG = {
    "name": "fuzz",
    "target": "target",
    "drafts": {"small": {"model": "draft"}},
    "prompts": {"inline": ["a b c", {"id": "two", "category": "x", "turns": ["to be", "or not"]}]},
    "repeats": 2,
    "warmup": 0,
    "options": {"max_tokens": 8},
    "calibration": {"rows": 3, "rounds": 2},
    "cases": [
        {"strategy": "autoregressive"},
        {"strategy": "speculative_sampling", "draft": "small", "gamma": [1, 2]},
        {"strategy": "lookahead", "W": [1, 2], "N": [3, 4], "G": "=W"},
    ],
}
NUMBERS = (
    "0",
    "-1",
    "1",
    "3",
    ".5",
    "1e9",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "99999999999999999999",
    "2147483648",
    "0x10",
    "1:1,4:2",
    "1,2,3",
    "1/2",
    "2/1",
)
TEXTS = (
    *(
        "",
        " ",
        "=",
        "a=",
        "=a",
        "gamma=2",
        "repeats=1",
        "cases.0.gamma=1",
        "options.x=1",
        "prompts=[]",
        "W=[1,2]",
        "a.b.c=1",
        "cases=[",
        "seeds=[1e999]",
    ),
    *(
        "(",
        ")",
        "[",
        "(.*)*(.*)*$",
        "\\",
        "*",
        "gamma=1",
        "autoregressive",
        "speculative_sampling",
        "small",
        "vllm",
        "llama.cpp",
        "keep:1",
        "layers:0-3,1",
    ),
    *(
        "layers:9-",
        "tau",
        "cpu",
        "host-simt",
        "f32",
        "auto",
        "/",
        "/proc/self/mem",
        "/dev/null",
        "/dev/full",
        "/root",
        ".",
        "..",
        "a" * 300,
        "a/" * 3000,
    ),
    *("\u00e9\u4e2d", "\x1b[31m", "\n", "%s%n", "{}", "{0}", "'", '"'),
)


def as_nobody(command, **more):
    """Runs the command as a user without permissions if this process is root, otherwise as the current user."""
    if os.geteuid() == 0:
        more |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    return subprocess.run(command, **more)


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Fuzzer:
    def __init__(self, binary, folder, seed, findings):
        self.random = random.Random(seed)
        self.folder = folder
        self.findings = pathlib.Path(findings)
        self.found = 0
        self.codes = {}
        self.binary = folder / "speclab"  # a place that the user without permissions can read
        shutil.copy(binary, self.binary)
        os.chmod(folder, 0o755)
        write_tiny_model(folder / "target", layers=2)
        write_tiny_model(folder / "draft", layers=1, seed=2)
        (folder / "a.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        (folder / "notes.txt").write_text("one two three one two three", encoding="utf-8")
        (folder / "closed").mkdir(mode=0o700)
        (folder / "closed/a.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        self.environment = {"PATH": os.environ["PATH"], "SPECLAB_BACKEND": "cpu", "HOME": "/nonexistent"}
        made = subprocess.run(
            [self.binary, "run", "a.json", "--out", "run", "-q", "--threads", "1"],
            cwd=folder,
            env=self.environment,
            capture_output=True,
        )
        assert made.returncode == 0, made.stderr
        self.options = {}
        overview = subprocess.run([self.binary, "--help"], capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"^  (\w+) ", overview, re.M):
            text = subprocess.run([self.binary, name, "--help"], capture_output=True, text=True, check=True).stdout
            self.options[name] = sorted(set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text.split("Example:")[0])))

    def garbage(self):
        size = self.random.choice((1, 3, 20, 400))
        return bytes(self.random.randrange(1, 256) for _ in range(size))

    def word(self):
        places = (
            "a.json",
            "run",
            "target",
            "draft",
            "notes.txt",
            "closed",
            "closed/a.json",
            "nowhere",
            "out",
            "a.json/x",
            "closed/out",
        )
        kind = self.random.randrange(10)
        if kind < 4:
            return self.random.choice(places)
        if kind < 6:
            return self.random.choice(NUMBERS)
        if kind < 9:
            return self.random.choice(TEXTS)
        return self.garbage()

    def command_line(self):
        """The words of a command with some of its options, mostly with values; sometimes random words."""
        name = self.random.choice(sorted(self.options))
        if self.random.random() < 0.03:
            return [self.word() for _ in range(self.random.randrange(4))]
        words = [name]
        usual = {
            "run": ["a.json", "--dry-run"],
            "generate": ["--model", "target", "--prompt", "a b", "--set", "max_tokens=4"],
            "model": ["target"],
            "bench": ["--model", "target", "--rows", "1"],
            "numerics": ["--model", "target", "--limit", "1", "--tokens", "1"],
            "datastore": ["build", "--model", "target", "--out", "out", "notes.txt"],
            "ngram": ["build", "--model", "target", "--out", "out", "notes.txt"],
            "list": ["strategies"],
            "describe": ["generation"],
            "compare": ["run", "run"],
            "theory": ["--alpha", ".8", "--gamma", "3"],
        }.get(name, ["run"])
        if self.random.random() < 0.8:
            words += usual
        for _ in range(self.random.randrange(4)):
            if self.random.random() < 0.75:
                words.append(self.random.choice(self.options[name]))
                if self.random.random() < 0.2:
                    continue
            words.insert(
                self.random.randrange(1, len(words) + 1) if self.random.random() < 0.1 else len(words), self.word()
            )
        return words

    def damage(self, run):
        """Changes one thing in a run folder."""
        files = sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
        if not files:
            return
        path = self.random.choice(files)
        how = self.random.randrange(10)
        path.chmod(0o644)
        data = path.read_bytes()
        if how == 0:
            path.write_bytes(data[: self.random.randrange(len(data) + 1)])
        elif how == 1 and data:
            changed = bytearray(data)
            for _ in range(self.random.choice((1, 4, 40))):
                changed[self.random.randrange(len(changed))] = self.random.randrange(256)
            path.write_bytes(changed)
        elif how == 2:
            path.unlink()
        elif how == 3:
            path.unlink()
            path.mkdir()
        elif how == 4:
            path.chmod(0)
        elif how == 5:
            path.write_text(
                self.random.choice(("", "[]", "{}", "3", '"x"', "null", "[[[", '{"cases": 3}')), encoding="utf-8"
            )
        elif how == 6:
            path.write_bytes(data + data)
        elif how == 7:
            path.unlink()
            path.symlink_to(path.name)
        else:
            self.damage_value(path, data)

    def damage_value(self, path, data):
        """Puts another type, a strange number or nothing at a random place of the JSON."""
        text = data.decode("utf-8", "replace")
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        if not lines:
            return
        at = self.random.randrange(len(lines))
        try:
            root = json.loads(lines[at])
        except ValueError:
            return
        value, places = root, []
        while isinstance(value, (dict, list)) and value and (not places or self.random.random() < 0.8):
            key = self.random.choice(sorted(value) if isinstance(value, dict) else range(len(value)))
            places.append((value, key))
            value = value[key]
        if not places:
            return
        parent, key = places[-1]
        if self.random.random() < 0.3:
            del parent[key]
        else:
            parent[key] = self.random.choice(
                (
                    None,
                    True,
                    -1,
                    0,
                    1e308,
                    -(2**63),
                    2**64 - 1,
                    "",
                    "x",
                    "../../x",
                    [],
                    {},
                    [[]],
                    {"a": 1},
                    0.5,
                    [1, 2, 3],
                )
            )
        lines[at] = json.dumps(root)
        path.write_text("\n".join(lines) + ("\n" if path.suffix == ".jsonl" else ""), encoding="utf-8")

    def damaged_run(self):
        run = self.folder / "damaged"
        for path in [run, *run.rglob("*")] if run.exists() else []:
            if not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.folder / "run", run)
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            self.damage(run)
        if self.random.random() < 0.1:
            self.random.choice((run, run / "cases")).chmod(0)
        commands = (
            ["report", "damaged"],
            ["report", "damaged", "--json"],
            ["report", "damaged", "--prompts"],
            ["report", "damaged", "--csv"],
            ["report", "damaged", "--export", "vllm"],
            ["explain", "damaged"],
            ["explain", "damaged", "gamma=1", "--json"],
            ["compare", "run", "damaged"],
            ["compare", "damaged", "run", "--json"],
            ["lookahead", "damaged"],
            ["lookahead", "damaged", "--json", "--t", "1:1,64:1,128:2"],
            ["run", "--resume", "damaged", "-q", "--dry-run"],
            ["run", "--resume", "damaged", "-q"],
        )
        return list(self.random.choice(commands))

    def try_one(self):
        damaged = self.random.random() < 0.5
        words = self.damaged_run() if damaged else self.command_line()
        nobody = self.random.random() < 0.5 and words[:1] != ["run"] or self.random.random() < 0.3
        command = [self.binary, *words]
        options = {
            "cwd": self.folder,
            "env": self.environment,
            "stdin": subprocess.DEVNULL,
            "capture_output": True,
            "timeout": 60,
            "preexec_fn": limits,
        }
        try:
            result = as_nobody(command, **options) if nobody else subprocess.run(command, **options)
            code, said = result.returncode, result.stderr
        except subprocess.TimeoutExpired as error:
            if not words or words[0] not in READERS:
                return  # a command that is no reader may take longer than a minute
            code, said = "a minute was not enough", error.stderr or b""
        except ValueError:  # a word contains a zero byte
            return
        self.codes[code] = self.codes.get(code, 0) + 1
        right = code in (0, 1) or code == 2 and (b"error: " in said or not words)
        if not right:
            self.keep(words, damaged, nobody, code, said)

    def keep(self, words, damaged, nobody, code, said):
        self.found += 1
        folder = self.findings / f"{self.found:03}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shown = [word if isinstance(word, str) else repr(word) for word in words]
        (folder / "words.json").write_text(
            json.dumps({"words": shown, "as_nobody": nobody, "code": code}), encoding="utf-8"
        )
        (folder / "stderr").write_bytes(said)
        if damaged and (self.folder / "damaged").exists():
            for path in (self.folder / "damaged").rglob("*"):
                if not path.is_symlink() and path.exists():
                    path.chmod(0o755)
            shutil.copytree(self.folder / "damaged", folder / "damaged", symlinks=True)
        text = said.decode("utf-8", "replace").strip()[-300:]
        cut = [word[:60] for word in shown]
        print(f"finding: {folder}: exit {code}: {cut}{' as nobody' if nobody else ''}\n  {text}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", default="build/fuzz/findings/command_lines")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(arguments.binary.resolve(), pathlib.Path(folder), arguments.seed, arguments.findings)
        begun, executed = time.monotonic(), 0
        while executed < arguments.count or time.monotonic() - begun < arguments.seconds:
            fuzzer.try_one()
            executed += 1
        codes = ", ".join(f"{count} x {code}" for code, count in sorted(fuzzer.codes.items(), key=str))
        print(f"exit codes: {codes}; findings: {fuzzer.found}")
        # These two lines have the form of libFuzzer's output; scripts/fuzz/fuzz_record.py reads them.
        print(f"Done {executed} runs in {int(time.monotonic() - begun)} second(s)")
        print(f"stat::number_of_executed_units: {executed}")
    return 1 if fuzzer.found else 0


if __name__ == "__main__":
    sys.exit(main())

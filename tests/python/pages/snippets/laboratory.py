"""The folder in which snippets run, with tiny models under the names of the real ones."""

import json
import os
import pathlib
import shutil
import subprocess

from tiny_model import ROOT, write_tiny_model

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", ROOT / "build/release/speclab"))

BENCH = pathlib.Path(os.environ.get("SPECLAB_BENCH", ROOT / "build/release/speclab_bench"))

TARGET = "models/SmolLM2-135M-Instruct.Q4_1.gguf"

GEMMA = "models/gemma-3-270m-q4_k_m.gguf"

SMALL = (
    " --set prompts.limit=2 --set max_tokens=8 --set repeats=1 --set warmup=0"
    """ --set 'calibration={"rounds": 2, "rows": 4}' --threads 1 --backend cpu"""
)


class Laboratory:
    """The folder in which commands run."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.made, self.said = {}, {}  # runs by config and options; results by command
        write_tiny_model(self.folder / TARGET, layers=30)
        write_tiny_model(self.folder / GEMMA, layers=18)
        for name in ("smollm2-135m-instruct", "smollm2-135m-instruct-128"):
            write_tiny_model(self.folder / "models/draft" / name, layers=1, seed=2)
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/speclab").symlink_to(BINARY)
        (self.folder / "results/runs").mkdir(parents=True)
        for name in ("configs", "scripts", ".venv", "results/baselines"):
            (self.folder / name).symlink_to(ROOT / name)
        text = "The sky is blue because blue light is scattered more than red light. " * 8
        (self.folder / "notes.txt").write_text(text, encoding="utf-8")
        (self.folder / "answers.jsonl").write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")

    def run(self, command):
        if command.startswith("speclab "):
            command = "build/release/" + command
        environment = {**os.environ, "MPLBACKEND": "Agg", "SPECLAB_BACKEND": "cpu"}
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, env=environment, timeout=300
        )

    def run_once(self, command):
        """The result of a command that changes nothing. It runs once, also if several snippets come to the same command."""
        command = command.removeprefix("build/release/")
        if command not in self.said:
            self.said[command] = self.run(command)
        return self.said[command]

    def need_run(self, run, config, more="", own=False):
        """Makes a small run with the name of a run on a page. Runs of the same config are copies of one run, which no command of a page
        sees. own: a run of its own instead."""
        if (self.folder / run / "summary.json").exists():
            return
        original = run if own else self.made.get((config, more), f"originals/{len(self.made)}")
        if not (self.folder / original / "summary.json").exists():
            result = self.run(f"speclab run configs/{config}.json --out {original} -q{SMALL}{more}")
            assert result.returncode == 0, result.stderr
        if not own:
            self.made[config, more] = original
            shutil.copytree(self.folder / original, self.folder / run)

"""The folder in which snippets run, with tiny models under the names of the real ones."""

import json
import os
import pathlib
import subprocess

from tiny_model import ROOT, write_tiny_model

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", ROOT / "build/release/speclab"))

BENCH = pathlib.Path(os.environ.get("SPECLAB_BENCH", ROOT / "build/release/speclab_bench"))

TARGET = "models/SmolLM2-135M-Instruct.Q4_1.gguf"

SMALL = (
    " --set prompts.limit=2 --set max_tokens=8 --set repeats=1 --set warmup=0"
    """ --set 'calibration={"rounds": 2, "rows": 4}' --threads 1 --backend cpu"""
)


class Laboratory:
    """The folder in which commands run."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        write_tiny_model(self.folder / TARGET, layers=30)
        for draft in sorted((ROOT / "models/draft").iterdir()):
            write_tiny_model(self.folder / "models/draft" / draft.name, layers=1, seed=2)
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

    def need_run(self, run, config, more=""):
        """Makes a small run with the name of a run on a page."""
        if (self.folder / run / "summary.json").exists():
            return
        result = self.run(f"speclab run configs/{config}.json --out {run} -q{SMALL}{more}")
        assert result.returncode == 0, result.stderr

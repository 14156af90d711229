"""A copy of the scripts of the GPU check in a folder of its own, with stand-ins for the programs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/gpu_check"))

import stages

NVIDIA_SMI = """case "$*" in
*query-gpu=name\\ *) echo "NVIDIA H200" ;;
*query-gpu*) echo "NVIDIA H200, 580.1, 9.0, 143771 MiB, 4 MiB, 345 MHz, 3201 MHz, 1980 MHz, 3201 MHz, 31, 77.1 W, 700.00 W, 0x0, Enabled, Disabled, Default" ;;
*query-compute-apps*) ;;
*) echo "| NVIDIA-SMI 580.1     Driver Version: 580.1     CUDA Version: 13.0     |" ;;
esac"""


class Copy(unittest.TestCase):
    """The scripts in a folder of their own with stand-ins for the programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "copy"
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/gpu_check.sh", self.root / "scripts/")
        shutil.copytree(ROOT / "scripts/gpu_check", self.root / "scripts/gpu_check")
        for name in ("bin", "models", "fakes", "results/gpu"):
            (self.root / name).mkdir(parents=True)
        self.model = self.root / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
        self.model.write_bytes(b"GGUF")

    def add(self, place, body):
        file = self.root / place
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)

    def check(self, *arguments):
        env = {**os.environ, "PATH": f"{self.root / 'fakes'}:{os.environ['PATH']}"}
        command = ["bash", str(self.root / "scripts/gpu_check.sh"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd="/")

    def tool(self, name, *arguments):
        env = {**os.environ, "PATH": f"{self.root / 'fakes'}:{os.environ['PATH']}"}
        command = ["bash", f"scripts/gpu_check/{name}", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=self.root)

    def folder(self, backend="cpu"):
        return self.root / (f"build/gpu_dry_run/{backend}" if backend != "cuda" else "results/gpu/nvidia-h200")

    def record(self, part, backend="cpu"):
        return json.loads((self.folder(backend) / f"check-part{part}.json").read_text())

    def stage(self, name, backend="cpu"):
        return stages.load_stages(self.folder(backend), dry_run=True)[name]

    def suites(self, *tests, body=""):
        """A stand-in for the test program with these tests; `body` runs with the filter in $1 and prints the rest."""
        listed = "".join(f"{test.split('.')[0]}.\n  {test.split('.')[1]}\n" for test in tests)
        self.add(
            "bin/test_on_device",
            f"""all='{listed}'
            filter() {{ while read -r s && read -r t; do
              IFS=: read -ra patterns <<< "${{1#--gtest_filter=}}"
              for p in "${{patterns[@]}}"; do if [[ $s$t == $p ]]; then echo "$s $t"; break; fi; done
            done <<< "$all"; }}
            case $1 in --gtest_list_tests) filter "$2" | sed 's/\\. /.\\n  /'; exit ;; esac
            mine=$(filter "$1" | sed 's/ //')
            {body or "for t in $mine; do echo '[ RUN      ] '$t; echo '[       OK ] '$t' (3 ms)'; done"}""",
        )

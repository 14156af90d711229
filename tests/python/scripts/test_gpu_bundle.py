"""What gpu_bundle.sh prepares for the calls to a machine with a GPU: the manifest, and the command of each call."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHECK = """#!/bin/bash
echo "$*" > "$OUT/said"
"""


class Calls(unittest.TestCase):
    LIMIT = 40000

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here, self.there = pathlib.Path(folder.name) / "here", pathlib.Path(folder.name) / "there"
        (self.here / "build/gpu").mkdir(parents=True)
        self.there.mkdir()
        self.model = os.urandom(60000)
        (self.here / "model").write_bytes(self.model)
        with tarfile.open(self.here / "bundle", "w:gz") as bundle:
            for name, content in (("scripts/gpu_check.sh", CHECK.encode()), ("models/x", os.urandom(9000))):
                info = tarfile.TarInfo(f"speclab-gpu/{name}")
                info.size, info.mode = len(content), 0o755
                bundle.addfile(info, io.BytesIO(content))
        script = f"""set -euo pipefail; mkdir -p scripts; ln -sfn {ROOT}/scripts/gpu_bundle scripts/gpu_bundle
            source scripts/gpu_bundle/gpu_transfers.sh
            transfers build/gpu $(({self.LIMIT} - 5000)) 30000 model bundle; manifest build/gpu {self.LIMIT}"""
        subprocess.run(["bash", "-c", script], check=True, cwd=self.here)
        self.manifest = json.loads((self.here / "build/gpu/manifest.json").read_text())

    def call(self, call):
        """Does what a call does: replaces the folder that it carries, empties $OUT and runs the command."""
        if call["carry"]:
            shutil.rmtree(self.there / call["carry"], ignore_errors=True)
            shutil.copytree(self.here / call["carry"], self.there / call["carry"])
        out = self.there / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        command = ["bash", "-c", call["command"]]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=self.there, env={**os.environ, "OUT": str(out)}
        )

    def test_the_manifest_names_every_file_of_every_call(self):
        found = {}
        for entry in self.manifest["files"]:
            file = self.here / entry["file"]
            self.assertEqual(file.parent.name, f"transfer{entry['call']:02}")
            self.assertEqual(entry["bytes"], file.stat().st_size)
            self.assertEqual(entry["sha256"], hashlib.sha256(file.read_bytes()).hexdigest())
            found.setdefault(entry["call"], []).append(entry["bytes"])
        self.assertEqual(len(self.manifest["files"]), len(list(self.here.glob("build/gpu/transfer*/*"))))
        for sizes in found.values():
            self.assertLessEqual(sum(sizes), self.LIMIT)
        calls = self.manifest["calls"]
        self.assertEqual([call["call"] for call in calls], list(range(1, len(found) + 3)))
        self.assertEqual([call.get("part") for call in calls], [None] * (len(found) - 1) + [1, 2, 3])
        for call in calls:
            self.assertLess(len(call["command"]), 2000)
            self.assertLessEqual(call["seconds"], 600)
        commands = (self.here / "build/gpu/commands.txt").read_text().splitlines()
        self.assertEqual(len(commands), len(calls))
        self.assertTrue(all(line.endswith(call["command"]) for line, call in zip(commands, calls)), commands)

    def test_the_calls_bring_the_files_and_run_the_parts(self):
        parts = []
        for call in self.manifest["calls"]:
            result = self.call(call)
            self.assertEqual(result.returncode, 0, result.stderr)
            if "part" in call:
                said = (self.there / "out/said").read_text().split()
                parts.append(said[1])
                self.assertEqual((said[0], said[4:6]), ("--part", ["--out", str(self.there / "out")]))
                self.assertTrue(570 <= int(said[3]) <= 580, said)
                files = [file for file in said[7].split(",") if file]
                self.assertEqual(b"".join(pathlib.Path(file).read_bytes() for file in files), self.model)
        self.assertEqual(parts, ["1", "2", "3"])
        # A model that is already joined is not joined again.
        (self.there / "build/gpu/speclab-gpu/models/SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"")
        self.assertEqual(self.call(self.manifest["calls"][-1]).returncode, 0)
        self.assertNotIn("--model-parts", (self.there / "out/said").read_text())
        # Another bundle replaces the one that was unpacked.
        unpacked = self.there / "build/gpu/speclab-gpu"
        (unpacked / "complete").write_text("the hashes of another bundle\n")
        (unpacked / "old").write_bytes(b"")
        self.assertEqual(self.call(self.manifest["calls"][-1]).returncode, 0)
        self.assertFalse((unpacked / "old").exists())
        self.assertIn("--model-parts", (self.there / "out/said").read_text())

    def test_missing_and_damaged_files_are_named(self):
        *_, first, second, _ = self.manifest["calls"]
        self.assertEqual((first["part"], second["part"]), (1, 2))
        result = self.call(first)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"\Arun_part: sha256sum: transfer01/[^\n]* Carry its folder again[^\n]*\n\Z")
        for call in self.manifest["calls"][:-3]:
            self.call(call)
        file = self.there / "build/gpu/transfer01/model.part01"
        file.write_bytes(b"x" + file.read_bytes()[1:])
        result = self.call(first)
        self.assertEqual(result.returncode, 2)
        self.assertIn("transfer01/model.part01: FAILED. Carry its folder again", result.stderr)
        self.assertFalse((self.there / "out/said").exists())

    def test_a_checkout_that_leaves_no_room(self):
        for words, text in (
            (["--transfer", "8", "--tree", "8"], "--transfer 8 --tree 8: the checkout leaves no room"),
            (["--tree", "x"], "--tree 'x'"),
        ):
            result = subprocess.run(
                ["bash", str(ROOT / "scripts/gpu_bundle.sh"), *words], capture_output=True, text=True
            )
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"gpu_bundle: {text}", result.stderr)


if __name__ == "__main__":
    unittest.main()

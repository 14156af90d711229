"""The shell scripts on machines where something is missing or wrong. Uses neither the network nor the real models."""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(*command, path=None, **environment):
    env = {**os.environ, **environment}
    if path:
        env["PATH"] = f"{path}:{env['PATH']}"
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env
    )


class Fakes:
    """A folder of stand-ins for system programs, first in PATH."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def add(self, name, body):
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)


class Temporary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.fakes = Fakes(self.folder)


class Setup(Temporary):
    def test_nothing_missing_installs_nothing(self):
        self.fakes.add("dpkg-query", "echo installed")
        self.fakes.add("apt-get", "echo apt-get was called; exit 1")
        result = run(ROOT / "scripts/setup.sh", path=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("apt-get", result.stdout)

    def test_without_root_prints_what_is_missing_and_stops(self):
        self.fakes.add("dpkg-query", 'case "$*" in *ninja-build) exit 1;; *) echo installed;; esac')
        self.fakes.add("id", "echo 1000")
        self.fakes.add("sudo", "exit 1")
        self.fakes.add("apt-get", "echo apt-get was called; exit 1")
        result = run(ROOT / "scripts/setup.sh", path=self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("missing: ninja-build\n", result.stdout)
        self.assertIn("apt-get install -y --no-install-recommends ninja-build", result.stderr)
        self.assertNotIn("was called", result.stdout)

    def test_installs_only_what_is_missing(self):
        self.fakes.add("dpkg-query", 'case "$*" in *libfmt-dev|*cmake) exit 1;; *) echo installed;; esac')
        self.fakes.add("id", "echo 0")
        self.fakes.add("apt-get", f'echo "$@" >> {self.folder}/calls')
        result = run(ROOT / "scripts/setup.sh", path=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertTrue(calls[0].startswith("update"))
        self.assertEqual(calls[1].split()[-2:], ["cmake", "libfmt-dev"])


class Draft128(Temporary):
    """A copy of the script, with stand-ins for git and for the training."""

    def setUp(self):
        super().setUp()
        for name in ("models/draft_128.sh", "train/train_draft.sh"):
            (self.folder / "scripts" / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / "scripts/models/draft_128.sh", self.folder / "scripts/models")
        trained = Fakes(self.folder / "scripts/train")
        trained.add("train_draft.sh", 'echo "trained $SIZES"')
        self.drafts = self.folder / "models/draft"

    def make(self):
        return run(self.folder / "scripts/models/draft_128.sh", path=self.folder)

    def test_trains_without_a_history(self):
        self.fakes.add("git", "exit 128")
        result = self.make()
        self.assertEqual((result.returncode, result.stdout.splitlines()[-1]), (0, "trained 128"))

    def test_refuses_other_bytes_and_leaves_nothing(self):
        self.fakes.add("git", "echo other bytes")
        result = self.make()
        self.assertEqual(result.returncode, 2)
        self.assertIn("config.json in the history has a wrong SHA-256", result.stderr)
        self.assertEqual(list(self.drafts.iterdir()), [])

    def test_takes_the_measured_weights_from_the_history(self):
        git = shutil.which("git")
        self.fakes.add("git", f'exec "{git}" -C "{ROOT}" "$@"')
        if run(git, "-C", ROOT, "cat-file", "-e", "3d1ee03c0f41a5e9e23c639b5b80177fcf976416").returncode:
            self.skipTest("this clone has no history")
        result = self.make()
        self.assertEqual(result.returncode, 0, result.stderr)
        files = [file.name for file in sorted((self.drafts / "smollm2-135m-instruct-128").iterdir())]
        self.assertEqual(files, ["config.json", "golden.json", "model.safetensors"])
        self.assertIn("is there", self.make().stdout)


class Training(Temporary):
    """Copies of the scripts that train, with a stand-in for the Python of the training that notes its calls."""

    TARGET = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
    COMMON = f"--target {TARGET} --cache .cache/train"

    def setUp(self):
        super().setUp()
        train, environment = self.folder / "scripts/train", self.folder / ".cache/train-venv"
        train.mkdir(parents=True)
        (environment / "bin").mkdir(parents=True)
        for name in ("train_draft.sh", "train_heads.sh", "prepare.sh"):
            shutil.copy(ROOT / "scripts/train" / name, train)
        for file in (train / "requirements.txt", environment / "installed.txt"):
            file.write_text("torch\n")
        Fakes(self.folder / "scripts").add("get_model.sh", "exit 0")
        Fakes(environment / "bin").add("python", f'echo "$@" >> "{self.folder}/calls"')

    def calls(self, script, **environment):
        result = run(self.folder / "scripts/train" / script, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return (self.folder / "calls").read_text().splitlines()

    def test_heads_are_trained_after_the_text(self):
        calls = self.calls("train_heads.sh", HEADS="medusa hass", TEXT="--tokens 5", TRAIN="--minutes 1", OUT="o")
        heads = f"scripts/train/heads.py {self.COMMON} --out"
        self.assertEqual(
            calls,
            [
                f"scripts/train/generate.py {self.COMMON} --tokens 5",
                f"{heads} o/medusa --kind medusa --minutes 1",
                f"{heads} o/hass --kind eagle --unroll 3 --ranking 1 --minutes 1",
            ],
        )

    def test_without_options_every_kind_of_heads_is_trained(self):
        calls = self.calls("train_heads.sh")
        kinds = [call.split()[call.split().index("--kind") + 1] for call in calls[1:]]
        files = (ROOT / "scripts/train/head_kinds/__init__.py").read_text().split("OF_STATES = ")[1]
        known = set(re.findall(r'^    "(\w+)":', files, re.M))
        self.assertEqual({"block_draft" if kind == "block" else kind for kind in kinds}, known)
        self.assertEqual(len({call.split(" --out ")[1].split()[0] for call in calls[1:]}), len(calls) - 1)

    def test_an_unknown_head_is_refused_before_the_text(self):
        result = run(self.folder / "scripts/train/train_heads.sh", HEADS="medusa melusine")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no head melusine", result.stderr)
        self.assertFalse((self.folder / "calls").exists())

    def test_drafts_are_trained_on_the_same_text(self):
        calls = self.calls("train_draft.sh", SIZES="256 128", TRAIN="--epochs 1", OUT="o", BOOST="1")
        self.assertEqual(
            calls,
            [
                f"scripts/train/generate.py {self.COMMON}",
                f"scripts/train/train.py {self.COMMON} --out o --size 256 --epochs 1",
                f"scripts/train/golden.py --target {self.TARGET} --draft o",
                f"scripts/train/train.py {self.COMMON} --out o-128-boosted --size 128 --boost o --epochs 1",
                f"scripts/train/golden.py --target {self.TARGET} --draft o-128-boosted",
            ],
        )


class CountTests(Temporary):
    def count(self, *cases):
        file = self.folder / "junit.xml"
        file.write_text("<testsuite>" + "".join(cases) + "</testsuite>")
        return run(sys.executable, ROOT / "scripts/checks/count_tests.py", file)

    PASS = '<testcase name="a" status="run"/>'
    FAIL = '<testcase name="b" status="fail"><failure message=""/></testcase>'
    SKIP = '<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'
    MISSING = '<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>'

    def test_counts(self):
        self.assertEqual(self.count(self.PASS, self.PASS, self.SKIP).stdout, "2 passed, 0 failed, 1 skipped\n")

    def test_failures_and_missing_programs_fail(self):
        result = self.count(self.PASS, self.FAIL, self.MISSING)
        self.assertEqual((result.stdout, result.returncode), ("1 passed, 2 failed, 0 skipped\n", 1))

    def test_nothing_ran(self):
        self.assertEqual(self.count(self.SKIP).returncode, 1)
        self.assertEqual(
            run(sys.executable, ROOT / "scripts/checks/count_tests.py", self.folder / "none.xml").returncode, 1
        )


class QuickstartOptions(Temporary):
    """A copy of the script, so that no build folder of this checkout decides."""

    def setUp(self):
        super().setUp()
        (self.folder / "scripts/quickstart").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/quickstart/quickstart_options.sh", self.folder / "scripts/quickstart")
        self.fakes.add("nvcc", "printf 'sm_80\\nsm_86\\nsm_90\\n'")
        self.fakes.add("nvidia-smi", "exit 9")

    def options(self):
        result = run(self.folder / "scripts/quickstart/quickstart_options.sh", path=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.split()

    def test_without_a_gpu_no_device_code(self):
        self.assertEqual(self.options(), ["--preset", "quickstart", "-DSPECLAB_CUDA=OFF"])

    def test_code_for_the_gpus_that_are_there(self):
        for capabilities, architectures in (
            ("9.0", "90-real"),
            ("9.0\\n8.6\\n9.0", "86-real;90-real"),
            ("12.0", "90-virtual"),  # newer than this nvcc: its driver compiles the PTX
        ):
            self.fakes.add("nvidia-smi", f"printf '{capabilities}\\n'")
            self.assertEqual(
                self.options(),
                ["--preset", "quickstart", "-DSPECLAB_CUDA=ON", f"-DSPECLAB_CUDA_ARCHITECTURES={architectures}"],
            )

    def test_a_gpu_that_the_kernels_cannot_run_on_counts_for_none(self):
        self.fakes.add("nvidia-smi", "echo 7.5")
        self.assertIn("-DSPECLAB_CUDA=OFF", self.options())

    def test_a_gpu_without_nvcc_counts_for_none(self):
        self.fakes.add("nvidia-smi", "echo 9.0")
        self.fakes.add("nvcc", "exit 1")
        self.assertIn("-DSPECLAB_CUDA=OFF", self.options())

    def test_a_folder_with_tests_keeps_them(self):
        cache = self.folder / "build/release/CMakeCache.txt"
        cache.parent.mkdir(parents=True)
        cache.write_text("SPECLAB_TESTS:BOOL=ON\n")
        self.assertEqual(self.options(), ["--preset", "release"])
        cache.write_text("SPECLAB_TESTS:BOOL=OFF\n")
        self.assertIn("quickstart", self.options())

    def test_the_release_preset_undoes_what_the_quickstart_leaves_out(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        variables = {preset["name"]: preset.get("cacheVariables", {}) for preset in presets}
        added = {"SPECLAB_CUDA", "SPECLAB_CUDA_ARCHITECTURES"}  # by quickstart_options.sh
        kept = {"SPECLAB_UNITY"}  # only how sources are compiled; without it everything would be compiled again
        self.assertLessEqual((set(variables["quickstart"]) | added) - kept, set(variables["release"]))
        self.assertEqual(variables["release"]["SPECLAB_TESTS"], "ON")


class Pins(unittest.TestCase):
    def test_every_requirement_is_pinned(self):
        for line in (ROOT / "scripts/requirements.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                self.assertRegex(line, r"^[A-Za-z0-9_.-]+==[0-9.]+$")


if __name__ == "__main__":
    unittest.main()

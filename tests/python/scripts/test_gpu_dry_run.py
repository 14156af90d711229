"""A dry run of the GPU check with the real programs on the simulated GPU, with a tiny model and planted failures.

SPECLAB_DRY_RUN=all in the environment also runs the long suites of the tests, and takes the shapes of a dry run of the default model; CTest
does so under the label "slow".
"""

import json
import os
import sys
import unittest

from gpu_copy import ROOT, Copy

sys.path.insert(0, str(ROOT / "tests/python/pages"))

from tiny_model import write_tiny_model

PROGRAMS = {"speclab": "SPECLAB_BINARY", "speclab_bench": "SPECLAB_BENCH", "test_on_device": "SPECLAB_TEST_PROGRAM"}
LONG = {"operations", "rows", "attention", "model", "decoding", "persistent"}
# Stages that only a machine with NVIDIA's tools or PyTorch can run. The reason must name what is missing.
TOOLS = {
    "machine": "nvidia-smi",
    "transformers": "PyTorch or another package",
    "memcheck": "compute-sanitizer",
    "racecheck": "compute-sanitizer",
    "gaps": "nsys",
}
PLANTED = {
    "forwards_8b": ("hang", "capped", r"stopped after 2 seconds: planted: this stage hangs"),
    "tests_acceptance": (
        "hang",
        "capped",
        r"stopped after 2 seconds: interrupted in ",
    ),
    "tests_leaks": (
        "sticky",
        "failed",
        r"2 of 3 tests failed, the first one OnDevice\w+\.\w+: .*illegal memory access",
    ),
    "prefill_135m": ("slow", "capped", r"stopped after 2 seconds: planted: this stage is slow"),
}


@unittest.skipUnless(all(name in os.environ for name in PROGRAMS.values()), "CTest names the programs")
class DryRun(Copy):
    def test_everything_but_the_planted_failures_arrives(self):
        for name, variable in PROGRAMS.items():
            (self.root / "bin" / name).symlink_to(os.environ[variable])
        for name in ("configs", "tests"):
            (self.root / name).symlink_to(ROOT / name)
        write_tiny_model(self.root / "target", 2)
        write_tiny_model(self.root / "draft", 1, seed=2)
        # A stand-in for ncu that runs the real command.
        self.add(
            "fakes/ncu",
            """while [ "${1##*/}" != speclab ]; do shift; done; "$@" > /dev/null || exit
            echo '"ID","Kernel Name","gpu__time_duration.sum"'; echo '"0","linear(int)","7"'""",
        )
        plan = self.check("--plan").stdout.splitlines()[1:]
        stages = {words[1]: int(words[0]) for words in map(str.split, plan) if words[1] != "sum"}
        shapes = ()
        if os.environ.get("SPECLAB_DRY_RUN") != "all":
            stages = {name: part for name, part in stages.items() if name.removeprefix("tests_") not in LONG}
            shapes = ("--shapes", "ffn=112/ffn=176,vocab=400")  # as much larger than the tiny model as needed
        result = self.check(
            *("--backend", "host-simt", "--model", self.root / "target", "--draft", self.root / "draft", *shapes),
            *("--plant", ",".join(f"{how}={name}" for name, (how, *_) in PLANTED.items()), "--plant-seconds", 2),
            *("--stages", ",".join(["machine", *stages])),
        )
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        found = {}
        for part in (1, 2, 3):
            record = self.record(part, "host-simt")["stages"]
            self.assertEqual(list(record), ["machine", *(name for name, of in stages.items() if of == part)])
            found |= record
        for name, stage in found.items():
            with self.subTest(name):
                _, status, reason = PLANTED.get(name, ("", "ok", r"\Z"))
                if name in TOOLS and stage["status"] == "unavailable":
                    status, reason = "unavailable", f".*{TOOLS[name]}"
                self.assertEqual(stage["status"], status, stage["reason"])
                self.assertRegex(" ".join(stage["reason"].split()), f"^{reason}")
                self.assertTrue(stage["data"] or status != "ok")
        self.assertLessEqual(len(list(self.folder("host-simt").iterdir())), 8)
        self.assertEqual(found["tests_leaks"]["data"]["passed"], 1)
        self.assertGreater(len(found["speculation_8b"]["data"]["cases"]), 8)
        self.assertGreater(len(found["kernels"]["data"]["benchmarks"]), 5)
        large = {"ffn": 176, "vocab": 400} if shapes else {"ffn": 1664, "vocab": 49280}
        self.assertIn(f'"inflate": {json.dumps(large)}', found["speculation_8b"]["command"])
        self.assertRegex(found["profile"]["command"], r"profile\.sh .*speclab generate .* --profile-steps$")


if __name__ == "__main__":
    unittest.main()

"""The tests of the GPU check: one process for each suite (tests.sh), and which suite a test belongs to."""

import json
import os
import re
import subprocess
import unittest

from gpu_copy import ROOT, Copy

PROGRAM = os.environ.get("SPECLAB_TEST_PROGRAM")
SUITES = "operations rows attention sampling acceptance model decoding persistent leaks".split()


class Suite(Copy):
    def test_only_its_own_tests_run_and_are_counted(self):
        body = """for t in $mine; do case $t in
            *.x) echo "[       OK ] $t (3 ms)" ;;
            *.y) echo "[  SKIPPED ] $t (0 ms)" ;;
            *.z) printf 'a_test.cpp:3: Failure\\n  got: 7\\n[  FAILED  ] %s (9 ms)\\n' $t; code=1 ;;
            esac; done; exit $code"""
        tests = [f"OnDeviceRows.{name}" for name in "xyz"]
        self.suites(*tests, "OnDeviceModel.x", "Families/OnDeviceHidden.x", body=body)
        result = self.tool("tests.sh", "cuda", "1", "rows", "bin/test_on_device")
        found = json.loads(result.stdout)
        counts = [found[name] for name in ("tests", "passed", "failed", "skipped", "not_run")]
        self.assertEqual((counts, result.returncode), ([3, 1, 1, 1, 0], 1))
        self.assertEqual(found["failed_tests"], "OnDeviceRows.z ")
        self.assertIn("a_test.cpp:3: Failure\n  got: 7", found["failures"])
        self.assertIn("1 of 3 tests failed, the first one OnDeviceRows.z:   got: 7", result.stderr)
        result = self.tool("tests.sh", "cuda", "1", "model", "bin/test_on_device")
        self.assertEqual((json.loads(result.stdout)["passed"], result.returncode), (2, 0))

    def test_a_program_that_breaks_is_a_failure(self):
        self.suites("OnDeviceRows.x", "OnDeviceRows.y", body="echo '[ RUN      ] OnDeviceRows.x'; kill -SEGV $$")
        result = self.tool("tests.sh", "cuda", "0", "rows", "bin/test_on_device")
        self.assertEqual((json.loads(result.stdout)["not_run"], result.returncode), (2, 1))
        self.assertIn("ended with status 139 in OnDeviceRows.x, after 0 of 2 tests", result.stderr)
        self.suites("OnDeviceRows.x", body="echo '[==========] nothing'")
        result = self.tool("tests.sh", "cuda", "0", "rows", "bin/test_on_device")
        self.assertEqual(result.returncode, 1)
        self.assertIn("after 0 of 1 tests", result.stderr)

    def test_a_suite_without_a_test_is_a_failure_and_one_that_skips_is_not(self):
        self.suites("OnDeviceRows.x", body="echo '[==========] Running 0 tests'")
        result = self.tool("tests.sh", "cuda", "0", "model", "bin/test_on_device")
        self.assertEqual(result.returncode, 1)
        self.assertIn("lists no test of the suite model", result.stderr)
        skips = "printf 'on_device.h:9: Skipped\\nno GPU: none\\n[  SKIPPED ] OnDeviceRows.x (0 ms)\\n'"
        self.suites("OnDeviceRows.x", body=skips)
        result = self.tool("tests.sh", "cuda", "0", "rows", "bin/test_on_device")
        self.assertEqual(result.returncode, 77)
        self.assertIn("no GPU: none", result.stderr)
        self.assertEqual(self.tool("tests.sh", "cuda", "0", "rows of trees", "bin/test_on_device").returncode, 2)

    def test_a_suite_that_hangs_leaves_what_it_found_and_the_next_one_runs(self):
        ignore = "trap '' TERM INT; while :; do sleep 1; done"
        body = f"""echo '[       OK ] OnDeviceRows.x (3 ms)'; echo '[ RUN      ] OnDeviceRows.slow'
            case $mine in *Rows*) {ignore} ;; esac"""
        self.suites("OnDeviceRows.x", "OnDeviceRows.slow", "OnDeviceModel.x", body=body)
        self.assertEqual(self.check("--backend", "cpu", "--stages", "rows,model", "--cap", 3).returncode, 0)
        stage = self.stage("tests_rows")
        self.assertEqual((stage["status"], stage["data"]["passed"]), ("capped", 1))
        self.assertIn("stopped after 3 seconds: interrupted in OnDeviceRows.slow, after 1 of 2 tests", stage["reason"])
        self.assertEqual(self.stage("tests_model")["status"], "ok")
        whole = self.stage("tests")
        self.assertEqual((whole["status"], whole["data"]["passed"], whole["data"]["not_run"]), ("capped", 2, 1))


class Names(unittest.TestCase):
    """Every test of tests/on_device belongs to exactly one suite."""

    SUITE = re.compile(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", re.M)

    def suites(self, folder):
        files = sorted((ROOT / "tests" / folder).glob("*_test.cpp"))
        return [suite for file in files for suite, _ in self.SUITE.findall(file.read_text(encoding="utf-8"))]

    def run_bash(self, script, *arguments):
        command = ["bash", "-c", f"source scripts/gpu_check/suites.sh; {script}", "bash", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()

    def test_the_suites_and_their_order(self):
        self.assertEqual(self.run_bash('echo "${suites[@]}"'), SUITES)

    def test_every_suite_of_the_sources_is_in_one_filter(self):
        found = set(self.suites("on_device"))
        self.assertGreater(len(found), 11)
        filters = [
            each.strip("*.")
            for each in ":".join(self.run_bash('for s in "${suites[@]}"; do suite_filter $s; done')).split(":")
        ]
        self.assertEqual(sorted(filters), sorted(found))
        for folder in {file.parent.name for file in (ROOT / "tests").glob("*/*_test.cpp")} - {"on_device"}:
            self.assertEqual([suite for suite in self.suites(folder) if "OnDevice" in suite], [], folder)
        for script in ("gpu_check.sh", "gpu_bundle.sh"):
            self.assertIn("test_on_device", (ROOT / "scripts" / script).read_text())

    def check(self, program):
        command = ["bash", "scripts/gpu_check/tests.sh", "--check", program]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    def test_a_test_of_no_suite_is_named(self):
        copy = Copy()
        copy.setUp()
        self.addCleanup(copy.doCleanups)
        copy.suites("OnDeviceRows.x", "OnDeviceOther.y")
        result = self.check(str(copy.root / "bin/test_on_device"))
        self.assertEqual((result.returncode, result.stderr.splitlines()[0]), (1, "OnDeviceOther.y belongs to no suite"))

        copy.suites("OnDeviceRows.x")
        self.assertEqual(self.check(str(copy.root / "bin/test_on_device")).returncode, 0)
        self.assertEqual(self.check("/bin/false").returncode, 1)

    @unittest.skipUnless(PROGRAM, "CTest names the program")
    def test_every_test_of_the_program_belongs_to_one_suite(self):
        result = self.check(PROGRAM)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    @unittest.skipUnless(PROGRAM, "CTest names the program")
    def test_the_suites_run_every_test_of_the_program(self):
        listed = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, check=True)
        tests = [line for line in listed.stdout.splitlines() if line.startswith("  ")]
        self.assertGreaterEqual(len(tests), len(self.suites("on_device")))
        skipped = 0
        for suite in SUITES:  # backend "cpu" is no device, so all of them skip
            command = ["bash", "scripts/gpu_check/tests.sh", "cpu", "0", suite, PROGRAM]
            result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            found = json.loads(result.stdout)
            self.assertEqual((result.returncode, found["passed"], found["failed"], found["not_run"]), (77, 0, 0, 0))
            self.assertIn("backend cpu is no device", result.stderr)
            skipped += found["skipped"]
        self.assertEqual(skipped, len(tests))


if __name__ == "__main__":
    unittest.main()

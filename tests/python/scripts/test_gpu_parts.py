"""The three parts of the GPU check: limits, records that survive interruptions, and input that cannot be used."""

import json
import os
import signal
import subprocess
import time
import unittest

from gpu_copy import NVIDIA_SMI, ROOT, Copy


def plan(*arguments, root=ROOT):
    command = ["bash", str(root / "scripts/gpu_check.sh"), "--plan", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    stages = [(int(part), stage, int(cap)) for part, stage, cap, *rest in rows if stage != "sum"]
    return result, stages


class Plan(unittest.TestCase):
    def test_the_limits_of_each_part_add_up_to_less_than_its_time(self):
        result, stages = plan()
        self.assertEqual(result.returncode, 0, result.stderr)
        sums = {part: sum(cap for of, _, cap in stages if of == part) for part in (1, 2, 3)}
        for part, seconds in sums.items():
            self.assertGreater(seconds, 0)
            self.assertLess(seconds, 580)
            self.assertIn(f"{part}     sum                    {seconds} of 580\n", result.stdout)
        self.assertEqual(len({name for _, name, _ in stages}), len(stages))
        result, _ = plan("--seconds", str(sums[1]))
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"the stages of part 1 may take {sums[1]} s, expected less than the {sums[1]} s", result.stderr)

    def test_the_most_valuable_stages_come_first(self):
        _, stages = plan()
        first = [name for part, name, _ in stages if part == 1]
        self.assertTrue(all(name.startswith("tests_") for name in first[:9]))
        self.assertEqual(first[9:], ["forwards_8b", "speculation_8b", "speculation_1b", "speculation_135m"])
        third = [name for part, name, _ in stages if part == 3]
        self.assertEqual(
            third,
            [
                "forwards_8b_serial",
                "forwards_8b_graphs",
                "transformers",
                "memcheck",
                "racecheck",
                "profile",
                "gaps",
            ],
        )


class Records(Copy):
    def test_each_part_has_one_file_and_few_files_are_left(self):
        self.add("bin/speclab", "echo '{}'")
        self.add("bin/speclab_bench", "exit 3")
        self.suites("OnDeviceRows.x")
        self.assertEqual(self.check("--backend", "cpu", "--seconds", 100).returncode, 1)
        _, stages = plan()
        for part in (1, 2, 3):
            record = self.record(part)
            self.assertEqual((record["part"], record["device"], record["dry_run"]), (part, "cpu", True))
            self.assertEqual(list(record["stages"]), ["machine", *(name for of, name, _ in stages if of == part)])
        files = sorted(file.name for file in self.folder().iterdir())
        self.assertLessEqual(len(files), 8)
        self.assertEqual(files[:2], ["check-part1.json", "check-part1.log"])
        self.assertIn("== kernels (failed)", (self.folder() / "check-part2.log").read_text() + "== kernels (failed)")

    def test_a_part_runs_alone(self):
        self.add("bin/speclab", "echo '{}'")
        self.assertEqual(self.check("--backend", "cpu", "--part", 2, "--cap", 0).returncode, 0)
        self.assertEqual({file.name for file in self.folder().iterdir()} - {"check-part2.log"}, {"check-part2.json"})
        self.assertIn("prefill_8b", self.record(2)["stages"])

    def test_a_stage_that_runs_again_replaces_its_result_and_says_so(self):
        self.add("bin/speclab", """echo '{"run": 1}'""")
        self.check("--backend", "cpu", "--stages", "forwards_135m,forwards_1b")
        first = self.stage("forwards_135m")
        self.assertNotIn("replaces", first)
        self.add("bin/speclab", """echo '{"run": 2}'""")
        result = self.check("--backend", "cpu", "--stages", "forwards_135m")
        self.assertIn(f"[replaces the result of {first['date']}, ok]", result.stdout)
        stage = self.stage("forwards_135m")
        self.assertEqual((stage["data"], stage["replaces"]), ({"run": 2}, f"{first['date']}, ok"))
        self.assertEqual(self.stage("forwards_1b")["data"], {"run": 1})
        self.assertEqual(sorted(self.record(2)["stages"]), ["forwards_135m", "forwards_1b"])
        self.assertEqual((self.folder() / "check-part2.json").read_text().count('"forwards_135m": '), 1)

    def start(self, *arguments):
        command = ["bash", str(self.root / "scripts/gpu_check.sh"), *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def interrupted(self, number):
        body = f"case $* in *ffn*) touch {self.root}/begun; sleep 60 ;; *) echo '{{}}' ;; esac"
        self.add("bin/speclab", body)
        running = self.start("--backend", "cpu", "--stages", "forwards_135m,forwards_1b,prefill_8b")
        while not (self.root / "begun").exists():
            time.sleep(0.05)
        if number == signal.SIGKILL:
            os.killpg(running.pid, number)
        else:
            os.kill(running.pid, number)
        output, _ = running.communicate(timeout=30)
        return running.returncode, output

    def test_an_interrupted_check_keeps_what_was_measured(self):
        code, output = self.interrupted(signal.SIGTERM)
        self.assertEqual(code, 130, output)
        self.assertEqual(list(self.record(2)["stages"]), ["forwards_135m", "forwards_1b"])
        self.assertEqual(self.stage("forwards_135m")["status"], "ok")
        stage = self.stage("forwards_1b")
        self.assertEqual(stage["status"], "capped")
        self.assertIn("the whole check was interrupted", stage["reason"])

    def test_a_killed_check_keeps_what_was_measured_and_can_go_on(self):
        self.interrupted(signal.SIGKILL)
        self.assertEqual(list(self.record(2)["stages"]), ["forwards_135m"])
        (self.folder() / "check-part2.json.new").write_text('{"half":')  # killed while it wrote
        self.add("bin/speclab", "echo '{}'")
        self.assertEqual(self.check("--backend", "cpu", "--stages", "prefill_8b").returncode, 0)
        self.assertEqual(list(self.record(2)["stages"]), ["forwards_135m", "prefill_8b"])
        self.assertEqual([file.name for file in self.folder().iterdir()], ["check-part2.json"])

    def test_text_that_only_begins_and_ends_like_json_is_not_kept(self):
        for text in ('{"a": [1, 2}', '{"a": "b}', '{"a": 1}}', "{]}"):
            self.add("bin/speclab", f"echo '{text}'")
            self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m").returncode, 1)
            self.assertEqual(
                (self.stage("forwards_135m")["data"], self.stage("forwards_135m")["status"]), (None, "failed")
            )
        self.add("bin/speclab", r"""printf '{"a": "\\"}[",\n "b": [{}, []]}\n'""")
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m").returncode, 0)
        self.assertEqual(self.stage("forwards_135m")["data"], {"a": '"}[', "b": [{}, []]})


class BadInput(Copy):
    """One sentence and exit status 2; what was measured before is kept."""

    def refused(self, *arguments):
        result = self.check(*arguments)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertRegex(result.stderr, r"\Agpu_check: [^\n]*\n\Z")
        return result.stderr

    def test_parts_and_stages(self):
        self.assertIn("--part 4: expected 1, 2 or 3", self.refused("--part", "4"))
        self.assertIn("there is no stage forward_8b", self.refused("--stages", "forward_8b"))
        text = self.refused("--backend", "cpu", "--part", "2", "--stages", "forwards_1b,profile")
        self.assertIn("stage profile belongs to part 3", text)
        self.assertFalse(self.folder().exists())

    def test_plants_are_for_dry_runs(self):
        self.assertIn("only a dry run", self.refused("--plant", "hang=profile"))
        for plant in ("hang", "hang=", "crash=profile", "hang=forward_8b", "sticky=profile"):
            self.assertIn(f"--plant {plant}", self.refused("--backend", "cpu", "--plant", plant))
        for seconds in ("0", "soon", "1.5", "-1"):
            text = self.refused("--backend", "cpu", "--plant", "hang=profile", "--plant-seconds", seconds)
            self.assertIn(f"--plant-seconds {seconds}: expected a whole number", text)

    def test_other_shapes_are_for_dry_runs(self):
        self.assertIn("only a dry run takes other shapes", self.refused("--shapes", "ffn=112/ffn=176"))
        for shapes in ("ffn=112", "ffn=112/", "/ffn=112", "a=1/b=2/c=3"):
            text = self.refused("--backend", "cpu", "--shapes", shapes)
            self.assertIn(f"--shapes {shapes}: expected two shapes", text)

    def test_an_out_that_cannot_be_written(self):
        for out in ("/proc/check", str(self.model)):
            self.assertIn(f"--out {out}: cannot write there", self.refused("--backend", "cpu", "--out", out))

    def test_a_record_of_another_device_or_a_damaged_one(self):
        self.add("bin/speclab", "echo '{}'")
        out = self.root / "out"
        arguments = ("--stages", "forwards_135m", "--out", out)
        self.assertEqual(self.check("--backend", "cpu", *arguments).returncode, 0)
        file = out / "check-part2.json"
        good = file.read_text()
        text = self.refused("--backend", "host-simt", *arguments)
        self.assertIn("is a record of device cpu, backend cpu, dry_run true", text)
        self.add("fakes/nvidia-smi", NVIDIA_SMI)
        text = self.refused(*arguments)
        self.assertIn("this check is of device nvidia-h200, backend cuda, dry_run false", text)
        self.assertEqual(file.read_text(), good)
        for damaged in (
            good[:-9],
            "",
            good + "}",
            good.replace('"forwards_135m": {', '"forwards_135m": 3 {'),
            "[]",
            "{}",
        ):
            file.write_text(damaged)
            self.assertIn("check-part2.json is damaged", self.refused("--backend", "cpu", *arguments))
            self.assertEqual(file.read_text(), damaged)
        # The files of other parts do not matter.
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_8b", "--out", out).returncode, 0)
        self.assertEqual(json.loads((out / "check-part1.json").read_text())["part"], 1)


class Planted(Copy):
    """Planted failures in a dry run with stand-ins; tests/slow runs the real programs."""

    def test_everything_else_arrives(self):
        self.add(
            "bin/speclab", "case $1 in run) mkdir -p ${!#}; echo '{}' > ${!#}/summary.json ;; *) echo '{}' ;; esac"
        )
        self.add(
            "bin/speclab_bench",
            """for i; do case $i in --benchmark_out=*) echo '{"run_name": 1}' > ${i#*=} ;; esac; done""",
        )
        names = "Operations Rows Attention Sampling Acceptance Model Decoding Persistent Leaks".split()
        body = """plant=$SPECLAB_TEST_PLANT
            for t in $mine; do echo "[ RUN      ] $t"; case $plant,$t in
            hang,*.b) trap '' TERM; while :; do sleep 1; done ;;
            sticky,*.b) printf 't.cpp:1: Failure\\nplanted: an illegal memory access\\n[  FAILED  ] %s (1 ms)\\n' $t; code=1 ;;
            *) echo "[       OK ] $t (1 ms)" ;; esac; done; exit $code"""
        self.suites(*(f"OnDevice{name}.{test}" for name in names for test in "ab"), body=body)
        begun = time.monotonic()
        plants = "hang=forwards_8b,hang=attention,sticky=rows,slow=prefill_135m"
        result = self.check("--backend", "host-simt", "--plant", plants, "--plant-seconds", 3)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertLess(time.monotonic() - begun, 100)
        expected = {
            "forwards_8b": ("capped", "stopped after 3 seconds: planted: this stage hangs"),
            "tests_attention": ("capped", "stopped after 3 seconds: interrupted in OnDeviceAttention.b, after 1 of 2"),
            "tests_rows": ("failed", "1 of 2 tests failed, the first one OnDeviceRows.b: planted: an illegal memory"),
            "prefill_135m": ("capped", "stopped after 3 seconds: planted: this stage is slow"),
        }
        _, planned = plan()
        for part, name, _ in planned:
            stage = self.record(part, "host-simt")["stages"][name]
            status, reason = expected.get(name, ("ok", ""))
            if name in ("transformers", "memcheck", "racecheck", "profile", "gaps"):
                self.assertIn(stage["status"], ("ok", "unavailable"))
                self.assertNotEqual(stage["status"] == "unavailable", stage["reason"] == "")
                continue
            self.assertEqual(stage["status"], status, name)
            self.assertTrue(stage["reason"].startswith(reason), stage["reason"])


if __name__ == "__main__":
    unittest.main()

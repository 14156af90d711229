"""scripts/slurm with stand-ins for Slurm and speclab. scripts/slurm/test_slurm.sh runs the same scripts on a real Slurm."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SLURM = ROOT / "scripts/slurm"
SPECLAB = """#!/bin/sh
echo "$*" >> {folder}/speclab.calls
case "$*" in *--dry-run*) cat {folder}/plan; exit "${{DRY_RUN:-0}}" ;; esac
case "${{HOW:-0}}" in
  waits) trap 'echo stopped >> {folder}/speclab.calls; exit 130' TERM; touch {folder}/started; while :; do sleep 0.1; done ;;
  killed) kill -KILL $$ ;;
  *) exit "${{HOW:-0}}" ;;
esac
"""
SBATCH = """#!/bin/sh
number=$(cat {folder}/next); echo $((number + 1)) > {folder}/next
for word in "$@"; do printf '%s\\n' "$word"; done > {folder}/sbatch.$number
echo "$number;cluster"
"""


class Slurm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("next", "100")
        self.write("plan", '"budget": "fixed"')
        self.write("my.json", "{}")
        self.program("speclab", SPECLAB)
        self.program("sbatch", SBATCH)
        self.program("scontrol", '#!/bin/sh\necho "$*" >> {folder}/scontrol.calls\n')

    def write(self, name, text):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")

    def program(self, name, text):
        self.write(name, text.format(folder=self.folder))
        (self.folder / name).chmod(0o755)

    def read(self, name):
        file = self.folder / name
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def start(self, script, *words, **environment):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SPECLAB"))}
        env |= {"PATH": f"{self.folder}:{env['PATH']}", **environment}
        return subprocess.Popen(
            [SLURM / script, *map(str, words)],
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_script(self, script, *words, **environment):
        process = self.start(script, *words, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


class Submit(Slurm):
    def submit(self, *words, **environment):
        settings = {"SPECLAB_BINARY": str(self.folder / "speclab"), "SPECLAB_OUT": str(self.folder / "run")}
        return self.run_script("submit.sh", *words, **{**settings, **environment})

    def job(self, number):
        return self.read(f"sbatch.{number}").splitlines()

    def test_an_array_and_a_merge_job_that_depends_on_it(self):
        code, out, err = self.submit("my.json", 3, "--partition=long", "--", "--set", "cases=[1, 2]")
        self.assertEqual(code, 0, err)
        self.assertEqual(out.splitlines()[-1], "shards 100 merge 101")
        array, merge = self.job(100), self.job(101)
        for option in ("--array=1-3", "--requeue", "--signal=B:USR1@120", "--partition=long", f"--chdir={ROOT}"):
            self.assertIn(option, array)
        work = [f"{self.folder}/speclab", f"{self.folder}/my.json", f"{self.folder}/run", "3", "own"]
        self.assertEqual(array[-8:], ["scripts/slurm/shard.sh", *work, "--set", "cases=[1, 2]"])
        for option in ("--dependency=afterok:100", "--kill-on-invalid-dep=yes", "--partition=long"):
            self.assertIn(option, merge)
        self.assertEqual(merge[-3:], ["scripts/slurm/merge.sh", f"{self.folder}/speclab", f"{self.folder}/run"])
        self.assertTrue((self.folder / "run/logs").is_dir())
        self.assertIn(
            f"run {self.folder}/my.json --dry-run --shard 3/3 --set cases=[1, 2]\n", self.read("speclab.calls")
        )

    def test_the_first_shard_measures_the_costs(self):
        for plan in ('"budget": "auto"', '"schedule": "bandit"'):
            self.write("plan", plan)
            self.write("next", "100")
            code, out, err = self.submit("my.json", 3)
            self.assertEqual(code, 0, err)
            self.assertEqual(out.splitlines()[-1], "shards 100:101 merge 102")
            first, rest = self.job(100), self.job(101)
            self.assertIn("--array=1", first)
            self.assertIn("--array=2-3", rest)
            self.assertIn("--dependency=after:100", rest)
            self.assertEqual((first[-1], rest[-1]), ("of-first", "of-first"))
            self.assertIn("--dependency=afterok:100:101", self.job(102))

    def test_a_given_table_of_costs_is_for_all_shards(self):
        self.write("plan", '"budget": "auto"')
        for words in (("--costs", "table.json"), ("--costs=table.json",)):
            self.write("next", "100")
            self.assertEqual(self.submit("my.json", 3, "--", *words)[0], 0)
            self.assertIn("--array=1-3", self.job(100))
            self.assertIn("own", self.job(100))

    def test_nothing_is_submitted_when_something_is_wrong(self):
        self.write("plan", '"budget": "auto" "target_name": "one"')
        for words, environment, text in (
            (("my.json",), {}, "usage"),
            (("my.json", "0"), {}, 'N is "0"'),
            (("my.json", "two"), {}, 'N is "two"'),
            (("none.json", "2"), {}, "none.json"),
            (("my.json", "2"), {"SPECLAB_BINARY": str(self.folder / "none")}, "no binary"),
            (("my.json", "2"), {"DRY_RUN": "2"}, ""),
            (("my.json", "2"), {}, "several targets"),
        ):
            code, _, err = self.submit(*words, **environment)
            self.assertEqual(code, 2, err)
            self.assertIn(text, err)
        self.assertEqual(self.read("next").strip(), "100")


class Shard(Slurm):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "run"
        self.out.mkdir()

    def words(self, costs="own"):
        return (self.folder / "speclab", "my.json", self.out, 3, costs, "--threads", 2)

    def shard(self, costs="own", **environment):
        task = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "100"}
        return self.run_script("shard.sh", *self.words(costs), **task, **environment)

    def test_a_new_shard_takes_the_options_and_a_begun_one_the_folder(self):
        self.assertEqual(self.shard()[0], 0)
        self.assertEqual(self.read("speclab.calls"), f"run my.json --out {self.out}/shard-2 --shard 2/3 --threads 2\n")
        for file in ("config.json", "targets.json"):
            self.write(f"run/shard-2/{file}", "{}")
            self.assertEqual(self.shard()[0], 0)
            calls = self.read("speclab.calls").splitlines()
            self.assertEqual(calls[-1], f"run --resume {self.out}/shard-2 --shard 2/3")
            shutil.rmtree(self.out / "shard-2")

    def test_failed_lines_are_no_failure_of_the_task_but_errors_are(self):
        for how, code in (("1", 0), ("2", 2), ("3", 3)):
            self.assertEqual(self.shard(HOW=how)[0], code)
        self.assertEqual(self.read("scontrol.calls"), "")

    def test_a_killed_speclab_is_started_again_but_not_for_ever(self):
        self.assertEqual(self.shard(HOW="killed")[0], 137)
        self.assertEqual(self.read("scontrol.calls"), "requeue 100_2\n")
        self.assertEqual(self.shard(HOW="killed", SLURM_RESTART_COUNT="5")[0], 137)
        self.assertEqual(self.shard(HOW="killed", SLURM_RESTART_COUNT="1", SPECLAB_MOST_RESTARTS="1")[0], 137)
        self.assertEqual(self.read("scontrol.calls"), "requeue 100_2\n", "it gave up")

    def signalled(self, number, to_speclab):
        """Sends a signal to a task whose speclab runs, and to speclab as Slurm does when it ends a task."""
        (self.folder / "started").unlink(missing_ok=True)
        task = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "100", "HOW": "waits"}
        process = self.start("shard.sh", *self.words(), **task)
        end = time.monotonic() + 30
        while not (self.folder / "started").exists() and time.monotonic() < end:
            time.sleep(0.05)
        if to_speclab:
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), number)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return process.returncode, out + err

    def test_a_task_whose_time_is_up_stops_speclab_and_requeues_itself(self):
        code, text = self.signalled(signal.SIGUSR1, to_speclab=False)
        self.assertEqual(code, 130, text)
        self.assertIn("stopped", self.read("speclab.calls"))
        self.assertEqual(self.read("scontrol.calls"), "requeue 100_2\n")

    def test_a_task_that_slurm_ends_leaves_the_job_to_slurm(self):
        code, text = self.signalled(signal.SIGTERM, to_speclab=True)
        self.assertEqual(code, 130, text)
        self.assertEqual(self.read("speclab.calls").count("stopped"), 1, "one signal, not two")
        self.assertEqual(self.read("scontrol.calls"), "")

    def test_a_task_whose_time_is_up_while_it_waits_for_the_lock_does_not_start_speclab(self):
        for file in ("config.json", "run.lock"):
            self.write(f"run/shard-2/{file}", "{}")
        self.program(
            "flock", "#!/bin/sh\ntouch {folder}/started\nuntil [ -e {folder}/freed ]; do sleep 0.05; done\nexit $CODE\n"
        )
        for number, code_of_flock, requeued in (
            (signal.SIGUSR1, "0", "requeue 100_2\n"),
            (signal.SIGUSR1, "1", "requeue 100_2\n"),
            (signal.SIGTERM, "0", ""),
        ):
            for name in ("started", "freed", "scontrol.calls"):
                (self.folder / name).unlink(missing_ok=True)
            task = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "100", "CODE": code_of_flock}
            process = self.start("shard.sh", *self.words(), **task)
            end = time.monotonic() + 30
            while not (self.folder / "started").exists() and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(number)
            time.sleep(0.1)
            self.write("freed", "")
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, out + err)
            self.assertEqual(self.read("scontrol.calls"), requeued)
            self.assertEqual(self.read("speclab.calls"), "")

    def test_the_table_of_costs_is_that_of_the_first_shard(self):
        self.write("run/shard-1/environment.json", "{}")
        self.assertEqual(self.shard("of-first")[0], 0)
        self.assertIn(f"--threads 2 --costs {self.out}/shard-1\n", self.read("speclab.calls"))

    def test_the_merge_job_names_all_shards(self):
        for shard in ("shard-1", "shard-2", "logs"):
            (self.out / shard).mkdir()
        self.assertEqual(self.run_script("merge.sh", self.folder / "speclab", self.out, HOW="1")[0], 1)
        self.assertEqual(
            self.read("speclab.calls"), f"merge {self.out}/shard-1 {self.out}/shard-2 --out {self.out}/merged\n"
        )


class SameRecord(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        line = {
            "order": 1,
            "tokens": [1, 2],
            "wall_ns": 5,
            "steps": [{"ns": [1, 2], "rows": 3}],
            "calibration_rounds": 1,
        }
        self.lines = [line, {**line, "order": 2}]
        for run in ("a", "b"):
            self.write(run, self.lines)

    def write(self, run, lines, torn=""):
        (self.folder / run / "cases").mkdir(parents=True, exist_ok=True)
        (self.folder / run / "config.json").write_text("{}")
        (self.folder / run / "cases/x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)

    def compare(self, *options):
        words = [sys.executable, SLURM / "same_record.py", *options, self.folder / "a", self.folder / "b"]
        result = subprocess.run(words, capture_output=True, text=True)
        return result.returncode, result.stdout

    def test_times_do_not_count_but_all_else_does(self):
        other = json.loads(json.dumps(self.lines))
        other[0] |= {"wall_ns": 9, "calibration_rounds": 7}
        other[1]["steps"][0]["ns"] = [4]
        self.write("b", other)
        self.assertEqual(self.compare(), (0, "same record\n"))
        other[1]["steps"][0]["rows"] = 4
        self.write("b", other)
        self.assertEqual(self.compare(), (1, "cases/x.jsonl: line 2 differs\n"))
        self.write("b", other[::-1])
        self.assertEqual(self.compare()[0], 1, "the order counts")
        self.write("b", self.lines[:1])
        self.assertEqual(self.compare(), (1, "cases/x.jsonl has 2 and 1 lines\n"))
        self.write("b", self.lines)
        (self.folder / "b/config.json").write_text('{"name": "b"}')
        self.assertEqual(self.compare(), (1, "config.json differs\n"))

    def test_kept_lines_are_a_beginning_of_the_file(self):
        self.write("b", [*self.lines, self.lines[0]], torn='{"half')
        self.assertEqual(self.compare("--kept")[0], 0)
        self.write("a", self.lines, torn='{"half of a line')
        self.assertEqual(self.compare("--kept")[0], 0, "a line in flight may be lost")
        changed = [{**self.lines[0], "wall_ns": 6}, self.lines[1]]
        self.write("b", changed)
        self.assertEqual(self.compare("--kept")[0], 1, "byte for byte")
        self.write("b", self.lines[:1])
        self.assertEqual(self.compare("--kept")[0], 1)


if __name__ == "__main__":
    unittest.main()

"""gpu_check.sh without a GPU: stages, time caps, missing tools, joining the model, and the page made from the records.

Programs are replaced by stand-ins in a copy of the scripts. Real programs run in `scripts/gpu_check.sh --backend cpu`.
"""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/gpu_check"))

import gpu_page
import stages
from gguf_file import GgufFile
from gpu_copy import NVIDIA_SMI, Copy


class Stages(Copy):
    def test_what_a_program_prints_is_kept(self):
        self.add("bin/speclab", """echo '{"engine": 1}'""")
        result = self.check("--backend", "cpu", "--stages", "forwards_8b")
        self.assertEqual(result.returncode, 0, result.stderr)
        stage = self.stage("forwards_8b")
        self.assertEqual((stage["status"], stage["reason"], stage["data"]), ("ok", "", {"engine": 1}))
        self.assertEqual((stage["backend"], stage["dry_run"]), ("cpu", True))
        self.assertIn("--inflate ffn=1664", stage["command"])
        self.assertNotIn(str(self.root), stage["command"])
        self.assertEqual([file.name for file in (self.root / "results/gpu").iterdir()], [])

    def test_other_launches_are_asked_for_by_name(self):
        self.add("bin/speclab", """echo '{"words": "'"$*"'"}'""")
        for name, words in (
            ("1b_persistent", "--inflate ffn=1600 --rows 1,2 .* --kernels persistent"),
            ("8b_serial", "--inflate ffn=1664,vocab=49280 --rows 1,2 .* --kernels serial"),
        ):
            result = self.check("--backend", "host-simt", "--stages", f"forwards_{name}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(
                self.stage(f"forwards_{name}", "host-simt")["data"]["words"],
                f"^bench --model .* {words} --json --out [^ ]+$",
            )

    def test_prompts_take_both_ways_where_there_is_a_library(self):
        self.add("bin/speclab", """echo '{"words": "'"$*"'"}'""")
        for backend, library in (("host-simt", " --prefill cublaslt"), ("cpu", "")):
            words = f"--inflate ffn=1664,vocab=49280 --prompts 17 --repeats 1{library} --backend {backend} --device 0"
            result = self.check("--backend", backend, "--stages", "prefill_135m,prefill_8b")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(
                self.stage("prefill_8b", backend)["data"]["words"], rf"^bench --model [^ ]+ {words} --json --out [^ ]+$"
            )
            self.assertNotIn("--inflate", self.stage("prefill_135m", backend)["data"]["words"])

    def test_each_result_is_there_before_the_next_stage_begins(self):
        self.add(
            "bin/speclab",
            f"""cp {self.root}/build/gpu_dry_run/cpu/check-part2.json {self.root}/seen 2> /dev/null; echo '{{}}'""",
        )
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m,prefill_8b").returncode, 0)
        self.assertEqual(list(json.loads((self.root / "seen").read_text())["stages"]), ["forwards_135m"])

    def test_time_is_capped_and_the_rest_says_so(self):
        self.add("bin/speclab", "[ $1 = bench ] && echo '{\"half\": [' && sleep 30")
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m", "--cap", 1).returncode, 0)
        stage = self.stage("forwards_135m")
        self.assertEqual((stage["status"], stage["reason"], stage["data"]), ("capped", "stopped after 1 seconds", None))
        self.assertLess(stage["seconds"], 29)
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m", "--seconds", 0).returncode, 0)
        stage = self.stage("forwards_135m")
        self.assertEqual(stage["status"], "unavailable")
        self.assertIn("the 0 seconds of part 2 were over", stage["reason"])

    def test_what_a_stopped_stage_has_written_is_kept(self):
        self.add(  # the check also asks for the version, without a limit
            "bin/speclab",
            """[ $1 = bench ] || exit 0; for file; do :; done
            case $* in *--prompts*) ;; *) echo '{"engine": {"contexts": [1]}}' > "$file" ;; esac; echo '{"half": ['; exec sleep 30""",
        )
        stages = ("--stages", "forwards_135m,prefill_8b", "--cap", 1)
        self.assertEqual(self.check("--backend", "cpu", *stages).returncode, 0)
        stage = self.stage("forwards_135m")
        self.assertEqual((stage["status"], stage["data"]), ("capped", {"engine": {"contexts": [1]}}))
        stage = self.stage("prefill_8b")
        self.assertEqual(
            (stage["status"], stage["data"]), ("capped", None), "it does not get the file of the stage before it"
        )

    def test_a_missing_program_is_named(self):
        self.assertEqual(
            self.check("--backend", "cpu", "--stages", "forwards_135m,kernels,tests,memcheck").returncode, 0
        )
        for name in ("forwards_135m", "kernels", "tests_rows", "memcheck"):
            stage = self.stage(name)
            self.assertEqual((stage["status"], stage["data"]), ("unavailable", None), name)
            self.assertIn("neither in bin/ nor in build/release/", stage["reason"])

    def test_what_cannot_run_here_is_not_a_failure_but_a_failure_is(self):
        self.add("bin/speclab", """echo 'error: backend cuda: got "cu\\da"' >&2; printf 'a\\tb\\n' >&2; exit 2""")
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m").returncode, 0)
        stage = self.stage("forwards_135m")
        self.assertEqual(stage["status"], "unavailable")
        self.assertEqual(stage["reason"], 'error: backend cuda: got "cu\\da"\na\tb')
        self.add("bin/speclab", "echo '{}'; echo wrong ids >&2; exit 1")
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m").returncode, 1)
        stage = self.stage("forwards_135m")
        self.assertEqual((stage["status"], stage["reason"], stage["data"]), ("failed", "wrong ids", {}))
        self.add("bin/speclab", "echo not JSON")
        self.assertEqual(self.check("--backend", "cpu", "--stages", "forwards_135m").returncode, 1)
        self.assertEqual(self.stage("forwards_135m")["reason"], "it wrote no JSON")

    def test_a_gpu_gets_a_folder_of_its_own_and_a_page(self):
        self.add("fakes/nvidia-smi", NVIDIA_SMI)
        self.add("bin/speclab", "echo '{}'")
        result = self.check("--stages", "machine,tests,forwards_135m")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.stage("machine", "cuda")["data"]["gpu"]["driver_version"], "580.1")
        self.assertEqual(self.stage("forwards_135m", "cuda")["dry_run"], False)
        page = (self.root / "results/gpu/README.md").read_text()
        self.assertIn("## nvidia-h200\n\nNVIDIA H200, 143771 MiB, driver 580.1", page)

    def test_the_machine_stage_says_what_shares_or_slows_the_gpu(self):
        self.add("fakes/nvidia-smi", NVIDIA_SMI)
        pipes = self.root / "pipes"
        pipes.mkdir()
        for code, pipe, runs, why in (
            (0, False, "yes", "a process of it runs"),
            (1, False, "no", f"no process of it runs, and there is no {pipes}/control"),
            (3, False, "unknown", f"there is no {pipes}/control, but pgrep cannot list processes"),
            (1, True, "yes", f"its control pipe {pipes}/control exists"),
        ):
            self.add("fakes/pgrep", f"exit {code}")
            if pipe:
                (pipes / "control").touch()
            with unittest.mock.patch.dict(os.environ, {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}):
                self.assertEqual(self.check("--stages", "machine").returncode, 0)
            data = self.stage("machine", "cuda")["data"]
            self.assertEqual(data["mps"], {"runs": runs, "why": why})
        gpu = data["gpu"]
        self.assertEqual(
            (gpu["persistence_mode"], gpu["ecc.mode.current"], gpu["compute_mode"], data["cuda_driver"]),
            ("Enabled", "Disabled", "Default", "13.0"),
        )
        page = (self.root / "results/gpu/README.md").read_text()
        self.assertIn("Persistence mode Enabled, ECC Disabled, compute mode Default; MPS: yes (its control pipe", page)

    def test_a_gpu_that_another_process_uses_is_not_trusted(self):
        self.add(
            "fakes/nvidia-smi",
            NVIDIA_SMI.replace("*query-compute-apps*) ;;", "*query-compute-apps*) echo '77, 900 MiB' ;;"),
        )
        self.add("bin/speclab", "echo '{}'")
        self.assertEqual(self.check("--stages", "machine,forwards_135m").returncode, 0)
        stage = self.stage("machine", "cuda")
        self.assertEqual((stage["status"], stage["data"]["other_processes"]), ("unavailable", 1))
        self.assertEqual(stage["reason"], "1 other process(es) use this GPU: do not trust the times")
        self.assertEqual(self.stage("forwards_135m", "cuda")["status"], "ok", "it is measured all the same")

    def test_what_was_measured_before_a_stage_that_cannot_run_is_kept(self):
        self.add("fakes/nvidia-smi", NVIDIA_SMI)
        problem = "error: memory of NVIDIA H200 (device 0) for 900.0 MiB more: got 80.0 MiB free of 100.0"
        self.add("bin/speclab", f"case $* in *inflate*) echo '{problem}' >&2; exit 2 ;; *) echo '{{}}' ;; esac")
        self.assertEqual(self.check("--stages", "machine,forwards_135m,forwards_8b").returncode, 0)
        self.assertEqual(self.stage("forwards_135m", "cuda")["status"], "ok")
        stage = self.stage("forwards_8b", "cuda")
        self.assertEqual((stage["status"], stage["reason"]), ("unavailable", problem))
        self.assertIn(problem, (self.root / "results/gpu/README.md").read_text())

    def test_an_error_of_cuda_is_a_failure(self):
        self.add("fakes/nvidia-smi", NVIDIA_SMI)
        problem = "error: cudaStreamSynchronize on NVIDIA H200 (device 0), last kernel accept: got an illegal memory access, expected success"
        self.add("bin/speclab", f"echo '{problem}' >&2; exit 2")
        self.assertEqual(self.check("--stages", "machine,forwards_135m").returncode, 1)
        stage = self.stage("forwards_135m", "cuda")
        self.assertEqual((stage["status"], stage["reason"]), ("failed", problem))

    def test_no_driver_is_said_and_nothing_is_measured(self):
        self.add(
            "fakes/nvidia-smi", "echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9"
        )
        self.add("bin/speclab", "echo 'error: backend cuda: got no CUDA driver' >&2; exit 2")
        result = self.check("--stages", "machine,forwards_135m", "--out", self.root / "out")
        self.assertEqual(result.returncode, 2)
        found = stages.load_stages(self.root / "out")
        machine = found["machine"]
        self.assertEqual(machine["status"], "unavailable")
        self.assertIn("could not communicate with the driver", machine["reason"])
        stage = found["forwards_135m"]
        self.assertEqual((stage["status"], stage["reason"]), ("unavailable", "error: backend cuda: got no CUDA driver"))

    def test_unknown_words(self):
        for arguments in (["--backend", "opencl"], ["--seconds", "ten"], ["--stage", "x"], ["--stages"]):
            self.assertEqual(self.check(*arguments).returncode, 2, arguments)


class Parts(Copy):
    def join(self, *contents):
        text = (self.root / "scripts/gpu_check.sh").read_text()
        wanted = hashlib.sha256(b"GGUF the model").hexdigest()
        real = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        self.assertIn(real, text)
        (self.root / "scripts/gpu_check.sh").write_text(text.replace(real, wanted))
        names = []
        for i, content in enumerate(contents):
            names.append(str(self.root / f"part{i}"))
            pathlib.Path(names[-1]).write_bytes(content)
        return self.check("--backend", "cpu", "--stages", "machine", "--model-parts", ",".join(names))

    def test_parts_are_joined_in_order(self):
        self.model.unlink()
        self.assertEqual(self.join(b"GGUF ", b"the model").returncode, 0)
        self.assertEqual(self.model.read_bytes(), b"GGUF the model")

    def test_another_hash_is_refused_and_leaves_nothing(self):
        self.model.unlink()
        result = self.join(b"the model", b"GGUF ")
        self.assertEqual(result.returncode, 2)
        self.assertIn("(14 bytes) has SHA-256", result.stderr)
        self.assertEqual(list((self.root / "models").iterdir()), [])

    def test_a_missing_part(self):
        result = self.check("--backend", "cpu", "--model-parts", "/nowhere")
        self.assertEqual(result.returncode, 2)
        self.assertIn("could not be read", result.stderr)

    def test_no_model(self):
        self.model.unlink()
        result = self.check("--backend", "cpu")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--model-parts", result.stderr)


class Transfers(unittest.TestCase):
    """How gpu_bundle.sh cuts the bundle into transfers."""

    def cut(self, limit, part, model, bundle):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = pathlib.Path(folder.name)
        contents = {"model": os.urandom(model), "bundle": os.urandom(bundle)}
        for name, content in contents.items():
            (place / name).write_bytes(content)
        (place / "transfer09").mkdir()  # left by an earlier run
        script = f"set -euo pipefail; source {ROOT}/scripts/gpu_bundle/gpu_transfers.sh; transfers . {limit} {part} model bundle"
        subprocess.run(["bash", "-c", script], check=True, cwd=place)
        for name, content in contents.items():
            files = sorted(place.glob(f"transfer*/{name}.part*"), key=lambda file: file.name)
            self.assertEqual(b"".join(file.read_bytes() for file in files), content)
        sizes = [
            {file.name: file.stat().st_size for file in each.iterdir()} for each in sorted(place.glob("transfer*"))
        ]
        for each in sizes:
            self.assertLessEqual(sum(each.values()), limit)
            self.assertLessEqual(max(each.values()), part)
        return sizes

    def test_the_bundle_is_whole_where_it_fits(self):
        expected = [{"model.part01": 60}, {"model.part02": 38, "bundle.part01": 26}]
        self.assertEqual(self.cut(64, 60, 98, 26), expected)

    def test_otherwise_it_fills_what_is_left(self):
        expected = [{"model.part01": 60, "bundle.part01": 4}, {"model.part02": 38, "bundle.part02": 25}]
        self.assertEqual(self.cut(64, 60, 98, 29), expected)

    def test_no_file_is_larger_than_it_may_be_where_the_transfer_has_room(self):
        expected = [{"model.part01": 10, "bundle.part01": 40}, {"bundle.part02": 10}]
        self.assertEqual(self.cut(100, 40, 10, 50), expected)

    def test_there_are_as_many_transfers_as_it_takes(self):
        sizes = self.cut(25, 25, 98, 28)
        self.assertEqual(len(sizes), 6)
        self.assertEqual(sizes[3], {"model.part04": 23, "bundle.part01": 2})
        self.assertEqual(sizes[5], {"bundle.part03": 1})
        self.assertEqual(len(self.cut(64, 60, 98, 200)), 5)
        self.assertEqual(self.cut(100, 60, 98, 100)[1], {"bundle.part02": 60})


class Tools(Copy):
    def test_benchmarks(self):
        self.add(
            "bin/bench",
            """for i; do case $i in --benchmark_out=*) echo '{"benchmarks": [{"run_name": "cuda/x"}]}' > ${i#*=};; esac; done""",
        )
        self.assertEqual(json.loads(self.tool("kernels.sh", "bin/bench").stdout)["benchmarks"][0]["run_name"], "cuda/x")
        self.add("bin/bench", "echo Failed to match any benchmarks")
        self.assertEqual(self.tool("kernels.sh", "bin/bench").returncode, 77)
        self.add("bin/bench", "exit 3")
        self.assertEqual(self.tool("kernels.sh", "bin/bench").returncode, 3)

    def test_the_sanitizer(self):
        self.add("fakes/compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'")
        result = self.tool("sanitizer.sh", "memcheck", "true")
        self.assertEqual((json.loads(result.stdout)["errors"], result.returncode), (0, 0))
        self.add(
            "fakes/compute-sanitizer", "echo '========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)'"
        )
        result = self.tool("sanitizer.sh", "racecheck", "true")
        self.assertEqual((json.loads(result.stdout)["errors"], result.returncode), (3, 1))
        self.add(
            "fakes/compute-sanitizer",
            "echo '========= Error: Device not supported'; echo '========= ERROR SUMMARY: 1 error'",
        )
        result = self.tool("sanitizer.sh", "memcheck", "true")
        self.assertEqual((result.stdout, result.returncode), ("", 77))
        self.add(
            "fakes/compute-sanitizer",
            "echo '========= Invalid __global__ read'; echo '========= Target application returned an error'; echo '========= ERROR SUMMARY: 2 errors'",
        )
        result = self.tool("sanitizer.sh", "memcheck", "true")
        self.assertEqual((json.loads(result.stdout)["errors"], result.returncode), (2, 1))
        self.assertIn("Invalid __global__ read", result.stderr)

    def test_the_profiler(self):
        header = '"ID","Process ID","Kernel Name","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"'
        rows = [
            '"","","","%","ns","%"',
            '"0","7","linear(float*, int)","90","2,000","4"',
            '"1","7","norm(int)","10","100","0"',
            '"2","7","linear(float*, int)","80","1000","6"',
            '"3","7","void run<Few<(int)1, (bool)0, Rotated>>(Few<(int)1, (bool)0, Rotated>)","50","10","1"',
        ]
        self.add(
            "fakes/ncu", "echo \"$*\" > said\ncat << 'X'\nspeclab says hello\n" + "\n".join([header, *rows]) + "\nX"
        )
        result = json.loads(self.tool("profile.sh", "true", "--profile-steps").stdout)
        words = (self.root / "said").read_text()
        self.assertRegex(words, r"^--profile-from-start off .*--launch-count 400 .* true --profile-steps$")
        self.assertEqual(result["launches"], 4)
        found = result["kernels"]
        self.assertEqual(
            found[0], {"name": "linear", "launches": 2, "total_ns": 3000, "dram_percent": 85.0, "tensor_percent": 5.0}
        )
        self.assertEqual([kernel["name"] for kernel in found], ["linear", "norm", "void run<Few<1, 0, Rotated>>"])
        self.add("fakes/ncu", "echo '==WARNING== No kernels were profiled.'")
        result = self.tool("profile.sh", "true")
        self.assertEqual((result.stdout, result.returncode), ("", 77))
        self.assertIn("No kernels were profiled.\nncu counted no kernel in the steps", result.stderr)
        self.add("fakes/ncu", "echo '==ERROR== no counters'; exit 9")
        self.assertEqual(self.tool("profile.sh", "true").returncode, 77)

    def trace(self, *rows):
        lines = ["Processing [report.sqlite]", "Start (ns),Duration (ns),CorrId,Name", *rows]
        self.add(
            "fakes/nsys",
            """if [ "$1" = profile ]; then echo "$*" > said; for i; do case $i in --output=*) touch "${i#*=}.nsys-rep" ;; esac; done; exit; fi
            cat << 'X'
"""
            + "\n".join(lines)
            + "\nX",
        )
        return self.tool("gaps.sh", "true")

    def test_gaps_between_kernels_of_a_step(self):
        prompt, between = "0,50,1,run<Gather, int>", "9403,10,1,run<Continue>"
        first = ["1000,100,1,run<LayRows>", "1102,200,1,run<Linear, 3>", "9302,100,1,run<Settle>"]
        second = ["50000,100,1,run<LayRows>", "50101,300,1,run<Settle>"]
        unfinished = "90000,300,1,run<LayRows>"
        found = json.loads(self.trace(prompt, *first, between, *second, unfinished).stdout)
        self.assertIn(" --capture-range=cudaProfilerApi --capture-range-end=stop ", (self.root / "said").read_text())
        # 1000 to 9402, then one gap and the loop's kernel, then 50000 to 50401.
        self.assertEqual((found["steps"], found["kernels"], found["inside_ns"]), (2, 6, 8402 + 11 + 401))
        self.assertEqual((found["gaps_over_5us"], found["gaps_over_5us_ns"], found["largest_gap_ns"]), (1, 8000, 8000))
        early = ["1000,100,1,run<LayRows>", "1050,250,1,run<Linear, 3>", "1290,110,1,run<Settle>"]
        found = json.loads(self.trace(prompt, *early).stdout)
        self.assertEqual(found["inside_ns"], 400, "a kernel that starts early waits for the one before it")
        result = self.trace(prompt)
        self.assertEqual((result.stdout, result.returncode), ("", 77))
        self.assertIn("nsys saw no step", result.stderr)
        self.add("fakes/nsys", "echo 'no such device'; exit 3")
        result = self.tool("gaps.sh", "true")
        self.assertEqual(result.returncode, 77)
        self.assertIn("no such device", result.stderr)


def record(stage, data, **changes):
    base = {
        "stage": stage,
        "status": "ok",
        "reason": "",
        "seconds": 1,
        "cap_seconds": 9,
        "backend": "cuda",
        "dry_run": False,
        "data": data,
    }
    return {**base, **changes}


def forwards(times_us, gigabytes, download_us=200):
    entry = {
        "context": 128,
        "device_rows_ns": {n: [us * 1e3] for n, us in times_us.items()},
        "rows_ns": {n: [(us + download_us) * 1e3] for n, us in times_us.items()},
        "device_step_ns": {"round": [times_us["1"] * 1e3]},
        "work": {"1": {"bytes": gigabytes * 1e9, "flops": 1}},
    }
    device = {"read_bandwidth_bytes_per_second": 4e12, "peak_flops": 8e14}
    host = {"read_bandwidth_bytes_per_second": 1e10, "peak_flops": 1e11}
    return {**host, "device": device, "engine": {"contexts": [entry]}}


def case(gamma, speedup, tau, c, busy=None):
    metrics = {
        "speedup": speedup,
        "tau": tau,
        "c": c,
        "alpha": 0.5,
        "tokens_per_second": 100.0,
        "matches_reference": True,
        "gpu_busy_share": busy,
    }
    return {
        "id": f"gamma={gamma}",
        "draft": "distilled",
        "gamma": gamma,
        "reference": "a",
        "options": {"temperature": 0},
        "metrics": metrics,
        "predictions": {},
    }


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, *records, device="nvidia-h200"):
        place = self.folder / device
        place.mkdir(exist_ok=True)
        record = {"schema_version": 2, "part": 1, "stages": {each["stage"]: each for each in records}}
        (place / "check-part1.json").write_text(json.dumps(record))
        return gpu_page.page(self.folder)

    def goal(self, page, start):
        return next(line for line in page.splitlines() if line.startswith(f"| {start}")).strip("| ").split(" | ")[2:4]

    def forecast(self, page, start):
        return next(line for line in page.splitlines() if line.startswith(f"| {start}")).strip("| ").split(" | ")[4:]

    def test_nothing_measured(self):
        page = gpu_page.page(self.folder)
        self.assertIn("\n\nNot run on a GPU yet.\n\n## Forecast\n\nPredicted by", page)
        self.assertEqual(page.count("measured / predicted"), 0)

    def test_the_committed_page_is_made_of_the_committed_records(self):
        self.assertEqual((ROOT / "results/gpu/README.md").read_text(), gpu_page.page(ROOT / "results/gpu"))

    def test_a_bound_itself_reaches_only_the_goals_that_say_so(self):
        page = self.write(
            record("gaps", {"inside_ns": 100, "gaps_over_5us_ns": 3}),
            record("speculation_8b", {"cases": [case(2, 1.5, 2, 0.05, 0.75)]}),
            record("kernels", {"benchmarks": [{"run_name": "cuda/draft_step", "real_time": 60, "time_unit": "us"}]}),
        )
        self.assertEqual(self.goal(page, "135M, shipped draft: gaps"), ["3 %", "**missed**"])  # < 3 %
        self.assertEqual(self.goal(page, "draft step, model ≤ 40 MB |"), ["60.0 µs", "reached"])  # ≤ 60 µs
        with unittest.mock.patch.object(gpu_page, "idle_share", lambda device, shape: 0.03):
            page = gpu_page.page(self.folder)
        self.assertEqual(self.goal(page, "8B shape, shipped draft: idle"), ["3 %", "**missed**"])  # < 3 %

    def test_goals_are_reached_missed_or_not_measured(self):
        suffix = "/iterations:1/repeats:5/manual_time"
        large, small = "rows:16/out:28672/in:4096" + suffix, "rows:64/out:4096/in:4096" + suffix
        kernels = [
            {"run_name": "cuda/draft_step" + suffix, "real_time": 59000, "time_unit": "ns"},
            {"run_name": "cuda/draft_step" + suffix, "real_time": 99, "time_unit": "us", "aggregate_name": "mean"},
            {"run_name": "cuda/draft_step_persistent" + suffix, "real_time": 61, "time_unit": "us"},
            {"run_name": "cuda/linear/" + large, "real_time": 70, "time_unit": "us", "aggregate_name": "median"},
            {"run_name": "cuda/linear/" + small, "real_time": 9, "time_unit": "us", "aggregate_name": "median"},
            {"run_name": "cuda/linear_free/" + large, "real_time": 69, "time_unit": "us", "aggregate_name": "median"},
            {"run_name": "cuda/linear_free/" + small, "real_time": 8, "time_unit": "us", "aggregate_name": "median"},
            {"run_name": "cuda/cublaslt/" + large, "real_time": 80, "time_unit": "us", "aggregate_name": "median"},
            {"run_name": "cuda/cublaslt/" + small, "real_time": 0, "time_unit": "us", "error_occurred": True},
        ]
        kernel = {"name": "few", "launches": 2, "total_ns": 9000, "dram_percent": 71.2, "tensor_percent": 3}
        cases = [case(2, 1.8, 2, 0.05, 0.99), case(4, 1.5, 2.5, 0.05), case(4, 1.6, 2.5, 0.05, 0.95)]
        page = self.write(
            record("forwards_8b", forwards({"1": 4000, "16": 4400, "64": 4500}, 15.2)),
            record("forwards_1b", None, status="capped", reason="stopped after 45 seconds"),
            record("forwards_1b_persistent", forwards({"1": 700}, 2.5)),
            record("forwards_135m_persistent", forwards({"1": 210}, 0.27)),
            record("forwards_135m_serial", forwards({"1": 400}, 0.27)),
            record("forwards_135m_graphs", forwards({"1": 300}, 0.27)),
            record("kernels", {"benchmarks": kernels}),
            record("speculation_8b", {"cases": cases}),
            record("gaps", {"inside_ns": 2000, "gaps_over_5us_ns": 40}),
            record(
                "prefill_8b",
                {"prompts": [{"tokens": 512, "own_ns": [3e7, 2e7, 9e7], "library_ns": [6e7, 2.4e7, 1e7]}]},
            ),
            record("profile", {"kernels": [kernel]}),
        )
        self.assertEqual(self.goal(page, "8B shape, n = 1"), ["95 %", "reached"])
        self.assertEqual(self.goal(page, "8B shape, t(16)"), ["1.10", "**missed**"])
        self.assertEqual(self.goal(page, "8B shape, t(128)")[0], "not measured")
        self.assertEqual(
            self.goal(page, "1B shape"), ["not measured", "stage `forwards_1b`: capped, stopped after 45 seconds"]
        )
        self.assertEqual(self.goal(page, "135M"), ["not measured", "stage `forwards_135m` was not run"])
        self.assertEqual(self.goal(page, "1B shape, n = 1, persistent"), ["89 %", "reached"])
        self.assertEqual(self.goal(page, "135M, n = 1, persistent"), ["0.210 ms", "**missed**"])
        self.assertIn("Each forward as one persistent kernel:\n\nIn the same run", page)
        for words in ("With launches that do not overlap", "Each forward as one graph"):
            self.assertEqual(page.count(words + ":\n\nIn the same run"), 1)
        self.assertEqual(self.goal(page, "draft step"), ["59.0 µs", "reached"])
        self.assertEqual(self.goal(page, "draft step, model ≤ 40 MB, persistent"), ["61.0 µs", "**missed**"])
        self.assertEqual(self.goal(page, "linear layers of the 8B shape, time / time of cuBLASLt"), ["0.88", "reached"])
        self.assertEqual(
            self.goal(page, "linear layers of the 8B shape, time / time of the best"), ["1.12", "**missed**"]
        )
        self.assertIn("| 28672 x 4096 | 70.0 (1.01, 0.88) | - |\n| 4096 x 4096 | - | 9.0 (1.12, -) |", page)
        self.assertIn("there is no benchmark", self.goal(page, "accept + sample")[1])
        self.assertEqual(self.goal(page, "speedup on the 8B"), ["0.99", "reached"])
        self.assertEqual(self.goal(page, "8B shape, shipped draft: idle"), ["5 %", "**missed**"])
        self.assertEqual(self.goal(page, "135M, shipped draft: gaps"), ["2 %", "reached"])
        self.assertIn("| `few` | 2 | 4.5 | 71 % | 3 % |", page)
        self.assertIn("| 8B shape | 512 | 30.00 | 24.00 | 0.80 |", page)
        self.assertIn("SmolLM2-135M not measured: stage `prefill_135m` was not run.", page)
        self.assertIn("| gamma=4 | 1.50 | 100 | 2.50 |", page)
        self.assertIn("| 16 | 4.400 (1.10) | 4.600 |", page)
        gpu = gpu_page.forecast.DEVICES["H200"]
        shape = gpu_page.forecast.SHAPES["8b"]
        one, step = (
            gpu_page.forecast.forward(gpu, shape, 1, 128),
            gpu_page.forecast.step(gpu, shape, 128, "round"),
        )
        self.assertIn(f"| 8B shape: forward, n = 1 | {1e3 * one:.3f} ms | 4.000 ms | {4e-3 / one:.2f} |", page)
        self.assertIn(f"device_graph round | {1e3 * step:.3f} ms | 4.000 ms | {4e-3 / step:.2f} |", page)
        self.assertIn("| 8B shape: download of the logits, n = 16 | 0.821 ms | 0.200 ms | 0.24 |", page)
        sixteen = gpu_page.forecast.forward(gpu, shape, 16, 128) / one
        self.assertEqual(self.forecast(page, "8B shape, t(16)"), [f"{sixteen:.2f}", f"{1.10 / sixteen:.2f}"])
        small = gpu_page.forecast.forward(gpu, gpu_page.forecast.SHAPES["135m"], 1, 128)
        self.assertEqual(self.forecast(page, "135M, n = 1 "), [f"{1e3 * small:.3f} ms", "-"])
        self.assertIn("| linear 28672 x 4096, n = 16 |", page)

    def test_the_bandwidth_of_the_host_is_not_that_of_the_device(self):
        data = forwards({"1": 4000, "16": 4400}, 15.2)
        del data["device"]
        page = self.write(record("forwards_8b", data))
        self.assertEqual(self.goal(page, "8B shape, n = 1")[0], "not measured")
        self.assertEqual(self.goal(page, "8B shape, t(16)")[0], "1.10")
        self.assertIn("The bandwidth of the device was not measured in this run.", page)

    def test_launches_of_a_record_replace_those_of_the_forecast(self):
        data = forwards({"1": 4000}, 15.2)
        data["engine"]["contexts"][0]["kernels"] = {"1": {"linear": 100, "rms_norm": 20}}
        page = self.write(record("forwards_8b", data))
        gpu, shape = gpu_page.forecast.DEVICES["H200"], gpu_page.forecast.SHAPES["8b"]
        expected = gpu_page.forecast.forward(gpu, shape, 1, 128, launched=120)
        self.assertIn(f"| 8B shape: forward, n = 1 | {1e3 * expected:.3f} ms | 4.000 ms |", page)

    def test_a_gpu_without_a_forecast(self):
        page = self.write(record("forwards_8b", forwards({"1": 4000}, 15.2)), device="nvidia-b200")
        self.assertEqual(self.goal(page, "8B shape, n = 1"), ["95 %", "reached"])
        self.assertEqual(self.forecast(page, "8B shape, n = 1"), ["-", "-"])
        self.assertIn("There is no forecast for this GPU; there is one for H200, H100, A100.", page)

    def test_a_dry_run_is_no_result(self):
        for change in ({"dry_run": True}, {"backend": "cpu"}):
            with self.assertRaisesRegex(stages.BadRecord, "is no result of a GPU"):
                self.write(record("tests", None, **change))


class Gguf(unittest.TestCase):
    def text(self, value):
        return struct.pack("<Q", len(value)) + value.encode()

    def test_fields_and_tensors(self):
        half = lambda value: np.float16(value).tobytes()
        head = b"GGUF" + struct.pack("<IQQ", 3, 2, 2)
        head += self.text("a.count") + struct.pack("<II", 4, 7)
        head += self.text("a.words") + struct.pack("<IIQ", 9, 8, 2) + self.text("x") + self.text("yz")
        head += self.text("four") + struct.pack("<IQQIQ", 2, 32, 1, 3, 0)
        head += self.text("eight") + struct.pack("<IQIQ", 1, 32, 8, 32)
        four = half(0.5) + half(-1) + bytes([0x21] * 16)
        eight = half(2) + struct.pack("<32b", *range(-16, 16))
        data = four + bytes(32 - len(four)) + eight
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(head + bytes(-len(head) % 32) + data)
            file.flush()
            read = GgufFile(file.name)
        self.assertEqual(read.fields, {"a.count": 7, "a.words": ["x", "yz"]})
        self.assertEqual(read.tensor("four").shape, (1, 32))
        self.assertEqual(read.tensor("four")[0].tolist(), [-0.5] * 16 + [0.0] * 16)
        self.assertEqual(read.tensor("eight").tolist(), [2.0 * i for i in range(-16, 16)])


if __name__ == "__main__":
    unittest.main()

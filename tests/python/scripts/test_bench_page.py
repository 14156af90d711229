"""The benchmark program on the real model, and the page that is made from its output."""

import gzip
import json
import os
import pathlib
import sys
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/bench_cpu"))

import bench_cpu
import page

bench_cpu.BENCH = pathlib.Path(os.environ.get("SPECLAB_BENCH", bench_cpu.BENCH))
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def aggregate(name, unit, median, cv, **rates):
    common = {"run_name": f"{name}/real_time", "time_unit": unit, "run_type": "aggregate"}
    return [
        {**common, "aggregate_name": "median", "real_time": median, **rates},
        {**common, "aggregate_name": "cv", "real_time": cv},
    ]


class Record(unittest.TestCase):
    def test_keeps_what_the_page_reads_and_every_single_time(self):
        single = {
            "name": "a/rows:1",
            "run_name": "a/rows:1",
            "run_type": "iteration",
            "repetitions": 5,
            "real_time": 1.23456789,
        }
        every = [single, *({**single, "aggregate_name": name} for name in ("mean", "median", "stddev", "cv"))]
        record = {"repetitions": 5, "classes": {"auto": {"benchmarks": every}}}
        kept = bench_cpu.slim(record)
        self.assertEqual(kept["repetitions"], 5)  # kept for the run, not for each line
        lines = kept["classes"]["auto"]["benchmarks"]
        self.assertEqual([line.get("aggregate_name") for line in lines], [None, "median", "cv"])
        self.assertEqual(
            lines[0], {"name": "a/rows:1", "run_name": "a/rows:1", "run_type": "iteration", "real_time": 1.234568}
        )

    def test_the_same_record_gives_the_same_bytes(self):
        record = {"a": [1, 2.5], "b": "µs"}
        first = bench_cpu.packed(record)
        with unittest.mock.patch("time.time", return_value=1e9):
            self.assertEqual(bench_cpu.packed(record), first)
        self.assertEqual(first[3:8], bytes(5), "no file name among the flags, and no time")
        self.assertEqual(json.loads(gzip.decompress(first)), record)


class Page(unittest.TestCase):
    def results(self):
        benchmarks = aggregate("machine/read_bandwidth/iterations:1/manual_time", "us", 1, 0.1, bytes_per_second=2e9)
        benchmarks += aggregate("machine/peak_flops/iterations:1/manual_time", "us", 1, 0, flops_per_second=1e11)
        benchmarks += aggregate("forward/context:8/rows:1", "ms", 2, 0.05, bytes_per_second=1e9, flops_per_second=1e9)
        benchmarks += aggregate("forward/context:8/rows:16", "us", 3000, 0, bytes_per_second=1e9, flops_per_second=8e10)
        benchmarks += aggregate("forward/context:8/rows:2", "us", 2500, 0, bytes_per_second=1e9, flops_per_second=1e9)
        return page.Results({"context": {"numerics": "f32"}, "command": "x", "benchmarks": benchmarks})

    def test_shares_and_floors_are_those_of_the_machine_in_the_same_run(self):
        rows = page.time_rows(self.results(), "forward", single=True)
        self.assertEqual([row[0][-7:] for row in rows], ["/rows:1", "/rows:2", "rows:16"])
        self.assertEqual(rows[0][1:], ["2", "5 %", "1.00", "50 %", "1 %", "2.00"])  # 2 MB: 1 ms at 2 GB/s
        self.assertEqual(rows[2][1:], ["3", "0 %", "1.50", "50 %", "80 %", "1.25"])  # 240 MFLOP: 2.4 ms at 100 GFLOP/s

    def test_draft_steps_stand_beside_reading_as_many_bytes_from_the_cache(self):
        benchmarks = aggregate(
            "machine/draft_bytes_second/iterations:1/manual_time", "us", 200, 0.03, bytes_per_second=6e10
        )
        self.assertEqual(
            page.draft_from_cache({"classes": {"auto": {"context": {}, "command": "x", "benchmarks": benchmarks}}}), ""
        )
        benchmarks += aggregate("draft_step/later/manual_time", "us", 260, 0, bytes_per_second=5e10)
        benchmarks += aggregate("draft_step/hot/manual_time", "us", 150, 0, bytes_per_second=5e10)
        benchmarks += aggregate("machine/draft_bytes/iterations:1/manual_time", "us", 100, 0.03, bytes_per_second=12e10)
        text = page.draft_from_cache({"classes": {"auto": {"context": {}, "command": "x", "benchmarks": benchmarks}}})
        self.assertIn("`draft_step/later` reads 12.0 MB", text)
        self.assertIn(
            "this many bytes are read twice. The second read takes 0.2 ms\n  (60 GB/s, spread 3 %). The step takes 1.30 times as long",
            text,
        )
        self.assertIn("one read takes 0.1 ms\n  (120 GB/s, spread 3 %). The step takes 1.50 times as long", text)

    def test_copies_are_in_microseconds_whatever_the_unit(self):
        benchmarks = aggregate("copies/step/a/context:9", "ms", 0.002, 0, p99_us=3.14159, slowest_us=4.0, drafted=1.5)
        benchmarks += aggregate("copies/decoding/b", "us", 41, 0, host_us=55.5, rows=81, of_step=0.00031)
        index = {"bytes_per_token": 22.8, "path_us": 1, "path_p99_us": 2, "tree_us": 3, "tree_p99_us": 4}
        benchmarks += aggregate("copies/index/c/tokens:10", "ns", 500, 0, **index)
        run = {"context": {}, "command": "x", "benchmarks": benchmarks}
        text = page.copies({"classes": {"auto": run}})
        self.assertIn("| a/context:9 | 2 | 3.14 | 4 | 1.5 |", text)
        self.assertIn("| b | 41 | 55.5 | 81 | 0.031 % |", text)
        self.assertIn("| c/tokens:10 | 0.5 | 22.8 | 1 | 2 | 3 | 4 |", text)

    def test_trees_are_listed_by_rule_if_the_record_has_them(self):
        run = {"context": {}, "command": "x", "benchmarks": aggregate("copies/index/c", "us", 1, 0)}
        self.assertEqual(page.trees({"classes": {"auto": run}}), "")
        step = {"accept_us": 1234, "other_us": 56, "overhead": 0.0789, "rows": 64}
        run["benchmarks"] += aggregate(
            "trees/step/rule:k_seq/nodes:64/temperature:1/iterations:1", "us", 1500, 0, **step
        )
        for rule, us in (("traversal", 40), ("rejection", 30)):
            name = f"trees/judge/rule:{rule}/children:4/temperature:1/manual_time"
            run["benchmarks"] += aggregate(name, "us", us, 0, tested=3.9, passes=us / 10)
        text = page.trees({"classes": {"auto": run}})
        self.assertIn("| rule:k_seq/nodes:64/temperature:1 | 1.5 | 1230 | 56 | 7.89 % |", text)
        self.assertIn("| rule:rejection/children:4/temperature:1 | 30 | 3.9 | 3 |\n| rule:traversal/", text)
        self.assertTrue(text.endswith("\n\n"), "the next section follows")
        run["benchmarks"] = aggregate("trees/judge/children:2/temperature:0", "us", 5, 0, tested=2, passes=1)
        self.assertIn("| rule:rejection/children:2/temperature:0 |", page.trees({"classes": {"auto": run}}))

    def test_no_home_in_the_record(self):
        record = {"context": {"host_name": "me", "executable": "/home/me/bench", "caches": [{"size": 1}]}}
        self.assertEqual(page.without_paths(record), {"context": {"caches": [{"size": 1}]}})


class Program(unittest.TestCase):
    def test_benchmarks_of_the_real_model(self):
        if not MODEL.exists() and os.environ.get("SPECLAB_OFFLINE"):
            self.skipTest("needs the target model")
        run = bench_cpu.bench(
            ["--model", str(MODEL), "--threads", "1"], "machine|rms_norm/rows:4|forward/.*128/rows:2", 3
        )
        results = page.Results(run)
        self.assertEqual(
            set(results.median),
            {"machine/read_bandwidth", "machine/peak_flops", "rms_norm/rows:4", "forward/context:128/rows:2"},
        )
        self.assertEqual(results.context["threads"], "1")
        forward = results.median["forward/context:128/rows:2"]
        weights = int(results.context["weight_bytes"])
        self.assertGreater(forward["bytes_per_second"] * forward["us"] * 1e-6, weights)
        self.assertLess(forward["bytes_per_second"] * forward["us"] * 1e-6, 1.1 * weights)
        self.assertGreater(results.floor_us("forward/context:128/rows:2"), 0)
        self.assertNotIn(str(ROOT), run["command"])

    def test_a_model_that_is_not_there(self):
        with self.assertRaisesRegex(bench_cpu.Problem, "speclab_bench: nowhere.gguf: got No such file"):
            bench_cpu.bench(["--model", "nowhere.gguf"], ".", 3)


if __name__ == "__main__":
    unittest.main()

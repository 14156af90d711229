"""scripts/fuzz/fuzz_record.py: the record that it makes of libFuzzer's logs and llvm-cov's export."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/fuzz"))

import fuzz_record

LOG = """#2 INITED cov: 20 ft: 30 corp: 4/1Kb exec/s: 0 rss: 40Mb
#900 NEW    cov: {edges} ft: 70 corp: 9/2Kb lim: 1024 exec/s: 450 rss: 41Mb L: 8/9 MS: 1 Custom-
Done {runs} runs in {seconds} second(s)
stat::number_of_executed_units: {runs}
stat::peak_rss_mb:              {rss}
"""


class FuzzRecord(unittest.TestCase):
    def test_pieces_are_one_run(self):
        pieces = [
            fuzz_record.parse(LOG.format(edges=50, runs=1000, seconds=2, rss=45)),
            fuzz_record.parse(
                LOG.format(edges=60, runs=3000, seconds=3, rss=41) + "finding: 1.2 seconds for 9 bytes\n"
            ),
        ]
        run = fuzz_record.together(pieces)
        self.assertEqual([run["executions"], run["seconds"], run["executions_per_second"]], [4000, 5, 800])
        self.assertEqual([run["edges"], run["features"], run["corpus"], run["peak_rss_mb"]], [60, 70, 9, 45])
        self.assertEqual(run["finding"], "finding: 1.2 seconds for 9 bytes")

    def test_a_run_that_was_killed_counts_nothing(self):
        run = fuzz_record.together([fuzz_record.parse("#2 INITED cov: 20 ft: 30 corp: 4/1Kb\n")])
        self.assertEqual([run["executions"], run["executions_per_second"], run["finding"]], [0, None, None])

    def test_the_fuzzers_are_made_of_files_that_exist(self):
        """No test builds the fuzzers, because they need clang. Without this test, a moved folder would leave the fuzzers without their readers."""
        text = (ROOT / "tests/fuzz/CMakeLists.txt").read_text(encoding="utf-8")
        parsers = re.search(r"set\(parsers (.*)\)", text).group(1).split()
        folder = re.search(r"TRANSFORM parsers REPLACE .*PROJECT_SOURCE_DIR}/(.*)/\\\\1.cpp", text).group(1)
        names = re.findall(r"\${PROJECT_SOURCE_DIR}/([\w/*]+\.cpp)", text) + [
            f"{folder}/{name}.cpp" for name in parsers
        ]
        self.assertGreater(len(names), 10)
        for name in names:
            self.assertTrue(list(ROOT.glob(name)), name)

    def test_coverage_of_the_parser_alone(self):
        names = {
            "/a/core/model/files/gguf.cpp": 93.02,
            "/a/core/model/files/gguf.h": 33,
            "core/model/files/safetensors.cpp": 0,
        }
        files = [{"filename": name, "summary": {"lines": {"percent": share}}} for name, share in names.items()]
        self.assertEqual(fuzz_record.line_coverage({"data": [{"files": files}]}, "gguf"), {"gguf.cpp": 93.0})


if __name__ == "__main__":
    unittest.main()

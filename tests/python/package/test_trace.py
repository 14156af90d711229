"""speclab.trace: the frame of a trace, made by hand and recorded by the real binary."""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import installed

installed.use()
sys.path.insert(0, str(installed.ROOT / "tests/python/pages"))

import pandas as pd
from tiny_model import write_tiny_model

import speclab

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", installed.ROOT / "build/release/speclab"))


def hash_of(numbers):
    return hashlib.sha256(struct.pack(f"<{len(numbers)}I", *numbers)).hexdigest()


def drafted(id_, parent, tested=True, accepted=False, p=-1, q=-1, rank=-1, **more):
    token = {"id": id_, "p": p, "q": q, "rank": rank, "tested": tested, "accepted": accepted, **more}
    return token if parent is None else {**token, "parent": parent}


def write_trace(folder, version=1):
    """A trace of one text of four tokens: a tree, a chain with a wrong token in front, and a step without a draft."""
    tokens = [7, 5, 6, 8]
    steps = [
        [drafted(5, None, accepted=True, p=1, q=1, rank=0, confidence=0.5), drafted(9, 0, rank=4, p=0, q=1)]
        + [drafted(6, 1, accepted=True, p=1, q=0.25, rank=0, entropy=1.5)],
        [drafted(1, None, p=0, q=1, rank=3), drafted(8, None, tested=False, p=0.125, q=1, rank=2)],
        [],
    ]
    line = {
        "schema_version": 1,
        "case": "spec",
        "prompt": "a",
        "category": "chat",
        "seed": 2**64 - 1,
        "repeat": 0,
        "tokens": tokens,
        "target_entropy": [9, 0.5, 1.5, 2.5],
        "turns": [{"tokens": 4, "steps": 3}],
        "output_hash": hash_of(tokens),
        "logits_hash": hash_of([]),
        "row_hashes": [],
        "steps": [{"tokens": one, "drafted": len(one), "emitted": 1} for one in steps],
    }
    (folder / "cases").mkdir(parents=True)
    (folder / "cases/spec.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({**line, "repeat": 1}) + "\n")
    case = {"id": "spec", "strategy": "s", "reference": "autoregressive", "options": {"emit_at_most": 1}}
    plain = {"id": "autoregressive", "strategy": "autoregressive", "reference": None, "options": {"emit_at_most": 1}}
    config = {"cases": [plain, case], "prompts": [{"id": "a"}], "row_details": version}
    (folder / "config.json").write_text(json.dumps(config))
    entry = {"file": "cases/spec.jsonl", "id": "spec", "strategy": "s", "draft": None, "metrics": {}}
    (folder / "summary.json").write_text(json.dumps({"schema_version": 1, "name": "t", "cases": [entry]}))
    (folder / "environment.json").write_text("{}")


class MadeByHand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"

    def test_every_drafted_token_stands_beside_the_text(self):
        write_trace(self.folder)
        frame = speclab.trace(self.folder)
        self.assertEqual(len(frame), 5, "repeat 0 only")
        self.assertEqual(list(frame.position), [0, 0, 0, 1, 1])
        self.assertEqual(list(frame.node), [1, 2, 3, 1, 2])
        self.assertEqual(list(frame.parent), [0, 0, 1, 0, 1])
        self.assertEqual(list(frame.depth), [1, 1, 2, 1, 2])
        self.assertEqual(list(frame.id), [5, 9, 6, 1, 8])
        self.assertEqual(list(frame.text_id), [5, 5, 6, 6, 8])
        self.assertEqual(list(frame.matches), [True, False, True, False, False], "8 is right, but 1 before it is not")
        self.assertEqual(list(frame.target_entropy), [0.5, 0.5, 1.5, 1.5, 2.5])
        self.assertEqual(list(frame.tested), [True, True, True, True, False])
        self.assertEqual(list(frame.p), [1, 0, 1, 0, 0.125])
        self.assertEqual(list(frame["rank"]), [0, 4, 0, 3, 2])
        self.assertEqual(frame.confidence.isna().tolist(), [False, True, True, True, True])
        self.assertEqual(frame.draft_entropy[2], 1.5)
        self.assertEqual(frame.seed[0], 2**64 - 1)
        self.assertEqual(set(frame.case), {"spec"})
        self.assertEqual(frame.attrs["units"]["target_entropy"], "nats")

    def test_parquet_keeps_the_columns(self):
        write_trace(self.folder)
        frame = speclab.trace(self.folder)
        file = self.folder / "trace.parquet"
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            with self.assertRaises(ImportError):
                frame.to_parquet(file)
            return
        frame.to_parquet(file)
        again = pd.read_parquet(file)
        self.assertEqual(list(again.columns), list(frame.columns))
        self.assertEqual(list(again.text_id), list(frame.text_id))
        self.assertEqual(list(again.prompt), list(frame.prompt))

    def test_what_is_no_trace_is_refused(self):
        write_trace(self.folder)
        with self.assertRaisesRegex(speclab.BadRun, "no trace 'other'"):
            speclab.trace(self.folder, cases=["other"])
        config = json.loads((self.folder / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps({**config, "row_details": 2}))
        with self.assertRaisesRegex(speclab.BadRun, "version 2"):
            speclab.trace(self.folder)
        with self.assertRaisesRegex(speclab.NotApplicable, "no trace"):
            speclab.trace(installed.QUICKSTART)


class Recorded(unittest.TestCase):
    """A trace of a tiny model by the real binary."""

    def test_the_frame_agrees_with_the_record(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_tiny_model(folder / "target", layers=2)
            config = {
                "name": "tiny",
                "target": "target",
                "drafts": {"skip": {"layers": [0]}},
                "prompts": {"inline": ["Why is the sky blue?", "Count to ten."]},
                "options": {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "budget": "fixed"},
                "calibration": False,
                "cases": [
                    {"strategy": "autoregressive"},
                    {"strategy": "speculative_sampling", "draft": "skip", "gamma": [1, 4]},
                ],
            }
            (folder / "a.json").write_text(json.dumps(config))
            command = [str(BINARY), "trace", "a.json", "--out", "run", "-q", "--backend", "cpu", "--threads", "1"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            run = speclab.load(folder / "run")
            frame = speclab.trace(run)
        case = "speculative_sampling/draft=skip/gamma=4/schedule=confidence/confidence_threshold=0"
        self.assertEqual(set(frame.case), {case})
        self.assertTrue(frame.p.isin([0, 1]).all(), "temperature 0")
        self.assertTrue(((frame.p == 1) == (frame["rank"] == 0)).all())
        self.assertTrue(frame.confidence.between(0, 1).all())
        self.assertTrue((frame.target_entropy.dropna() >= 0).all())
        self.assertGreater((~frame.tested).sum(), 0)
        # A token is accepted exactly if it and all before it are those of the text.
        first = frame[frame.depth == 1]
        self.assertTrue((first.accepted == first.matches).all())
        self.assertGreater(len(first), 40)


if __name__ == "__main__":
    unittest.main()

"""The page of simulated devices: it shows the numbers of the simulations, says that they are simulated, and is up to date."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import device_simulations
import synthetic_run

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/pages")]

import devices_page

MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", ROOT / "build/release/speclab"))
FACTORS = {"a100": 0.5, "h100": 0.75, "h200": 0.8, "m1_max": 1.25, "l40_offload": 2.0, "h100_moe_2of8": 0.6}


class Made(unittest.TestCase):
    """A page made from a made-up run and made-up simulations."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        synthetic_run.write(self.root / "run")
        self.record = devices_page.Run(self.root / "run")
        self.cases = {case.id: (case.metric("tau"), case.metric("speedup")) for case in self.record.speculative}
        self.asked = []

    def simulate(self, folder, *words):
        self.asked.append(words)
        names = [word for before, word in zip(("", *words), words) if before == "--device"]
        if "--sweep" in words:
            axis = words[words.index("--sweep") + 1]
            return [device_simulations.sweep(self.cases, axis, names[0] if names else None)]
        if "--timeline" in words:
            kinds = ["serial", "dsi"] if "dsi" in words else ["serial", "pearl", "amusd"]
            return [device_simulations.timelines(kinds)]
        if "--wng" in words:
            cells = [(case.id, 2, 3, 2, 1.15, 4.7) for case in self.record.speculative[:2]]
            return [device_simulations.grid(cells, FACTORS[name]) for name in names]
        watts = {"m1_max": 0}
        return [
            device_simulations.repriced(self.cases, f"device {name}", FACTORS[name], watts.get(name, 400))
            for name in names
        ]

    def page(self):
        page = devices_page.Page(self.simulate, self.root / "run", self.record, self.root)
        return page, page.text()

    def test_every_case_and_device_is_shown_as_simulated(self):
        _, text = self.page()
        self.assertIn("Every time, speedup and energy on this page is simulated", text)
        for case in self.record.speculative:
            speedup = case.metric("speedup")
            cells = [f"{case.metric('tau'):.2f}", f"{speedup:.2f}"]
            for name in devices_page.GPUS:
                value = FACTORS[name] * speedup
                cells.append(f"{value:.2f} [{value - 0.1:.2f}, {value + 0.1:.2f}]")
            self.assertIn(f"| {case.label(without=())} | " + " | ".join(cells) + " |", text)
        for header in [line for line in text.splitlines() if line.startswith("| case |")]:
            for column in header.split(" | ")[1:]:
                known = ("simulated", "measured", "pays", "closed form", "the same with")
                self.assertTrue(any(word in column for word in known), column)

    def test_best_gamma_break_even_and_energy(self):
        _, text = self.page()
        self.assertIn("| distilled | 0.42 | A100 | 0.031 | 3 or more | 0.75 | 0.11 |", text)
        self.assertIn("simulated J/token, H100", text)
        self.assertNotIn("simulated J/token, M1 Max laptop", text)  # its file has no power
        self.assertIn("| 0.400 | 0.400 | 0.400 |", text)

    def test_sweeps_timelines_and_grids(self):
        for name in devices_page.GRIDS[:1]:
            synthetic_run.write(self.root / "results/baselines" / name)
        page, text = self.page()
        self.assertEqual(set(page.figures), {"ridge", "batch", "timelines"})
        first = self.record.speculative[0]
        self.assertIn(
            f"| {first.label(without=())} | {first.metric('tau'):.2f} | from 2.5 | from 2.5 | from 2.5 | up to 2.5 | 12.5 |",
            text,
        )
        self.assertIn("| broken | — | no shape of the target |", text)
        self.assertIn("| distilled | pearl | 4 | 2 | 0.50 | 0.100 | 1.75 | 1.76 |", text)
        self.assertIn("| slow | serial | the draft is slower |", text)
        measured = [f"{case.metric('speedup'):.2f}" for case in self.record.speculative[:2]]
        self.assertIn(f"| 2 | 3 | 2 | 1.15 | 4.7 | {measured[0]} | 0.29 | 0.43 | 0.46 | 0.72 |", text)
        self.assertIn("| H100 | 4 | 5 | 4 | 1.31 | 0.91 |", text)
        self.assertIn(f"simulate results/baselines/{devices_page.GRIDS[0]} --wng", text)
        self.assertNotIn(devices_page.GRIDS[1], text)  # there is no such record

    def test_the_commands_are_on_the_page(self):
        _, text = self.page()
        for words in self.asked:
            shown = " ".join(words)
            if "l40" not in shown and "--sweep" not in shown:
                self.assertIn(shown, text)

    def test_validations_that_were_kept(self):
        text = self.page()[1]
        self.assertIn("No validation has been committed yet", text)
        self.assertEqual(text.count("| **open** |"), len(devices_page.validate_devices.KINDS))
        self.assertIn("Frontier, a simulator of serving, states errors of less than 4 %", text)
        case = {"case": "c", "label": "c", "problem": None, "predicted": 1.5, "measured": 1.4, "measured_ci95": None}
        case |= {"error": 0.0714, "within": "no", "measured_with_the_counts": 1.1, "tau_counted": 2, "tau_measured": 2}
        runs = [
            {"folder": name, "machine": f"machine {name}", "config": "x", "commit": "1", "date": "d", "busy": ""}
            | {"arithmetic": "AVX2 alone", "threads": threads, "inflated": False}
            for name, threads in (("A", 1), ("B", 2))
        ]
        ways = [{"counts": 0, "times": 1, "cases": [case]}]
        ways.append({"counts": 1, "times": 0, "cases": [case | {"error": 0.01, "within": "yes"}]})
        folder = self.root / "results/devices"
        folder.mkdir(parents=True)
        content = {"schema_version": 1, "limit": 0.05, "runs": runs, "ways": ways}
        (folder / "a-b.json").write_text(json.dumps(content))
        text = self.page()[1]
        self.assertIn("Some case is off by more: machine B from the acceptance of machine A.", text)
        # One kind is covered; the others stay open, each with its commands.
        self.assertIn("| AVX2 alone | 1 and 2 threads | a-b (does not hold) |", text)
        self.assertEqual(text.count("| **open** |"), len(devices_page.validate_devices.KINDS) - 1)
        self.assertNotIn("--numerics f32-kv16 --threads 1", text)
        self.assertIn("run configs/scale_ladder.json --numerics f32-kv16 --out results/runs/f32-kv16-ladder", text)
        self.assertIn("run configs/gamma_sweep.json --numerics amx-bf16 --threads 2", text)
        self.assertIn("results/runs/amx-bf16-ladder/1B --keep amx-bf16-135M-1B", text)
        self.assertIn("**0 of 1 cases are within 5 %**", text)
        self.assertIn("| c | 2.00 | 2.00 | 1.50 | 1.40 | +7.1 % | no | 1.10 |", text)

    def test_a_page_without_prices_is_no_page(self):
        def unpriced(folder, *words):
            found = self.simulate(folder, *words)
            for row in found[0]["cases"]:
                row["problem"] = "no shape of the target"
            return found

        page = devices_page.Page(unpriced, self.root / "run", self.record, self.root)
        with self.assertRaisesRegex(devices_page.BadRun, "no shape of the target"):
            page.text()


class Committed(unittest.TestCase):
    def test_the_page_is_up_to_date(self):
        if not MODEL.exists() and os.environ.get("SPECLAB_OFFLINE"):
            self.skipTest(f"{MODEL.name} is not here, and devices price its shape")
        err = io.StringIO()
        with contextlib.redirect_stderr(err), unittest.mock.patch.dict(os.environ, {"SPECLAB_BINARY": str(BINARY)}):
            self.assertEqual(devices_page.main(["check"]), 0, err.getvalue())
        for name in ("ridge", "batch", "timelines"):
            self.assertTrue((ROOT / "results/devices" / f"{name}.svg").exists(), name)

    def test_a_changed_page_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "results").mkdir()
            (root / "results/devices.md").write_text("by hand")
            err = io.StringIO()
            with (
                contextlib.redirect_stderr(err),
                unittest.mock.patch.object(devices_page, "page_of_record", lambda root: "made"),
            ):
                self.assertEqual(devices_page.main(["check"], root), 1)
                (root / "results/devices.md").write_text("made")
                self.assertEqual(devices_page.main(["check"], root), 0)
            self.assertIn("does not match its records", err.getvalue())


if __name__ == "__main__":
    unittest.main()

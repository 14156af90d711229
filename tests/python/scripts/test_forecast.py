"""The forecast of a GPU's times: its equations on cases that can be computed by hand, its shapes, and its committed file."""

import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/gpu_check"))

import forecast
import gpu_page

H200 = forecast.DEVICES["H200"]


class Shapes(unittest.TestCase):
    def inflated(self, variable):
        """The sizes in scripts/gpu_check.sh that replace those of SmolLM2-135M."""
        text = (ROOT / "scripts/gpu_check.sh").read_text()
        found = re.search(rf"^  {variable}='([^']*)'", text, re.M).group(1)
        return {name: int(size) for name, size in (entry.split("=") for entry in found.split(","))}

    def test_they_are_those_that_are_measured(self):
        base = forecast.SHAPES["135m"]
        for key, variable in (("1b", "one"), ("8b", "eight")):
            shape = forecast.SHAPES[key]
            wanted = {"layers": base.layers, "head_dim": base.head_dim, "vocab": base.vocab, **self.inflated(variable)}
            self.assertEqual({name: getattr(shape, name) for name in wanted}, wanted, key)
        self.assertEqual(forecast.SHAPES.keys(), gpu_page.SHAPES.keys())

    def test_the_draft_is_the_shipped_one(self):
        config = json.loads((ROOT / "models/draft/smollm2-135m-instruct/config.json").read_text())
        names = {
            "hidden": "hidden_size",
            "layers": "num_hidden_layers",
            "heads": "num_attention_heads",
            "kv_heads": "num_key_value_heads",
            "head_dim": "head_dim",
            "ffn": "intermediate_size",
            "vocab": "vocab_size",
        }
        self.assertEqual(
            {name: getattr(forecast.DRAFT, name) for name in names}, {name: config[key] for name, key in names.items()}
        )
        self.assertEqual(forecast.DRAFT.embedding, config["speclab_draft"]["embedding_dim"])

    def test_bytes_of_weights(self):
        # 30 layers of 576 x (960 + 576) + 3 x 576 x 1536, and a head of 49152 x 576
        self.assertEqual(forecast.SHAPES["135m"].weight_bytes, 2 * (30 * (576 * 1536 + 3 * 576 * 1536) + 49152 * 576))


class Equations(unittest.TestCase):
    def test_a_kernel_takes_what_limits_it(self):
        for kernel, floor in (
            (forecast.Kernel("memory", 1, H200.bandwidth), 1.0),
            (forecast.Kernel("arithmetic", 1, 1, operations=2 * H200.arithmetic), 2.0),
            (forecast.Kernel("chip", 1, 1, on_chip=3 * H200.on_chip), 3.0),
            (forecast.Kernel("one block", 1, H200.one_block, blocks=1), 1.0),
        ):
            self.assertAlmostEqual(kernel.floor(H200), floor, msg=kernel.name)
            self.assertAlmostEqual(kernel.time(H200), floor + forecast.RAMP[0])

    def test_a_product_reads_its_weights_once(self):
        one, many = forecast.linear("x", 1, 4096, 1024, 1), forecast.linear("x", 1, 4096, 1024, 64)
        self.assertEqual(one.bytes, 2 * 4096 * 1024 + 2 * 1024 + 4 * 4096)
        self.assertEqual(many.operations, 64 * one.operations)
        self.assertEqual(many.bytes - 2 * 4096 * 1024, 64 * (one.bytes - 2 * 4096 * 1024))

    def test_a_forward_adds_a_gap_for_every_launch(self):
        shape = forecast.SHAPES["8b"]
        stream, graph = (forecast.forward(H200, shape, 1, 128, form) for form in ("launches", "graph"))
        count = forecast.launches(shape, 1)
        gap = forecast.GAPS["launches"][0] - forecast.GAPS["graph"][0]
        self.assertAlmostEqual(stream - graph, count * gap)
        fewer = forecast.forward(H200, shape, 1, 128, launched=count - 32)
        self.assertAlmostEqual(stream - fewer, 32 * (forecast.GAPS["launches"][0] + forecast.RAMP[0]))
        self.assertGreater(stream, shape.weight_bytes / H200.bandwidth)

    def test_a_persistent_forward_pays_for_its_tasks(self):
        shape = forecast.SHAPES["135m"]
        floors = sum(k.launches * k.floor(H200) for k in forecast.forward_kernels(shape, 1, 128))
        expected = floors + 155 * (forecast.BARRIER[0] + forecast.TASK_RAMP[0]) + forecast.GAPS["launches"][0]
        self.assertAlmostEqual(forecast.forward(H200, shape, 1, 128, "persistent"), expected)

    def test_the_kernels_of_the_times_are_the_launches(self):
        for shape in (*forecast.SHAPES.values(), forecast.DRAFT):
            for n in (1, 16):
                kernels = forecast.forward_kernels(shape, n, 128)
                self.assertEqual(
                    sum(kernel.launches for kernel in kernels), forecast.launches(shape, n), (shape.name, n)
                )

    def test_more_rows_and_slower_memory_take_longer(self):
        for shape in forecast.SHAPES.values():
            times = [forecast.forward(H200, shape, n, 128) for n in (1, 2, 16, 64, 128)]
            self.assertEqual(times, sorted(times))
            by_gpu = [forecast.forward(forecast.DEVICES[name], shape, 1, 128) for name in ("H200", "H100", "A100")]
            self.assertEqual(by_gpu, sorted(by_gpu))

    def test_every_constant_has_a_source(self):
        for device in forecast.DEVICES.values():
            named = ", ".join(device.sources)
            for field in ("nominal", "dense_bf16", "attainable", "mma", "on_chip", "one_block", "to_host"):
                self.assertIn(field, named, device.name)
            for source in device.sources.values():
                self.assertRegex(source, "^(published: |assumed)")


class Files(unittest.TestCase):
    def test_the_committed_file_is_what_the_module_says(self):
        self.assertEqual(
            forecast.FILE.read_text(encoding="utf-8"), forecast.text(), "run scripts/gpu_check/forecast.py"
        )

    def test_every_prediction_belongs_to_a_goal(self):
        self.assertEqual(set(forecast.GOALS) - {goal[0] for goal in gpu_page.GOALS}, set())

    def test_everything_is_marked(self):
        self.assertIn("predicted, not measured", json.loads(forecast.text())["what"])
        page = (ROOT / "results/gpu/README.md").read_text(encoding="utf-8")
        headings = re.findall(r"^### (.*)$", page[page.index("## Forecast") :], re.M)
        self.assertGreater(len(headings), 5)
        self.assertEqual([heading for heading in headings if not heading.endswith(", predicted")], [])


if __name__ == "__main__":
    unittest.main()

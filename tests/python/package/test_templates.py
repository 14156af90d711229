"""speclab.render: the texts that transformers' jinja2 gives, as a prompt file that `speclab run` takes."""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import installed

installed.use()
sys.path.insert(0, str(installed.ROOT / "tests/python/pages"))

from tiny_model import write_tiny_model

import speclab

BINARY = pathlib.Path(os.environ.get("SPECLAB_BINARY", installed.ROOT / "build/release/speclab"))
GOLDEN = json.loads((installed.ROOT / "tests/golden/chat_templates.json").read_text(encoding="utf-8"))
UNKNOWN = "{{ bos_token }}Q: {{ messages[-1].content | trim }}\nA:"


class Render(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def model(self, template, **more):
        """The folder of a model with this template."""
        config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": template, **more}
        (self.folder / "tokenizer_config.json").write_text(json.dumps(config))
        return self.folder

    def text(self, source, prompt="hi", **options):
        (entry,) = speclab.render([prompt], self.model(source), **options)
        return entry["turns"][0]

    def test_texts_are_those_of_transformers(self):
        """Every golden template on the conversations with one user message, which transformers rendered."""
        checked = 0
        for template in GOLDEN["templates"]:
            for conversation, expected in zip(GOLDEN["conversations"], template["texts"], strict=True):
                roles = [message["role"] for message in conversation]
                if roles not in (["user"], ["system", "user"]):
                    continue
                system = conversation[0]["content"] if roles[0] == "system" else ""
                options = {"system": system, "date": datetime.date(2024, 7, 26)}
                with self.subTest(template["name"], roles=roles):
                    if expected is None:
                        with self.assertRaisesRegex(speclab.Error, "the chat template of .* failed"):
                            self.text(template["source"], conversation[-1]["content"], **options)
                    else:
                        self.assertEqual(
                            self.text(template["source"], conversation[-1]["content"], **options), expected
                        )
                    checked += 1
        self.assertEqual(checked, 6 * len(GOLDEN["templates"]))

    def test_the_file(self):
        prompts = self.folder / "prompts.jsonl"
        first = {"question_id": 7, "category": "chat", "split": "fit", "turns": [" é? "], "options": {"max_tokens": 3}}
        prompts.write_text(json.dumps(first) + '\n\n{"turns": ["b", "c"]}\n"plain"\n')
        to = self.folder / "rendered.jsonl"
        entries = speclab.render(prompts, self.model(UNKNOWN), to, first_turn=True)
        self.assertEqual([json.loads(line) for line in to.read_text(encoding="utf-8").splitlines()], entries)
        self.assertEqual({**entries[0], "renderer": ""}, {**first, "turns": ["<s>Q: é?\nA:"], "renderer": ""})
        self.assertEqual([(one["id"], one["turns"][0][:6]) for one in entries[1:]], [("2", "<s>Q: "), ("3", "<s>Q: ")])
        self.assertRegex(entries[0]["renderer"], r"^jinja2 [\d.]+, chat template with SHA-256 [0-9a-f]{64}$")

    @unittest.skipUnless(BINARY.exists() or os.environ.get("SPECLAB_BINARY"), "no binary is built")
    def test_run_takes_it_as_it_is(self):
        """A model with a template that the engine does not know: the run fails with its own prompts, and takes the rendered ones."""
        model = self.folder / "model"
        write_tiny_model(model, layers=2)
        (model / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|im_end|>", "chat_template": UNKNOWN}))
        config = {
            "name": "x",
            "target": str(model),
            "options": {"max_tokens": 3},
            "warmup": 0,
            "teacher_forced": False,
            "calibration": {"rounds": 1, "rows": 2, "texts": 1},
            "cases": [{"strategy": "autoregressive"}],
        }
        run = lambda prompts, out: subprocess.run(
            [BINARY, "run", self.write_config({**config, "prompts": prompts}), "--out", out, "--backend", "cpu", "-q"],
            capture_output=True,
            text=True,
            cwd=self.folder,
        )
        refused = run({"inline": ["why?"]}, self.folder / "refused")
        self.assertIn("expected one of the known families", refused.stderr)
        to = self.folder / "rendered.jsonl"
        (entry,) = speclab.render(["why?"], model, to)
        done = run({"file": str(to)}, self.folder / "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = speclab.load(self.folder / "run")
        self.assertEqual(found.config["prompts"][0]["renderer"], entry["renderer"])
        context = found.finished_lines("autoregressive")[0]["turns"][0]["context"]
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        start = next(one["id"] for one in tokenizer["added_tokens"] if one["content"] == "<|im_end|>")
        self.assertEqual(context[0], start)  # BOS is one token, and the only one
        self.assertEqual(context.count(start), 1)

    def write_config(self, config):
        file = self.folder / "config.json"
        file.write_text(json.dumps(config))
        return file

    def test_templates_of_a_model(self):
        named = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]
        self.assertEqual(self.text(named), "D")
        self.assertEqual(self.text(named, template="rag"), "R")
        with self.assertRaisesRegex(speclab.Error, "no chat template named 'x'. There are: default, rag"):
            self.text(named, template="x")
        with self.assertRaisesRegex(speclab.Error, "no list of named chat templates"):
            self.text("D", template="x")
        (self.folder / "chat_template.jinja").write_text("own")
        self.assertEqual(self.text("D"), "own")

    def test_what_templates_may_use(self):
        self.assertEqual(
            self.text("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}"), "1"
        )
        self.assertEqual(
            self.text("  {% if true %}\nx{% endif %}"), "x"
        )  # blocks take their indentation and line end along
        self.assertEqual(self.text("a{% generation %}b{% endgeneration %}c"), "abc")
        self.assertEqual(self.text("{{ {'a': 'é<'} | tojson }}"), '{"a": "é<"}')
        self.assertEqual(self.text("{{ think }}{{ eos_token }}", variables={"think": 5}), "5</s>")
        date = datetime.date(2024, 7, 26)
        (entry,) = speclab.render(["x"], self.model("{{ strftime_now('%d %b %Y') }}"), date=date)
        self.assertEqual(entry["turns"], ["26 Jul 2024"])
        self.assertTrue(entry["renderer"].endswith(", date 2024-07-26"))

    def test_a_template_cannot_leave_its_sandbox(self):
        with self.assertRaisesRegex(speclab.Error, "failed: .*unsafe"):
            self.text("{{ messages.__class__.__mro__ }}")

    def test_bad_input(self):
        for prompt, problem in (
            ({"turns": ["a", "b"]}, "2 turns, expected one.*first_turn=True"),
            ({"turns": []}, "expected a list of texts"),
            ({"turns": ["a"], "renderer": "jinja2"}, r"rendered already \(jinja2\)"),
            ({"turns": ["a"], "turn": 1}, "unknown key 'turn'"),
            (5, "int, expected a text"),
        ):
            with self.assertRaisesRegex(speclab.Error, problem):
                self.text("x", prompt)
        with self.assertRaisesRegex(speclab.Error, "no valid Jinja program.*line 1"):
            self.text("{% if %}")
        with self.assertRaisesRegex(speclab.Error, "failed: no system"):
            self.text("{{ raise_exception('no system') }}")
        with self.assertRaisesRegex(speclab.Error, "no chat_template"):
            self.text(None)
        with self.assertRaisesRegex(speclab.Error, "no prompts"):
            speclab.render([], self.model("x"))
        with self.assertRaisesRegex(speclab.Error, "Give a prompt file"):
            speclab.render("/no/such", self.model("x"))
        with self.assertRaisesRegex(speclab.Error, "Give the tokenizer_config.json"):
            speclab.render(["x"], "/no/such")
        with self.assertRaisesRegex(speclab.Error, "can be written"):
            speclab.render(["x"], self.model("x"), self.folder)
        (self.folder / "bad.jsonl").write_text('"a"\n{"tur')
        with self.assertRaisesRegex(speclab.Error, "line 2: not JSON"):
            speclab.render(self.folder / "bad.jsonl", self.model("x"))

    def test_jinja2_is_missed_before_anything_is_read(self):
        with unittest.mock.patch.dict(sys.modules, {"jinja2": None}):
            with self.assertRaisesRegex(speclab.Error, "render needs the package jinja2"):
                speclab.render("/no/such", "/no/such")


if __name__ == "__main__":
    unittest.main()

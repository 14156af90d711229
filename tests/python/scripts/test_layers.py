"""scripts/checks/check_layers.py fails on each breach of its rules, and only then. The places that the pages name for new files
have room."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/checks"))

import check_layers


class CheckLayers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for name in ("core/backend/cuda", "core/backend/cpu", "strategies", "experiments", "scripts", "tests"):
            (self.root / name).mkdir(parents=True)

    def write(self, name, text=""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def breaches(self):
        done = subprocess.run(
            [sys.executable, ROOT / "scripts/checks/check_layers.py", self.root], capture_output=True, text=True
        )
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()
        if done.returncode == 0:
            self.assertEqual(lines, ["layers: ok"])
            return []
        self.assertEqual(done.returncode, 1)
        return lines

    def expect(self, *words):
        """One breach, with these words."""
        found = self.breaches()
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_the_project_keeps_the_rules(self):
        self.root = ROOT
        self.assertEqual(self.breaches(), [])

    def test_nothing_breaks_a_rule(self):
        self.write("core/backend/cuda/a.cpp", '#include "core/backend/backend.h"\n#include "core/base/error.h"\n')
        self.write("core/backend/choice.cpp", 'bool cpu = name == "cpu" || backend.name() != "cuda";\n')
        self.write("experiments/a.cpp", '#include "core/backend/device_status.h"\nmake({.backend = "cpu"});\n')
        self.write(
            "experiments/b.cpp", '// a backend.name() == "cuda" of a comment\nj["cpu"] = 1; m.name() == other;\n'
        )
        self.write("tests/backend/a_test.cpp", '#include "core/backend/cuda/a.h"\nbackend->name() == "cuda";\n')
        self.assertEqual(self.breaches(), [])

    def test_an_include_against_the_layers(self):
        self.write("core/base/a.h", '#include "core/model/net/model.h"\n')
        self.expect("core/base/a.h", "core/base is a lower layer than core/model")

    def test_a_strategy_that_includes_a_backend(self):
        self.write("strategies/a.cpp", '#include "core/measure/clock.h"\n')
        self.expect("strategies/a.cpp", "core/measure/clock.h", "a strategy may not use")
        self.write("strategies/a.cpp", '#include "core/backend/backend.h"\n')
        self.expect("strategies/a.cpp", "a strategy may not use another strategy, a backend")

    def test_a_backend_included_from_outside(self):
        for name in ("cuda/runtime/gpu.h", "cpu/attention.h"):
            self.write("experiments/a.cpp", f'#include "core/backend/{name}"\n')
            self.expect("experiments/a.cpp", name, "outside core/backend")

    def test_one_backend_included_by_the_other(self):
        self.write("core/backend/cuda/a.cpp", '#include "core/backend/cpu/attention.h"\n')
        self.expect("core/backend/cuda/a.cpp", "the two backends may not include each other")
        self.write("core/backend/cuda/a.cpp")
        self.write("core/backend/cpu/a.cpp", '#include "core/backend/cuda/runtime/gpu.h"\n')
        self.expect("core/backend/cpu/a.cpp", "the two backends may not include each other")

    def test_a_compared_name_of_a_backend(self):
        for code in (
            'if (backend.name() == "cuda") {',
            'simulated = held->models->backend().name() != "cuda";',
            'if (environment.value("backend", "cpu") != "cpu") return;',
            'if ("host-simt" == name) return;',
            "if (backend->name() == expected) return;",
            "if (expected == models.backend().name()) return;",
            'if (backend.numerics_class().starts_with("cuda-sm")) return;',
            'on_gpu = numerics == "cuda-sm90";',
        ):
            self.write("core/model/a.cpp", code + "\n")
            self.expect("core/model/a.cpp", "compares the name of a backend")

    def test_writing_to_stderr(self):
        self.write("core/base/a.cpp", 'fmt::print(stderr, "x");\n')
        self.expect("core/base/a.cpp", "stderr")

    def test_a_long_file(self):
        for name in ("core/base/a.cpp", "experiments/a.h", "strategies/a.cpp", "tests/base/a_test.cpp", "core/a.cu"):
            self.write(name, "\n" * 600)
            self.assertEqual(self.breaches(), [])
            self.write(name, "\n" * 601)
            self.expect(name, "601 lines")
            self.write(name)
        self.write("core/model/text/names_tables.cpp", "\n" * 5000)
        self.assertEqual(self.breaches(), [])

    def test_a_full_folder(self):
        for top in ("core/base", "experiments/run", "scripts", "tests/python"):
            suffix = ".py" if top in ("scripts", "tests/python") else ".cpp"
            for i in range(20):
                self.write(f"{top}/m{i}{suffix}")
            self.write(f"{top}/m0.h")  # a header and its source are one module
            self.write(f"{top}/notes.md")
            self.assertEqual(self.breaches(), [])
            self.write(f"{top}/m20{suffix}")
            self.expect(top, "21 modules")
            (self.root / f"{top}/m20{suffix}").unlink()
        for i in range(30):
            self.write(f"strategies/s{i}.cpp")  # one file each, however many
        self.assertEqual(self.breaches(), [])


def places_for_new_files(text):
    """The folders of limited size that a page names as the place for a new file. The page names the folder itself, or the path of a
    file whose name contains NAME or a star."""
    for path in re.findall(rf"`((?:{'|'.join(check_layers.LIMITED)})/[\w./*-]+)`", text):
        folder, _, last = path.rstrip("/").rpartition("/")
        if "NAME" in last or "*" in last:
            yield folder
        elif "." not in last:
            yield f"{folder}/{last}"


class FreePlaces(unittest.TestCase):
    def test_a_new_file_fits_where_the_pages_put_it(self):
        table = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("\n## Where things go\n")[1]
        pages = table.split("\n## ")[0] + (ROOT / "docs/extending.md").read_text(encoding="utf-8")
        folders = set(places_for_new_files(pages))
        for folder in sorted(folders):
            self.assertTrue((ROOT / folder).is_dir(), folder)
            count = len(check_layers.modules(ROOT / folder))
            self.assertLess(count, check_layers.MOST_MODULES, f"{folder} is full: move related files to a folder of it")
        expected = {
            "core/backend",
            "core/decoding/loop/executors",
            "core/decoding/rules",
            "core/model/heads",
            "experiments/cli",
            "experiments/metrics",
            "scripts/figures",
        }
        self.assertLessEqual(expected, folders)

    def test_places_are_found_in_a_page(self):
        text = "`core/a/NAME_b.cpp`, `scripts/c`, `tests/d/*_test.cpp`, but not `core/e/f.cpp`, `strategies/NAME.cpp` or core/g."
        self.assertEqual(list(places_for_new_files(text)), ["core/a", "scripts/c", "tests/d"])


if __name__ == "__main__":
    unittest.main()

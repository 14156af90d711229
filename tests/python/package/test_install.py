"""`pip install .` builds the package and installs all of it. The other tests of this folder use this package.

The package goes to a folder of its own, without a network: the build tools are those of .venv. It is built with less optimisation
than a user's package, and with several sources of the library at once, because that compiles faster.
"""

import os
import pathlib
import subprocess
import sys
import unittest

from installed import PACKAGE, ROOT, python

BUILD = PACKAGE.with_name("python")


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
        pip += ["--upgrade", "--target", str(PACKAGE), "-C", f"build-dir={BUILD}", str(ROOT)]
        fast = "'-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG' -DSPECLAB_UNITY=ON"
        environment = {**os.environ, "CMAKE_GENERATOR": "Ninja", "CMAKE_ARGS": fast}
        done = subprocess.run(pip, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)

    def test_everything_is_there(self):
        within = lambda folder: {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
        names = within(PACKAGE / "speclab")
        sources = {name for name in within(ROOT / "python/speclab") if name.endswith((".py", ".json"))}
        self.assertLessEqual({*sources, "py.typed", "theory.pyi", "SCHEMA.md"}, names)
        self.assertTrue([name for name in names if name.startswith("theory.") and name.endswith(".so")])

    def test_it_works_away_from_the_source_tree(self):
        code = "import speclab; print(speclab.__file__, speclab.theory.expected_tokens(.8, 5), speclab.units()['tau'])"
        done = python("-c", code, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        file, tau, unit = done.stdout.split()
        self.assertTrue(pathlib.Path(file).is_relative_to(PACKAGE))
        self.assertAlmostEqual(float(tau), (1 - 0.8**6) / 0.2)
        self.assertEqual(unit, "tokens/step")

    def test_the_version_is_that_of_the_project(self):
        done = python(
            "-c",
            "import speclab; from importlib.metadata import version; print(speclab.__version__, version('speclab'))",
        )
        self.assertEqual(done.stdout.split(), ["0.1.0", "0.1.0"], done.stderr)
        self.assertIn("project(SpecLab VERSION 0.1.0", (ROOT / "CMakeLists.txt").read_text())

    def test_the_package_alone_needs_neither_pandas_nor_the_extension(self):
        """Scripts import the reader of records from the source tree, where no extension is built."""
        code = "import sys, speclab, speclab.record, speclab.kept_lines; print('pandas' in sys.modules, 'speclab.theory' in sys.modules)"
        done = python("-c", code, package=ROOT / "python")
        self.assertEqual(done.stdout.split(), ["False", "False"], done.stderr)

    def test_every_public_name_is_there_and_has_a_docstring(self):
        code = """
import speclab, types
for name in speclab.__all__:
    assert getattr(speclab, name).__doc__, name
for name in dir(speclab.theory):
    if not name.startswith("_"):
        assert (getattr(speclab.theory, name).__doc__ or "").strip(), name
try:
    speclab.no_such_name
except AttributeError as error:
    print(error)
"""
        done = python("-c", code)
        self.assertEqual(done.stdout.strip(), "module 'speclab' has no attribute 'no_such_name'", done.stderr)


if __name__ == "__main__":
    unittest.main()

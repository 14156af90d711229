"""The installed package, which test_install.py installs, and how tests use it."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = pathlib.Path(os.environ.get("SPECLAB_PACKAGE", ROOT / "build/release/python-package"))
BASELINES = ROOT / "results/baselines"
QUICKSTART = BASELINES / "epyc-avx512-2cores/quickstart"


def python(*arguments, package=PACKAGE, cwd=ROOT):
    """Runs Python with the package on its path."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment)


def use():
    """Makes `import speclab` find the installed package."""
    if not (PACKAGE / "speclab/theory.pyi").exists():
        raise AssertionError(f"{PACKAGE}: the package is not installed here. Run ctest -R python.install first.")
    sys.path.insert(0, str(PACKAGE))

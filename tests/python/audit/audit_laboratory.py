"""What the tests of the audit share: the script, small tables, and a folder in which the script runs."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from audit import report

# scripts/audit.py; the folder scripts/audit has the name "audit".
spec = importlib.util.spec_from_file_location("audit_script", ROOT / "scripts/audit.py")
audit_script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit_script)

SMALL = report.Settings(max_gamma=2, max_vocab=3)


class Temporary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, *words, gamma=2):
        command = [sys.executable, ROOT / "scripts/audit.py", *words, "--gamma", str(gamma), "--vocab", "2"]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=os.environ)

"""The reader of run folders, which is part of the Python package (python/speclab/record.py). Scripts use it from the source tree."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from speclab.record import (  # noqa: E402, F401
    SCHEMA_VERSION,
    BadRun,
    Case,
    Ladder,
    NotApplicable,
    Run,
    differing_settings,
    hash_of,
)

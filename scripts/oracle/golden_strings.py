"""The command line that several tokenizer oracles share. Each of them takes strings that the Generator of tokenizer.py makes,
and writes one golden file, or with --write another file. With --check it only compares."""

import argparse
import json
import sys
from pathlib import Path

from tokenizer import GOLDEN, Generator, dump


def parse(description, golden_name, strings, **flags):
    """Parses the command line. Adds the generator as `generator` and its strings as `texts`. flags: more switches, name -> help."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--strings", type=int, default=strings, help="with --write: number of strings")
    parser.add_argument("--write", type=Path, help="file to write; default: the golden file")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the golden file would change")
    for name, explanation in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=explanation)
    options = parser.parse_args()
    if options.strings != strings and not options.write and not options.check:
        parser.error(f"--strings {options.strings} needs --write FILE. The golden file holds {strings} strings.")
    options.write = options.write or GOLDEN / golden_name
    options.generator = Generator(json.loads((GOLDEN / "generator.json").read_text()))
    options.texts = [options.generator.text(i).decode("utf-8", "replace") for i in range(options.strings)]
    return options


def finish(options, golden, summary):
    """Writes `golden`. With --check, compares it with the file instead and ends the program."""
    text = dump(golden)
    if options.check:
        same = options.write.exists() and options.write.read_text() == text
        print(f"{options.write.name}: {'as before' if same else 'different'}")
        sys.exit(0 if same else 1)
    options.write.write_text(text)
    print(f"{options.write}: {summary}, {options.strings} strings each")

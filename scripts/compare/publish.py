"""Shared end of the scripts that compare with other programs: messages, record, page and exit code."""

import gzip
import json
import re
import shlex
import statistics
import sys

QUIET = 0.1  # most cores that other processes may take on a quiet machine (median over the measurements)


class Problem(Exception):
    """Something outside the program is missing or wrong; the text says what it is and, if possible, what to do."""


class Page:
    """Prints the messages of a comparison and keeps them."""

    def __init__(self, title):
        self.title, self.parts = title, []

    def say(self, text):
        print(text + "\n")
        self.parts.append(text)

    def say_how_quiet(self, others, what, advice):
        """Prints how quiet the machine was, and returns it for the record. `others`: the cores that other processes
        took, a number for each measurement; `what` names the measurements."""
        busy = statistics.median(others)
        self.say(f"Other processes took {busy:.2f} cores (median over the {what}), {max(others):.2f} at most.")
        if busy > QUIET:
            self.say(f"WARNING: {advice}")
        return {"quiet": busy <= QUIET, "others_cores_median": busy, "others_cores_max": max(others)}


def forms(path):
    return {str(path.absolute()), str(path.resolve())}


def without_homes(text, homes):
    """Replaces the paths of this machine in a record. homes: path (or None, which is skipped) -> text that replaces it."""
    known = [(form, name) for path, name in homes.items() if path for form in forms(path)]
    for form, name in sorted(known, key=lambda each: -len(each[0])):
        text = re.sub(re.escape(form) + r"(?![\w-])", name, text)
    return text


def command_line(words, homes):
    """A command as text, with the paths of this machine replaced. Its words may be relative paths."""
    shown = []
    for word in map(str, words):
        option, sign, value = word.rpartition("=")
        for path, name in homes.items():
            for form in [str(path), *forms(path)] if path else []:
                if value == form or value.startswith(form + "/"):
                    value = name + value[len(form) :]
        shown.append(without_homes(option + sign + value, homes))
    return shlex.join(shown)


def publish(out, page, record, homes):
    """Writes the record to `out`, compressed, with .gz appended to its name. Writes a page beside it, with the command,
    the messages and a link to the record."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = command_line(sys.argv, homes)
    text = without_homes(json.dumps({**record, "command": command}, separators=(",", ":")), homes) + "\n"
    packed = out.with_name(out.name + ".gz")
    packed.write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))
    said = "\n\n".join(page.parts)
    out.with_suffix(".md").write_text(
        f"# {page.title}\n\n    {command}\n\n```text\n{said}\n```\n\nEvery single time and command: [{packed.name}]({packed.name}).\n"
    )
    print(f"record: {packed}, page: {out.with_suffix('.md')}")


def leave(main, name):
    """Runs `main`. If it raises Problem, prints the message and exits with code 2. Exits with code 130 after Ctrl-C."""
    try:
        main()
    except Problem as problem:
        print(f"{name}: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)

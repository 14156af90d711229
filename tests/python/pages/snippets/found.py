"""The snippets of the pages, and the examples of --help."""

import re
import subprocess

from tiny_model import ROOT

from .laboratory import BINARY

PAGES = (
    *("README.md", "configs/README.md", "configs/devices/README.md", "strategies/README.md", "CONTRIBUTING.md"),
    *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")),
)

PROGRAM = r"(?:(?:build/release/)?speclab(?:_bench)? |scripts/[\w/]+\.(?:sh|py)|\.venv/bin/python |ctest |cmake )"


class Snippet:
    def __init__(self, page, line, kind, text):
        self.page, self.line, self.kind, self.text = page, line, kind, text

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


def snippets_of_page(page):
    """Whole fenced blocks, lines of indented blocks, and spans in backticks that begin with a program."""
    found, fence, block, begin = [], None, [], 0
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    indented = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if fence is None:
                fence, block, begin = line[3:].strip(), [], number + 1
            else:
                found.append(Snippet(page, begin, fence, "\n".join(block) + "\n"))
                fence = None
        elif fence is not None:
            block.append(line)
        elif line.startswith("    ") and (indented or not lines[number - 2].strip()):
            indented = True
            found.append(Snippet(page, number, "command", re.sub(r"\s+# .*", "", line.strip())))
        else:
            indented = False
            for span in re.findall(r"`([^`]+)`", line):
                if re.match(PROGRAM, span):
                    found.append(Snippet(page, number, "span", span))
    return found


def help_examples():
    overview = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"^  (\w+) ", overview, re.M):
        text = subprocess.run([BINARY, name, "--help"], capture_output=True, text=True, check=True).stdout
        yield Snippet(f"speclab {name} --help", 0, "command", text.split("\nExample:\n")[1].strip())

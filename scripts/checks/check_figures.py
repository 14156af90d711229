#!/usr/bin/env python3
"""Fails when a page that is written by hand names a measured figure that no committed record holds.

    check_figures.py [ROOT]

A measured figure is a number with a decimal point or with a unit, in text or in a table. Goals do not count as
measured: the cells of a column "goal", and a number after ≥, ≤, <, > or the word goal. The script skips text in
backticks, comments, the targets of links, and dates.

results/cpu/README.md: each measured figure of a section must be on a page of that folder to which the section links.
The page may show more digits. A percentage must be a percentage there too. Scripts write those pages from their records
(tests/python/pages/test_cpu_pages.py checks that). This script does not check what the text says about a figure.
A figure that follows from others is declared in a comment of its section. Its parts must be on the linked pages, except
1, 100 and 1000, which are always allowed:

    <!-- 1.45 = 100 / 69 -->

README.md: outside of the parts that scripts/baseline.py writes from records, no measured figure may stand, except those
in WITHOUT_A_RECORD, each with its reason.
"""

import ast
import operator
import pathlib
import re
import sys
from decimal import Decimal

UNITS = r"(?:ns|us|µs|ms|s|min|minutes?|hours?|%|MB|MiB|GB|GB/s|FLOP/s|GFLOP/s|times|x)(?![\w/])"
NUMBER = re.compile(rf"(?<![\w.,^-])(\d{{1,3}}(?:,\d{{3}})+|\d+)(\.\d+)?(?!(?!{UNITS})\w)(?!\.\d)")
GOAL = re.compile(r"(?:[≥≤<>]|\bgoal)\s*[\d.,]+(?:\s*(?:%|x|ms|s|MB)(?!\w))?")
DERIVED = re.compile(r"<!-- ([\d.,]+) = ([^>]*?) -->")
WRITTEN = re.compile(r"<!-- \w+: written by scripts/baseline\.py -->.*?<!-- end of \w+ -->", re.S)
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
FREE = {Decimal(1), Decimal(100), Decimal(1000)}  # numbers in a derivation that need no record
WITHOUT_A_RECORD = {
    "95 %": "the level of intervals, not a measurement",
    "8 minutes": "how long scripts/quickstart.sh takes (442 s on 2026-11-27); no record holds it yet",
    "24 minutes": "how long scripts/test.sh takes (1,405 s on 2026-11-27); no record holds it yet",
}


def without_goals(text):
    """The text without columns "goal" of tables, goals in sentences, text in backticks, comments, targets of links, dates."""
    lines, goal = [], None
    for line in text.splitlines():
        cells = line.split("|") if line.lstrip().startswith("|") else None
        if cells is None:
            goal = None
        elif goal is None and "goal" in (names := [cell.strip() for cell in cells]):
            goal = names.index("goal")
        if cells is not None and goal is not None and goal < len(cells):
            cells[goal] = " "
            line = "|".join(cells)
        lines.append(line)
    text = "\n".join(lines)
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    for pattern in (r"<!--.*?-->", r"`[^`]*`", r"\]\([^)]*\)", r"\d{4}-\d{2}-\d{2}"):
        text = re.sub(pattern, " ", text, flags=re.S)
    return GOAL.sub(" ", text)


def figures(text):
    """The measured figures of a text as (number, as it is written)."""
    found = []
    for match in NUMBER.finditer(text):
        unit = re.match(rf"\s?{UNITS}", text[match.end() :])
        if match.group(2) or unit:
            found.append((match.group(), match.group() + (unit.group() if unit else "")))
    return found


def number(text):
    return Decimal(text.replace(",", ""))


def decimals(value):
    return max(0, -value.as_tuple().exponent)


def holds(known, value):
    """Whether one of the known numbers equals the value after rounding to the digits of the value."""
    step = Decimal(1).scaleb(-decimals(value))
    return any(decimals(other) >= decimals(value) and abs(other - value) <= step / 2 for other in known)


def derived(expression, known):
    """The value of a derivation. Raises ValueError if a part of it is not known."""

    def value(node):
        if isinstance(node, ast.Expression):
            return value(node.body)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant):
            part = Decimal(ast.get_source_segment(expression, node))
            if part in FREE or holds(known, part):
                return part
            raise ValueError(f"its part {part} is on none of the pages")
        raise ValueError("expected numbers with + - * / and brackets")

    return value(ast.parse(expression, mode="eval"))


def problems_of_section(section, pages):
    """pages: {name: text} of the folder."""
    linked = [name for name in re.findall(r"\]\(([\w.-]+\.md)\)", section) if name in pages]
    known, shares = set(), set()  # all numbers; those that are percentages
    for name in linked:
        for match in NUMBER.finditer(pages[name]):
            known.add(number(match.group()))
            if re.match(r"\s?%", pages[name][match.end() :]):
                shares.add(number(match.group()))
    declared = set()
    for result, expression in DERIVED.findall(section):
        wanted = number(result)
        try:
            got = derived(expression.strip(), known)
        except (ValueError, SyntaxError, ArithmeticError) as error:
            yield f"{result} = {expression}: {error}"
            continue
        if not holds({round(got, decimals(wanted) + 6)}, wanted):
            yield f"{result} = {expression}: it is {got:.6g}"
        declared.add(wanted)
    for text, shown in figures(without_goals(section)):
        if number(text) not in declared and not holds(shares if shown.endswith("%") else known, number(text)):
            yield f"'{shown}' is on none of the linked pages ({', '.join(linked) or 'there are none'})"


def problems(root):
    folder = root / "results/cpu"
    pages = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md") if path.name != "README.md"}
    for section in re.split(r"(?m)^(?=## )", (folder / "README.md").read_text(encoding="utf-8")):
        for problem in problems_of_section(section, pages):
            yield f"results/cpu/README.md, {section.splitlines()[0]}: {problem}"
    front = WRITTEN.sub("", (root / "README.md").read_text(encoding="utf-8"))
    for _, shown in figures(without_goals(front)):
        if shown not in WITHOUT_A_RECORD:
            yield f"README.md: '{shown}' is not in a part that is written from a record"


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) if found else "figures: ok")
    sys.exit(1 if found else 0)

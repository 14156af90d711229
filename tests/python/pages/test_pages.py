"""Pages that are written by hand: the first page is short, what a page names exists, every term is explained once."""

import itertools
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = sorted(
    page
    for folder in (
        ".",
        "docs",
        "configs",
        "configs/paper",
        "strategies",
        "results",
        "results/cpu",
        "results/gpu",
        "models/draft/*",
    )
    for page in ROOT.glob(f"{folder}/*.md")
)
CHECKED = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "configs/README.md", "strategies/README.md")]
CHECKED += sorted((ROOT / "docs").glob("*.md"))
FOLDERS = "core|experiments|strategies|scripts|python|tests|configs|results|models|docs|.ci"
MADE_LATER = re.compile(
    r"results/runs/|models/[^/]*\.(gguf|part|whl)$|models/gpt2$|models/draft/smollm2-135m-instruct-128$|strategies/again\.cpp$"
)
PLACEHOLDER = re.compile(r"(?<![A-Z])(CONFIG|CPU|DEVICE|DIR|LAYER|MACHINE|NAME|ROOM|RUN|TARGET)(?![A-Z])|[*]")


def named_paths(text):
    """Paths into the project that a text names, with "{a,b}" written out."""
    for path in re.findall(rf"(?<![\w./-])((?:{FOLDERS})/[\w./{{}},*+-]*)", text):
        parts = re.split(r"\{([^}]*)\}", path.rstrip(".,"))
        choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
        yield from ("".join(choice) for choice in itertools.product(*choices))


def exists(path, root=ROOT):
    """True if the path up to its first placeholder ("NAME", "*") exists. A module may be named without .h or .cpp."""
    known = list(itertools.takewhile(lambda part: not PLACEHOLDER.search(part), pathlib.PurePosixPath(path).parts))
    place = root.joinpath(*known)
    return place.exists() or any(place.with_name(place.name + end).exists() for end in (".h", ".cpp"))


def anchors(page):
    """GitHub's names of a page's headings."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


class FirstPage(unittest.TestCase):
    def test_it_is_short(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertLessEqual(len(text.splitlines()), 120)
        self.assertLessEqual(len(text.split()), 900)
        for number, line in enumerate(text.splitlines(), 1):
            self.assertLessEqual(len(line), 160, f"README.md:{number}")

    def test_the_architecture_fits_on_a_screen(self):
        lines = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").splitlines()
        self.assertLessEqual(len(lines), 60)
        for number, line in enumerate(lines, 1):
            self.assertLessEqual(len(line), 160, f"docs/architecture.md:{number}")


class Names(unittest.TestCase):
    def test_paths_exist(self):
        count = 0
        for page in CHECKED:
            for path in named_paths(page.read_text(encoding="utf-8")):
                count += 1
                if not MADE_LATER.match(path):
                    self.assertTrue(exists(path), f"{page.relative_to(ROOT)} names {path}")
        self.assertGreater(count, 100)

    def test_a_wrong_path_is_seen(self):
        text = "see `scripts/no_such.py`, core/base/{error,no_such}.h and results/cpu/CPU.json."
        found = list(named_paths(text))
        self.assertEqual(
            found, ["scripts/no_such.py", "core/base/error.h", "core/base/no_such.h", "results/cpu/CPU.json"]
        )
        self.assertEqual([exists(path) for path in found], [False, True, False, True])

    def test_relative_links_lead_somewhere(self):
        for page in PAGES:
            for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
                target = page.parent / link if link else page
                self.assertTrue(target.exists(), f"{page.relative_to(ROOT)}: {link}")
                if anchor:
                    self.assertIn(anchor, anchors(target), f"{page.relative_to(ROOT)}: {link}#{anchor}")


class Scripts(unittest.TestCase):
    def test_the_page_of_commands_names_all_scripts(self):
        page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
        for script in (ROOT / "scripts").iterdir():
            made = script.is_dir() and all(
                file.name == "__pycache__" for file in script.iterdir()
            )  # left by a removed folder
            if script.name != "__pycache__" and not made and (script.is_dir() or script.suffix in (".sh", ".py")):
                self.assertIn(f"`scripts/{script.name}`", page)


class Glossary(unittest.TestCase):
    def test_each_term_stands_once(self):
        text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
        cells = re.findall(r"^\| ([^|]+) \|", text, re.M)
        terms = [
            term.strip() for cell in cells if cell not in ("term", "---") for term in re.split(r", (?![^(]*\))", cell)
        ]
        self.assertGreater(len(terms), 40)
        self.assertEqual(sorted(terms), sorted(set(terms)))


if __name__ == "__main__":
    unittest.main()

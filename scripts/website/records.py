"""The committed records: their names, pages, machines and commands."""

import dataclasses
import functools
import json
import pathlib
import shlex

import history
import history_page
from report import machine

import figures
from figures.record import Run


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    name: str  # its folder below results/baselines
    run: Run

    @property
    def page(self):
        """The address of its page in the site."""
        return f"records/{self.name}.html"

    @property
    def folder(self):
        return f"results/baselines/{self.name}"

    @property
    def command(self):
        return shlex.join(str(word) for word in self.run.environment["command_line"])

    @property
    def new_folder(self):
        """The folder that its command writes."""
        return machine.out_of([str(word) for word in self.run.environment["command_line"]])

    @functools.cached_property
    def line(self):
        """What the history holds for this record."""
        return history.line_of(self.run)

    @property
    def machine(self):
        return history_page.machine_of(self.line)

    @property
    def figures(self):
        """[(figure, svg file)] of the figures that were committed with the record. A figure that is no longer drawn has its name as title."""
        known = {figure.name: figure for figure in figures.all_figures() + figures.ladder_figures()}
        return [
            (known.get(file.stem) or figures.Figure(file.stem, file.stem.replace("_", " "), "", None), file)
            for file in sorted((self.run.folder / "figures").glob("*.svg"))
        ]

    def link(self, place=""):
        return f"{self.page}#{place}" if place else self.page


def records_of(root):
    base = root / "results/baselines"
    folders = [file.parent for pattern in ("*", "*/*") for file in base.glob(f"{pattern}/summary.json")]
    return [Record(folder.relative_to(base).as_posix(), Run(folder)) for folder in sorted(folders)]


def config_files(root):
    """{name of a config: its file}. Configs that cannot be read are left out."""
    found = {}
    for file in sorted(root.glob("configs/**/*.json")):
        try:
            name = json.loads(file.read_text(encoding="utf-8")).get("name")
        except (ValueError, AttributeError):
            continue
        found.setdefault(name, pathlib.PurePosixPath(file.relative_to(root)).as_posix())
    return found

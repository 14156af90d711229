"""Writes the site."""

import argparse
import pathlib
import shutil
import sys

from report import page, run_page, write

from figures.record import BadRun

from . import gallery, leaderboard, records, trend

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = ".speclab-site"  # a folder with this file was written by this program
PAGES = (("index.html", "Leaderboard"), ("trend.html", "Trends"), ("gallery.html", "Figures"))


def prepare(out):
    """Makes an empty folder for the site. A folder that already holds a site is emptied; any other folder with files is
    refused."""
    if out.exists() and any(out.iterdir()):
        if not (out / MARK).exists():
            raise BadRun(f"{out}: holds files that are not a site. Name another folder with --out.")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()


def write_record(record, out):
    target = out / record.page
    target.parent.mkdir(parents=True, exist_ok=True)
    up = "../" * (record.page.count("/"))
    links = [(f"{up}{address}", title) for address, title in PAGES]
    write(run_page(record.run, record.figures, folder=record.folder, links=links), target)


def write_site(root, out):
    """Writes the site over root/results. Returns the number of its pages."""
    found = records.records_of(root)
    if not found:
        raise BadRun(f"{root / 'results/baselines'}: no record. Keep a run with scripts/baseline.py adopt.")
    prepare(out)
    for record in found:
        write_record(record, out)
    configs = records.config_files(root)
    contents = (
        ("leaderboard.html", leaderboard.content(found)),
        ("trend.html", trend.content(root, found, configs)),
        ("gallery.html", gallery.content(found, out)),
    )
    for (address, title), (template, content) in zip(PAGES, contents):
        data = page.script_data(content.pop("data", {}))
        links = [(other, text) for other, text in PAGES if other != address]
        write(page.render(template, title=title, links=links, data=data, **content), out / address)
    return len(found) + len(PAGES)


def main(arguments=None, description=None, root=ROOT):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=root / "build/site", help="folder of the site")
    options = parser.parse_args(arguments)
    try:
        count = write_site(root, options.out)
    except BadRun as error:
        print(f"website: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"website: {error.filename}: {error.strerror}. Choose another place with --out.", file=sys.stderr)
        return 2
    print(f"website: {count} pages, {options.out / 'index.html'}")
    return 0

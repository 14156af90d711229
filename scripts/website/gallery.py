"""The gallery: all figures that were committed with the records."""

import shutil


def content(records, out):
    """Copies the figures into the site. Returns {"shown": [(figure, address, record, command)]}"""
    shown = []
    for record in records:
        for figure, file in record.figures:
            address = f"figures/{record.name}/{file.name}"
            target = out / address
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            command = f".venv/bin/python scripts/report.py {record.new_folder} --only {figure.name}"
            shown.append((figure, address, record, command))
    return {"shown": sorted(shown, key=lambda one: (one[0].title, one[2].name))}

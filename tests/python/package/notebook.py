"""Runs a notebook whose cells are plain Python, in one namespace and in order, as Jupyter does, but without Jupyter.

    .venv/bin/python tests/python/package/notebook.py FILE.ipynb    # runs it and stores its outputs in the file

The output of a cell is what it prints, then the value of its last expression (unless a semicolon ends it), then its figures. Needs the package on PYTHONPATH.
"""

import ast
import base64
import contextlib
import io
import json
import pathlib
import sys
import traceback

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


class CellFailed(Exception):
    """A cell raised an exception. The message has the cell and the traceback."""


def lines_of(text):
    return text.splitlines(keepends=True)


def run_cell(source, namespace, name):
    """The outputs of a code cell, in the form of nbformat 4."""
    tree = ast.parse(source, name)
    shown = tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";")
    last = tree.body.pop() if shown else None
    printed, value = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, name, "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    except Exception as error:
        raise CellFailed(f"{name}:\n{source}\n{traceback.format_exc()}") from error
    outputs = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines_of(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines_of(repr(value))}
        outputs.append({"output_type": "execute_result", "metadata": {}, "data": data, "execution_count": None})
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=80, metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode() + "\n"}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return outputs


def run(notebook):
    """Runs the code cells of a notebook in order and returns it with their outputs."""
    namespace, count, cells = {"__name__": "__main__"}, 0, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = run_cell("".join(cell["source"]), namespace, f"cell {count}")
            for output in outputs:
                if "execution_count" in output:
                    output["execution_count"] = count
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def text_outputs(notebook):
    """The printed and shown text of each code cell; "<figure>" stands for a picture."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            parts = [
                output.get("text") or output["data"].get("text/plain") or ["<figure>"] for output in cell["outputs"]
            ]
            found.append("\n".join("".join(part) for part in parts))
    return found


if __name__ == "__main__":
    file = pathlib.Path(sys.argv[1])
    done = run(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

"""Takes functions from a file of another project, without running the imports of that file."""

import ast
import os
import pathlib


def path_of_user(what):
    path = os.environ.get("SPECLAB_AUDIT_FILE")
    if path is None:
        raise ValueError(f"set SPECLAB_AUDIT_FILE to {what}")
    return path


def functions_of_file(path, *wanted, keep_annotations=False, **names):
    """Returns the functions `wanted` without decorators, and without annotations unless keep_annotations is true. If none is named, it
    returns all functions of the file. `names`: the global names that the functions and the kept annotations use."""
    tree = ast.parse(pathlib.Path(path).read_text(encoding="utf-8"), filename=str(path))
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"{path} has no function {missing[0]}; the adapter was written for another version")
    wanted = wanted or tuple(found)
    for name in wanted:
        found[name].decorator_list = []
        if keep_annotations:
            continue
        found[name].returns = None
        takes = found[name].args
        for argument in (*takes.posonlyargs, *takes.args, *takes.kwonlyargs, takes.vararg, takes.kwarg):
            if argument is not None:
                argument.annotation = None
    exec(compile(ast.Module([found[name] for name in wanted], []), path, "exec"), names)  # the user's copy of the code
    return [names[name] for name in wanted]

"""What a run ran on, and the commands that repeat it."""

import shlex


def flattened(environment):
    """Rows for the page; each list is joined into one text."""
    for key, value in environment.items():
        if isinstance(value, dict):
            for inner, content in flattened(value):
                yield f"{key} / {inner}", content
        else:
            yield key, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def out_of(command_line):
    """The folder that the run was written to, as its command line names it; "NEW_RUN" if it names none."""
    for option in ("--out", "--resume"):
        if option in command_line[:-1]:
            return command_line[command_line.index(option) + 1]
    return next((word.partition("=")[2] for word in command_line if word.startswith("--out=")), "NEW_RUN")


def commands(run, folder=None):
    """The commands that repeat a run: [(what the command does, command, note)], and those that check the new run and write this page.
    `folder`: name of the run's folder on the page."""
    environment = run.environment
    folder = str(run.folder if folder is None else folder)
    words = [str(word) for word in environment["command_line"]]
    note = "The run had changes that this commit does not have." if environment.get("dirty") else ""
    found = [
        ("the source", f"git checkout {environment['commit'][:10]}", note),
        (
            "packages, target model and build",
            "scripts/setup.sh && scripts/get_model.sh && cmake --preset release && cmake --build --preset release",
            "",
        ),
    ]
    measured = words[1:2] == ["run"]
    found.append(("the run", shlex.join(words), "Choose another folder if this one exists." if measured else ""))
    gates = ["--gate", "tau,alpha,rows,calls"]
    checks = [("this page", shlex.join([".venv/bin/python", "scripts/report.py", folder, "--out", "report.html"]), "")]
    if measured:
        command = shlex.join(["build/release/speclab", "compare", folder, out_of(words), *gates])
        note = "The machine may differ; models and numerics class must be the same."
        checks.insert(0, ("counts of the new run, which must equal those of this one", command, note))
    return found, checks


def differences(base, new):
    """The fields of two environments side by side: [(field, base, new, differ)]."""
    one, other = dict(flattened(base)), dict(flattened(new))
    return [(key, one.get(key, ""), other.get(key, ""), one.get(key) != other.get(key)) for key in {**one, **other}]

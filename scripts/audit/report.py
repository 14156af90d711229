"""Audits a verifier for several draft lengths, and writes what was found as a table or as JSON."""

import dataclasses

from audit import drafts, enumeration

TREES = ((-1, 0, 0), (-1, 0, 0, 0), (-1, 0, 0, 1, 2), (-1, 0, 1, 1, 3))  # parents, as in drafts.Tree


@dataclasses.dataclass
class Settings:
    max_gamma: int = 3
    max_vocab: int = 4
    tables: int = 1
    seed: int = 1
    tolerance: float = 1e-9
    trees: str | None = None  # how children are drawn (drafts.DRAWS), for a verifier of trees; None: it takes chains


@dataclasses.dataclass
class Finding:
    """What was found for chains of `gamma` tokens, or for trees of depth `gamma` with the parents `parents`: the largest errors over
    the tables, and E[tau] on the golden pair."""

    gamma: int
    parents: tuple | None = None
    tables: int = 0
    runs: int = 0
    first_error: float = 0.0
    joint_error: float = 0.0
    golden_tau: float | None = None
    golden_optimum: float | None = None  # best_tokens() of the golden pair; for trees tree_bound()
    excess: float | None = None  # largest E[tau] - optimum of the same table
    exact: bool = True
    failure: enumeration.Failure | None = None


def audit(verify, settings):
    if settings.trees is None:
        findings = [Finding(gamma) for gamma in range(1, settings.max_gamma + 1)]
    else:
        findings = [Finding(drafts.depth(parents), parents) for parents in TREES]
    return [_audit(verify, finding, settings) for finding in findings if finding.gamma <= settings.max_gamma]


def _audit(verify, finding, settings):
    gamma, tree = finding.gamma, (finding.parents, settings.trees)
    vocabularies = range(2, settings.max_vocab + 1)
    for table in enumeration.audit_tables(gamma, vocabularies, settings.tables, settings.seed):
        try:
            if finding.parents is None:
                optimum = enumeration.best_tokens(table, gamma)
                result = enumeration.enumerate_table(verify, table, gamma, settings.tolerance)
            else:
                optimum = enumeration.tree_bound(table, *tree)
                result = enumeration.enumerate_trees(verify, table, *tree, settings.tolerance)
        except enumeration.Nonsense as error:
            finding.exact = False
            finding.failure = finding.failure or enumeration.Failure(table.name, str(error), None)
            return finding  # nothing is known about the law on this table
        if table.name == "golden pair":
            finding.golden_tau, finding.golden_optimum = result.tau, optimum
        excess = result.tau - optimum
        finding.tables += 1
        finding.runs += result.runs
        finding.first_error = max(finding.first_error, result.first_error)
        finding.joint_error = max(finding.joint_error, result.joint_error)
        finding.excess = excess if finding.excess is None else max(finding.excess, excess)
        if result.joint_error > settings.tolerance or excess > settings.tolerance:
            finding.exact = False
            if finding.failure is None:
                text = f"E[tau] {result.tau:.6g} is above {optimum:.6g}, which no lossless verifier exceeds"
                finding.failure = result.failure or enumeration.Failure(table.name, text, None)
    return finding


def as_json(name, findings, settings):
    return {
        "verifier": name,
        "exact": all(f.exact for f in findings),
        "settings": dataclasses.asdict(settings),
        "findings": [dataclasses.asdict(f) for f in findings],
    }


def as_text(name, findings, settings):
    chains = settings.trees is None
    best = "optimum" if chains else "bound"
    rows = [("gamma" if chains else "tree", "tables", "runs", "first token", "joint law", "E[tau]", best, "verdict")]
    for f in findings:
        errors = [_error(e, settings) if f.tables else "-" for e in (f.first_error, f.joint_error)]
        taus = ["-" if n is None else f"{n:.7g}" for n in (f.golden_tau, f.golden_optimum)]
        rows.append((_draft(f), f"{f.tables}", f"{f.runs}", *errors, *taus, "exact" if f.exact else "WRONG"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [name, "", *("  ".join(cell.rjust(w) for cell, w in zip(row, widths)).rstrip() for row in rows), ""]
    lines += [
        "first token, joint law: largest difference between the probability of a text by the verifier and by the target, for texts",
        f"of one token and of {'gamma' if chains else 'the depth of the tree'} + 1 tokens; up to {settings.tolerance:.0e} it is rounding, shown as 0.",
        f"E[tau], {best}: expected tokens of a step on the pair p = (.55 .25 .15 .05), q = (.4 .35 .05 .2), and the largest",
    ]
    if chains:
        lines += [
            "value of any lossless verifier of one chain (arXiv 2403.10444). E[tau] is compared with the optimum on every table."
        ]
    else:
        lines += [
            "value of any lossless verifier. If the tree has several levels, the bound may be larger than this value. E[tau] is compared",
            "with the bound on every table. tree: the parents of the drafted nodes; 0 is the pending token. Draws of the children of a",
            f"node: {settings.trees.replace('-', ' ')}.",
        ]
    for f in findings:
        if f.failure:
            after = "" if f.failure.history is None else f" after the history {list(f.failure.history)}"
            draft = f"gamma {_draft(f)}" if chains else f"tree {_draft(f)}"
            lines.append(f'{draft}: wrong{after} on the table "{f.failure.table}": {f.failure.text}.')
    return "\n".join(lines)


def _draft(finding):
    return f"{finding.gamma}" if finding.parents is None else " ".join(map(str, finding.parents[1:]))


def _error(error, settings):
    return "0" if error <= settings.tolerance else f"{error:.4g}"

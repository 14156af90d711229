"""Core and experiments name no strategy: what a strategy needs is said in its registration (StrategyInfo)."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]

# The theory of lookahead decoding and its command are about that strategy.
THEORY_OF_ONE_STRATEGY = re.compile(
    r"experiments/(analysis|simulate)/lookahead_|experiments/cli/predict/command_lookahead"
)


def registered_names():
    text = "".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "strategies").glob("*.cpp")))
    return re.findall(r"RegisterStrategy<[^>]*> registered\{(?:\{|head_strategy_info\(\{)\s*\.name = \"(\w+)\"", text)


def literals(text):
    """The string literals of C++ source, without comments."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|"((?:[^"\\\n]|\\.)*)"', re.S)
    for match in token.finditer(text):
        value = match[1] if match[1] is not None else match[2]
        if value is not None:
            yield value.replace('\\"', '"')


def named_in(literal, names):
    """The strategies that a literal names: as the whole literal, at its beginning as in a case id, or as a JSON text."""
    return [n for n in names if re.match(rf"{n}(?![\w ])", literal) or f'"{n}"' in literal]


def mentions(names):
    for top in ("core", "experiments"):
        for file in sorted((ROOT / top).rglob("*")):
            path = file.relative_to(ROOT).as_posix()
            if file.suffix not in {".h", ".cpp", ".cu"} or THEORY_OF_ONE_STRATEGY.match(path):
                continue
            for literal in literals(file.read_text(encoding="utf-8")):
                yield from ((path, name, literal) for name in named_in(literal, names))


# (file, literal) of mentions that decide nothing.
ALLOWED = {
    ("core/decoding/drafting/retrieval_tree.cpp", "retrieval: ngram_min"),  # the building block has the same name
    # The lookahead of distributed speculative inference (DSI) is another thing.
    ("core/simulate/timelines/overlap.cpp", "lookahead"),
    ("experiments/cli/predict/command_simulate.cpp", "lookahead"),
    ("experiments/cli/predict/command_optimize.cpp", "lookahead-rows"),  # an option
    ("experiments/simulate/replay/search.cpp", "simulated"),  # a device that is simulated
    ("core/model/text/gguf_tokenizer_rules.cpp", "falcon-h1"),  # a model with this name
    # The format of a head has the name of the strategy that drafts with it.
    ("core/model/heads/head_card.cpp", "blockwise"),
    ("core/model/heads/head_card.cpp", "medusa"),
    ("core/model/heads/head_card.cpp", "hydra"),
    ("core/model/heads/head_card.cpp", "mlp_speculator"),
    ("core/model/heads/head_card.cpp", "eagle"),
    ("core/model/heads/head_card.cpp", "parallel_eagle"),
    ("core/model/heads/head_card.cpp", "mtp"),
    ("core/model/heads/head_card.cpp", "falcon"),
    ("core/model/heads/head_card.cpp", "pass"),
    ("core/model/heads/head_card.cpp", "block_draft"),
}


class StrategyNames(unittest.TestCase):
    def test_every_strategy_is_found(self):
        files = sorted(file.stem for file in (ROOT / "strategies").glob("*.cpp"))
        self.assertEqual(sorted(registered_names()), files)

    def test_a_mention_is_found(self):
        names = registered_names()
        for source in ('if (name == "jacobi") {', 'id = "lookahead/W=4";', 'advice = "use \\"autoregressive\\".";'):
            self.assertTrue([n for value in literals(source) for n in named_in(value, names)], source)
        for source in ('// as "jacobi" does', '"simulated GPU"', '"lookahead decoding"', '"lookahead_rows"'):
            self.assertFalse([n for value in literals(source) for n in named_in(value, names)], source)

    def test_core_and_experiments_name_no_strategy(self):
        found = set(mentions(registered_names()))
        unknown = {mention for mention in found if (mention[0], mention[2]) not in ALLOWED}
        self.assertEqual(unknown, set(), "say it in StrategyInfo (core/decoding/registry.h) and ask that property")
        self.assertEqual(ALLOWED - {(file, literal) for file, _, literal in found}, set(), "no longer needed")


if __name__ == "__main__":
    unittest.main()

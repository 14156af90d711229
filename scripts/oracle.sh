#!/usr/bin/env bash
# Checks the golden files and the engine against the oracles: PyTorch, Hugging Face and llama.cpp.
# - Computes the committed golden files again. Dequantised blocks, token ids and chat templates must be equal. Logits and hidden states of
#   tiny models, logits of tiny heads, and logits of the target, must be equal up to rounding.
# - Compares whole logits rows of the engine with those of PyTorch on 20 prompts. The largest error must be at most 1e-4 of a row's largest
#   logit.
# - Audits the verifier of transformers (docs/audit.md), and the rule of optimal transport.
# - Computes the bounds for verifiers again with linear programs.
# - Makes the engine's Unicode tables again. They must be equal.
# Takes about 15 minutes and 6 GB of packages. The fast tests compare the engine with the golden files and need none of this.
#   scripts/oracle.sh            makes .venv-oracle from scripts/oracle/requirements.txt
#   SPECLAB_ORACLE_PYTHON=PYTHON scripts/oracle.sh   uses an environment that has these packages
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec < /dev/null
model="${SPECLAB_MODELS:-models}/SmolLM2-135M-Instruct.Q4_1.gguf"

scripts/setup.sh
scripts/get_model.sh

python="${SPECLAB_ORACLE_PYTHON:-}"
if [ -z "$python" ]; then
  python="$root/.venv-oracle/bin/python"
  stamp="$root/.venv-oracle/requirements.sha256"
  wanted=$(sha256sum < scripts/oracle/requirements.txt)
  if [ "$(cat "$stamp" 2> /dev/null || true)" != "$wanted" ]; then
    echo "oracle: installing scripts/oracle/requirements.txt into .venv-oracle"
    "$python" -m pip --version > /dev/null 2>&1 || python3 -m venv --clear .venv-oracle
    "$python" -m pip install --disable-pip-version-check --no-input --quiet --only-binary=:all: -r scripts/oracle/requirements.txt
    echo "$wanted" > "$stamp"
  fi
fi

# The golden files belong to exactly these versions of the packages. SentencePiece 0.2.3, for example, chooses other splits of a text
# among equally good ones.
"$python" - scripts/oracle/requirements.txt << 'PYTHON'
import importlib.metadata as installed, sys
wanted = dict(line.split("==") for line in open(sys.argv[1]).read().split() if "==" in line)
other = {}
for name, version in wanted.items():
    try:
        got = installed.version(name).split("+")[0]
    except installed.PackageNotFoundError:
        got = "nothing"
    if got != version:
        other[name] = f"{name}: {got}, expected {version}"
if other:
    sys.exit("oracle: this Python has other packages than scripts/oracle/requirements.txt. " + "; ".join(other.values()))
PYTHON

cmake --preset release > /dev/null
cmake --build --preset release --target test_model

failed=0
check() {  # name, command...
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then echo "-- $name: passed"; else echo "-- $name: FAILED"; failed=$((failed + 1)); fi
}

unchanged() {  # fails if the files, which were written again, differ from the committed ones
  git diff --exit-code --stat -- "$1"
}

dequantisation() { "$python" scripts/oracle/dequantize.py && unchanged tests/golden/dequantize; }
tokenizer() { "$python" scripts/oracle/tokenizer.py --model "$model" --check; }
families() { "$python" scripts/oracle/families.py && unchanged tests/golden/families; }
variations() { "$python" scripts/oracle/variations.py --check; }
hidden_states() { "$python" scripts/oracle/hidden_states.py --check; }
heads() { "$python" scripts/oracle/heads.py --check; }
pre_tokenizers() { "$python" scripts/oracle/pre_tokenizers.py --check; }
llama_cpp() { "$python" scripts/oracle/llama_cpp.py --check; }
vocabulary_holes() { "$python" scripts/oracle/vocabulary_holes.py --check; }
verifier_bounds() { "$python" scripts/oracle/verifier_bounds.py --check; }
chat_templates() { "$python" scripts/oracle/chat_templates.py --check; }
sentencepiece() {  # checks the committed strings, and more strings in a temporary file
  local more="$root/build/sentencepiece_10000.json"
  "$python" scripts/oracle/sentencepiece_models.py --check &&
    "$python" scripts/oracle/sentencepiece_models.py --strings 10000 --write "$more" &&
    SPECLAB_SENTENCEPIECE_GOLDEN="$more" build/release/tests/test_model --gtest_filter='SentencePiece.Gives*'
}
verifier() {
  "$python" -m unittest discover -s tests/python/audit -p "test_audit*.py" -k TorchCoins -k TransformersFork -k that_triton_runs -k OptimalTransport &&
    "$python" scripts/audit.py audit.adapters.hf_transformers:verify --gamma 2
}
unicode_tables() { "$python" scripts/unicode/make_unicode_tables.py --check; }
forward() {
  local full="$root/build/oracle_logits"
  "$python" scripts/oracle/forward.py "$model" --full "$full" && unchanged tests/golden/forward &&
    SPECLAB_ORACLE_FULL="$full" SPECLAB_ORACLE_TOKENS=128 build/release/tests/test_model --gtest_filter='*ForwardOracle*'
}

check "dequantisation" dequantisation
check "tokenizer and chat template" tokenizer
check "families" families
check "variations of files" variations
check "hidden states" hidden_states
check "heads" heads
check "Unicode tables" unicode_tables
check "chat templates" chat_templates
check "bounds for verifiers" verifier_bounds
check "pre-tokenisers" pre_tokenizers
check "holes in vocabularies" vocabulary_holes
check "GGUF tokenizers in llama.cpp" llama_cpp
check "SentencePiece" sentencepiece
check "verifier of transformers" verifier
check "forward" forward
printf '\n%d failed\n' "$failed"
[ "$failed" = 0 ]

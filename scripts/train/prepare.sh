# Sourced by train_draft.sh and train_heads.sh in the root of the project. Gets the target and the Python environment of the training, then
# lets the target write the text (TEXT: options of generate.py). Text that is there stays. Sets target, cache and python.
target=models/SmolLM2-135M-Instruct.Q4_1.gguf
cache=.cache/train
scripts/get_model.sh

python=.cache/train-venv/bin/python
if ! cmp -s scripts/train/requirements.txt .cache/train-venv/installed.txt; then
  python3 -m venv .cache/train-venv
  "$python" -m pip install --quiet -r scripts/train/requirements.txt
  cp scripts/train/requirements.txt .cache/train-venv/installed.txt
fi

"$python" scripts/train/generate.py --target "$target" --cache "$cache" ${TEXT:-}

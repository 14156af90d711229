#!/usr/bin/env bash
# Builds SpecLab and runs the slow tests, which scripts/test.sh leaves out:
# - On the real target, every lossless strategy must give bitwise the text and the logits rows of autoregressive decoding, on 60 prompts
#   with 64 new tokens per turn. So must every lossless rule and schedule, on one prompt of each category, and random options of
#   strategies, on six prompts. With coupled sampling only the texts are compared, and a text may have fewer new tokens. A draft that
#   is the target itself must always be accepted.
# - The joint law of 100,000 sampled texts of a tiny target must be the target's, for every strategy and lossless rule.
# - The forward must write whole greedy texts of 20 prompts as transformers does; the fast tests compare most of them up to 32 tokens.
# - The logits of random sessions (trees, commits, rewinds, forks) must be bitwise those of a fresh prefill of the same text.
# - A dry run of the GPU check on the simulated GPU must fail only where a failure was planted.
# The tests take about two hours on two cores (the first one about an hour) and 100 MB of disk.
#   scripts/test_slow.sh            from the beginning
#   scripts/test_slow.sh --resume   continues an earlier call that was stopped, with the same binary on the same machine; runs that
#                                   are finished are only checked
#   scripts/test_slow.sh --trial    checks that these tests work, with two prompts and 16 new tokens each, in a few minutes
# The records (results/SCHEMA.md) stay in build/release/slow.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
exec < /dev/null

unset SPECLAB_OFFLINE SPECLAB_SLOW_RESUME SPECLAB_SLOW_TRIAL
for option in "$@"; do
  case "$option" in
    --resume) export SPECLAB_SLOW_RESUME=1 ;;
    --trial) export SPECLAB_SLOW_TRIAL=1 ;;
    *) echo "test_slow: unknown option $option. The options are --resume and --trial." >&2; exit 2 ;;
  esac
done

scripts/setup.sh
scripts/get_model.sh
cmake --preset release > /dev/null
scripts/setup_python.sh
cmake --build --preset release --target test_slow test_model test_decoding test_on_device speclab_bench
ctest --test-dir build/release -L slow --no-tests=error --verbose

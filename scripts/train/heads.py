"""Trains heads on the text that generate.py stored, and writes the head folder.

    scripts/train/heads.py --out DIR [--kind medusa] [--heads 4] [--vocab 4096] [--objective forward_kl] [--minutes 30]

Kinds (head_kinds/):
  medusa, hydra, mlp_speculator, blockwise   heads on the target's last state of one position, which generate.py stored
  eagle, eagle3                              a decoder layer on the states of the whole text; --unroll is training-time test
  block (block_draft)                        a few decoder layers that guess a block at masked positions
  pass                                       look-ahead embeddings; the gradients go through the target, which stays as it is
For eagle, eagle3 and block the target reads the text once more and stores the states of the layers that the head reads.

Modes of blockwise parallel decoding (Stern et al. 2018, Section 6): the target writes the text (unless --writers adds other
text), so every training is distilled. --text greedy uses only the text of temperature 0. generate.py has no beam search.
--mode fine_tuned trains the target too, and writes it to DIR/target.gguf; the heads belong to this file.

The loss is sum_i decay^i * objective_i (distillation/objectives.py), with p as in train.py, over a reduced vocabulary. --ranking adds the
ranking loss of HASS to each objective_i. A head with the target's own output layer (blockwise, eagle, pass) may draft any token, but its
loss sees only this vocabulary. Shards are read one by one. After each shard the training is saved, and the same command goes on from there.

On held-out sequences the program measures, by head: alpha = mean sum_v min(p, q) over all tokens, as a curve during the training with the
loss beside it (`scripts/report.py DIR` draws both), and how often the head's token of each rank is the target's best token.
These shares choose the tree in head.json (head_training/tree.py). A later head guesses after tokens of the text, so its shares say how often it is right after right tokens. At the end the
program checks E[alpha] = 1 - E[TV] over all tokens (distillation/acceptance.py). The final alpha and the shares in the card
belong to the weights as the file stores them.
"""

import hashlib
import json

import torch
from distillation.labels import hash_of
from generate import require_target
from head_kinds import make_heads
from head_training.card import card
from head_training.loop import train
from head_training.measure import MEASURED, check, measure, moved, report
from head_training.options import NOT_IN_KEY, complete, fit_to_target, make_parser, reads_text
from head_training.tapped_states import TappedStates
from head_training.target_file import require_writable, write_target
from head_training.text import States
from safetensors.torch import save_file
from target import Gguf, Target
from train import Text, choose_vocabulary, find_shards, require_text


def training_key(args, sha256, shards):
    """Names the file of a training: a hash of all that its steps depend on."""
    options = {name: value for name, value in sorted(vars(args).items()) if name not in NOT_IN_KEY}
    what = [sha256, [(s.name, hash_of(s)) for s in shards], options]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]


def run(parser, args):
    shards = find_shards(args.cache, args.writers)
    require_text(shards, args.cache, args.writers)
    file = Gguf(args.target)
    sha256 = file.sha256()
    require_target(shards, sha256)
    embedding = file.tensor("token_embd.weight")
    fit_to_target(parser, args, int(file.field("llama.block_count")), len(embedding))
    target = Target(file, args.device) if reads_text(args) else None
    if args.mode == "fine_tuned":
        require_writable(target, file)
    vocab, frequency, _ = choose_vocabulary(shards, embedding, args.vocab, args.device)
    if args.kind == "block_draft" and args.mask_token is None:
        args.mask_token = int(frequency.argmin())
    states = States(Text(shards, embedding, vocab, args.device), shards, greedy=args.text == "greedy")
    if args.taps is not None:
        sequences = [[states.text.sequences[i][0] for i in numbers] for numbers in states.numbers]
        states.tapped = TappedStates(target, sha256, args.taps, shards, sequences)
    torch.manual_seed(args.seed)
    heads = make_heads(args.kind, embedding, vocab, args, target).to(args.device)
    at = train(heads, states, args, args.cache / f"heads-{training_key(args, sha256, shards)}.pt")
    heads.round()
    alpha, accuracy = measure(heads, states, args.device, MEASURED)
    report("end", alpha, accuracy)
    checked = check(heads, states, args.device)
    print(
        f"E[alpha] {[round(a, 4) for a in checked['alpha']]} = 1 - E[TV], largest difference {checked['largest_difference']:.1g}",
        flush=True,
    )
    training = dict(
        text=[s.name for s in shards],
        text_tokens=states.tokens,
        text_used=args.text,
        writers=args.writers,
        seed=args.seed,
        steps=at["step"],
        tokens=at["tokens"],
        seconds=round(at["seconds"]),
        objective=args.objective,
        ranking=args.ranking,
        labels="the target's 64 most probable tokens",
        decay=args.decay,
        options={n: v for n, v in sorted(vars(args).items()) if n not in NOT_IN_KEY and v is not None},
        alpha=[round(a, 4) for a in alpha.tolist()],
        curve=at["curve"],
        check=checked,
    )
    args.out.mkdir(parents=True, exist_ok=True)
    if args.mode == "fine_tuned":
        training |= dict(mode="fine_tuned", target_file="target.gguf", from_target=sha256)
        training |= dict(moved=round(moved(heads, states, args.device), 5))
        path = args.out / "target.gguf"
        write_target(target, file, path, f"{file.field('general.name')} fine-tuned for blockwise heads")
        file = Gguf(path)
        print(f"{path}: the fine-tuned target; E[TV] from the old one {training['moved']}", flush=True)
    save_file(heads.tensors(), args.out / "head.safetensors", metadata={"format": "pt"})
    (args.out / "head.json").write_text(json.dumps(card(heads, file, accuracy, args.nodes, training), indent=1) + "\n")
    print(f"{args.out}: {(args.out / 'head.safetensors').stat().st_size / 1e6:.2f} MB", flush=True)


def main(arguments=None):
    parser = make_parser(__doc__)
    run(parser, complete(parser, parser.parse_args(arguments)))


if __name__ == "__main__":
    main()

"""Golden logits of tiny random heads in the layouts of the published code, from PyTorch in float32.

    scripts/oracle/heads.py [--check]     writes tests/golden/heads/NAME/{config.json or head.json,weights,golden.json}

The modules (head_modules.py) have the structure and the names of the published code: Medusa (FasterDecoding/Medusa), Hydra with and
without prefix attention (zankner/Hydra), the MLP speculator (foundation-model-stack/fms-extras), and EAGLE and EAGLE-3
(SafeAILab/EAGLE). Each has a config.json and a file name as published. All heads are for the tiny target
tests/golden/families/llama, whose embedding Hydra and EAGLE read. bf16 holds all weights exactly. A head of EAGLE reads
a text of POSITIONS states. Then it drafts two chains after the text from its own features.
tests/model/heads/head_oracle_test.cpp loads each folder and compares the logits. Two more folders have a block draft in
the layout of DFlash (z-lab/dflash), and look-ahead embeddings of PaSS, which have no published layout;
block_oracle_test.cpp compares them. Four more folders, which module_oracle_test.cpp compares, have:
modules for multi-token prediction in the order of DeepSeek-V3, a module in the order of MiMo, a head of P-EAGLE in the
layout that vLLM reads, and a head of Falcon in a layout of this project.
--check writes nothing and exits 1 if a golden file differs by more than rounding.
"""

import argparse
import json
import math
import pathlib
import sys
import zlib

import torch
import transformers
from head_modules import (
    FALCON_LAYER,
    DFlash,
    Eagle,
    Eagle3,
    Falcon,
    Hydra,
    Medusa,
    MlpSpeculator,
    MtpModules,
    ParallelEagle,
    one_layer,
)
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/heads"
TARGET = ROOT / "tests/golden/families/llama"
POSITIONS = 5  # number of states that a head reads; each gives a row of logits, with prefix attention only the last
ROUNDING = 1e-5  # share of the largest logit; golden logits that are this close to the new values are kept


MEDUSA = {"base_model_name_or_path": "tiny", "medusa_num_heads": 2, "medusa_num_layers": 2}
HYDRA = {"base_model_name_or_path": "tiny", "hydra_num_heads": 3, "hydra_num_layers": 2, "grounded_heads": True}
SPECULATOR = {"model_type": "mlp_speculator", "n_predict": 3, "emb_dim": 32, "inner_dim": 24, "vocab_size": 112}
# name: (file of the weights, prefix of tensor names, config.json, function that makes the module)
CASES = {
    "medusa": ("medusa_lm_head.safetensors", "", MEDUSA, lambda c: Medusa(c, 3, 2)),
    "hydra": (
        "hydra_lm_head.safetensors",
        "",
        {**HYDRA, "hydra_head_arch": "mlp", "hidden_state_offset": 0},
        lambda c: Hydra(c, 3, 2),
    ),
    "hydra_prefix": (
        "hydra_lm_head.safetensors",
        "",
        {**HYDRA, "hydra_head_arch": "prefix-mlp", "hidden_state_offset": 0},
        lambda c: Hydra(c, 3, 2, prefix=True),
    ),
    "mlp_speculator": ("model.safetensors", "speculator.", SPECULATOR, lambda c: MlpSpeculator(c, 3, 24)),
    "mlp_speculator_tied": (
        "model.safetensors",
        "speculator.",
        {**SPECULATOR, "n_predict": 4, "tie_weights": True, "scale_input": True},
        lambda c: MlpSpeculator(c, 4, 24, tied=True, scale_input=True),
    ),
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 1,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "vocab_size": 112,
}
CASES |= {
    "eagle": ("model.safetensors", "", {**LLAMA, "bias": True}, Eagle),
    "eagle3": ("model.safetensors", "", {**LLAMA, "draft_vocab_size": 40}, lambda c: Eagle3(c, 40)),
}


DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "vocab_size": 112,
    "num_target_layers": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "layer_types": ["full_attention", "full_attention"],
    "block_size": 4,
    "dflash_config": {"mask_token_id": 111, "target_layer_ids": [0, 1]},
}
PASS = {
    "format": "speclab head 1",
    "kind": "pass",
    "weights": "head.safetensors",
    "target": {"name": "tiny", "hidden": 32, "layers": 2, "vocab": 112},
    "shape": {"heads": 3},
}


def make_block(target):
    """A block draft after POSITIONS positions with random states."""
    module = DFlash(target.config.hidden_size, DFLASH).eval()
    randomise(module)
    states = torch.randn(POSITIONS, module.fc.in_features).bfloat16().float()
    pending = torch.randint(target.config.vocab_size, (1,))
    block = DFLASH["block_size"]
    tokens = torch.cat([pending, torch.full((block - 1,), DFLASH["dflash_config"]["mask_token_id"])])
    with torch.inference_mode():
        logits = target.lm_head(module(target.get_input_embeddings()(tokens), states))[1:]
    golden = {"states": states.tolist(), "tokens": pending.tolist(), "logits": rounded([logits])}
    return golden, DFLASH, "model.safetensors", tensors_of(module, "")


def make_pass(target):
    """The target's logits at the last token of a text and at the look-ahead embeddings after it."""
    lookahead = torch.randn(PASS["shape"]["heads"], target.config.hidden_size).bfloat16().float()
    text = torch.randint(target.config.vocab_size, (POSITIONS,))
    with torch.inference_mode():
        inputs = torch.cat([target.get_input_embeddings()(text), lookahead])[None]
        logits = target(inputs_embeds=inputs).logits[0, POSITIONS - 1 :]
    golden = {"states": [], "tokens": text.tolist(), "logits": rounded([logits])}
    return golden, PASS, "head.safetensors", {"look_ahead.weight": lookahead}


def own_card(kind, shape):
    target = {"name": "tiny", "hidden": 32, "layers": 2, "vocab": 112}
    return {"format": "speclab head 1", "kind": kind, "weights": "head.safetensors", "target": target, "shape": shape}


def make_mtp(target):
    """Two modules, as in DeepSeek-V3, on a text of POSITIONS states. Position i of module k (from 0) reads token i + k."""
    config, embed = target.config, target.get_input_embeddings()
    decoders = [transformers.LlamaModel(one_layer(config)) for _ in range(2)]
    modules = MtpModules(decoders, config.hidden_size, config.rms_norm_eps, normed=False).eval()
    randomise(modules)
    states = torch.randn(POSITIONS, config.hidden_size).bfloat16().float()
    tokens = torch.randint(config.vocab_size, (POSITIONS + 1,))
    with torch.inference_mode():
        outputs, logits = states, []
        for k in range(2):
            outputs = modules(k, outputs, embed(tokens[k : k + POSITIONS]))
            logits.append(modules.logits(k, outputs, target))
    golden = {"states": states.tolist(), "tokens": tokens.tolist(), "logits": rounded(logits)}
    return golden, own_card("mtp", {"modules": 2}), "head.safetensors", tensors_of(modules, "")


MTP_LAYER = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "rms_norm_eps": 1e-6,
    "rope_theta": 20000.0,
    "attention_bias": True,
}


def make_mtp_normed(target):
    """One module in the order of MiMo, with the layer of Qwen3. It reads a text, and then its own last output with one more token."""
    config, embed = target.config, target.get_input_embeddings()
    layer = transformers.Qwen3Config(hidden_size=config.hidden_size, num_hidden_layers=1, vocab_size=4, **MTP_LAYER)
    modules = MtpModules(
        [transformers.Qwen3Model(layer)], config.hidden_size, MTP_LAYER["rms_norm_eps"], normed=True
    ).eval()
    randomise(modules)
    states = torch.randn(POSITIONS, config.hidden_size).bfloat16().float()
    tokens = torch.randint(config.vocab_size, (POSITIONS + 1,))
    with torch.inference_mode():
        outputs = modules(0, states, embed(tokens[:POSITIONS]))
        longer = modules(0, torch.cat((states, outputs[-1:])), embed(tokens))
        logits = [modules.logits(0, rows, target) for rows in (outputs, longer[-1:])]
    golden = {"states": states.tolist(), "tokens": tokens.tolist(), "logits": rounded(logits)}
    shape = {"modules": 1, "first": "state", "passes_on": "normed", "layer": {**MTP_LAYER, "qk_norm": True}}
    return golden, own_card("mtp", shape), "head.safetensors", tensors_of(modules, "")


PARALLEL = {**LLAMA, "num_hidden_layers": 2, "draft_vocab_size": 40, "ptd_token_id": 111, "para_num": 4}


def make_parallel_eagle(target):
    """Logits at the last of POSITIONS pairs of state and token, and at the masked places after it."""
    head = ParallelEagle(target.config, PARALLEL["draft_vocab_size"]).eval()
    randomise(head)
    states = torch.randn(POSITIONS, 3 * target.config.hidden_size).bfloat16().float()
    tokens = torch.randint(target.config.vocab_size, (POSITIONS,))
    masks = PARALLEL["para_num"] - 1
    with torch.inference_mode():
        features = head.features(torch.cat((states, head.mask_hidden.expand(masks, -1))))
        read = torch.cat((tokens, torch.full((masks,), PARALLEL["ptd_token_id"])))
        logits = head.logits(head(features, read)[-masks - 1 :], target)
    golden = {"states": states.tolist(), "tokens": tokens.tolist(), "logits": rounded([logits])}
    return golden, PARALLEL, "model.safetensors", tensors_of(head, "")


FALCON_BLOCK = 2


def falcon_tensors(head):
    """The tensors as LstmLayers of the engine reads them: one matrix for each gate, over the input and the previous output."""
    tensors = {name: value for name, value in tensors_of(head, "").items() if not name.startswith("lstm.")}
    for layer in range(2):
        parts = [getattr(head.lstm, f"{kind}_l{layer}").detach() for kind in ("weight_ih", "weight_hh", "bias_ih")]
        for gate, w, u, b in zip("ifgo", *(part.chunk(4) for part in parts)):
            tensors[f"lstm.{layer}.{gate}.weight"] = torch.cat((w, u), dim=1).contiguous()
            tensors[f"lstm.{layer}.{gate}.bias"] = b.clone().contiguous()
    return tensors


def make_falcon(target):
    """The first block after a text of POSITIONS states and tokens, and a block below it for each of two drafted blocks."""
    embed, k = target.get_input_embeddings(), FALCON_BLOCK
    head = Falcon(target.config.hidden_size).eval()
    randomise(head)
    for layer in range(2):
        getattr(head.lstm, f"bias_hh_l{layer}").data.zero_()  # the file has the sum of the two biases of PyTorch
    states = torch.randn(POSITIONS, target.config.hidden_size).bfloat16().float()
    tokens, drafted = torch.randint(target.config.vocab_size, (POSITIONS,)), torch.randint(112, (2, k))

    def visible(length):
        """Every position sees itself and all before it. In each block of k, from the last k of the text on, all see all."""
        seen = torch.ones(length, length).tril().bool()
        for first in range(POSITIONS - k, length, k):
            seen[first : first + k, first : first + k] = True
        return seen

    with torch.inference_mode():
        outputs = head(states, embed(tokens), visible(POSITIONS))[-k:]
        logits = [target.get_output_embeddings()(outputs)]
        for block in drafted:
            features, read = torch.cat((states, outputs)), torch.cat((tokens, block))
            below = head(features, embed(read), visible(POSITIONS + k))[-k:]
            logits.append(target.get_output_embeddings()(below))
    golden = {
        "states": states.tolist(),
        "tokens": tokens.tolist(),
        "drafted": drafted.tolist(),  # by block: its tokens
        "logits": rounded(logits),  # of the first block, and of each block below it
    }
    card = own_card("falcon", {"block": k, "layer": FALCON_LAYER})
    return golden, card, "head.safetensors", falcon_tensors(head)


SPECIAL = {
    "block_draft": make_block,
    "pass": make_pass,
    "mtp": make_mtp,
    "mtp_normed": make_mtp_normed,
    "parallel_eagle": make_parallel_eagle,
    "falcon": make_falcon,
}


def randomise(module):
    for name, parameter in module.named_parameters():
        wide = parameter.dim() > 1
        noise = torch.randn(parameter.shape) * (2 / math.sqrt(parameter.shape[-1]) if wide else 0.1)
        if "emb." in name:
            noise = torch.randn(parameter.shape)
        if not wide and "bias" not in name:
            noise = noise + 1  # a norm
        parameter.data = noise.bfloat16().float()


def tensors_of(module, prefix):
    """The tensors as a file has them. Modules that are used twice come twice, except in the MLP speculator, whose file has each
    parameter once."""
    names = {name for name, _ in module.named_parameters()} if prefix else module.state_dict().keys()
    return {prefix + name: module.state_dict()[name].clone().contiguous() for name in names}


def rounded(logits):
    return [[[float(f"{value:.7g}") for value in row] for row in rows.tolist()] for rows in logits]


def eagle_golden(module, states, target):
    """Logits of all positions of a text, and of two drafted chains after it. Each row is computed from scratch."""
    embed, vocab = target.get_input_embeddings(), target.config.vocab_size
    tokens, chains = torch.randint(vocab, (len(states),)), torch.randint(vocab, (2, 2))
    with torch.inference_mode():
        logits = [module.logits(module(module.features(states), tokens, embed), target)]
        levels = [[], []]
        for chain in chains:
            features, read = module.features(states), tokens
            for depth, token in enumerate(chain):
                features = torch.cat((features, module(features, read, embed)[-1:]))
                read = torch.cat((read, token[None]))
                levels[depth].append(module.logits(module(features, read, embed)[-1:], target))
        logits += [torch.cat(rows) for rows in levels]
    return {
        "states": states.tolist(),
        "tokens": tokens[:, None].tolist(),  # by state: the token after it
        "drafted": chains.T.tolist(),  # by depth: the token of each chain
        "logits": rounded(logits),  # of the text, of both tokens of depth 1, and of depth 2
    }


def make(name, target):
    torch.manual_seed(zlib.crc32(name.encode()))
    if name in SPECIAL:
        return SPECIAL[name](target)
    file, prefix, config, build = CASES[name]
    module = build(target.config).eval()
    randomise(module)
    if hasattr(module, "features"):
        width = target.config.hidden_size * (3 if name == "eagle3" else 1)
        states = torch.randn(POSITIONS, width).bfloat16().float()
        return eagle_golden(module, states, target), config, file, tensors_of(module, prefix)
    heads = next(value for key, value in config.items() if key in ("n_predict", "hydra_num_heads", "medusa_num_heads"))
    states = torch.randn(POSITIONS, target.config.hidden_size).bfloat16().float()
    tokens = torch.randint(target.config.vocab_size, (POSITIONS, heads + 1))
    with torch.inference_mode():
        logits = module(states, tokens, target.get_input_embeddings())
    golden = {
        "states": states.tolist(),
        "tokens": tokens.tolist(),  # by state: the pending token, and the drafted tokens after it
        "logits": rounded(logits),
    }
    return golden, config, file, tensors_of(module, prefix)


def same(old, new):
    if any(old.get(key) != new.get(key) for key in ("tokens", "states", "drafted")):
        return False
    for before, after in zip(old["logits"], new["logits"], strict=True):
        largest = max(abs(value) for row in after for value in row)
        for a, b in zip(before, after, strict=True):
            if max(abs(x - y) for x, y in zip(a, b, strict=True)) > ROUNDING * largest:
                return False
    return True


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    target = transformers.AutoModelForCausalLM.from_pretrained(
        TARGET, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    for name in (*CASES, *SPECIAL):
        golden, config, file, tensors = make(name, target)
        folder = OUT / name
        path = folder / "golden.json"
        if path.exists() and same(json.loads(path.read_text()), golden):
            print(f"{folder} stays: equal up to rounding")
            continue
        if options.check:
            sys.exit(f"{folder} differs from what PyTorch says; run scripts/oracle/heads.py")
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / file, metadata={"format": "pt"})
        card = "head.json" if "format" in config else "config.json"
        (folder / card).write_text(json.dumps(config, indent=1) + "\n")
        path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
        print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Converts a trained head of PyTorch to the format that the engine reads: head.safetensors and its card head.json.

    scripts/models/convert_head.py FOLDER OUT --layers N
    scripts/models/convert_head.py CHECKPOINT OUT

FOLDER is a published head of Medusa, Hydra, EAGLE, EAGLE-3 or an MLP speculator: config.json and one .pt, .pth or .bin
file of weights. --layers is the number of layers of the target; these files do not contain it. A file of PyTorch is a
pickle and may contain code. It is read with weights_only=True, so a file with anything but tensors is refused and
nothing of it runs.

CHECKPOINT is a model with modules for multi-token prediction: config.json and safetensors. The script takes the modules
out (scripts/models/mtp_modules.py says which ones).

Needs torch and safetensors (scripts/train/requirements.txt). The card is described in
core/model/heads/head_card.h.
"""

import argparse
import json
import pathlib
import pickle
import sys

import mtp_modules


def fail(message):
    sys.exit(f"convert_head: {message}")


def shape_of(shapes, name):
    if name not in shapes:
        fail(f"no tensor {name} in the weights, which have {', '.join(sorted(shapes)[:8])}, ...")
    return shapes[name]


def medusa(config, shapes):
    blocks = config.get("medusa_num_layers", 1)
    heads = 0  # counted, because the number in some config.json files is wrong
    while f"{heads}.{blocks}.weight" in shapes:
        heads += 1
    vocab, hidden = shape_of(shapes, f"0.{blocks}.weight")
    return {"heads": heads, "blocks": blocks}, hidden, vocab


def hydra(config, shapes):
    form = config.get("hydra_head_arch", "mlp")
    if form not in ("mlp", "prefix-mlp") or not config.get("grounded_heads", False):
        fail(f"hydra_head_arch {form}, grounded_heads {config.get('grounded_heads', False)}: not supported")
    prefix = form == "prefix-mlp"
    vocab, hidden = shape_of(shapes, "hydra_lm_head.0.1.weight" if prefix else "hydra_lm_head.0.weight")
    shape = {
        "heads": config["hydra_num_heads"],
        "blocks": config.get("hydra_num_layers", 1),
        "prefix_attention": prefix,
    }
    return shape, hidden, vocab


def mlp_speculator(config, shapes):
    vocab, inner = shape_of(shapes, "emb.0.weight")
    _, hidden = shape_of(shapes, "proj.0.weight")
    shape = {
        "heads": config["n_predict"],
        "inner": inner,
        "tied": config.get("tie_weights", config.get("tie_wts", False)),
        "scale_input": config.get("scale_input", False),
    }
    return shape, hidden, vocab


# What the card of an EAGLE head takes from config.json: the shape of its decoder layer.
LAYER_KEYS = (
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "mlp_bias",
    "max_position_embeddings",
    "hidden_act",
    "qkv_bias",
    "attention_bias",
)


def eagle(config, shapes):
    third = "draft_vocab_size" in config
    hidden, width = shape_of(shapes, "fc.weight")
    if width != (3 if third else 2) * hidden:
        fail(f"fc.weight {list(shapes['fc.weight'])}: not the fc of EAGLE{'-3' if third else ''}")
    if config.get("num_hidden_layers", 1) != 1:
        fail(f"num_hidden_layers {config['num_hidden_layers']}: only heads of one layer are supported")
    shape = {
        "version": 3 if third else 1,
        "layer": {key: config[key] for key in LAYER_KEYS if config.get(key) is not None},
    }
    if not third:
        shape["fc_bias"] = "fc.bias" in shapes
    if "vocab_size" not in config:
        fail("config.json has no vocab_size")
    return shape, hidden, config["vocab_size"]


def eagle_taps(config, layers):
    """The states of the target that the head reads. EAGLE reads the state after the final norm. EAGLE-3 reads the states
    after 2, layers // 2 and layers - 3 layers, as its published code does."""
    if "draft_vocab_size" not in config:
        return ["final_norm"]
    if layers < 7:
        fail(f"a head of EAGLE-3 for a target of {layers} layers, expected at least 7")
    if config.get("eagle_config"):
        fail("eagle_config: programs count its layers in different ways; delete this key, and set taps in head.json")
    return [2, layers // 2, layers - 3]


def draft_vocabulary(offsets):
    """The target's token of each row of a reduced output head, from the offsets of EAGLE-3."""
    return [int(offset) + row for row, offset in enumerate(offsets)]


def kind_of(config):
    for key, kind, read in (
        ("medusa_num_heads", "medusa", medusa),
        ("hydra_num_heads", "hydra", hydra),
        ("n_predict", "mlp_speculator", mlp_speculator),
    ):
        if key in config:
            return kind, read
    if "dflash_config" in config:
        fail("a DFlash draft: save its tensors as model.safetensors beside config.json; it needs no card")
    if "k_mask" in config:
        fail("a head of Falcon: published heads are not supported, see core/model/heads/falcon/falcon_head.h")
    if "ptd_token_id" in config:
        fail("a head of P-EAGLE: save its tensors as model.safetensors beside config.json; it needs no card")
    if "num_attention_heads" in config:
        return "eagle", eagle
    fail("config.json has neither medusa_num_heads, hydra_num_heads, n_predict nor num_attention_heads")


def plain_name(name):
    """The name of a tensor without the prefix of the module that the head is in a whole model."""
    for prefix in ("medusa_head.", "speculator."):
        name = name.removeprefix(prefix)
    return name


def card_of(config, shapes, layers, source):
    """The card of a head. shapes: plain name of a tensor -> its shape. source: name of the file of the weights."""
    kind, read = kind_of(config)
    shape, hidden, vocab = read(config, shapes)
    offset = config.get("hidden_state_offset", 0)
    card = {
        "format": "speclab head 1",
        "kind": kind,
        "weights": "head.safetensors",
        "target": {
            "name": config.get("base_model_name_or_path", ""),
            "hidden": hidden,
            "layers": layers,
            "vocab": vocab,
        },
        "taps": eagle_taps(config, layers) if kind == "eagle" else [layers - offset if offset else "final_norm"],
        "shape": shape,
        "training": {"source": source},
    }
    if kind == "eagle" and config.get("draft_vocab_size", vocab) != vocab:
        card["vocabulary_map"] = "draft_vocab"
    return card


def weights_in(folder):
    files = sorted(file for file in folder.iterdir() if file.suffix in (".pt", ".pth", ".bin"))
    if len(files) != 1:
        fail(f"{folder} has {len(files)} files of PyTorch, expected one")
    return files[0]


def load(file):
    import torch

    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        fail(f"{file} holds more than tensors, so it is not read: {str(error).splitlines()[0]}")
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        fail(f"{file} is not a dictionary of tensors")
    # Modules that share a tensor get copies, because safetensors refuses shared tensors.
    tensors = {
        plain_name(name): value.clone().contiguous() for name, value in state.items() if value.is_floating_point()
    }
    return tensors, state.get("d2t")


def write(out, card, tensors):
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / card["weights"], metadata={"format": "pt"})
    (out / "head.json").write_text(json.dumps(card, indent=1) + "\n")


def convert_modules(folder, out, config, layers):
    """Takes the modules for multi-token prediction out of a checkpoint."""
    if layers not in (None, config.get("num_hidden_layers")):
        fail(f"--layers {layers}, but the checkpoint has {config.get('num_hidden_layers')} layers")
    try:
        card, tensors = mtp_modules.read(folder, config)
    except ValueError as error:
        fail(error)
    write(out, card, tensors)
    print(f"{out}: mtp, modules: {card['shape']['modules']}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--layers", type=int, help="number of layers of the target; required for a head")
    options = arguments.parse_args()
    config_file = options.folder / "config.json"
    if not config_file.exists():
        fail(f"{config_file} is missing")
    config = json.loads(config_file.read_text())
    if mtp_modules.has_modules(config):
        convert_modules(options.folder, options.out, config, options.layers)
        return
    if options.layers is None:
        fail("--layers is missing; give the number of layers of the target")
    file = weights_in(options.folder)
    tensors, offsets = load(file)
    card = card_of(config, {name: tuple(t.shape) for name, t in tensors.items()}, options.layers, file.name)
    if "vocabulary_map" in card:
        import torch

        if offsets is None:
            fail("no tensor d2t, which names the tokens of the reduced output head")
        ids = draft_vocabulary(offsets.tolist())
        tensors[card["vocabulary_map"]] = torch.tensor(ids, dtype=torch.int32)
    write(options.out, card, tensors)
    print(f"{options.out}: {card['kind']}, {card['shape'].get('heads', 1)} heads")


if __name__ == "__main__":
    main()

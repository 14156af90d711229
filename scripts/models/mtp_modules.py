"""Takes the modules for multi-token prediction out of a checkpoint, for scripts/models/convert_head.py.

Three layouts are read. DeepSeek-V3 and GLM keep module k as layer L + k of the model, with the tensors enorm, hnorm, eh_proj and
shared_head.norm. MiMo keeps it as mtp_layers.k, with other names, with the state before the embedding, and passes on states after the final
norm. The modules get the names of core/model/heads/mtp/mtp_head.h. Copies of the embedding and of the output head are compared with those of
the model and left out. Refused are modules that the engine does not compute: mixtures of experts, latent attention, quantised weights, and
those of Qwen3-Next, whose attention has a gate and whose norms have an offset.
"""

import json

# What the card takes from config.json: the shape of the decoder layer.
LAYER_KEYS = (
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "mlp_bias",
    "max_position_embeddings",
    "hidden_act",
    "use_sliding_window",
)
MIMO_NAMES = {
    "token_layernorm": "enorm",
    "hidden_layernorm": "hnorm",
    "input_proj": "eh_proj",
    "final_layernorm": "shared_head.norm",
}
COPIES = {"embed_tokens.weight": "embedding", "shared_head.head.weight": "output head"}
REFUSED = {
    "mlp.gate.": "a mixture of experts",
    "mlp.experts.": "a mixture of experts",
    "mlp.shared_experts.": "a mixture of experts",
    "self_attn.kv_a_proj_with_mqa.": "latent attention (MLA)",
    "self_attn.q_a_proj.": "latent attention (MLA)",
    "linear_attn.": "linear attention",
}


def has_modules(config):
    return bool(config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers"))


def renamed(name, layers):
    """The number of the module that a tensor belongs to, and its name in the module; None for other tensors."""
    parts = name.removeprefix("model.").split(".", 2)
    if len(parts) < 3 or not parts[1].isdigit():
        return None
    number, rest = int(parts[1]), parts[2]
    if parts[0] == "layers" and number >= layers:
        return number - layers, rest
    if parts[0] == "mtp_layers":
        first, _, last = rest.partition(".")
        return number, f"{MIMO_NAMES.get(first, first)}.{last}"
    return None


def modules_of(names, config):
    """By name in the head: the name in the checkpoint. Raises ValueError for modules that the engine does not compute."""
    if config.get("mtp_num_hidden_layers") or any(name.startswith("mtp.") for name in names):
        raise ValueError("modules of Qwen3-Next: attention with a gate and norms with an offset are not supported")
    layers, count = config["num_hidden_layers"], config["num_nextn_predict_layers"]
    found = {}
    for name in names:
        place = renamed(name, layers)
        if place is None:
            continue
        module, rest = place
        if module >= count:
            raise ValueError(f"the tensor {name} belongs to module {module}, but num_nextn_predict_layers is {count}")
        for part, what in REFUSED.items():
            if rest.startswith(part):
                raise ValueError(f"the tensor {name}: {what}; only dense layers like those of Llama are supported")
        if rest.endswith("weight_scale_inv"):
            raise ValueError(f"the tensor {name}: quantised weights; take a checkpoint in bf16")
        found[f"layers.{module}.{rest}"] = name
    for module in range(count):
        if f"layers.{module}.eh_proj.weight" not in found:
            raise ValueError(f"no tensors of module {module}; num_nextn_predict_layers is {count}")
    return found


def card_of(config, found):
    """The card of modules with these tensors (modules_of)."""
    count, mimo = config["num_nextn_predict_layers"], any("mtp_layers." in name for name in found.values())
    layer = {key: config[key] for key in LAYER_KEYS if config.get(key) is not None}
    layer["attention_bias"] = "layers.0.self_attn.o_proj.bias" in found
    layer["qkv_bias"] = "layers.0.self_attn.q_proj.bias" in found
    layer["qk_norm"] = "layers.0.self_attn.q_norm.weight" in found
    return {
        "format": "speclab head 1",
        "kind": "mtp",
        "weights": "head.safetensors",
        "target": {
            "name": config.get("_name_or_path", ""),
            "hidden": config["hidden_size"],
            "layers": config["num_hidden_layers"],
            "vocab": config["vocab_size"],
        },
        "taps": ["final_norm"],
        "shape": {
            "modules": count,
            "first": "state" if mimo else "embedding",
            "passes_on": "normed" if mimo else "stream",
            "layer": layer,
        },
        "training": {"source": "modules of the checkpoint"},
    }


def files_by_tensor(folder):
    """By name of a tensor: the file that has it."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
    from safetensors import safe_open

    file = folder / "model.safetensors"
    if not file.exists():
        raise ValueError(f"{folder} has neither model.safetensors nor its index")
    with safe_open(file, framework="pt") as opened:
        return dict.fromkeys(opened.keys(), file)


def shared_with(copy, names, config):
    """The name of the model's tensor that a module's copy has to equal."""
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    tied = copy.endswith("embed_tokens.weight") or config.get("tie_word_embeddings", False) or head not in names
    return embedding if tied else head


def read(folder, config):
    """The card and the tensors. Raises ValueError with the reason if the modules cannot be used."""
    import torch
    from safetensors import safe_open

    files = files_by_tensor(folder)
    found = modules_of(files, config)

    def tensor(name):
        with safe_open(files[name], framework="pt") as opened:
            return opened.get_tensor(name)

    tensors = {}
    for name, stored in found.items():
        what = next((what for end, what in COPIES.items() if name.endswith(end)), None)
        if what is None:
            tensors[name] = tensor(stored).contiguous()
            continue
        original = shared_with(name, files, config)
        if original not in files or not torch.equal(tensor(stored), tensor(original)):
            raise ValueError(
                f"the tensor {stored} is not the {what} of the model, {original}; own ones are not supported"
            )
    return card_of(config, {name: stored for name, stored in found.items() if name in tensors}), tensors

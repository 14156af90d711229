"""Tiny random models and tokenizers, and the files that scripts/oracle/variations.py writes for them."""

import json
import os
import zlib

import gguf
import numpy
import torch
import transformers
from families import randomise
from safetensors.torch import save_file

ABSENT = object()  # as a value of a setting: the setting is removed
SHAPE = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)
THETA = 10000.0
ROPE = {"rope_type": "default", "rope_theta": THETA}
GEMMA = dict(query_pre_attn_scalar=8, sliding_window=6, tie_word_embeddings=True)


def changed(values, changes):
    return {key: value for key, value in {**values, **changes}.items() if value is not ABSENT}


def tiny(family, **changes):
    """A model of transformers with random weights. Equal shapes of a family have equal weights. All weights are
    multiples of 1/256 with at most 8 significant bits, so F32, F16 and BF16 hold them exactly."""
    name = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, name + "Config")(**changed({**SHAPE, "rope_parameters": ROPE}, changes))
    config._attn_implementation = "eager"
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    randomise(model, torch.Generator().manual_seed(zlib.crc32(family.encode())))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter * 256).round() / 256)
            assert torch.equal(parameter.to(torch.bfloat16).float(), parameter.half().float())
    return model


def tensors(model, dtype=torch.bfloat16):
    """All tensors by name. Tied ones are separate copies."""
    return {name: tensor.detach().to(dtype).clone() for name, tensor in model.state_dict().items()}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_settings(folder, model, changes):
    """Writes config.json. `changes` replace settings, or remove them (ABSENT)."""
    settings = json.loads(model.config.to_json_string())
    for key in ("transformers_version", "_attn_implementation", "dtype", "initializer_range"):
        settings.pop(key, None)
    settings["architectures"] = [type(model).__name__]
    write_json(folder / "config.json", changed(settings, changes))


def save(model, shard_size="1GB"):
    """As transformers itself saves the model, in shards of at most shard_size."""

    def write(folder):
        copy = type(model)(model.config)
        copy.load_state_dict(model.state_dict())
        copy.to(torch.bfloat16).save_pretrained(folder, max_shard_size=shard_size)
        (folder / "generation_config.json").unlink(missing_ok=True)
        write_settings(folder, model, {})

    return write


def directory(model, stored=None, settings=(), files=()):
    """Writes config.json and one file with the tensors `stored`. If `stored` is None, the file is a link to that of the variation `plain`.
    files: contents of further files, text or JSON, by name."""

    def write(folder):
        write_settings(folder, model, dict(settings))
        if stored is None:
            os.symlink("../plain/model.safetensors", folder / "model.safetensors")
        else:
            save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        for name, content in dict(files).items():
            if isinstance(content, str):
                (folder / name).write_text(content)
            else:
                write_json(folder / name, content)

    return write


# --- tokenizers -------------------------------------------------------------------------------------------

MARK = "\u2581"  # stands for a space
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
MERGES = [
    (MARK, "t"), ("h", "e"), (MARK + "t", "he"), (MARK, "a"), ("i", "n"), (MARK, "in"), (MARK, MARK), ("e", "r"),
    ("u", "s"), ("us", "er"), ("r", "a"), ("ra", "in"), (MARK, "rain"), (MARK, "s"), ("t", "he"), ("a", MARK),
]  # fmt: skip


def vocabulary():
    spellings = SPECIAL + [MARK, *"abcdefghijklmnopqrstuvwxyz", ",", ".", "\n", "'", "!"]
    spellings += [left + right for left, right in MERGES if left + right not in spellings]
    return {token: i for i, token in enumerate(spellings)}


def metaspace(**changes):
    settings = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    return changed(settings, changes)


def tokenizer(pre_tokenizer, normalizer=None, decoder=None):
    """tokenizer.json: BPE with a mark for spaces, and <s> before every text."""
    vocab = vocabulary()
    assert len(vocab) <= SHAPE["vocab_size"]
    added = [
        dict(id=vocab[t], content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        for t in SPECIAL
    ]
    begin, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, text],
            "pair": [begin, text, begin, second],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [vocab["<s>"]], "tokens": ["<s>"]}},
        },
        "decoder": decoder or changed(pre_tokenizer, {}),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(merge) for merge in MERGES],
        },
    }


def tokenizer_files(tokenizer_json, **settings):
    """tokenizer.json and tokenizer_config.json."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    return {"tokenizer.json": tokenizer_json, "tokenizer_config.json": {**config, **settings}}


# --- GGUF -------------------------------------------------------------------------------------------------

BF16 = gguf.GGMLQuantizationType.BF16


def interleaved(matrix, heads):
    """The rows of q or k in the order of llama.cpp's convert_hf_to_gguf.py: rows that RoPE rotates together are
    neighbours."""
    halves = matrix.reshape(heads, 2, matrix.shape[0] // heads // 2, matrix.shape[1])
    return halves.swapaxes(1, 2).reshape(matrix.shape)


def gguf_tensors(model):
    """Names (those of the package gguf) and values as llama.cpp's convert_hf_to_gguf.py writes them."""
    config, gemma = model.config, type(model).__name__ == "Gemma2ForCausalLM"
    names = gguf.get_tensor_name_map(
        gguf.MODEL_ARCH.GEMMA2 if gemma else gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers
    )
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if not gemma and name.endswith("q_proj.weight"):
            values = interleaved(values, config.num_attention_heads)
        if not gemma and name.endswith("k_proj.weight"):
            values = interleaved(values, config.num_key_value_heads)
        if gemma and name.endswith("norm.weight"):
            values = values + 1
        yield names.get_name(name, try_suffixes=(".weight",)), values


def gguf_file(model, kind=BF16, kinds=(), alignment=32, big_endian=False, parts_of=0, version=None, keys=(), extra=()):
    """A GGUF file. Matrices have the type `kind`, or their own in `kinds`; vectors are F32. parts_of: largest number of
    tensors in a part of a split file; 0 writes one file. version: replaces the number in the header. keys: further keys, with their types.
    extra: further tensors."""

    def write(folder):
        config = model.config
        path = folder / "model.gguf"
        architecture = "gemma2" if type(model).__name__ == "Gemma2ForCausalLM" else "llama"
        endian = gguf.GGUFEndian.BIG if big_endian else gguf.GGUFEndian.LITTLE
        writer = gguf.GGUFWriter(path, architecture, endianess=endian, split_max_tensors=parts_of)
        if alignment != gguf.GGUF_DEFAULT_ALIGNMENT:
            writer.add_uint32(gguf.Keys.General.ALIGNMENT, alignment)
            writer.data_alignment = alignment
        writer.add_name("tiny")
        writer.add_vocab_size(config.vocab_size)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_rope_freq_base(THETA)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        if architecture == "gemma2":
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
            writer.add_sliding_window(config.sliding_window)
        for key, (value, value_type) in dict(keys).items():
            writer.add_key_value(key, value, value_type)
        for name, values in [*gguf_tensors(model), *dict(extra).items()]:
            own = dict(kinds).get(name, kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32)
            data = gguf.quants.quantize(numpy.ascontiguousarray(values, numpy.float32), own)
            writer.add_tensor(name, data, raw_dtype=own)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        if version is not None:
            data = bytearray(path.read_bytes())
            data[4:8] = version.to_bytes(4, "little")
            path.write_bytes(data)

    return write

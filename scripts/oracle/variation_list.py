"""The variations of real files that scripts/oracle/variations.py writes: those that are read, and those that are refused."""

import gguf
import numpy
import torch
from variation_files import (
    ABSENT,
    GEMMA,
    MARK,
    ROPE,
    THETA,
    directory,
    gguf_file,
    metaspace,
    save,
    tensors,
    tiny,
    tokenizer,
    tokenizer_files,
)

LLAMA = tiny("Llama")
TIED = tiny("Llama", tie_word_embeddings=True)
WIDE = tiny("Llama", hidden_size=32, intermediate_size=32, num_attention_heads=4, num_hidden_layers=1)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(factor=4.0, original_max_position_embeddings=16)
GEMMA2 = tiny("Gemma2", attn_logit_softcapping=3.0, final_logit_softcapping=30.0, **GEMMA)
GEMMA3 = tiny(
    "Gemma3",
    layer_types=["sliding_attention", "full_attention"],
    rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": THETA},
    },
    **GEMMA,
)
PLAIN, TIED_PLAIN = tensors(LLAMA), tensors(TIED)
U16, U32 = gguf.GGUFValueType.UINT16, gguf.GGUFValueType.UINT32
F32, TEXT = gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.STRING
KIND = gguf.GGMLQuantizationType


def old_rope(**scaling):
    """Settings of the rotary embedding as transformers wrote them before version 5."""
    return {"rope_parameters": ABSENT, "rope_theta": THETA, "rope_scaling": scaling or None}


def with_scaling(kind, **values):
    """The model `LLAMA` with this scaling of the rotary embedding."""
    return tiny("Llama", rope_parameters={**ROPE, "rope_type": kind, **values})


def text_variation(tokenizer_json, settings=(), files=()):
    """A model with a tokenizer. settings: more of tokenizer_config.json. files: contents of further files, by name."""
    return directory(LLAMA, files={**tokenizer_files(tokenizer_json, **dict(settings)), **dict(files)})


CHATML = (
    r"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    r"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OTHER = "{% for message in messages %}{{ message['content'] | upper }}{% endfor %}"
SPLITTING = tokenizer(metaspace())
# Llama 2: the normalizer marks the spaces.
PREPEND = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": MARK},
        {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
    ],
}
STRIP = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
AFTER_SPACE = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace()]}
OLD_METASPACE = {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}

INV_FREQ = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.arange(4).float() for i in range(2)}
HALVES = {n: t.half() if "embed" in n else t.float() if t.dim() == 1 else t for n, t in PLAIN.items()}
HEAD_ONLY = {n: t for n, t in TIED_PLAIN.items() if n != "model.embed_tokens.weight"}
BARE = {n.removeprefix("model."): t for n, t in TIED_PLAIN.items() if n != "lm_head.weight"}
HEADLESS = {n: t for n, t in PLAIN.items() if n != "lm_head.weight"}
BIAS = {"model.layers.0.self_attn.q_proj.bias": torch.zeros(16, dtype=torch.bfloat16)}
THIRD = {n.replace(".1.", ".2."): t.clone() for n, t in PLAIN.items() if ".layers.1." in n}
FACTORS = LLAMA.model.rotary_emb.inv_freq / with_scaling("llama3", **LLAMA3).model.rotary_emb.inv_freq


def without_last_shard(folder):
    save(LLAMA, shard_size="6KB")(folder)
    max(folder.glob("*.safetensors")).unlink()


# name -> (what differs, how it is written, and for a GGUF file the model that transformers builds for its weights)
READ = {
    "plain": ("as transformers saves a model", save(LLAMA)),
    "shards": ("shards with an index", save(LLAMA, shard_size="6KB")),
    "tied_head_absent": ("a tied output head that is not stored", save(TIED)),
    "tied_head_stored": ("a tied output head that is stored beside the embedding", directory(TIED, TIED_PLAIN)),
    "tied_head_alone": ("only the output head is stored, not the embedding", directory(TIED, HEAD_ONLY)),
    "names_without_prefix": ("names as in a decoder without output head", directory(TIED, BARE)),
    "float32": ("weights in F32", directory(LLAMA, tensors(LLAMA, torch.float32))),
    "mixed_types": ("weights in F16, F32 and BF16", directory(LLAMA, HALVES)),
    "inv_freq_stored": ("constants of RoPE among the tensors", directory(LLAMA, {**PLAIN, **INV_FREQ})),
    "rope_old": ("rope_theta of its own", directory(LLAMA, settings=old_rope())),
    "rope_old_linear": ("linear RoPE in rope_scaling", directory(LLAMA, settings=old_rope(type="linear", factor=4.0))),
    "rope_old_dynamic": (
        "dynamic RoPE, within the context",
        directory(LLAMA, settings=old_rope(type="dynamic", factor=2.0)),
    ),
    "rope_old_llama3": (
        "RoPE of Llama 3.1 in rope_scaling",
        directory(LLAMA, settings=old_rope(rope_type="llama3", **LLAMA3)),
    ),
    "rope_old_yarn": ("YaRN in rope_scaling", directory(LLAMA, settings=old_rope(rope_type="yarn", **YARN))),
    "gemma2_old": ("Gemma 2 without layer_types", directory(GEMMA2, tensors(GEMMA2), {"layer_types": ABSENT})),
    "gemma3_old": (
        "Gemma 3 with rope_local_base_freq and sliding_window_pattern",
        directory(
            GEMMA3,
            tensors(GEMMA3),
            {
                **old_rope(rope_type="linear", factor=8.0),
                **dict(rope_theta=1e6, rope_local_base_freq=THETA, layer_types=ABSENT, sliding_window_pattern=2),
            },
        ),
    ),
    "end_tokens": (
        "three end tokens in generation_config.json",
        text_variation(SPLITTING, files={"generation_config.json": {"bos_token_id": 1, "eos_token_id": [2, 4, 9]}}),
    ),
    "template_in_settings": (
        "the template in tokenizer_config.json",
        text_variation(SPLITTING, {"chat_template": CHATML}),
    ),
    "template_named": (
        "named templates in tokenizer_config.json",
        text_variation(
            SPLITTING,
            {"chat_template": [{"name": "rag", "template": OTHER}, {"name": "default", "template": CHATML}]},
        ),
    ),
    "template_file": ("chat_template.jinja", text_variation(SPLITTING, files={"chat_template.jinja": CHATML})),
    "template_twice": (
        "chat_template.jinja beside another template in tokenizer_config.json",
        text_variation(SPLITTING, {"chat_template": OTHER}, files={"chat_template.jinja": CHATML}),
    ),
    "metaspace_first": ("prepend_scheme first", text_variation(tokenizer(metaspace(prepend_scheme="first")))),
    "metaspace_never": ("prepend_scheme never", text_variation(tokenizer(metaspace(prepend_scheme="never")))),
    "metaspace_unsplit": ("the text as one word", text_variation(tokenizer(metaspace(split=False)))),
    "metaspace_old": ("add_prefix_space instead of prepend_scheme", text_variation(tokenizer(OLD_METASPACE))),
    "metaspace_after_space": (
        "words cut at white space before",
        text_variation(tokenizer(AFTER_SPACE, decoder=metaspace())),
    ),
    "space_marks_by_normalizer": (
        "spaces marked by a normalizer, as in Llama 2",
        text_variation(tokenizer(None, PREPEND, STRIP)),
    ),
    "gguf_plain": ("as llama.cpp's converter writes a model", gguf_file(LLAMA), LLAMA),
    "gguf_alignment_8": ("data at multiples of 8 bytes", gguf_file(LLAMA, alignment=8), LLAMA),
    "gguf_alignment_256": ("data at multiples of 256 bytes", gguf_file(LLAMA, alignment=256), LLAMA),
    "gguf_tied": ("a tied output head", gguf_file(TIED), TIED),
    "gguf_f16": ("matrices in F16", gguf_file(LLAMA, kind=KIND.F16), LLAMA),
    "gguf_mixed_types": (
        "types as in a file that llama.cpp quantised",
        gguf_file(WIDE, kind=KIND.Q4_0, kinds={"output.weight": KIND.Q8_0, "token_embd.weight": KIND.F16}),
        WIDE,
    ),
    "gguf_version_2": ("version 2", gguf_file(LLAMA, version=2), LLAMA),
    "gguf_one_part": ("one part of one", gguf_file(LLAMA, keys={"split.no": (0, U16), "split.count": (1, U16)}), LLAMA),
    "gguf_rope_factors": (
        "RoPE of Llama 3.1 as a tensor",
        gguf_file(LLAMA, extra={"rope_freqs.weight": FACTORS.numpy()}),
        with_scaling("llama3", **LLAMA3),
    ),
    "gguf_yarn": (
        "YaRN",
        gguf_file(
            LLAMA,
            keys={
                "llama.rope.scaling.type": ("yarn", TEXT),
                "llama.rope.scaling.factor": (4.0, F32),
                "llama.rope.scaling.original_context_length": (16, U32),
            },
        ),
        with_scaling("yarn", **YARN),
    ),
    "gguf_gemma2": ("Gemma 2, whose norms are stored as 1 + weight", gguf_file(GEMMA2), GEMMA2),
}

# name -> (what differs, how it is written, words of the error)
REFUSED = {
    "head_absent": (
        "an output head that is not tied and not stored",
        directory(LLAMA, HEADLESS),
        ["tensor lm_head.weight: got no such tensor"],
    ),
    "extra_bias": (
        "a bias that config.json does not mention",
        directory(LLAMA, {**PLAIN, **BIAS}),
        ["tensor model.layers.0.self_attn.q_proj.bias: got a tensor that is not part of this model"],
    ),
    "extra_layer": (
        "a layer more than config.json says",
        directory(LLAMA, {**PLAIN, **THIRD}),
        ["tensor model.layers.2.", "got a tensor that is not part of this model"],
    ),
    "shard_missing": ("the last shard is missing", without_last_shard, [".safetensors", "No such file"]),
    "quantised": (
        "weights that another library quantises",
        directory(LLAMA, settings={"quantization_config": {"quant_method": "gptq", "bits": 4}}),
        ["config.json: quantization_config"],
    ),
    "rope_longrope": (
        "a scaling of RoPE that this family does not have",
        directory(LLAMA, settings=old_rope(type="longrope", factor=4.0)),
        ['rope_scaling: type: got "longrope"'],
    ),
    "rope_sections": (
        "RoPE over images",
        directory(LLAMA, settings=old_rope(type="default", mrope_section=[2, 1, 1])),
        ["rope_scaling: mrope_section"],
    ),
    "template_unknown": (
        "a chat template of no known family",
        text_variation(SPLITTING, files={"chat_template.jinja": OTHER}),
        ["chat template: got"],
    ),
    "metaspace_other_mark": (
        "another mark for spaces",
        text_variation(tokenizer(metaspace(replacement="_"))),
        ["tokenizer.json: /pre_tokenizer", "replacement"],
    ),
    "word_pieces": (
        "a tokenizer of another kind",
        text_variation({**SPLITTING, "model": {"type": "WordPiece", "unk_token": "<unk>", "vocab": {"<unk>": 0}}}),
        ['/model/type: got "WordPiece"'],
    ),
    "gguf_split": ("two parts", gguf_file(LLAMA, parts_of=12), ["metadata split.count: got 2", "--merge"]),
    "gguf_alignment_48": (
        "an alignment that is no power of two",
        gguf_file(LLAMA, alignment=48),
        ["metadata general.alignment: got 48, expected a power of two"],
    ),
    "gguf_big_endian": (
        "big-endian numbers",
        gguf_file(LLAMA, kind=KIND.F16, big_endian=True),
        ["got a big-endian file"],
    ),
    "gguf_mxfp4": (
        "a type that is not read",
        gguf_file(WIDE, kind=KIND.MXFP4),
        ["tensor token_embd.weight: got type MXFP4"],
    ),
    "gguf_extra_bias": (
        "a bias that the architecture does not have",
        gguf_file(LLAMA, extra={"blk.0.attn_q.bias": numpy.zeros(16, numpy.float32)}),
        ["tensor blk.0.attn_q.bias: got a tensor that is not part of this model"],
    ),
}

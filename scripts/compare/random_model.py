#!/usr/bin/env python3
"""Writes a GGUF file of a given Llama shape with random bf16 matrices, to measure the cost of a model that is not available.

    scripts/compare/random_model.py TOKENIZER.gguf OUT.gguf [--hidden 2048] [--layers 16] [--heads 32]
        [--kv-heads 8] [--ffn 8192]

The tokenizer's metadata are copied from TOKENIZER.gguf; this script writes all other metadata. The default is the shape
of Llama 3.2 1B except for the vocabulary. Needs numpy and the package gguf. The weights of the
norms are 1. The random matrices are seeded, so the file is the same each time.
"""

import argparse

import gguf
import numpy as np

COPIED = ("tokenizer.",)


def bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    for name, value in (("hidden", 2048), ("layers", 16), ("heads", 32), ("kv-heads", 8), ("ffn", 8192)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    source = gguf.GGUFReader(args.tokenizer)
    writer = gguf.GGUFWriter(args.out, "llama")
    for field in source.fields.values():
        if field.name.startswith(COPIED):
            element = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], element)
    vocab = len(source.fields["tokenizer.ggml.tokens"].data)
    head_dim = args.hidden // args.heads
    writer.add_name(f"random {args.layers} x {args.hidden}")
    writer.add_context_length(8192)
    writer.add_embedding_length(args.hidden)
    writer.add_block_count(args.layers)
    writer.add_feed_forward_length(args.ffn)
    writer.add_head_count(args.heads)
    writer.add_head_count_kv(args.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)

    random = np.random.default_rng(1)

    def matrix(name, rows, columns):
        values = random.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns) ** np.float32(0.5)
        writer.add_tensor(name, bf16(values).view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def norm(name):
        writer.add_tensor(name, np.ones(args.hidden, np.float32))

    kv = args.kv_heads * head_dim
    matrix("token_embd.weight", vocab, args.hidden)
    for layer in range(args.layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        for name, rows in (("q", args.hidden), ("k", kv), ("v", kv), ("output", args.hidden)):
            matrix(f"{block}attn_{name}.weight", rows, args.hidden)
        norm(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", args.ffn, args.hidden)
        matrix(block + "ffn_up.weight", args.ffn, args.hidden)
        matrix(block + "ffn_down.weight", args.hidden, args.ffn)
    norm("output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

"""Writes a fine-tuned target as a GGUF file: the metadata of the original file, and the new weights, rounded to bf16."""

import gguf
import torch

BF16 = gguf.GGMLQuantizationType.BF16


def permuted(w, rows_of_head):
    """The order of llama.cpp for q and k: the inverse of what target.Target does when it reads them."""
    return w.view(-1, 2, rows_of_head // 2, w.shape[1]).transpose(1, 2).reshape(-1, w.shape[1])


def weights(target):
    """The tensors of a target.Target under the names of GGUF."""
    out = {"token_embd.weight": target.embed, "output_norm.weight": target.norm}
    query, key = target.H * target.E, target.G * target.E
    for i, (norm1, qkv, attended, norm2, gate_up, down) in enumerate(target.layers):
        q, k, v = qkv.split((query, key, key))
        gate, up = gate_up.chunk(2)
        of_layer = {
            "attn_norm": norm1,
            "attn_q": permuted(q, target.E),
            "attn_k": permuted(k, target.E),
            "attn_v": v,
            "attn_output": attended,
            "ffn_norm": norm2,
            "ffn_gate": gate,
            "ffn_up": up,
            "ffn_down": down,
        }
        out |= {f"blk.{i}.{name}.weight": w for name, w in of_layer.items()}
    return out


def require_writable(target, original):
    """Ends the program if the file has tensors that target.Target does not read."""
    other = set(original.tensors) - set(weights(target))
    if other:
        raise SystemExit(f"--mode fine_tuned: {original.path} has the tensor {sorted(other)[0]}, which is not trained")


@torch.no_grad()
def write_target(target, original, path, name):
    """original: target.Gguf of the file that the target was read from. name: general.name of the new file."""
    tensors = weights(target)
    writer = gguf.GGUFWriter(path, str(original.field("general.architecture")))
    skip = ("general.architecture", "general.name", "general.file_type")
    for field in original.reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in skip:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for key, tensor in tensors.items():
        w = tensor.detach().cpu().bfloat16().float().contiguous().numpy()
        if w.ndim == 1:  # norms stay in float32
            writer.add_tensor(key, w)
        else:
            writer.add_tensor(key, gguf.quants.quantize(w, BF16), raw_dtype=BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

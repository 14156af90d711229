"""The target model p: SmolLM2-135M-Instruct from GGUF, with a batched KV-cache decoder in plain torch.

Shapes: V vocabulary, D hidden size, H query heads, G key/value heads, E head size, B slots, T positions.
Weights are dequantised in float32 and rounded to bf16, as the engine loads them. Computation is in float32.
"""

import hashlib

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # default of the GGUF's chat template
PREFIX = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
TO_ANSWER = "<|im_end|>\n<|im_start|>assistant\n"


def rope_tables(base, size, positions):
    """cos, sin [positions, size/2] for rotation in halves (x1 = first half, x2 = second half)."""
    inverse = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * inverse
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """Rotates x [..., E] by cos, sin broadcastable to [..., E/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rms(x, weight, eps=1e-5):
    return F.rms_norm(x, weight.shape, weight, eps)


class Gguf:
    """Hyper-parameters, bf16-rounded float32 tensors and the tokenizer of one GGUF file."""

    def __init__(self, path):
        self.path = path
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}

    def field(self, name):
        return self.reader.fields[name].contents()

    def tensor(self, name):
        t = self.tensors[name]
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        return torch.from_numpy(w.copy()).bfloat16().float()

    def sha256(self):
        """SHA-256 of the file. It names the target in caches of what the target wrote."""
        with open(self.path, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()

    def embedding_sha256(self):
        """SHA-256 of the embedding as bf16, little-endian, [V, D]. A draft stores it to name the target that it belongs to."""
        bits = self.tensor("token_embd.weight").bfloat16().view(torch.int16).numpy()
        return hashlib.sha256(bits.astype("<i2").tobytes()).hexdigest()

    def tokenizer_sha256(self):
        """SHA-256 of all tokens in id order, then all merges, each followed by a NUL byte."""
        words = self.field("tokenizer.ggml.tokens") + self.field("tokenizer.ggml.merges")
        return hashlib.sha256(b"".join(w.encode() + b"\0" for w in words)).hexdigest()

    def tokenizer(self):
        """Byte-level BPE; SmolLM2's pre-tokeniser splits off every digit first."""
        tokens = self.field("tokenizer.ggml.tokens")
        merges = [tuple(m.split(" ")) for m in self.field("tokenizer.ggml.merges")]
        out = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
        out.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        out.decoder = decoders.ByteLevel()
        types = self.field("tokenizer.ggml.token_type")
        out.add_special_tokens([AddedToken(t, special=True) for t, k in zip(tokens, types) if k == 3])
        return out


class Target:
    """Decoder with B independent slots; slot b holds one sequence, cached in keys/values [layer][B, G, T, E]."""

    def __init__(self, file, device="cpu", positions=2048):
        f = lambda key: file.field("llama." + key)
        self.n_layers, self.H, self.G = f("block_count"), f("attention.head_count"), f("attention.head_count_kv")
        self.D, self.eps = f("embedding_length"), f("attention.layer_norm_rms_epsilon")
        self.E, self.device, self.theta = self.D // self.H, torch.device(device), f("rope.freq_base")
        load = lambda name: file.tensor(name).to(self.device)
        self.embed = load("token_embd.weight")  # [V, D], also the head
        self.norm = load("output_norm.weight")
        self.cos, self.sin = (t.to(self.device) for t in rope_tables(self.theta, self.E, positions))
        unpermute = lambda w: w.view(-1, self.E // 2, 2, self.D).transpose(1, 2).reshape(-1, self.D)
        self.layers = []
        for i in range(self.n_layers):
            w = lambda name: load(f"blk.{i}.{name}.weight")
            qkv = torch.cat((unpermute(w("attn_q")), unpermute(w("attn_k")), w("attn_v")))
            self.layers.append(
                (
                    w("attn_norm"),
                    qkv,
                    w("attn_output"),
                    w("ffn_norm"),
                    torch.cat((w("ffn_gate"), w("ffn_up"))),
                    w("ffn_down"),
                )
            )
        self.ffn = self.layers[0][5].shape[1]

    def allocate(self, slots, positions):
        shape = (self.n_layers, slots, self.G, positions, self.E)
        self.keys, self.values = (torch.zeros(shape, device=self.device) for _ in range(2))

    def _blocks(self, x, cos, sin, attend, below=lambda layers, x: None):
        """Runs x [n, D] through all layers; attend(layer, q [n, H, E], k, v [n, G, E]) -> [n, H * E]. Returns features [n, D]. Calls
        below(l, x) with the residual stream x after the first l layers, for each l from 0 to the number of layers."""
        n = len(x)
        for i, (norm1, qkv, out, norm2, gate_up, down) in enumerate(self.layers):
            below(i, x)
            q, k, v = F.linear(rms(x, norm1, self.eps), qkv).split(
                (self.H * self.E, self.G * self.E, self.G * self.E), 1
            )
            q, k = (rotate(t.reshape(n, -1, self.E), cos, sin) for t in (q, k))
            x = x + F.linear(attend(i, q, k, v.reshape(n, -1, self.E)), out)
            gate, up = F.linear(rms(x, norm2, self.eps), gate_up).chunk(2, 1)
            x = x + F.linear(F.silu(gate) * up, down)
        below(self.n_layers, x)
        return rms(x, self.norm, self.eps)

    def prefill(self, ids, slots, start=0):
        """Fills the caches of `slots` [b] with ids [b, L] at positions start.. (the positions before `start` hold a shared prefix).

        Rows may be padded on the right; later steps overwrite the padding and never read it. Returns features [b, L, D].
        """
        b, L = ids.shape
        end = start + L
        mask = torch.ones(L, end, dtype=torch.bool, device=self.device).tril(start)
        cos, sin = (t[start:end, None].repeat(b, 1, 1) for t in (self.cos, self.sin))

        def attend(i, q, k, v):
            q, k, v = (t.view(b, L, -1, self.E).transpose(1, 2) for t in (q, k, v))
            self.keys[i, slots, :, start:end], self.values[i, slots, :, start:end] = k, v
            k, v = (t[i, slots, :, :end].repeat_interleave(self.H // self.G, 1) for t in (self.keys, self.values))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b * L, -1)

        return self._blocks(self.embed[ids.flatten()], cos, sin, attend).view(b, L, -1)

    def states(self, ids, taps=("final_norm",)):
        """Hidden states of whole texts, ids [b, L], one tap after the other: [b, L, taps * D]. A tap is "final_norm", or the number of layers
        below the state. Rows may be padded on the right. Uses no cache, and gradients flow if they are enabled."""
        b, L = ids.shape
        cos, sin = (t[:L, None].repeat(b, 1, 1) for t in (self.cos, self.sin))
        found = {}

        def attend(i, q, k, v):
            q, k, v = (t.reshape(b, L, -1, self.E).transpose(1, 2) for t in (q, k, v))
            k, v = (t.repeat_interleave(self.H // self.G, 1) for t in (k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b * L, -1)

        def below(layers, x):
            if layers in taps:
                found[layers] = x

        found["final_norm"] = self._blocks(self.embed[ids.flatten()], cos, sin, attend, below)
        return torch.cat([found[tap] for tap in taps], -1).view(b, L, -1)

    def step(self, ids, positions):
        """Decodes one token for each of the first n slots: ids, positions [n]. Returns features [n, D] (head not applied)."""
        n, T = len(ids), int(positions.max()) + 1
        rows = torch.arange(n, device=self.device)
        hide = torch.zeros(n, 1, 1, T, device=self.device)
        hide.masked_fill_(torch.arange(T, device=self.device) > positions.view(n, 1, 1, 1), -torch.inf)

        def attend(i, q, k, v):
            self.keys[i, rows, :, positions], self.values[i, rows, :, positions] = k, v
            keys, values = self.keys[i, :n, :, :T], self.values[i, :n, :, :T]
            q = q.view(n, self.G, -1, self.E)  # the query heads of a group are treated as query positions
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=hide).reshape(n, -1)

        return self._blocks(self.embed[ids], self.cos[positions, None], self.sin[positions, None], attend)

    def logits(self, features):
        return F.linear(features, self.embed)

"""The draft model q: plain Llama blocks between the target's embedding (frozen, projected) and a head over a reduced vocabulary.

Shapes: D hidden size of the target, d hidden size of the draft, S head size, K draft vocabulary, n sequences, L positions.
"""

import json
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from target import rope_tables, rotate


def shape(width, heads, head_dim, ffn, draft_vocab=15360):
    return dict(
        hidden_size=width,
        num_hidden_layers=3,
        num_attention_heads=heads,
        head_dim=head_dim,
        intermediate_size=ffn,
        draft_vocab=draft_vocab,
    )


SIZES = {  # by width: 256 is the default, 128 and 192 show what smaller drafts lose, 512 needs so much text that a GPU must write it
    "128": shape(128, 2, 64, 384),
    "192": shape(192, 2, 96, 576),
    "256": shape(256, 2, 128, 768),
    "512": shape(512, 4, 128, 1408, 16384),
}
ROPE_THETA = (
    1e6  # large: half of the dimensions of a head rotate slowly and compare content at any distance (initialise.py)
)


class Block(nn.Module):
    def __init__(self, d, heads, head_dim, ffn):
        super().__init__()
        self.heads = heads
        linear = lambda rows, columns: nn.Parameter(torch.empty(rows, columns))
        self.input_layernorm, self.post_attention_layernorm = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.q_proj, self.k_proj, self.v_proj = (linear(heads * head_dim, d) for _ in range(3))
        self.o_proj = linear(d, heads * head_dim)
        self.gate_proj, self.up_proj, self.down_proj = linear(ffn, d), linear(ffn, d), linear(d, ffn)

    def forward(self, x, cos, sin, dropout=0.0):
        """x [n, L, d]; causal."""
        n, L, d = x.shape
        h = F.rms_norm(x, (d,), self.input_layernorm, 1e-5)
        q, k, v = (
            F.linear(h, w).view(n, L, self.heads, -1).transpose(1, 2) for w in (self.q_proj, self.k_proj, self.v_proj)
        )
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + F.dropout(F.linear(a.transpose(1, 2).reshape(n, L, -1), self.o_proj), dropout)
        h = F.rms_norm(x, (d,), self.post_attention_layernorm, 1e-5)
        return x + F.dropout(
            F.linear(F.silu(F.linear(h, self.gate_proj)) * F.linear(h, self.up_proj), self.down_proj), dropout
        )


class Draft(nn.Module):
    def __init__(self, embedding, vocab, size):
        """embedding [V, D] of the target (frozen); vocab [K] sorted target ids that the head covers."""
        super().__init__()
        self.size, self.dropout = size, 0.0
        d = size["hidden_size"]
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("vocab", vocab)
        for name, table in zip(("cos", "sin"), rope_tables(ROPE_THETA, size["head_dim"], 2048)):
            self.register_buffer(name, table, persistent=False)
        self.embed_projection = nn.Parameter(torch.empty(d, embedding.shape[1]))
        self.blocks = nn.ModuleList(
            Block(d, size["num_attention_heads"], size["head_dim"], size["intermediate_size"])
            for _ in range(size["num_hidden_layers"])
        )
        self.norm = nn.Parameter(torch.ones(d))
        self.head = nn.Parameter(torch.empty(len(vocab), d))

    def forward(self, ids):
        """ids [n, L] -> normed hidden [n, L, d]; logits over `vocab` are hidden @ head.T."""
        x = F.linear(self.embedding[ids], self.embed_projection)
        L = ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:L], self.sin[:L], self.dropout if self.training else 0.0)
        return F.rms_norm(x, self.norm.shape, self.norm, 1e-5)

    def step_bytes(self):
        """Bytes of weights that one forward of the draft reads in bf16, without the row of the shared embedding."""
        return 2 * sum(p.numel() for p in self.parameters())


NAMES = {
    "input_layernorm": "input_layernorm",
    "post_attention_layernorm": "post_attention_layernorm",
    **{f"{n}_proj": f"self_attn.{n}_proj" for n in "qkvo"},
    **{f"{n}_proj": f"mlp.{n}_proj" for n in ("gate", "up", "down")},
}


def export(draft, directory, file):
    """Writes config.json and model.safetensors (bf16, Hugging Face's Llama names); `file` is the target's Gguf."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        "embed_projection.weight": draft.embed_projection,
        "model.norm.weight": draft.norm,
        "lm_head.weight": draft.head,
    }
    for i, block in enumerate(draft.blocks):
        tensors |= {f"model.layers.{i}.{NAMES[k]}.weight": v for k, v in block.named_parameters()}
    tensors = {k: v.detach().cpu().bfloat16().contiguous() for k, v in tensors.items()}
    tensors["draft_vocab"] = draft.vocab.cpu().to(torch.int32)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    s = draft.size
    config = dict(
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_act="silu",
        hidden_size=s["hidden_size"],
        num_hidden_layers=s["num_hidden_layers"],
        num_attention_heads=s["num_attention_heads"],
        num_key_value_heads=s["num_attention_heads"],
        head_dim=s["head_dim"],
        intermediate_size=s["intermediate_size"],
        rms_norm_eps=1e-5,
        rope_theta=ROPE_THETA,
        vocab_size=len(draft.embedding),
        max_position_embeddings=8192,
        attention_bias=False,
        mlp_bias=False,
        tie_word_embeddings=False,
        torch_dtype="bfloat16",
        bos_token_id=1,
        eos_token_id=2,
        speclab_draft=dict(
            embedding="target",
            embedding_dim=draft.embedding.shape[1],
            target_embedding_sha256=file.embedding_sha256(),
            target_tokenizer_sha256=file.tokenizer_sha256(),
        ),
    )
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load(directory, file, device="cpu"):
    """Loads an exported draft in float32 (bf16-rounded weights). Refuses a draft of another target (embedding or tokenizer)."""
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    bound = config["speclab_draft"]
    if (bound["target_embedding_sha256"], bound["target_tokenizer_sha256"]) != (
        file.embedding_sha256(),
        file.tokenizer_sha256(),
    ):
        raise SystemExit(f"{directory} was trained for another target: its embedding or tokenizer differs")
    with safe_open(directory / "model.safetensors", "pt") as z:
        w = {k: z.get_tensor(k) for k in z.keys()}
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim", "intermediate_size")
    draft = Draft(file.tensor("token_embd.weight"), w["draft_vocab"].long(), {k: config[k] for k in keys})
    with torch.no_grad():
        draft.embed_projection.copy_(w["embed_projection.weight"])
        draft.norm.copy_(w["model.norm.weight"])
        draft.head.copy_(w["lm_head.weight"])
        for i, block in enumerate(draft.blocks):
            for k, v in block.named_parameters():
                v.copy_(w[f"model.layers.{i}.{NAMES[k]}.weight"])
    return draft.to(device).eval()

"""Makes the initial weights of the draft. They already hold the geometry of the target's vocabulary and can copy from the context.

Head: the best rank-d approximation of the target's logits on its own features. Embedding projection: whitened principal components
of the target's embedding, and one constant. Layers 0 and 1: an induction circuit (Olsson et al. 2022, "In-context learning and
induction heads"). To learn such a circuit from random weights takes far more text than two CPU cores can write.
  Layer 0: head 0 writes a code of the previous token, head 1 a code of the token before that.
  Layer 1: head 0 finds an earlier position whose two predecessors are the current and the previous token, and copies its token.
Training then changes all weights. For the engine they are plain Llama weights.
"""

import torch
from draft import ROPE_THETA

# Strengths of attention by position, of attention by content, and of the copied token.
POSITION, MATCH, COPY = 50.0, 20.0, 3.0
# Value of the constant. It dominates the norm, so that attention by position hardly depends on the token.
CONSTANT = 24.0


def symmetric_power(matrix, power, floor=1e-4):
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=floor * values[-1].item()) ** power) @ vectors.T


def head_start(embedding_rows, mass, features, d):
    """Returns H [K, d] such that H y approximates E f. E is embedding_rows minus their weighted mean, and y = A f are d
    whitened combinations of the features f. Tokens are weighted by mass [K]; features [N, D] are a sample of f.

    H is the best choice in the weighted norm: with G = E' diag(mass) E, C = mean of f f' and the SVD G^1/2 C^1/2 =
    U s V', it is E G^-1/2 U s, with the d largest values of s. (' transposes a matrix.)
    """
    e, f = embedding_rows.double(), features.double()
    mean = (mass.double() / mass.sum()) @ e
    centred = e - mean  # a shift of all logits carries no information
    g = (centred * (mass.double() / mass.sum())[:, None]).T @ centred
    root = symmetric_power(g, 0.5)
    u, s, _ = torch.linalg.svd(root @ symmetric_power(f.T @ f / len(f), 0.5))
    return (centred @ symmetric_power(g, -0.5) @ u[:, :d] * s[:d]).float()


def projection_start(embedding, frequency, main):
    """P [main, D]. Rows 0 .. main - 2 give whitened principal components. Row main - 1 gives 1 for every token, as nearly as a linear map can."""
    e, w = embedding.double(), (frequency / frequency.sum()).double()
    second = (e * w[:, None]).T @ e
    constant = torch.linalg.solve(second + 1e-4 * second.diagonal().mean() * torch.eye(len(second)).double(), w @ e)
    values, vectors = torch.linalg.eigh(second - torch.outer(w @ e, w @ e))
    rows = vectors[:, -(main - 1) :].flip(1) / values[-(main - 1) :].flip(0).sqrt()
    return torch.cat((rows.T, constant[None])).float()


@torch.no_grad()
def start_head(draft, frequency, features):
    """Sets the head. frequency [V]: how often each token occurs (smoothed, > 0); features [N, D]: a sample of the target's features."""
    draft.head.copy_(head_start(draft.embedding[draft.vocab], frequency[draft.vocab], features, draft.head.shape[1]))


@torch.no_grad()
def start_blocks(draft, frequency, seed=0, circuit=True):
    """Sets everything but the head. The head must be set before, because the circuit writes copied tokens in the head's terms. Without `circuit`, the blocks
    start at random."""
    g = torch.Generator().manual_seed(seed)
    d, S = draft.size["hidden_size"], draft.size["head_dim"]
    for block in draft.blocks:
        for name, w in block.named_parameters():
            if w.dim() == 2:
                w.normal_(0, 0.5 * w.shape[1] ** -0.5 * (0.3 if name in ("o_proj", "down_proj") else 1), generator=g)
    draft.norm.fill_(0.3)
    if not circuit:
        draft.embed_projection.copy_(projection_start(draft.embedding, frequency, d))
        return
    code_size = S // 4  # dimensions of a code of a token
    main = d - 2 * code_size  # residual: [main | code of the previous token | code of the one before]
    previous, before = slice(main, main + code_size), slice(main + code_size, d)
    projection = projection_start(draft.embedding, frequency, main)
    draft.embed_projection.zero_()
    draft.embed_projection[:main] = projection
    draft.embed_projection[main - 1] *= CONSTANT
    level = (1 + CONSTANT**2 / d) ** 0.5  # root mean square of the residual
    for norm in [draft.norm] + [n for b in draft.blocks for n in (b.input_layernorm, b.post_attention_layernorm)]:
        norm *= level
        norm[main - 1] /= CONSTANT
    x = draft.embedding @ projection.T  # [V, main]
    code = torch.linalg.qr(torch.randn(main - 1, code_size, generator=g))[0].T  # [code_size, main - 1]

    # Layer 0: attention by position alone. Take a rotary pair of frequency w with a fixed query, and as key the same vector rotated
    # by `shift`. Their score is cos(w (distance - shift)), which is largest at the distance `shift`.
    first, half = draft.blocks[0], S // 2
    w = ROPE_THETA ** (-torch.arange(half) / half)
    weight = torch.where(w > 0.05, w**1.5, torch.zeros(()))
    amplitude = (weight / weight.sum() * POSITION * S**0.5).sqrt()
    for head, (shift, place) in enumerate(((1, previous), (2, before))):
        rows = slice(head * S, (head + 1) * S)
        q, k, v, o = first.q_proj[rows], first.k_proj[rows], first.v_proj[rows], first.o_proj[:, rows]
        for part in (q, k):
            part.zero_()
        q[:half, main - 1] = amplitude
        k[:half, main - 1], k[half:, main - 1] = amplitude * (w * shift).cos(), amplitude * (w * shift).sin()
        v[:code_size], o[:, :code_size] = 0, 0
        v[:code_size, : main - 1] = code
        o[place, :code_size] = 1.0 * torch.eye(code_size)

    # Layer 1, head 0: attention by content in the slow rotary pairs, which hardly rotate within a few hundred positions.
    second = draft.blocks[1]
    q, k, v, o = second.q_proj[:S], second.k_proj[:S], second.v_proj[:S], second.o_proj[:, :S]
    for part in (q, k, v, o):
        part.zero_()
    slow = torch.cat(
        (torch.arange(half - code_size // 2, half), torch.arange(S - code_size // 2, S))
    )  # the slowest pairs
    less_slow = slow - code_size // 2
    strength = (MATCH * S**0.5 / code_size) ** 0.5
    q[slow, : main - 1], k[slow, previous] = strength * code, strength * torch.eye(code_size)
    q[less_slow, previous], k[less_slow, before] = (
        0.7 * strength * torch.eye(code_size),
        0.7 * strength * torch.eye(code_size),
    )

    # The values of this head are a linear map of rank S from a token's embedding to the hidden vector whose logits favour that token.
    seen = x[draft.vocab].double()
    h = draft.head.double()
    ridge = lambda m: m + 1e-2 * m.diagonal().mean() * torch.eye(len(m)).double()
    copy = torch.linalg.solve(ridge(h.T @ h), h.T @ seen) @ torch.linalg.inv(ridge(seen.T @ seen))  # [d, main]
    u, s, t = torch.linalg.svd(copy, full_matrices=False)
    moved = (seen @ (u[:, :S] * s[:S] @ t[:S]).T).pow(2).mean().sqrt()
    v[:, :main] = (s[:S, None].sqrt() * t[:S] / moved.sqrt()).float()
    o.copy_((u[:, :S] * s[:S].sqrt() / moved.sqrt() * COPY).float())

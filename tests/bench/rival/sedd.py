"""A small SEDD with the structure of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion (model/transformer.py,
model/rotary.py, graph_lib.py, losses.py), for timing. Flash attention, which has no CPU kernel, is PyTorch's own
scaled_dot_product_attention here; the rest is done as there.

Copyright (c) 2024 Aaron Lou, under the MIT License:
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright notice and
this permission notice shall be included in all copies or substantial portions of the Software. THE SOFTWARE IS PROVIDED
"AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS
BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
import math

import torch
from torch import nn
from torch.nn import functional

TOKENS, LENGTH, WIDTH, CONDITION, BLOCKS, HEADS, DROPOUT = 25, 128, 128, 64, 4, 4, 0.1


class LayerNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight, self.dim = nn.Parameter(torch.ones([dim])), dim

    def forward(self, x):
        return functional.layer_norm(x.float(), [self.dim]) * self.weight[None, None, :]


class EmbeddingLayer(nn.Module):
    def __init__(self, dim, states):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty((states, dim)))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))

    def forward(self, x):
        return self.embedding[x]


class TimestepEmbedder(nn.Module):
    def __init__(self, hidden_size, frequencies=256):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(frequencies, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size))
        self.half = frequencies // 2

    def forward(self, t):
        freqs = torch.exp(-math.log(10000) * torch.arange(self.half, dtype=torch.float32) / self.half)
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))


class Rotary(nn.Module):
    def __init__(self, dim, base=10_000):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)))
        self.cached = None

    def forward(self, length):
        if self.cached is None or self.cached[0].shape[1] != length:
            freqs = torch.outer(torch.arange(length).type_as(self.inv_freq), self.inv_freq)
            emb = torch.cat((freqs, freqs), dim=-1)
            cos, sin = (x[None, :, None, None, :].repeat(1, 1, 3, 1, 1) for x in (emb.cos(), emb.sin()))
            cos[:, :, 2].fill_(1.0)  # no rotation of the values
            sin[:, :, 2].fill_(0.0)
            self.cached = cos, sin
        return self.cached


def apply_rotary(qkv, cos, sin):
    half = qkv.shape[-1] // 2
    rotated = torch.cat((-qkv[..., half:], qkv[..., :half]), dim=-1)
    return qkv * cos + rotated * sin


def modulate(x, shift, scale):
    return x * (1 + scale) + shift


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = LayerNorm(WIDTH)
        self.attn_qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attn_out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm2 = LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH))
        self.adaLN_modulation = zero_linear(CONDITION, 6 * WIDTH)

    def residual(self, x, scale, skip):
        return skip + scale * functional.dropout(x, p=DROPOUT, training=self.training)

    def forward(self, x, rotary, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c)[:, None].chunk(6, dim=2)
        n, length = x.shape[:2]
        qkv = self.attn_qkv(modulate(self.norm1(x), shift1, scale1)).view(n, length, 3, HEADS, -1)
        q, k, v = apply_rotary(qkv, *rotary).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, WIDTH)
        x = self.residual(self.attn_out(attended), gate1, x)
        return self.residual(self.mlp(modulate(self.norm2(x), shift2, scale2)), gate2, x)


def zero_linear(inputs, outputs):
    linear = nn.Linear(inputs, outputs)
    linear.weight.data.zero_()
    linear.bias.data.zero_()
    return linear


class OutputLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_final = LayerNorm(WIDTH)
        self.linear = zero_linear(WIDTH, TOKENS + 1)
        self.adaLN_modulation = zero_linear(CONDITION, 2 * WIDTH)

    def forward(self, x, c):
        shift, scale = self.adaLN_modulation(c)[:, None].chunk(2, dim=2)
        return self.linear(modulate(self.norm_final(x), shift, scale))


class Sedd(nn.Module):
    """Takes uniform numbers [n, 1 + length] and tokens [n, length]; gives the loss."""

    def __init__(self):
        super().__init__()
        self.vocab_embed = EmbeddingLayer(WIDTH, TOKENS + 1)
        self.sigma_map = TimestepEmbedder(CONDITION)
        self.rotary_emb = Rotary(WIDTH // HEADS)
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.output_layer = OutputLayer()

    def log_score(self, indices, sigma):
        x = self.vocab_embed(indices)
        c = functional.silu(self.sigma_map(sigma))
        rotary = self.rotary_emb(x.shape[1])
        for block in self.blocks:
            x = block(x, rotary, c)
        x = self.output_layer(x, c)
        esigm1_log = torch.where(sigma < 0.5, torch.expm1(sigma), sigma.exp() - 1).log()[:, None, None]
        x = x - esigm1_log - math.log(TOKENS)
        return torch.scatter(x, -1, indices[..., None], torch.zeros_like(x[..., :1]))

    def forward(self, uniform, tokens):
        t = (1 - 1e-3) * uniform[:, 0] + 1e-3
        sigma, dsigma = -torch.log1p(-(1 - 1e-3) * t), (1 - 1e-3) / (1 - (1 - 1e-3) * t)
        moved = uniform[:, 1:] < (1 - (-sigma).exp())[:, None]
        noised = torch.where(moved, TOKENS, tokens)
        entropy = score_entropy(self.log_score(noised, sigma), sigma[:, None], noised, tokens)
        return (dsigma[:, None] * entropy).mean()


def score_entropy(score, sigma, x, x0):
    masked = x == TOKENS
    esigm1 = torch.where(sigma < 0.5, torch.expm1(sigma), torch.exp(sigma) - 1)
    ratio = 1 / esigm1.expand_as(x)[masked]
    negative = ratio * torch.gather(score[masked], -1, x0[masked][..., None]).squeeze(-1)
    positive = score[masked][:, :-1].exp().sum(dim=-1)
    entropy = torch.zeros(*x.shape)
    entropy[masked] += positive - negative + ratio * (ratio.log() - 1)
    return entropy

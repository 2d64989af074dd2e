"""Who takes part: each way to compute multi-head attention, all with the weights of one layer."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, LlamaConfig
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.llama.modeling_llama import LlamaAttention

from mhalib import MultiHeadAttention


@dataclass(frozen=True)
class Contestant:
    name: str
    run: Callable  # x (batch, seq_len, d_model) -> (output, weights or None)
    module: nn.Module  # whose parameters get gradients
    gives_weights: bool = False
    grouped: bool = False  # a quarter as many key/value heads
    only_forward: bool = False

    @property
    def ours(self):
        return self.name.startswith(OURS)


OURS = "mhalib"
OURS_WITH_WEIGHTS = "mhalib, with weights"
OURS_GROUPED = "mhalib, GQA"
LLAMA_GROUPED = "Llama (transformers), GQA"


def contestants(shape, is_causal):
    """All of them, for (batch, seq_len, d_model, num_heads). The first is ours."""
    _, seq_len, d_model, num_heads = shape
    torch.manual_seed(0)
    layer = random_layer(MultiHeadAttention(d_model, num_heads))
    grouped = random_layer(MultiHeadAttention(d_model, num_heads, max(1, num_heads // 4)))
    hidden = torch.ones(seq_len, seq_len, dtype=torch.bool).triu(1) if is_causal else None
    theirs, theirs_eval = layer.to_torch().train(), layer.to_torch().eval()

    def ours(module, **options):
        return lambda x: module(x, is_causal=is_causal, **options)

    def theirs_run(module, need_weights):
        options = {"need_weights": need_weights, "average_attn_weights": False}
        options |= {"attn_mask": hidden, "is_causal": is_causal}
        return lambda x: module(x, x, x, **options)

    return [
        Contestant(OURS, lambda x: (layer(x, is_causal=is_causal), None), layer),
        Contestant("nn.MultiheadAttention, train", theirs_run(theirs, False), theirs),
        Contestant(
            "nn.MultiheadAttention, eval",
            theirs_run(theirs_eval, False),
            theirs_eval,
            only_forward=True,  # with gradients it is the line above
        ),
        bert(layer, is_causal),
        llama(layer, is_causal),
        by_hand_fused(layer, is_causal),
        head_loop(layer, is_causal),
        Contestant(OURS_WITH_WEIGHTS, ours(layer, need_weights=True), layer, gives_weights=True),
        Contestant(
            "nn.MultiheadAttention, train, with weights",
            theirs_run(theirs, True),
            theirs,
            gives_weights=True,
        ),
        Contestant(
            "nn.MultiheadAttention, eval, with weights",
            theirs_run(theirs_eval, True),
            theirs_eval,
            gives_weights=True,
            only_forward=True,
        ),
        by_hand(layer, hidden),
        einsum(layer, hidden),
        Contestant(
            OURS_GROUPED, lambda x: (grouped(x, is_causal=is_causal), None), grouped, grouped=True
        ),
        llama(grouped, is_causal, LLAMA_GROUPED, grouped=True),
    ]


def random_layer(layer):
    """With biases that are not 0, so that one that is left out would show."""
    for bias in (layer.q_proj.bias, layer.k_proj.bias, layer.v_proj.bias, layer.out_proj.bias):
        nn.init.normal_(bias, std=0.1)
    return layer


def bert(layer, is_causal):
    config = BertConfig(
        hidden_size=layer.d_model,
        num_attention_heads=layer.num_heads,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    attention = BertSelfAttention(config, is_causal=is_causal)
    module = nn.ModuleList([attention, nn.Linear(layer.d_model, layer.d_model)])
    parts = (attention.query, attention.key, attention.value, module[1])
    copy_weights(layer, parts)
    return Contestant("BERT (transformers)", lambda x: (module[1](attention(x)[0]), None), module)


def llama(layer, is_causal, name="Llama (transformers)", grouped=False):
    config = LlamaConfig(
        hidden_size=layer.d_model,
        num_attention_heads=layer.num_heads,
        num_key_value_heads=layer.num_kv_heads,
        attention_bias=True,
        attn_implementation="sdpa",
    )
    module = LlamaAttention(config, layer_idx=0)
    module.is_causal = is_causal
    copy_weights(layer, (module.q_proj, module.k_proj, module.v_proj, module.o_proj))
    no_angles = (None, None)  # the rotation is taken out, see `no_rotation`
    return Contestant(
        name, lambda x: (module(x, no_angles, None)[0], None), module, grouped=grouped
    )


def by_hand_fused(layer, is_causal):
    """Three Linears and PyTorch's fused kernel, as one would write it without a library."""
    q_proj, k_proj, v_proj, out_proj = module = four_linears(layer)

    def run(x):
        batch, seq_len, d_model = x.shape
        split = (batch, seq_len, layer.num_heads, layer.head_dim)
        q, k, v = (p(x).view(split).transpose(1, 2) for p in (q_proj, k_proj, v_proj))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return out_proj(heads.transpose(1, 2).reshape(batch, seq_len, d_model)), None

    return Contestant("three Linears + fused kernel", run, module)


def by_hand(layer, hidden):
    """Three Linears, and the equation as it stands in the paper."""
    q_proj, k_proj, v_proj, out_proj = module = four_linears(layer)

    def run(x):
        batch, seq_len, d_model = x.shape
        split = (batch, seq_len, layer.num_heads, layer.head_dim)
        q, k, v = (p(x).view(split).transpose(1, 2) for p in (q_proj, k_proj, v_proj))
        scores = q @ k.transpose(-2, -1) / math.sqrt(layer.head_dim)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        weights = scores.softmax(dim=-1)
        heads = (weights @ v).transpose(1, 2).reshape(batch, seq_len, d_model)
        return out_proj(heads), weights

    return Contestant("matmul, softmax, matmul", run, module, gives_weights=True)


def einsum(layer, hidden):
    q_proj, k_proj, v_proj, out_proj = module = four_linears(layer)

    def run(x):
        split = (*x.shape[:2], layer.num_heads, layer.head_dim)
        q, k, v = (p(x).view(split) for p in (q_proj, k_proj, v_proj))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(layer.head_dim)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        weights = scores.softmax(dim=-1)
        heads = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        return out_proj(heads.reshape(x.shape)), weights

    return Contestant("einsum", run, module, gives_weights=True)


def head_loop(layer, is_causal):
    """Each head with three small Linears of its own, one after the other, then concatenated."""
    heads = nn.ModuleList()
    with torch.no_grad():
        for h in range(layer.num_heads):
            rows = slice(h * layer.head_dim, (h + 1) * layer.head_dim)
            head = nn.ModuleList(nn.Linear(layer.d_model, layer.head_dim) for _ in range(3))
            for linear, whole in zip(head, (layer.q_proj, layer.k_proj, layer.v_proj), strict=True):
                linear.weight.copy_(whole.weight[rows])
                linear.bias.copy_(whole.bias[rows])
            heads.append(head)
    module = nn.ModuleList([heads, four_linears(layer)[3]])

    def run(x):
        outputs = []
        for q_proj, k_proj, v_proj in heads:
            q, k, v = q_proj(x), k_proj(x), v_proj(x)
            scores = q @ k.transpose(-2, -1) / math.sqrt(layer.head_dim)
            if is_causal:
                hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, -math.inf)
            outputs.append(scores.softmax(dim=-1) @ v)
        return module[1](torch.cat(outputs, dim=-1)), None

    return Contestant("loop over heads", run, module)


def four_linears(layer):
    linears = nn.ModuleList(nn.Linear(layer.d_model, layer.d_model) for _ in range(4))
    copy_weights(layer, linears)
    return linears


def copy_weights(layer, linears):
    ours = (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj)
    for linear, projection in zip(linears, ours, strict=True):
        linear.load_state_dict(projection.state_dict())

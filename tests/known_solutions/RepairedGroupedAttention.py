"""RepairedGroupedAttention: the two faults of the notebook's class, and others beside them."""
# ruff: noqa: N999 - a known solution is named as its exercise

import math

import torch
import torch.nn.functional as F
from torch import nn

from mhalib import MultiHeadAttention

WRONG = {
    "width": {
        "wide keys and values": "k_proj and v_proj make 16 features, but 8 was expected",
        "wide keys": "k_proj makes 16 features, but 8 was expected",
        "wide values": "v_proj makes 16 features, but 8 was expected",
        "one head wide": "k_proj and v_proj make 2 features, but 8 was expected",
        "group wide": "k_proj and v_proj make 4 features, but 8 was expected",
    },
    "bias": {
        "biases": "q_proj, k_proj, v_proj, out_proj have a bias",
    },
    "heads": {
        "tiled": "query head h meets key and value head h % num_kv_heads",
        "keys tiled": "query head h meets key head h % num_kv_heads",
        "values tiled": "query head h meets value head h % num_kv_heads",
        "divided": "key and value head h // num_kv_heads",
        "tokens repeated": "with one for all it is not",
        "first head": "every query head meets key and value head 0",
    },
    "scale": {
        "no scale": "the scores are not scaled",
        "root of d_model": "that is the width of all heads together",
        "root of wide": "d_model // num_kv_heads",
    },
    "split": {
        "split by reshape": "the split is a reshape without a transpose",
    },
    "merge": {
        "merge by reshape": "the merge is a reshape without a transpose back",
    },
    "softmax": {
        "over queries": "with one head and four words it is not",
        "over heads": "with one head and four words it is not",
        "causal": "with one head and four words it is not",
        "heads averaged": "with three query and three key/value heads it is not",
    },
    "out": {
        "no out_proj": "nothing in forward calls it",
        "other name": "no nn.Linear called out_proj",
        "no return": "forward returned None",
        "weights too": "forward returned 2 values",
        "detached": "no gradient flows back",
    },
}
SAME = (
    {"over queries", "over heads", "causal"},
    {"tiled", "keys tiled", "values tiled"},
    {"one head wide", "group wide"},
)
TWO = {  # the notebook's faults, and what names each
    "wide keys and values": "the full width cut into 4 heads gives wide heads",
    "tiled": "repeat tiles",
}


def build(*faults):
    given = set(faults)

    def widths(d_model, num_heads, num_kv_heads):
        head_dim = d_model // num_heads
        width = num_kv_heads * head_dim
        if "one head wide" in given:
            width = head_dim
        elif "group wide" in given:
            width = num_heads // num_kv_heads * head_dim
        wide_keys = given & {"wide keys and values", "wide keys"}
        wide_values = given & {"wide keys and values", "wide values"}
        return d_model if wide_keys else width, d_model if wide_values else width

    class RepairedGroupedAttention(nn.Module):
        def __init__(self, d_model, num_heads, num_kv_heads):
            super().__init__()
            self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
            biases = "biases" in given
            key_width, value_width = widths(d_model, num_heads, num_kv_heads)
            self.q_proj = nn.Linear(d_model, d_model, bias=biases)
            self.k_proj = nn.Linear(d_model, key_width, bias=biases)
            self.v_proj = nn.Linear(d_model, value_width, bias=biases)
            name = "w_o" if "other name" in given else "out_proj"
            self.add_module(name, nn.Linear(d_model, d_model, bias=biases))

        def cut(self, x, num_heads):
            batch, seq_len, _ = x.shape
            if "split by reshape" in given:
                return x.reshape(batch, num_heads, seq_len, -1)
            return x.reshape(batch, seq_len, num_heads, -1).transpose(1, 2)

        def shared(self, x, tiled):
            group_size = self.num_heads // self.num_kv_heads
            if tiled:
                return x.repeat(1, group_size, 1, 1)
            if "tokens repeated" in given:
                longer = x.repeat_interleave(group_size, dim=2)
                return longer.reshape(x.shape[0], self.num_heads, *x.shape[2:])
            heads = torch.arange(self.num_heads)
            if "first head" in given:
                heads = heads * 0
            elif "divided" in given:
                heads = (heads // self.num_kv_heads).clamp(max=self.num_kv_heads - 1)
            else:
                heads = heads // group_size
            return x.index_select(1, heads)

        def forward(self, x):
            query = self.cut(self.q_proj(x), self.num_heads)
            key = self.cut(self.k_proj(x), self.num_kv_heads)
            key = self.shared(key, given & {"tiled", "keys tiled"})
            value = self.cut(self.v_proj(x), self.num_kv_heads)
            value = self.shared(value, given & {"tiled", "values tiled"})
            square = query.shape[-1]
            if "no scale" in given:
                square = 1
            elif "root of d_model" in given:
                square = x.shape[-1]
            elif "root of wide" in given:
                square = x.shape[-1] // self.num_kv_heads
            scores = query @ key.transpose(-2, -1) / math.sqrt(square)
            if "causal" in given:
                scores = scores + torch.full_like(scores, -math.inf).triu(1)
            axis = {"over queries": 2, "over heads": 1}
            weights = F.softmax(scores, next((axis[f] for f in faults if f in axis), 3))
            if "heads averaged" in given:
                weights = weights.mean(1, keepdim=True)
            output = weights @ value
            if "merge by reshape" not in given:
                output = output.transpose(1, 2)
            output = output.reshape(x.shape)
            if "no out_proj" not in given:
                output = (self.w_o if "other name" in given else self.out_proj)(output)
            if "no return" in given:
                return None
            if "detached" in given:
                return output.detach()
            return (output, weights) if "weights too" in given else output

    return RepairedGroupedAttention


class WithFusedKernel(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.head_dim = d_model // num_heads
        self.q_proj = nn.Linear(d_model, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(num_heads * self.head_dim, d_model, bias=False)

    def forward(self, x):
        query, key, value = (
            linear(x).unflatten(-1, (-1, self.head_dim)).swapaxes(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        output = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return self.out_proj(output.swapaxes(1, 2).flatten(2))


class HeadByHead(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.group_size = num_heads // num_kv_heads
        self.head_dim = d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model // self.group_size, bias=False)
        self.v_proj = nn.Linear(d_model, d_model // self.group_size, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        queries, keys, values = (
            linear(x).split(self.head_dim, dim=-1)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        outputs = []
        for head, query in enumerate(queries):
            key, value = keys[head // self.group_size], values[head // self.group_size]
            scores = torch.einsum("bqd,bkd->bqk", query, key) / self.head_dim**0.5
            outputs.append(scores.softmax(-1) @ value)
        return self.out_proj(torch.cat(outputs, dim=-1))


class FromTheLibrary(MultiHeadAttention):
    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__(d_model, num_heads, num_kv_heads, bias=False)


class InLine(WithFusedKernel):
    def forward(self, x):
        batch, seq_len, d_model = x.shape
        key = self.k_proj(x).view(batch, seq_len, -1, self.head_dim).transpose(1, 2)
        value = self.v_proj(x).view(batch, seq_len, -1, self.head_dim).transpose(1, 2)
        query = self.q_proj(x).view(batch, seq_len, key.shape[1], -1, self.head_dim)
        query = query.permute(0, 2, 3, 1, 4).reshape(batch, key.shape[1], -1, self.head_dim)
        weights = (query @ key.mT * self.head_dim**-0.5).softmax(dim=-1)
        output = (weights @ value).reshape(batch, -1, seq_len, self.head_dim)
        return self.out_proj(output.transpose(1, 2).reshape(batch, seq_len, d_model))


RIGHT = (WithFusedKernel, HeadByHead, FromTheLibrary, InLine)

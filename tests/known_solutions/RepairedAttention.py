"""RepairedAttention: the seven faults of the notebook's class, and others on the way to repair."""
# ruff: noqa: N999 - a known solution is named as its exercise

import math

import torch
import torch.nn.functional as F
from torch import nn

from mhalib.functional import merge_heads, scaled_dot_product_attention, split_heads

WRONG = {
    "output": {
        "no W_o": "no output projection comes after them",
        "unused W_o": "out_proj is made, but plays no part",
        "other name": "the output projection is called w_o",
    },
    "names": {
        "undefined names": "no value in the class: batch_size and heads (a NameError)",
        "not kept": "no value in the class: self.n_heads (an AttributeError)",
        "no self": "no value in the class: cut (a NameError)",
    },
    "split": {
        "split by reshape": "the split is a reshape without a transpose",
        "split not moved": "the heads of one word attend to each other",
        "split dealt": "dealt out in turn",
        "no split": "nothing is split",
    },
    "scale": {
        "root of d_model": "multiplied by 1/√d_model = 0.41",
        "no scale": "the scores are not scaled",
        "scale twice": "multiplied by 1/head_dim",
    },
    "mask": {
        "mask reversed": "attends to exactly what the mask hides",
        "mask ignored": "the same as without a mask",
        "mask added": "added to the scores as the numbers 1 and 0",
        "mask of zeros": "set to 0 or close to it",
        "mask late": "the mask came after the softmax",
    },
    "merge": {
        "merge by reshape": "the merge is a reshape without a transpose back",
        "merge collected": "one feature of every head in turn",
    },
    "divisibility": {
        "any num_heads": "a layer was made all the same",
        "assert": "AssertionError was raised, but a ValueError was expected",
    },
    "form": {
        "weights too": "forward returned 2 values",
        "no return": "forward returned None",
        "other Linear": "no nn.Linear called k_proj; it has key",
        "narrow value": "v_proj takes 6 features to 2",
        "over queries": "with one head and four words it is not",
        "float32": "float32",
    },
}
SAME = ()
SEVEN = {  # the notebook's faults, and what names each
    "no W_o": "no output projection comes after them",
    "undefined names": "no value in the class",
    "split by reshape": "the split is a reshape",
    "root of d_model": "multiplied by 1/√d_model",
    "mask reversed": "what the mask hides",
    "any num_heads": "a layer was made all the same",
    "merge by reshape": "the merge is a reshape",
}


def build(*faults):
    class RepairedAttention(nn.Module):
        def __init__(self, d_model, num_heads):
            super().__init__()
            if "assert" in faults:
                assert d_model % num_heads == 0
            elif "any num_heads" not in faults and d_model % num_heads != 0:
                raise ValueError("no")
            self.num_heads = num_heads
            self.head_dim = d_model // num_heads
            self.d_model = d_model
            self.q_proj = nn.Linear(d_model, d_model)
            key = nn.Linear(d_model, d_model)
            setattr(self, "key" if "other Linear" in faults else "k_proj", key)
            narrow = "narrow value" in faults
            self.v_proj = nn.Linear(d_model, self.head_dim if narrow else d_model)
            if "other name" in faults:
                self.w_o = nn.Linear(d_model, d_model)
            elif "no W_o" not in faults:
                self.out_proj = nn.Linear(d_model, d_model)

        def cut(self, x):
            batch, seq_len, d_model = x.shape
            if "undefined names" in faults:
                shape = (batch_size, heads, seq_len)  # noqa: F821
            elif "not kept" in faults:
                shape = (batch, self.n_heads, seq_len)
            else:
                shape = (batch, self.num_heads, seq_len)
            if "split by reshape" in faults:
                return x.reshape(*shape, self.head_dim)
            if "no split" in faults:
                return x.reshape(batch, 1, seq_len, d_model)
            if "split dealt" in faults:
                return torch.einsum("blkh->bhlk", x.unflatten(-1, (-1, shape[1])))
            if "split not moved" in faults:
                return x.reshape(batch, seq_len, shape[1], self.head_dim)
            return x.view(batch, seq_len, shape[1], -1).transpose(1, 2)

        def weigh(self, scores, attn_mask):
            if attn_mask is None or "mask ignored" in faults:
                return F.softmax(scores, dim=-2 if "over queries" in faults else -1)
            if "mask late" in faults:
                return F.softmax(scores, dim=-1) * attn_mask
            if "mask reversed" in faults:
                scores = scores.masked_fill(attn_mask, float("-inf"))
            elif "mask added" in faults:
                scores = scores + attn_mask
            elif "mask of zeros" in faults:
                scores = scores.masked_fill(attn_mask == 0, 1e-9)
            else:
                scores = scores.masked_fill(attn_mask == 0, float("-inf"))
            return F.softmax(scores, dim=-2 if "over queries" in faults else -1)

        def forward(self, x, attn_mask=None):
            split = cut if "no self" in faults else self.cut  # noqa: F821
            key = self.key if "other Linear" in faults else self.k_proj
            query, key, value = split(self.q_proj(x)), split(key(x)), split(self.v_proj(x))
            square = {"root of d_model": self.d_model, "no scale": 1}
            square |= {"scale twice": self.head_dim**2}
            square = next((square[fault] for fault in faults if fault in square), self.head_dim)
            weights = self.weigh(query @ key.mT / math.sqrt(square), attn_mask)
            output = weights @ value
            if "merge collected" in faults:
                output = output.permute(0, 2, 3, 1)
            elif "merge by reshape" not in faults:
                output = output.transpose(1, 2)
            output = output.reshape(x.shape)

            if "other name" in faults:
                output = self.w_o(output)
            elif "no W_o" not in faults and "unused W_o" not in faults:
                output = self.out_proj(output)
            if "no return" in faults:
                return None
            if "float32" in faults:
                return output.float()
            return (output, weights) if "weights too" in faults else output

    return RepairedAttention


class WithFusedKernel(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.head_dim, rest = divmod(d_model, num_heads)
        if rest:
            raise ValueError("d_model must be a multiple of num_heads")
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        query, key, value = (
            linear(x).unflatten(-1, (-1, self.head_dim)).swapaxes(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out_proj(output.swapaxes(1, 2).flatten(2))


class HeadByHead(nn.Module):
    def __init__(self, d_model, num_heads):
        if d_model % num_heads != 0:
            raise ValueError("num_heads must divide d_model")
        super().__init__()
        self.num_heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(d_model, d_model))

    def forward(self, x, attn_mask=None):
        projected = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        pieces = [torch.chunk(part, self.num_heads, dim=-1) for part in projected]
        heads = []
        for head, (query, key, value) in enumerate(zip(*pieces, strict=True)):
            scores = torch.einsum("bqd,bkd->bqk", query, key) / query.shape[-1] ** 0.5
            if attn_mask is not None:
                own = attn_mask
                if attn_mask.dim() == 4:
                    own = attn_mask.expand(-1, self.num_heads, -1, -1)[:, head]
                scores = scores.masked_fill(~own, -torch.inf)
            heads.append(scores.softmax(-1) @ value)
        return self.out_proj(torch.cat(heads, dim=-1))


class _Parent(nn.Module):
    def split(self, x):
        return split_heads(x, self.num_heads)


class FromALargerFamily(_Parent):
    def __init__(self, d_model, num_heads, dropout=0.1):
        super(FromALargerFamily, self).__init__()  # noqa: UP008
        self._refuse(d_model, num_heads)
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        self.dropout = nn.Dropout(dropout)

    @staticmethod
    def _refuse(d_model, num_heads):
        if d_model / num_heads != int(d_model / num_heads):
            raise ValueError(d_model)

    def forward(self, x, attn_mask=None):
        parts = [self.split(linear(x)) for linear in (self.q_proj, self.k_proj, self.v_proj)]
        output, _ = scaled_dot_product_attention(*parts, attn_mask=attn_mask)
        return self.dropout(self.out_proj(merge_heads(output)))


class WithAdditiveMask(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"{d_model} is not a multiple of {num_heads}")
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, attn_mask=None):
        batch, n, d = x.size()
        h = self.num_heads
        q = self.q_proj(x).view(batch, n, h, d // h).permute(0, 2, 1, 3)
        k = self.k_proj(x).view(batch, n, h, d // h).permute(0, 2, 3, 1)
        v = self.v_proj(x).view(batch, n, h, d // h).permute(0, 2, 1, 3)
        scores = q @ k * (d // h) ** -0.5
        if attn_mask is not None:
            scores = scores + torch.where(attn_mask, 0.0, -math.inf).to(x.dtype)
        return self.out_proj((scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(batch, n, d))


RIGHT = (WithFusedKernel, HeadByHead, FromALargerFamily, WithAdditiveMask)

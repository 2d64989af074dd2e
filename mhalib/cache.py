"""The key/value cache: what earlier tokens left behind, kept for the tokens to come."""

import torch

from mhalib import checks


class KVCache:
    """Keys and values of one layer's earlier tokens, in memory that is set aside once.

    Give it to `MultiHeadAttention.forward`, which fills and reads it.

    Args:
        batch: sequences, each with its own number of tokens.
        num_kv_heads, head_dim: as in the layer; the number of query heads plays no part.
        max_len: tokens that a sequence may have; one more is refused. Or else
        window: keep each sequence's last `window` tokens, however many come. A query then sees
            `window` keys, its own included, as with `masks.sliding_window`.
        dtype, device: as the layer's parameters; torch's defaults if None.

    Attributes:
        key, value: (batch, num_kv_heads, slots, head_dim) tensors, zero where nothing is kept yet.
            Token p of a sequence lies in slot p % slots: with `max_len` slots that is p itself,
            with `window` slots it takes the place of the token that no query sees any more.
        lengths: (batch,) integer tensor, tokens that each sequence has had so far.

    Raises:
        TypeError, ValueError: sizes that are not positive integers, both or none of `max_len` and
            `window`.

    Source: Shazeer 2019, section 2.4 (incremental decoding); the window: Jiang et al. 2023.
    """

    def __init__(
        self, batch, num_kv_heads, head_dim, *, max_len=None, window=None, dtype=None, device=None
    ):
        checks.positive_int(batch=batch, num_kv_heads=num_kv_heads, head_dim=head_dim)
        checks.float_storage(dtype, device)
        slots = checks.the_one_given(max_len=max_len, window=window)
        self.window = window
        self.key = torch.zeros(batch, num_kv_heads, slots, head_dim, dtype=dtype, device=device)
        self.value = torch.zeros_like(self.key)
        self.lengths = torch.zeros(batch, dtype=torch.long)

    @property
    def nbytes(self):
        """Bytes of memory set aside for keys and values, filled or not."""
        return self.key.nbytes + self.value.nbytes

    def clear(self):
        """Forget every token; the memory stays set aside.

        Returns:
            None.

        Raises:
            Nothing.
        """
        self.lengths.zero_()

    def append(self, key, value, lengths=None):
        """Keep the keys and values of new tokens, and give what their queries may attend to.

        Args:
            key, value: (batch, num_kv_heads, new_len, head_dim) tensors without gradients.
            lengths: (batch,) integers, how many of a sequence's new tokens are real. The rest is
                padding at the end: it is not kept, and its queries mean nothing. All if None.

        Returns:
            (key, value, options): tensors (batch, num_kv_heads, key_len, head_dim), valid until
            the next call, and the keyword arguments of `scaled_dot_product_attention` that let each
            new query see its own token and those before it, with a window the last `window`.

        Raises:
            TypeError, ValueError: another batch, number of heads, width, dtype or device than the
                cache has, more tokens than `max_len`, or tensors with gradients, which a cache
                cannot pass on. Nothing is changed then.
        """
        checks.cache_entry(self, key, value)
        (batch, _, new_len, _), slots = key.shape, self.key.shape[2]
        old, new = self.lengths.tolist(), [new_len] * batch
        if lengths is not None:
            checks.lengths(lengths, max_len=new_len)
            checks.same("batch", lengths=len(lengths), cache=batch)
            new = [int(number) for number in lengths]
        if self.window is None:
            checks.cache_room(slots, old, new)
        before = self.lengths
        self.lengths = before + torch.tensor(new)
        start = old[0] if len(set(old)) == 1 else before
        if self.window is None:
            self._write(key, value, start, new)
            filled = max(1, *map(sum, zip(old, new, strict=True)))  # an empty slot, if none is
            options = {"is_causal": True, "query_offset": start}
            return self.key[:, :, :filled], self.value[:, :, :filled], options

        positions = before[:, None] + torch.arange(new_len)  # (batch, new_len)
        if new_len == 1:
            self._write(key, value, start, new)
            key, value, key_positions = self.key, self.value, self._positions(self.lengths)
        else:  # the first new queries still need tokens that the last new keys replace
            held = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
            key_positions = torch.cat([self._positions(before), positions], dim=1)
            self._write(key, value, start, new)
            key, value = held
        seen = (key_positions[:, None] >= 0) & (key_positions[:, None] <= positions[:, :, None])
        seen &= key_positions[:, None] > positions[:, :, None] - self.window
        return key, value, {"attn_mask": None if seen.all() else seen[:, None].to(key.device)}

    def _positions(self, lengths):
        """Which token of its sequence each slot holds: (batch, slots), negative where none."""
        last = lengths[:, None] - 1
        slots = self.key.shape[2]
        return last - (last - torch.arange(slots)) % slots

    def _write(self, key, value, start, new):
        """Put the real ones of the new tokens into their slots; of more than fit, the last."""
        slots, new_len = self.key.shape[2], key.shape[2]
        alike = isinstance(start, int) and set(new) == {new_len}
        if alike and start % slots + new_len <= slots:
            place = slice(start % slots, start % slots + new_len)
            self.key[:, :, place], self.value[:, :, place] = key, value
            return
        after = self.lengths[:, None]
        positions = after - torch.tensor(new)[:, None] + torch.arange(new_len)
        kept = (positions < after) & (positions >= after - slots)
        sample, token = kept.nonzero(as_tuple=True)
        slot = positions[kept] % slots
        self.key[sample, :, slot] = key[sample, :, token]
        self.value[sample, :, slot] = value[sample, :, token]

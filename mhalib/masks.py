"""Boolean attention masks. True = may attend, everywhere in this course."""

import torch

from mhalib import checks


def causal(query_len, key_len=None, query_offset=None):
    """Let query i see key j when j <= i + query_offset: itself and what came before.

    Args:
        query_len: number of queries.
        key_len: number of keys; as `query_len` if None.
        query_offset: position of the first query among the keys. An int, or a tensor of shape
            (batch,) with one per sample. None means 0 and needs equal lengths, because the two
            conventions in the wild differ as soon as the lengths do.

    Returns:
        Boolean tensor (query_len, key_len); for a tensor of offsets (batch, 1, query_len, key_len).

    Raises:
        TypeError, ValueError: a length below 1, or different lengths without `query_offset`.

    Source: Vaswani et al. 2017, section 3.2.3 (masking in the decoder).
    """
    key_len = query_len if key_len is None else key_len
    checks.positive_int(query_len=query_len, key_len=key_len)
    checks.query_offset(query_offset, query_len, key_len)
    key_position = torch.arange(key_len)
    query_position = _query_positions(query_len, query_offset)
    return key_position <= query_position


def sliding_window(query_len, key_len=None, *, window, query_offset=None):
    """Causal, and no further back than `window` keys, the query's own position included.

    Args:
        query_len, key_len, query_offset: as in `causal`.
        window: number of keys a query may see, at least 1 (some libraries count one more).

    Returns:
        Boolean tensor (query_len, key_len); for a tensor of offsets (batch, 1, query_len, key_len).

    Raises:
        TypeError, ValueError: as `causal`, or a `window` below 1.

    Source: Child et al. 2019, section 4.2; Beltagy et al. 2020, section 3.1.
    """
    checks.positive_int(window=window)
    may_attend = causal(query_len, key_len, query_offset)
    key_position = torch.arange(may_attend.shape[-1])
    query_position = _query_positions(query_len, query_offset)
    return may_attend & (key_position > query_position - window)


def padding(lengths, max_len):
    """Hide the padding behind each sample's real tokens.

    Args:
        lengths: (batch,) integer tensor, or list of integers: real tokens in each sample.
        max_len: length to which the samples are padded.

    Returns:
        Boolean tensor (batch, 1, 1, max_len), True at real tokens. A sample of length 0 gives a
        row without True: attention answers such a row with zeros.

    Raises:
        TypeError, ValueError: lengths that are not whole numbers between 0 and `max_len`.
    """
    checks.lengths(lengths, max_len)
    lengths = torch.as_tensor(lengths)
    real = torch.arange(max_len, device=lengths.device) < lengths[:, None]
    return real[:, None, None, :]


def _query_positions(query_len, query_offset):
    """Positions among the keys: (query_len, 1), or (batch, 1, query_len, 1) for many offsets."""
    offset = 0 if query_offset is None else query_offset
    if isinstance(offset, torch.Tensor) and offset.dim() == 1:
        offset = offset.cpu()[:, None, None, None]
    return torch.arange(query_len)[:, None] + offset

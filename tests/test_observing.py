"""The observer of new tensors, by which an exercise knows how much memory a solution needs."""

import pytest
import torch
import torch.nn.functional as F

from mhalib.exercises import running
from mhalib.exercises.catalogue import Case
from mhalib.exercises.observing import largest_new, made, observe


def tensor(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def elements(function, *arguments):
    return largest_new(function, *arguments)[1]


X = tensor(6, 4)


@pytest.mark.parametrize(
    "free",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x.view(2, 12),
        lambda x: x[1:, ::2],
        lambda x: x[:, None].expand(6, 50, 4),
        lambda x: x.unflatten(0, (2, 3)).flatten(0, 1),
        lambda x: x.split(2),
        lambda x: x.detach(),
        lambda x: x.to(torch.float32),
        lambda x: x.contiguous(),
        lambda x: x.mul_(2).add_(x),
        lambda x: x.fill_(1),
        lambda x: torch.mul(x, 2, out=x),
    ],
)
def test_views_and_operations_in_place_make_nothing(free):
    assert elements(free, X.clone()) == 0
    assert made(free, X.clone())[1] == []


@pytest.mark.parametrize(
    ("costly", "count"),
    [
        (lambda x: x + 1, 24),
        (lambda x: x.clone(), 24),
        (lambda x: x.T.contiguous(), 24),
        (lambda x: x.T.reshape(-1), 24),
        (lambda x: x.double(), 24),
        (lambda x: x > 0, 24),
        (lambda x: x @ x.T, 36),
        (lambda x: x[:, None].expand(6, 50, 4).clone(), 1200),
        (lambda x: x[:, None].expand(6, 50, 4) + 1, 1200),
        (lambda x: torch.zeros(7).expand(100, 7), 7),
        (lambda x: torch.zeros(10, 10)[:1], 100),
        (lambda x: torch.empty(0).resize_(90), 90),
        (lambda x: torch.matmul(x, x.T, out=torch.empty(0)), 36),
        (lambda x: torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 4),
        (lambda x: torch.stack([x] * 3), 72),
        (lambda x: x.max(dim=0), 4),
        (lambda x: x[torch.tensor([0, 0, 1])], 12),
        (lambda x: F.softmax(x, dim=-1).sum(), 24),
    ],
)
def test_what_is_made_is_counted_in_elements_of_the_largest_storage(costly, count):
    assert elements(costly, X.clone()) == count


def test_storages_are_counted_even_where_one_takes_the_place_of_another():
    """Each is freed before the next is made, perhaps at the same address."""

    def loop(x):
        for _ in range(20):
            x = x + 1
        return x

    result, shapes = made(loop, X)
    assert shapes == [(6, 4)] * 20
    assert torch.equal(result, loop(X))


# four query heads to a key head; with two queries the scores are half as large as copied keys
QUERY, KEY = tensor(2, 8, 2, 4), tensor(2, 2, 64, 4, seed=1)
SCORES, COPIED = 2 * 8 * 2 * 64, 2 * 8 * 64 * 4


def grouped(query):
    return query.reshape(2, 2, -1, 4)


@pytest.mark.parametrize(
    "copying",
    [
        lambda q, k: q @ k.repeat_interleave(4, dim=1).mT,
        lambda q, k: q @ k[:, :, None].expand(2, 2, 4, 64, 4).reshape(2, 8, 64, 4).mT,
        lambda q, k: q.view(2, 2, 4, 2, 4) @ k[:, :, None].expand(2, 2, 4, 64, 4).mT,
        lambda q, k: q.view(2, 2, 4, 2, 4) @ k[:, :, None].mT,  # broadcasting copies, too
        lambda q, k: torch.cat([k[:, :1]] * 4 + [k[:, 1:]] * 4, dim=1),
    ],
)
def test_keys_copied_for_every_query_head_are_seen(copying):
    assert elements(copying, QUERY, KEY) == COPIED


@pytest.mark.parametrize(
    "sharing",
    [
        lambda q, k: grouped(q) @ k.mT,
        lambda q, k: torch.einsum("bkgqd,bkld->bkgql", q.view(2, 2, 4, 2, 4), k),
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        lambda q, k: torch.stack([q[:, head] @ k[:, head // 4].mT for head in range(8)], dim=1),
    ],
)
def test_keys_that_are_shared_cost_nothing(sharing):
    assert elements(sharing, QUERY, KEY) <= SCORES


def test_the_fused_kernel_makes_no_scores():
    long = tensor(1, 2, 64, 4)
    assert elements(F.scaled_dot_product_attention, long, long, long) == long.numel()


def test_the_result_and_its_gradients_are_untouched():
    leaf = X.clone().requires_grad_()
    result, count = largest_new(lambda x: (x @ x.T).softmax(-1), leaf)
    assert count == 36
    (gradient,) = torch.autograd.grad(result.pow(2).sum(), leaf)
    (alone,) = torch.autograd.grad((leaf @ leaf.T).softmax(-1).pow(2).sum(), leaf)
    assert torch.equal(gradient, alone)


def test_gradients_taken_inside_are_seen_and_right():
    leaf = X.clone().requires_grad_()
    (gradient,), count = largest_new(lambda x: torch.autograd.grad((x @ x.T).pow(2).sum(), x), leaf)
    assert count == 36
    assert torch.allclose(gradient, 4 * leaf @ leaf.T @ leaf)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_works_where_gradients_are_off(mode):
    with mode():
        assert elements(lambda x: x + 1, X) == 24


def test_results_that_are_no_tensors_come_back_as_they_are():
    for value in (None, 3, "text", [X, {"a": X}]):
        assert largest_new(lambda value=value: value) == (value, 0)


def test_sparse_tensors_do_no_harm():
    result, _ = largest_new(lambda x: x.to_sparse() + x.to_sparse(), X)
    assert torch.equal(result.to_dense(), 2 * X)


def watched(count):
    def call(function, *arguments):
        return largest_new(function, *arguments)[count]

    return Case("a case", lambda: (X.clone(), 2.0), call=call)


def test_an_error_keeps_its_place_in_the_learners_code():
    def function(x, y):
        x = x + 1
        return x @ x

    raised = observe(function, watched(0)).raised
    assert raised.type_name == "RuntimeError"
    assert raised.place == "line 3 of your function: return x @ x"
    assert torch.equal(X + 1 - 1, X + 1 - 1)  # nothing of the watch stays behind
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_a_stub_is_still_a_stub():
    def function(x, y):
        raise NotImplementedError

    assert observe(function, watched(0)).raised.not_written


def test_an_endless_loop_is_stopped():
    def function(x, y):
        while True:
            x = x + y

    with pytest.raises(running.TookTooLong) as caught:
        running.run_limited(lambda: observe(function, watched(0)), 0.2)
    assert caught.value.stopped
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None

"""Kernels against dense products, PyTorch's own operations and its Adam."""

import numpy as np
import pytest
import torch
from scipy import sparse

from sktifa.tensors.kernels import Drawn, cpu, kernels_for, plain

CASES = [(30, 20, 7, 3), (400, 25, 64, 2), (40, 9, 1, 1), (5, 300, 33, 2)]


class Place:
    """A device, its kernels, and what is laid out there."""

    def __init__(self, name):
        self.device = torch.device("cpu" if name == "plain" else name)
        if name == "cuda":
            pytest.importorskip("triton")
        self.kernels = plain if name == "plain" else kernels_for(self.device)
        assert (self.kernels is plain) == (name == "plain")

    def put(self, array, dtype=None):
        return torch.from_numpy(np.array(array, dtype=dtype)).to(self.device)


@pytest.fixture(params=["cpu", "plain", pytest.param("cuda", marks=pytest.mark.cuda)])
def place(request):
    return Place(request.param)


def matrix(place, n_rows, n_columns):
    made = sparse.random_array(
        (n_rows, n_columns), density=0.3, format="csr", rng=0, dtype=np.float32
    )
    pattern = place.put(made.indptr, np.int32), place.put(made.indices, np.int32)
    return made.toarray(), pattern, place.put(made.data)


def transposed(place, dense, values):
    """Return the transposed matrix, and where each value stood before."""
    stored = sparse.csr_array(dense)
    order = sparse.csr_array(
        (np.arange(stored.nnz), stored.indices, stored.indptr), shape=stored.shape
    ).T.tocsr()
    pattern = place.put(order.indptr, np.int32), place.put(order.indices, np.int32)
    order = place.put(order.data, np.int32)
    return pattern, values[order.long()], order


@pytest.mark.parametrize(("n_rows", "n_columns", "width", "n_blocks"), CASES)
def test_product(place, n_rows, n_columns, width, n_blocks):
    dense, pattern, values = matrix(place, n_rows, n_columns)
    other = torch.randn(n_blocks, n_columns, width).to(place.device)
    out = place.kernels.csr_product(*pattern, values, other)
    expected = place.put(dense).double() @ other.double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("per_node", [False, True])
def test_a_draw_keeps_the_asked_share_and_is_the_same_by_column(place, per_node):
    n_rows, n_columns, n_blocks = 400, 120, 3
    dense, pattern, values = matrix(place, n_rows, n_columns)
    rng = np.random.default_rng(0)
    keep = rng.random((n_blocks, n_rows if per_node else 1), dtype=np.float32)
    scale = place.put([[1.0], [2.0], [0.5]], np.float32)
    drawn = Drawn(
        torch.tensor([2**40 + 7, -5, 0]).to(place.device), place.put(keep), scale
    )
    eye = torch.eye(n_columns).repeat(n_blocks, 1, 1).to(place.device)
    product = place.kernels.csr_product(*pattern, values, eye, drawn=drawn)
    by_row = product.cpu().numpy()
    kept = by_row != 0
    for block in range(n_blocks):
        scaled = dense * float(scale[block])
        np.testing.assert_allclose(
            by_row[block][kept[block]], scaled[kept[block]], rtol=1e-6
        )
    # Each of the 3 * 14,400 stored values is a trial of its own.
    chance = np.broadcast_to(keep[:, :, None], kept.shape)[:, dense != 0]
    trials = kept[:, dense != 0]
    deviation = (trials - chance).sum() / np.sqrt((chance * (1 - chance)).sum())
    assert abs(deviation) < 4  # error rate 6e-5
    eye = torch.eye(n_rows).repeat(n_blocks, 1, 1).to(place.device)
    if place.kernels is cpu:
        by_column = cpu.transposed_csr_product(
            *pattern, values, eye, n_columns, drawn=drawn
        )
    else:
        pattern, values, order = transposed(place, dense, values)
        by_column = place.kernels.csr_product(
            *pattern, values, eye, drawn=drawn, order=order
        )
    by_column = by_column.cpu().numpy()
    np.testing.assert_array_equal(by_column.transpose(0, 2, 1), by_row)


def test_adam_is_pytorchs(place):
    rates, decays, betas = [0.1, 0.01, 0.3], [0.0, 0.1, 0.5], (0.9, 0.999)
    stacked = torch.randn(3, 50, 30).to(place.device)
    single = [torch.nn.Parameter(p.clone()) for p in stacked]
    optimizers = [
        torch.optim.Adam([p], lr=rate, weight_decay=decay, betas=betas)
        for p, rate, decay in zip(single, rates, decays, strict=True)
    ]
    moments = torch.zeros_like(stacked), torch.zeros_like(stacked)
    for step in range(1, 20):
        grad = torch.randn(3, 50, 30).to(place.device)
        place.kernels.adam(
            stacked,
            grad,
            *moments,
            betas=betas,
            eps=1e-8,
            size=place.put([-r / (1 - betas[0] ** step) for r in rates], np.float32),
            root=torch.tensor((1 - betas[1] ** step) ** 0.5).to(place.device),
            weight_decay=place.put(decays, np.float32),
        )
        for p, g, optimizer in zip(single, grad, optimizers, strict=True):
            p.grad = g
            optimizer.step()
    expected = torch.stack([p.detach() for p in single])
    torch.testing.assert_close(stacked, expected, rtol=1e-4, atol=1e-5)


def test_adam_outlives_a_gradient_whose_square_is_not_finite(place):
    parameter = torch.zeros(1, 4).to(place.device)
    moments = torch.zeros_like(parameter), torch.zeros_like(parameter)
    # In float64, where these have squares.
    single = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    optimizer = torch.optim.Adam([single], lr=0.01)
    grad = torch.tensor([1.0, 1e20, 3e20, -1e38], dtype=torch.float64)
    for step in range(1, 4):
        single.grad = grad
        optimizer.step()
        place.kernels.adam(
            parameter,
            grad[None].float().to(place.device),
            *moments,
            betas=(0.9, 0.999),
            eps=1e-8,
            size=place.put([-0.01 / (1 - 0.9**step)], np.float32),
            root=torch.tensor((1 - 0.999**step) ** 0.5).to(place.device),
            weight_decay=place.put([0.0], np.float32),
        )
    torch.testing.assert_close(
        parameter[0].cpu(), single.detach().float(), rtol=1e-4, atol=1e-6
    )


def test_step_sizes_follow_the_schedule(place):
    rates, decay, least, begins = [0.1, 0.01, 0.2], [0.9, 1.0, 0.0], 1e-4, [2, 0, 5]
    n_steps = torch.tensor(6).to(place.device)
    for epoch in (1, 5, 9, 300):
        size, root = place.kernels.step_sizes(
            n_steps,
            torch.tensor(float(epoch), dtype=torch.float64).to(place.device),
            rates=place.put(rates, float),
            decay=place.put(decay, float),
            least=place.put([least] * 3, float),
            min_iter=place.put(begins, float),
            betas=(0.9, 0.999),
        )
        done = int(n_steps)
        expected = [
            -max(rate * factor ** max(epoch - begin, 0), least) / (1 - 0.9**done)
            for rate, factor, begin in zip(rates, decay, begins, strict=True)
        ]
        np.testing.assert_allclose(size.cpu(), expected, rtol=1e-6)
        np.testing.assert_allclose(root.cpu(), (1 - 0.999**done) ** 0.5, rtol=1e-6)
    assert done == 10


@pytest.mark.parametrize("n_classes", [2, 7, 65])
def test_validation_is_cross_entropy_at_each_temperature(place, n_classes):
    sizes, n_nodes = [900, 1, 0, 57], 1000
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=3, size=(4, n_nodes, n_classes)).astype(np.float32)
    parts = [rng.permutation(n_nodes)[:size] for size in sizes]
    targets = [rng.integers(n_classes, size=size) for size in sizes]
    weights = [rng.random(size) for size in sizes]
    nodes = (
        place.put(np.repeat(np.arange(4), sizes)),
        place.put(np.concatenate([i * n_nodes + p for i, p in enumerate(parts)])),
        place.put(np.concatenate(targets)),
        place.put(np.concatenate(weights), np.float32),
    )
    temperatures = [0.25, 1.0, 4.0]
    out = place.kernels.validate(
        place.put(logits), nodes, place.put(sizes), place.put(temperatures, "f4"), 1
    )
    for model, (part, target, weight) in enumerate(
        zip(parts, targets, weights, strict=True)
    ):
        scores = torch.from_numpy(logits[model, part]).double()
        target = torch.from_numpy(target)
        losses = [
            weight
            @ torch.nn.functional.cross_entropy(
                scores / t, target, reduction="none"
            ).numpy()
            for t in temperatures
        ]
        right = (scores.argmax(1) == target).sum() / max(len(part), 1)
        expected = [losses[1], right, min(losses)]
        np.testing.assert_allclose(out[:, model].cpu(), expected, rtol=1e-5)
    logits[0, parts[0][3], 0] = np.nan
    out = place.kernels.validate(
        place.put(logits), nodes, place.put(sizes), place.put(temperatures, "f4"), 1
    )
    assert out[0].isnan().tolist() == [True, False, False, False]
    assert out[2].isnan().tolist() == [True, False, False, False]


def test_models_are_judged(place):
    nan = float("nan")
    # A model a column: what it is judged by, and what comes of it.
    reached = [
        [3.0, 1, 1, 1, nan, 1],
        [0.5, 0.5, 0.9, 0.5, 0.5, 0.5],
        [2.0, 1, 1, 1, 1, 1],
    ]
    last_loss = [1.0, 1, 1, nan, 1, float("inf")]
    watched, alive = [0, 1, 2, 0, 1, 0], [True, True, True, True, True, False]
    state = {
        "alive": place.put(alive),
        "best_score": place.put([-1.0, -1.1, 0.9, -9, -9, -9], float),
        "best_epoch": place.put([3.0, 3, 3, 3, 9, 3], float),
    }
    rules = {
        "tol": [0.0, 0.05, 0, 0, 0, 0],
        "min_iter": [0, 0, 0, 0, 20, 0],
        "max_iter": [100.0] * 6,
        "patience": [7.0, 7, 8, 7, 1, 7],
    }
    figures, chosen = place.kernels.judge(
        place.put(reached, np.float32),
        place.put(last_loss, np.float32),
        epoch=torch.tensor(10.0, dtype=torch.float64).to(place.device),
        watched=place.put(watched),
        **state,
        **{name: place.put(values, float) for name, values in rules.items()},
    )
    # The first waited long enough, the second got better, the third may wait one more,
    # the fourth has no loss, the fifth no score, and is too young; the last is gone.
    assert chosen.tolist() == [False, True, False, False, False, False]
    assert state["alive"].tolist() == [False, True, True, False, True, False]
    assert state["best_epoch"].tolist() == [3, 10, 3, 3, 9, 3]
    assert state["best_score"].tolist() == [-1, -1, 0.9, -9, -9, -9]
    expected = [*reached[:2], last_loss, [0, 1, 1, 0, 1, 0], [3, 10, 3, 3, 9, 3]]
    np.testing.assert_array_equal(figures.cpu(), np.array(expected, np.float32))


def test_a_model_without_validation_is_kept_in_the_end(place):
    state = {
        "alive": place.put([True, True, False]),
        "best_score": place.put([0.0, 0, 0], float),
        "best_epoch": place.put([0.0, 0, 0], float),
    }
    rules = {"tol": [0] * 3, "min_iter": [0] * 3, "patience": [1] * 3}
    _, chosen = place.kernels.judge(
        None,
        place.put([1.0, 1, 1], np.float32),
        epoch=torch.tensor(5.0, dtype=torch.float64).to(place.device),
        watched=place.put([0, 0, 0]),
        max_iter=place.put([6, 5, 5], float),
        **state,
        **{name: place.put(values, float) for name, values in rules.items()},
    )
    assert chosen.tolist() == [False, True, False]
    assert state["alive"].tolist() == [True, False, False]
    assert state["best_epoch"].tolist() == [0, 5, 0]


def test_arcs_are_added_where_they_point(place):
    out, dense = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    target, source = torch.tensor([0, 9, 9, 4]), torch.tensor([1, 5, 6, 4])
    weight = torch.tensor([1.0, -2.0, 0.5, 0.0])
    expected = out.clone().view(-1, 3)
    for t, s, w in zip(target, source, weight, strict=True):
        expected[t] += w * dense.view(-1, 3)[s]
    given = [part.to(place.device) for part in (out, dense, target, source, weight)]
    place.kernels.add_arcs(*given)
    torch.testing.assert_close(given[0].cpu(), expected.view(out.shape))


@pytest.mark.parametrize("n_left", [1, 3])
@pytest.mark.parametrize("width", [1, 7, 40])
def test_dense_products(place, n_left, width):
    x = torch.randn(n_left, 5000, 12).to(place.device)
    weight = torch.randn(3, 12, width).to(place.device)
    out = place.kernels.matmul(x, weight)
    expected = x.double() @ weight.double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    grad = torch.randn(3, 5000, width).to(place.device)
    of_weight = place.kernels.transposed_matmul(x, grad)
    expected = x.double().mT @ grad.double()
    torch.testing.assert_close(of_weight.double(), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("size", [1, 1e-20, 1e20])
@pytest.mark.parametrize("halves", [0, 1, 2])
@pytest.mark.parametrize("per_node", [False, True])
@pytest.mark.parametrize("shape", [(3, 700, 45, 7), (1, 300, 64, 130)])
def test_dense_products_after_dropout(place, shape, per_node, halves, size):
    if halves and not place.kernels.__name__.endswith("cuda"):
        pytest.skip("halves are for a GPU's tensor cores")
    n_models, n_nodes, n_features, width = shape
    rng = np.random.default_rng(0)
    keep = rng.random((n_models, n_nodes if per_node else 1), dtype=np.float32)
    scale = rng.uniform(1, 3, (n_models, 1))
    seed = torch.tensor([2**40 + 7, -5, 0][:n_models]).to(place.device)
    drawn = Drawn(seed, place.put(keep), place.put(scale, np.float32))
    x = torch.randn(1, n_nodes, n_features).to(place.device)
    given = x = x.half().float() if halves == 1 else x
    if halves:
        given = place.kernels.in_halves(x[0])
        assert len(given.parts) == halves
    # Which entries survive, `drop` says: the same in both products.
    dropped = place.kernels.drop(x[0], drawn).double()

    def assert_close(out, left, right):
        # About as close as sums in float32 are, whatever the numbers' size.
        scale = (left.abs() @ right.double().abs()).amax()
        assert ((out.double() - left @ right.double()).abs() / scale).max() < 2e-6

    # One model's numbers are much smaller than another's.
    sizes = size ** torch.linspace(0.5, 1, n_models)[:, None, None]
    weight = (torch.randn(n_models, n_features, width) * sizes).to(place.device)
    grad = (torch.randn(n_models, n_nodes, width) * sizes).to(place.device)
    out = place.kernels.matmul(given, weight, drawn=drawn)
    of_weight = place.kernels.transposed_matmul(given, grad, drawn=drawn)
    plain = place.kernels.matmul(given, weight)
    for i in range(n_models):
        assert_close(out[i], dropped[i], weight[i])
        assert_close(of_weight[i], dropped[i].mT, grad[i])
        assert_close(plain[i], x[0].double(), weight[i])


def test_halves_keep_what_is_not_finite(place):
    if not place.kernels.__name__.endswith("cuda"):
        pytest.skip("halves are for a GPU's tensor cores")
    x = place.kernels.in_halves(torch.ones(40, 20, device=place.device))
    weight = torch.ones(3, 20, 8, device=place.device)
    weight[0, 3, 2], weight[1, 3, 2] = torch.inf, torch.nan
    finite = place.kernels.matmul(x, weight).isfinite()
    assert finite[2].all()
    assert not finite[:2, :, 2].any()


@pytest.mark.cuda
@pytest.mark.parametrize("halved", [False, True])
def test_products_are_the_same_on_a_busy_gpu(halved):
    """What tensor cores are slow to multiply is not overwritten by the next tile."""
    place = Place("cuda")
    x = (torch.rand(1, 5000, 300) < 0.3).to(place.device, torch.float32)
    if halved:
        x = place.kernels.in_halves(x[0])
    weight, grad = (torch.randn(8, n, 64).to(place.device) for n in (300, 5000))
    keep = torch.full((8, 1), 0.5, device=place.device)
    drawn = Drawn(torch.arange(8, device=place.device), keep, 1 / keep)

    def products():
        kernels = place.kernels
        return [
            kernels.transposed_matmul(x, grad, drawn=drawn),
            kernels.matmul(x, weight, drawn=drawn),
            kernels.matmul(x, weight),
            kernels.matmul(grad, weight[:, :64]),
        ]

    quiet = products()
    busy = torch.randn(4096, 4096, device=place.device).half()
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(400):
            busy = (busy @ busy).clamp(-1, 1)
    for _ in range(50):
        for found, expected in zip(products(), quiet, strict=True):
            assert torch.equal(found, expected)


def test_rows_are_the_same_however_they_are_spread_over_threads():
    made = sparse.random_array((3000, 700), density=0.1, format="csr", rng=0)
    pattern = [
        torch.from_numpy(a.astype(np.int32)) for a in (made.indptr, made.indices)
    ]
    values = torch.from_numpy(made.data.astype(np.float32))
    weight, hidden = torch.randn(2, 700, 33), torch.randn(2, 9001, 33)
    keep = torch.tensor([[0.5], [0.8]])
    drawn = Drawn(torch.tensor([3, 4]), keep, 1 / keep)

    def everything():
        generator = torch.Generator().manual_seed(0)
        adam = [torch.rand(2, 300_001, generator=generator) for _ in range(4)]
        cpu.adam(
            *adam,
            betas=(0.9, 0.999),
            eps=1e-8,
            size=torch.tensor([-0.1, -0.2]),
            root=torch.tensor(0.3),
            weight_decay=torch.tensor([0.1, 0.0]),
        )
        return [
            *adam,
            cpu.csr_product(*pattern, values, weight),
            cpu.csr_product(*pattern, values, weight, drawn=drawn),
            cpu.transposed_csr_product(*pattern, values, hidden[:, :3000], 700),
            cpu.matmul(hidden, weight[:, :33, :7]),
            cpu.matmul(hidden, weight[:, :33]),
            cpu.transposed_matmul(hidden, hidden),
            cpu.matmul(hidden[:1], weight[:, :33], drawn=drawn),
            cpu.transposed_matmul(hidden[:1], hidden, drawn=drawn),
            cpu.activate(hidden, weight[:, 0], drawn),
            cpu.drop(hidden[0], drawn),
        ]

    outs, before = [], torch.get_num_threads()
    torch.set_num_threads(1)  # as the engine leaves PyTorch
    try:
        for n_threads in (1, 2, 3):
            with cpu.spread_over(n_threads):
                outs.append(everything())
    finally:
        torch.set_num_threads(before)
    for one, *others in zip(*outs, strict=True):
        assert all(torch.equal(one, other) for other in others)


def test_copies_the_chosen_ones(place):
    source, target = (
        torch.randn(3, 70, 30).to(place.device),
        torch.zeros(3, 70, 30).to(place.device),
    )
    place.kernels.copy_where(
        torch.tensor([True, False, True]).to(place.device), source, target
    )
    expected = source * torch.tensor([1.0, 0.0, 1.0]).to(place.device)[:, None, None]
    torch.testing.assert_close(target, expected)


@pytest.mark.parametrize("dropout", [False, True])
def test_activation_and_its_gradient(place, dropout):
    n_blocks, n_nodes, width = 3, 500, 33
    h = torch.randn(n_blocks, n_nodes, width).to(place.device)
    bias = torch.randn(n_blocks, width).to(place.device)
    grad = torch.randn(n_blocks, n_nodes, width).to(place.device)
    drawn, scale = None, torch.ones(n_blocks, 1).to(place.device)
    keep = torch.tensor([[0.2], [0.5], [1.0]]).to(place.device)
    if dropout:
        scale = 1 / keep
        drawn = Drawn(torch.tensor([2**40 + 7, -5, 0]).to(place.device), keep, scale)
    out = place.kernels.activate(h, bias, drawn)
    of_h = place.kernels.activate_backward(grad, out, drawn)
    kept = out.view(h.shape) != 0
    h.requires_grad_()
    whole = (h + bias[:, None]).relu()
    positive = whole > 0
    if dropout:
        # Each positive entry is a trial of its own.
        chance = keep[:, :, None].expand(h.shape)[positive].double()
        trials = kept[positive].double()
        spread = (chance * (1 - chance)).sum().sqrt()
        assert abs((trials - chance).sum() / spread) < 4  # error rate 6e-5
        assert bool(kept[2].eq(positive[2]).all())
    else:
        assert bool(kept.eq(positive).all())
    expected = whole * kept * scale[:, :, None]
    torch.testing.assert_close(out.view(h.shape), expected)
    expected.backward(grad.view(h.shape))
    torch.testing.assert_close(of_h, h.grad)


def test_dense_matrix_is_dropped_for_each_block(place):
    values = torch.rand(300, 40).add(1).to(place.device)
    keep = torch.rand(2, 300).to(place.device)
    scale = torch.tensor([[1.0], [3.0]]).to(place.device)
    drawn = Drawn(torch.tensor([5, 6]).to(place.device), keep, scale)
    out = place.kernels.drop(values, drawn)
    kept = out != 0
    torch.testing.assert_close(out, values * kept * scale[:, :, None])
    chance = keep[:, :, None].expand(kept.shape).double()
    spread = (chance * (1 - chance)).sum().sqrt()
    assert abs((kept.double() - chance).sum() / spread) < 4  # error rate 6e-5
    assert bool((kept[0] != kept[1]).any())


def test_draws_are_independent(place):
    """Of entries near and far, of seeds that differ in a bit, of steps that follow."""
    n, step = 1 << 20, 0x9E3779B97F4A7C1
    seeds = [0, 1, 2, 1 << 32, *(7 + i * step for i in range(4))]
    drawn = Drawn(
        torch.tensor([(s + (1 << 63)) % (1 << 64) - (1 << 63) for s in seeds]),
        torch.tensor([[0.5], [0.2]]).repeat(4, 1),
        torch.ones(8, 1),
    )
    drawn = Drawn(*(part.to(place.device) for part in vars(drawn).values()))
    ones = torch.ones(n // 64, 64, device=place.device)
    kept = place.kernels.drop(ones, drawn).flatten(1).cpu().numpy() > 0
    chance = np.array([0.5, 0.2] * 4)
    spread = np.sqrt(chance * (1 - chance))[:, None]
    score = (kept - chance[:, None]) / spread
    lags = [1, 2, 3, 7, 16, 63, 64, 65, 767, 1433, 4096, 65536]
    found = [
        (score[:, lag:] * score[:, :-lag]).sum(1) / (n - lag) ** 0.5 for lag in lags
    ]
    for shift in (0, 1, 64):
        between = np.roll(score, shift, axis=1) @ score.T / n**0.5
        found.append(between[~np.eye(8, dtype=bool)])
    # Standard normal, 96 of neighbours and 168 of seeds: error rate 5e-4.
    assert max(np.abs(each).max() for each in found) < 4.9


def test_nan_is_not_hidden(place):
    h = torch.tensor([[[-1.0, float("nan"), 1.0]]]).to(place.device)
    out = place.kernels.activate(h, torch.zeros(1, 3).to(place.device), None)
    assert out.isnan().tolist() == [[[False, True, False]]]


@pytest.mark.parametrize(
    "other", ["plain", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def test_draws_are_the_same_on_all_devices(other):
    dense = [[1.0, 2.0, 3.0, 4.0] * 20] * 50
    outs = []
    for place in (Place("cpu"), Place(other)):
        keep = place.put([[0.3], [0.6]], np.float32)
        drawn = Drawn(torch.tensor([2**50 + 3, -9]).to(place.device), keep, 1 / keep)
        h = place.put([dense, dense], np.float32)
        bias = torch.zeros(2, 80).to(place.device)
        outs.append(place.kernels.activate(h, bias, drawn).cpu())
    torch.testing.assert_close(*outs)

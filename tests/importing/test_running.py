"""Magnitudes by running error analysis: right implementations stay within, and where errors are known, so are they."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from operators.errors import OperatorError
from operators.importing.graphs.graph import aten
from operators.importing.graphs.recurrences import CELLS
from operators.importing.rounding.running import RunningErrors, running, sampled
from tests.choosing import some_slow
from tests.importing.samples import SAMPLES, sample

COARSE = ("convt1", "convt2", "convt3", "groups_of_two_transposed", "prod", "cumprod")
"""Samples whose sums, or statistics, torch itself keeps in bf16 on the CPU."""
LEFT_OUT = ("mha", "avgpool3", "batchnorm_train")
"""Samples that torch has not in bf16, or that come to it in pieces only when they are exported."""
FAST = ("gelu_mm", "softmax", "layernorm", "conv2", "mask", "lstm")
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
ACCUMULATED = 2.0**-24


def share(module: Any, inputs: list[torch.Tensor], dtype: torch.dtype) -> float:
    """The largest error of torch in a type, as a share of the bound that the magnitude gives."""
    inputs = [x.bfloat16().float() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            if value.is_floating_point():
                value.copy_(value.bfloat16().float())
        wide = copy.deepcopy(module).double()
        given = [x.double() if x.is_floating_point() else x for x in inputs]
        low = copy.deepcopy(module).to(dtype)(*[x.to(dtype) if x.is_floating_point() else x for x in inputs])

    def reference(*args: torch.Tensor) -> Any:
        found = wide(*args)
        return found if isinstance(found, torch.Tensor) else {str(n): y for n, y in enumerate(found)}

    with RunningErrors("fp32" if dtype == torch.float32 else "bf16") as errors, torch.no_grad():
        result = reference(*given)
    results = result if isinstance(result, dict) else {"": result}
    right, sizes = reference(*given), {name: errors.magnitude(y) * errors.unit for name, y in results.items()}
    low = [low] if isinstance(low, torch.Tensor) else list(low)
    right, sizes = ([v] if isinstance(v, torch.Tensor) else list(v.values()) for v in (right, sizes))
    worst = 0.0
    for y, s, found in zip(right, sizes, low, strict=True):
        assert s.shape == y.shape
        assert bool(s.isfinite().all() and (s >= 0).all())
        if y.is_floating_point():
            allowed = 1.01 * UNIT[dtype] * y.abs() + 2 * ACCUMULATED * s + 1e-37
            errors = ((found.double() - y).abs() / allowed)[y.isfinite()]
            worst = max(worst, float(errors.max()) if errors.numel() else 0.0)
    return worst


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some_slow([name for name in SAMPLES if name not in LEFT_OUT], FAST))
def test_torch_stays_within_the_bound_in_both_types(name: str) -> None:
    module, inputs, _ = sample(name)
    assert share(module, inputs, torch.float32) <= 1
    if name not in COARSE:
        assert share(module, inputs, torch.bfloat16) <= 1


def test_a_sum_has_the_magnitude_of_its_terms() -> None:
    x = torch.linspace(-4.0, 5.0, 300, dtype=torch.float64)
    assert running(torch.sum)(x).item() == pytest.approx(float(x.abs().sum()))


@pytest.mark.parametrize("reference", [torch.sum, lambda x: x.mean(), lambda x: 1 / torch.softmax(x.log(), 0)[0]])
def test_equal_terms_as_a_clamp_makes_them_round_one_way(reference: Any) -> None:
    x = torch.full((8000,), 0.3679, dtype=torch.float32)
    x[::4] = torch.rand(2000) * 0.3 + 0.05
    added = np.add.accumulate(x.numpy(), dtype=np.float32)[-1]  # one after the other
    off = abs(float(added) / float(x.double().sum()) - 1)
    y, allowed = reference(x.double()), granted(reference, x.double())
    assert off > 100 * ACCUMULATED and off * float(y) <= float(allowed) < 8000 * 3 * ACCUMULATED * float(y)


def test_a_product_has_the_magnitude_of_its_products() -> None:
    a, b = torch.randn(5, 40, dtype=torch.float64), torch.randn(40, 3, dtype=torch.float64)
    torch.testing.assert_close(running(torch.mm)(a, b), a.abs() @ b.abs())


def test_what_underflows_may_be_lost_with_what_is_made_of_it() -> None:
    """1 / (1 + exp(88.5)) is below the least normal number of fp32, 88.5 times of it is not."""
    x = torch.tensor([-88.5, -60.0], dtype=torch.float64)
    y, sizes = x * torch.sigmoid(x), running(lambda x: x * torch.sigmoid(x))(x)
    lost, kept = (2 * 2.0**-24 * sizes / y.abs()).tolist()
    assert lost >= 1 and kept < 1e-3
    torch.testing.assert_close(running(torch.nn.functional.silu)(x), sizes)


def test_a_product_of_two_numbers_that_are_all_error_is_one_too() -> None:
    """(1 + 1e9 - 1e9 - 1)^2 is 0, and the square of what fp32 lost."""
    lost = 64.0  # half of the last bit of 1e9
    y = running(lambda x: (x + 1e9 - 1e9 - 1) * (x + 1e9 - 1e9 - 1))(torch.ones(2, dtype=torch.float64))
    assert 2 * 2.0**-24 * float(y.min()) >= (lost / 2) ** 2


def test_what_moves_values_has_no_errors() -> None:
    x = torch.randn(4, 6, dtype=torch.float64)
    moved = running(lambda x: torch.cat([x.t().reshape(4, 6), torch.relu(x)], 1).flip(0).sort(1)[0])(x)
    assert not moved.any()


def test_errors_pass_through_views_and_changes_in_place() -> None:
    x = torch.rand(4, 6, dtype=torch.float64) + 1

    def reference(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        out[1:3] = torch.exp(x[1:3])
        out[2].mul_(2.0)
        return out

    found = running(reference)(x)
    assert not found[0].any()
    assert not found[3].any()
    assert bool((found[1] > 0).all())
    assert bool((found[2] > torch.exp(x[2])).all())


def test_errors_follow_what_is_copied_only_where_it_must_be() -> None:
    x = torch.rand(4, 6, dtype=torch.float64)
    assert bool((running(lambda x: torch.exp(x).t().contiguous().reshape(3, 8))(x) > 0).all())


def test_what_cancels_keeps_the_errors_of_its_terms() -> None:
    x = torch.full((3,), 10.0, dtype=torch.float64)
    assert bool((running(lambda x: torch.exp(x) - torch.exp(x))(x) > 1e4).all())


def test_a_choice_that_errors_may_turn_over_allows_both_results() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.sqrt() * x.sqrt() >= 1, 100.0 * x, -x)

    near, far = (2 * ACCUMULATED * running(reference)(x)).tolist()
    assert near > 100
    assert far < 1


def test_a_place_that_errors_may_turn_over_has_as_many_as_there_are_places() -> None:
    x = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    for choose in (lambda x: x.exp().min(1)[1], lambda x: x.exp().argmax(1)):
        near, far = (ACCUMULATED * running(choose)(x)).tolist()
        assert near >= 1 and far == 0


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: torch.nn.functional.layer_norm(x, (8,)),
        lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
        lambda x: x / x.square().sum(1, True).sqrt(),
    ],
)
def test_results_are_any_number_where_sums_on_the_way_leave_the_range_of_fp32(reference: Any) -> None:
    x = torch.rand(2, 8, dtype=torch.float64)
    usual, large = running(reference)(x * torch.tensor([[1e10], [1e25]], dtype=torch.float64))
    assert bool((usual < 1e15).all())
    assert bool((16 * ACCUMULATED * large >= reference(x * 1e25)[1].abs()).all())


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.mean(1),
        lambda x: torch.cat((x, -x), 1).sum(1),
        lambda x: torch.cat((x, -x), 1).cumsum(1)[:, -1],
        lambda x: torch.nn.functional.avg_pool1d(x[:, None], 8)[:, 0, 0],
    ],
)
def test_a_sum_is_any_number_where_it_leaves_the_range_on_its_way(reference: Any) -> None:
    x = torch.tensor([[1e18], [1e38]], dtype=torch.float64).expand(2, 8)
    usual, large = running(reference)(x)
    assert usual < 1e21 and large > 1e200


@pytest.mark.parametrize("product", [torch.mul, lambda x, y: x @ y, lambda x, y: torch.addcmul(y, y, x)])
def test_zero_times_what_leaves_the_range_of_fp32_is_any_number(product: Any) -> None:
    """0 in fp64, 0 * inf in fp32."""
    lost = torch.tensor([[100.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    for found in (granted(lambda x: product(x.exp(), zeros), lost), granted(lambda x: product(zeros, x.exp()), lost)):
        assert found[0, 0] > 1e200 and found[1, 1] < 1


def test_an_operator_whose_errors_are_not_known_is_named() -> None:
    with pytest.raises(OperatorError, match=r"linalg_inv.*measured"):
        running(torch.linalg.inv)(torch.eye(3, dtype=torch.float64))


class Computed(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


def granted(reference: Any, x: torch.Tensor) -> torch.Tensor:
    """The error that a bound allows a result in fp32, but for its own rounding."""
    with RunningErrors("fp32") as errors:
        y = reference(x)
    return 2 * ACCUMULATED * errors.unit * errors.magnitude(y)


def test_softmax_of_logits_that_rounding_makes_equal() -> None:
    """2e4 and 2e4 + 60 are one number of bf16: the exponential of their difference is as large as errors make it."""
    x = torch.tensor([[0.0, 60.0, 1.0], [60.0, 1.0, 90.0]])
    assert share(Computed(lambda x: torch.softmax(x + 20000.0, 1)), [x], torch.bfloat16) <= 1


@pytest.mark.parametrize("softmax", [torch.softmax, torch.log_softmax])
def test_softmax_of_a_row_whose_largest_leaves_the_range_is_any_number(softmax: Any) -> None:
    x = torch.tensor([[-1e40, -torch.inf], [1e40, -torch.inf], [-1e40, 0.0]], dtype=torch.float64)
    *lost, kept = running(lambda x: softmax(x, 1))(x)
    assert all(bool((row > 1e200).all()) for row in lost) and bool((kept[1:] < 100).all())


def test_log_softmax_of_logits_that_rounding_makes_equal() -> None:
    x = torch.tensor([[1.0, 30.0, 60.0, 90.0]])
    assert share(Computed(lambda x: torch.log_softmax(x + 20000.0, 1)), [x], torch.bfloat16) <= 1


@pytest.mark.parametrize(
    "norm", [torch.nn.functional.instance_norm, lambda x: torch.nn.functional.batch_norm(x, None, None, training=True)]
)
def test_statistics_that_are_stored_in_16_bits(norm: Any) -> None:
    torch.manual_seed(0)
    assert share(Computed(norm), [torch.rand(6, 10, 12)], torch.bfloat16) <= 1


def test_constants_are_rounded_to_the_type_of_the_task() -> None:
    def gray(x: torch.Tensor) -> torch.Tensor:
        return (x * torch.tensor([0.2989, 0.587, 0.114], dtype=x.dtype)).sum(-1)

    torch.manual_seed(0)
    assert share(Computed(gray), [torch.rand(1000, 3)], torch.bfloat16) <= 1


@pytest.mark.parametrize("function", [torch.reciprocal, torch.log, torch.rsqrt, lambda x: 1 / x])
def test_a_result_is_any_number_where_errors_reach_a_pole(function: Any) -> None:
    x = torch.tensor([1.0], dtype=torch.float64)
    assert (granted(lambda x: function(x + 1e9 - 1e9), x) > 1e200).all()
    assert (granted(lambda x: function(x.exp()), x) < 1e-5).all()


def test_a_sine_is_off_by_its_whole_range_where_its_argument_is_off_by_periods() -> None:
    x = torch.tensor([1.0], dtype=torch.float64)
    assert granted(lambda x: torch.sin(x + 1e9 - 1e9), x).item() >= 1


def test_errors_that_are_larger_than_their_number_grow_as_functions_do() -> None:
    """The norm, and the product, of numbers that are 0 but for their errors."""
    x = torch.zeros(4, dtype=torch.float64)
    lost = granted(lambda x: x + 1e9 - 1e9, x).mean().item()
    assert granted(lambda x: (x + 1e9 - 1e9).norm(), x).item() >= 0.99 * 2 * lost
    assert granted(lambda x: (x + 1e9 - 1e9).prod(), x).item() >= 0.99 * lost**4
    assert granted(lambda x: (x + 1e9 - 1e9).std(), x).item() >= 0.5 * lost


def network(layers: int) -> torch.nn.Module:
    """Convolutions, each with batch norm in training, whose statistics are those of few numbers."""
    torch.manual_seed(0)
    made: list[torch.nn.Module] = []
    for _ in range(layers):
        made += [torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8, track_running_stats=False)]
        made.append(torch.nn.ReLU())
    return torch.nn.Sequential(*made)


def test_samples_bound_the_errors_of_a_deep_network_whose_analysis_says_nothing() -> None:
    deep = network(12)
    wide, worst = copy.deepcopy(deep).double(), 0.0
    with torch.no_grad():
        for seed in range(4):
            torch.manual_seed(seed)
            x = torch.rand(2, 8, 3, 3)
            y, sizes = wide(x.double()), sampled(wide)(x.double())
            allowed = 2 * ACCUMULATED * math.sqrt(72) * sizes  # 72 terms are the longest sum
            worst = max(worst, float(((deep(x) - y).abs() / (allowed + ACCUMULATED * y.abs() + 1e-37)).max()))
            assert float(allowed.max()) < 0.05 * float(y.max())
            assert torch.equal(sampled(wide)(x.double()), sizes)
    assert 1e-3 < worst <= 1
    assert float(running(wide)(x.double()).median()) > 1e4 * float(y.max())


def test_samples_allow_any_number_where_a_step_on_the_way_leaves_the_range_of_fp32() -> None:
    """The result is 0 in fp64, the difference of two infinities in fp32."""
    usual, large = sampled(lambda x: torch.relu(x * x * x - x * x * x * 1.5))(
        torch.tensor([1.0, 1e20], dtype=torch.float64)
    )
    assert usual < 100 and large > 1e100
    deep = network(3).double()
    x = torch.rand(2, 8, 3, 3, dtype=torch.float64) * 1e25
    assert bool((sampled(lambda x: deep(deep(x) * x))(x) > 1e100).all())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_samples_bound_what_a_recurrence_of_many_steps_errs(name: str) -> None:
    """Those of torch's own operators, of which a layer of so many steps has thousands, say the same."""
    torch.manual_seed(0)
    steps, batch, width, hidden = 40, 3, 5, 8
    gates = CELLS[name].gates
    sizes = [[gates * hidden, width], [gates * hidden, hidden], [gates * hidden], [gates * hidden]]
    weights = [torch.rand(size, dtype=torch.float64) * 0.5 - 0.25 for size in sizes]
    x, start = torch.rand(steps, batch, width).double(), torch.rand(1, batch, hidden).double()
    operator = aten(f"aten.{name}.input")

    def results(function: Any) -> Any:
        def found(x: torch.Tensor, start: torch.Tensor, *weights: torch.Tensor) -> dict[str, torch.Tensor]:
            states = [start, start] if name == "lstm" else start
            made = function(x, states, list(weights), True, 1, 0.0, False, False, False)
            return dict(zip("yhc", made, strict=False))

        return found

    whole, taken_apart = results(operator), results(operator.decompose)
    for dtype in ("fp32", "bf16"):
        ours, torchs = sampled(whole, dtype)(x, start, *weights), sampled(taken_apart, dtype)(x, start, *weights)
        assert all(1 / 2 < float(size.mean() / torchs[key].mean()) < 2 for key, size in ours.items())
    low = whole(x.float(), start.float(), *(weight.float() for weight in weights))
    rounded = whole(*(value.float().double() for value in (x, start, *weights)))
    bound = sampled(whole, "fp32")(x, start, *weights)
    for key, y in rounded.items():
        allowed = 2 * ACCUMULATED * math.sqrt(hidden) * bound[key] + ACCUMULATED * y.abs()
        assert bool(((low[key] - y).abs() <= allowed).all())


def test_functions_of_what_is_masked_are_no_further_off_than_others() -> None:
    x = torch.tensor([[0.5, -1.0, -math.inf], [-math.inf] * 3], dtype=torch.float64)
    for function in (torch.exp, lambda x: torch.logaddexp(x, x.roll(1, 1))[0]):
        assert all(bool((bound(function)(x)[function(x).isfinite()] < 100).all()) for bound in (running, sampled))


def test_samples_know_what_analysis_knows() -> None:
    x = torch.rand(4, 6, dtype=torch.float64)
    moved = sampled(lambda x: torch.cat([x.t().reshape(4, 6), torch.relu(x)], 1).flip(0).sort(1)[0])(x)
    assert not moved.any()
    named = sampled(lambda x: {"a": x.exp(), "b": x.argmax(1)})(x)
    assert bool((named["a"] > 0).all()) and not named["b"].any()
    with pytest.raises(OperatorError, match=r"linalg_inv"):
        sampled(torch.linalg.inv)(torch.eye(3, dtype=torch.float64))


def test_what_is_read_at_a_place_that_may_be_another_is_something_that_stands_there() -> None:
    """Two rows of a codebook are equally near: the loss may be that of either, and no other number."""
    book, x = torch.tensor([[1.0], [-1.0], [5.0]], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)

    def nearest(x: torch.Tensor) -> torch.Tensor:
        return book[(x.exp() - book - 1).square().sum(1).argmin(0, keepdim=True)]

    assert 6 >= granted(nearest, x)[0, 0] >= 2
    assert granted(nearest, x + 0.5)[0, 0] < 1e-5


def test_what_is_counted_at_a_place_that_may_be_another_may_count_at_any() -> None:
    values = torch.tensor([[1.0, 1.0, 0.0], [0.0, 3.0, 1.0]], dtype=torch.float64)

    def counts(x: torch.Tensor) -> torch.Tensor:
        place = x.exp().argmax(1)
        return torch.zeros(3, dtype=torch.int64).scatter_add(0, place, torch.ones_like(place))

    found = granted(counts, values)
    assert bool((found >= 1).all() and (found < 2.1).all())
    assert bool((granted(counts, values[1:]) < 1e-5).all())


@pytest.mark.parametrize("angle", [torch.atan2, lambda x, y: torch.sigmoid(x - y), lambda x, y: torch.sin(x * y)])
def test_a_function_of_what_may_be_no_number_is_any_number(angle: Any) -> None:
    """The difference of what leaves the range of fp32 is none, however narrow the range of a function of it."""
    usual, large = 1 + torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 1e30], dtype=torch.float64)
    found = granted(lambda x: angle(x * x * usual - x * x, x.square() * x), large)
    assert found[1] > 1e200 and found[0] < 1e-5


def test_integers_made_of_integers_are_exact() -> None:
    """The number of smaller keys is a place in a running sum: nothing else is read there."""
    keys, x = torch.randint(0, 5, (64,)), torch.rand(64, dtype=torch.float64)
    found = granted(lambda x: x.cumsum(0)[((keys[None] < keys[:, None]).sum(-1) - 1).clamp(min=0)], x)
    assert bool((found < 1e-4).all())


def test_what_is_put_back_in_an_order_of_equal_numbers_may_be_that_of_its_neighbours_alone() -> None:
    """Any of three equal numbers may be the one that is kept; nothing changes of a larger one."""

    def two_largest(x: torch.Tensor) -> torch.Tensor:
        values, order = x.sort(0, descending=True)
        return torch.zeros_like(x).scatter(0, order, values * (torch.arange(len(x)) < 2)) / 2

    x = torch.tensor([0.25, 0.5, 0.25, 1e-3, 0.25, 2e-3], dtype=torch.float64)
    allowed = granted(two_largest, x)
    assert bool((allowed[[0, 2, 4]] >= 0.125).all() and (allowed[[0, 2, 4]] < 0.13).all())
    assert bool((allowed[[1, 3, 5]] < 1e-5).all())


def test_a_mask_by_an_order_that_errors_may_change_is_zero_or_one() -> None:
    x = (torch.arange(6, dtype=torch.float64) * 0.1).sin().square() + torch.tensor([0.0, 0, 0, 0, 1, 1])

    def mask(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter(0, torch.topk(x.exp().log(), 2)[1], 1.0)

    assert bool((granted(mask, x) < 1e-5).all())
    x[3] = x[4]
    found = granted(mask, x)
    assert bool((found >= 1).all() and (found < 1.01).all())


def test_the_rest_of_a_division_is_any_where_both_ends_have_the_same() -> None:
    values = torch.tensor([1.0, 1.0, *range(2, 32)], dtype=torch.float64)
    found = granted(lambda x: x.exp().log().sort(0)[1] % 16, values)
    assert bool((found[:2] >= 16).all() and (found[2:] < 1e-5).all())


def test_integers_that_the_accumulator_does_not_hold_are_rounded() -> None:
    counts, x = torch.tensor([2**24 + 1, 2**24]), torch.zeros(2, dtype=torch.float64)
    found = granted(lambda x: counts.double() - 2.0**24 + x, x)
    assert 1 <= found[0] < 1.01 and found[1] < 1e-5

"""PyTorch modules that say what graphs must be able to hold: by name a module, its inputs, and dims by their sizes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class M(nn.Module):
    """A function of modules and tensors as a module."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module, train: bool = False) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)
        self.training_mode = train

    def forward(self, *args: Any) -> Any:
        return self.function(*self.parts, *args)


def R(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def T(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


def I(high: int, *shape: int) -> torch.Tensor:  # noqa: E743
    return torch.randint(0, high, shape)


Sample = tuple[M, list[torch.Tensor], dict[str, int]]


def sample(name: str) -> Sample:
    """A sample, always the same."""
    torch.manual_seed(len(name))
    made: Sample = SAMPLES[name]()
    made[0].train(made[0].training_mode)
    return made


STEPS: list[Callable[..., torch.Tensor]] = [
    lambda x, y: x + y, lambda x, y: x * y - 0.5, lambda x, y: torch.where(x > y, x, -y),
    lambda x, _: torch.relu(x) + 1, lambda x, _: torch.sigmoid(x), lambda x, _: torch.tanh(x).abs().sqrt(),
    lambda x, _: x.softmax(-1), lambda x, y: x - y.mean(-1, keepdim=True), lambda x, _: x.amax(0, keepdim=True) - x,
    lambda x, y: torch.matmul(x, y.transpose(-1, -2))[:, : x.shape[1]], lambda x, _: x.flip(0).cumsum(1),
    lambda x, y: torch.cat([x, y], 1)[:, ::2], lambda x, _: F.layer_norm(x, x.shape[1:]),
    lambda x, _: x.t().reshape(x.shape), lambda x, _: F.pad(x, (1, 0))[:, :-1], lambda x, _: x.sort(1)[0],
]  # fmt: skip


def random_module(seed: int) -> Sample:
    """A chain of steps over two square matrices, drawn by a seed."""
    drawn = random.Random(seed)
    torch.manual_seed(seed)
    steps = [(drawn.choice(STEPS), drawn.random() < 0.5) for _ in range(6)]

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for step, swapped in steps:
            x, y = step(x, y), (x if swapped else y)
        return x

    return M(function), [torch.randn(6, 6), torch.randn(6, 6)], {}


SAMPLES: dict[str, Callable[[], Any]] = {
    "gelu_mm": lambda: (M(lambda m, x: F.gelu(m(x)) * 2.0, nn.Linear(24, 13)), [R(7, 24)], {"rows": 7}),
    "softmax": lambda: (M(lambda x: torch.softmax(x, -1)), [R(7, 24)], {"rows": 7, "cols": 24}),
    "logsoftmax0": lambda: (M(lambda x: torch.log_softmax(x, 0)), [R(7, 24)], {}),
    "mean": lambda: (M(lambda x: x.mean((1, 2), keepdim=True)), [R(7, 5, 6)], {"n": 7}),
    "sumall": lambda: (M(lambda x: x.sum()), [R(7, 5, 6)], {"n": 7}),
    "max": lambda: (M(lambda x: x.max(1)), [R(7, 5, 6)], {"n": 7}),
    "argmax": lambda: (M(lambda x: x.argmax(-1)), [R(7, 5, 6)], {"n": 7}),
    "argmaxall": lambda: (M(lambda x: x.argmax()), [R(7, 5, 6)], {}),
    "amin": lambda: (M(lambda x: x.amin((0, 2))), [R(7, 5, 6)], {}),
    "prod": lambda: (M(lambda x: x.prod(1)), [R(7, 5, 6)], {}),
    "var": lambda: (M(lambda x: x.var(1) + x.std(1, unbiased=False)), [R(7, 5, 6)], {}),
    "var_of_lone_axes": lambda: (M(lambda x: x[:, None, None].var((2, 3))), [R(7, 5)], {}),
    "any": lambda: (
        M(
            lambda x: (x > 1).any(1),
        ),
        [R(7, 5, 6)],
        {},
    ),
    "layernorm": lambda: (M(lambda m, x: m(x), nn.LayerNorm([5, 6])), [R(7, 5, 6)], {"n": 7}),
    "groupnorm": lambda: (M(lambda m, x: m(x), nn.GroupNorm(2, 6)), [R(7, 6, 4, 3)], {"n": 7}),
    "batchnorm": lambda: (M(lambda m, x: m(x), nn.BatchNorm2d(6)), [R(7, 6, 4, 3)], {"n": 7}),
    "batchnorm_train": lambda: (M(lambda m, x: m(x), nn.BatchNorm2d(6), train=True), [R(7, 6, 4, 3)], {}),
    "instancenorm": lambda: (M(lambda m, x: m(x), nn.InstanceNorm2d(6)), [R(7, 6, 4, 3)], {"n": 7}),
    "rms": lambda: (M(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)), [R(7, 6)], {"n": 7}),
    "conv1": lambda: (
        M(lambda m, x: m(x), nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2)),
        [R(3, 4, 19)],
        {"n": 3},
    ),
    "conv2": lambda: (
        M(lambda m, x: m(x), nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=2)),
        [R(3, 4, 9, 8)],
        {"n": 3},
    ),
    "conv2dyn": lambda: (
        M(lambda m, x: m(x), nn.Conv2d(4, 6, 3, padding=1)),
        [R(3, 4, 11, 13)],
        {"n": 3, "h": 11, "w": 13},
    ),
    "depthwise": lambda: (
        M(lambda w, x: F.conv2d(x, w, padding=1, groups=x.shape[1])),
        [R(5, 1, 3, 2), R(7, 5, 9, 8)],
        {"n": 7, "c": 5},
    ),
    "groups_of_two": lambda: (
        M(lambda w, x: F.conv1d(x.flatten(1, 2), w, stride=2, groups=x.shape[1])),
        [R(5, 2, 3), R(7, 5, 2, 9)],
        {"n": 7, "c": 5},
    ),
    "groups_of_two_transposed": lambda: (
        M(lambda w, x: F.conv_transpose1d(x.flatten(1, 2), w.flatten(0, 1), stride=2, groups=x.shape[1])),
        [R(5, 2, 4, 3), R(7, 5, 2, 9)],
        {"n": 7, "c": 5},
    ),
    "conv3": lambda: (M(lambda m, x: m(x), nn.Conv3d(4, 6, 3)), [R(3, 4, 5, 6, 7)], {"n": 3}),
    "convt1": lambda: (
        M(lambda m, x: m(x), nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1)),
        [R(3, 4, 9)],
        {"n": 3},
    ),
    "convt2": lambda: (
        M(lambda m, x: m(x), nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2, dilation=2)),
        [R(3, 4, 9, 8)],
        {"n": 3},
    ),
    "convt3": lambda: (M(lambda m, x: m(x), nn.ConvTranspose3d(4, 6, 3, stride=2)), [R(2, 4, 3, 4, 5)], {}),
    "maxpool1": lambda: (M(lambda m, x: m(x), nn.MaxPool1d(3, 2, 1)), [R(3, 4, 19)], {"n": 3}),
    "maxpool2": lambda: (
        M(lambda m, x: m(x), nn.MaxPool2d(3, 2, 1, dilation=2, ceil_mode=True)),
        [R(3, 4, 19, 18)],
        {"n": 3},
    ),
    "maxpool3": lambda: (M(lambda m, x: m(x), nn.MaxPool3d(2)), [R(3, 4, 6, 7, 8)], {"n": 3}),
    "avgpool1": lambda: (M(lambda m, x: m(x), nn.AvgPool1d(3, 2, 1)), [R(3, 4, 19)], {"n": 3}),
    "avgpool2": lambda: (M(lambda m, x: m(x), nn.AvgPool2d(3, 2, 1, ceil_mode=True)), [R(3, 4, 18, 17)], {"n": 3}),
    "avgpool2b": lambda: (
        M(lambda m, x: m(x), nn.AvgPool2d(3, 2, 1, count_include_pad=False)),
        [R(3, 4, 18, 17)],
        {"n": 3},
    ),
    "avgpool3": lambda: (M(lambda m, x: m(x), nn.AvgPool3d(2)), [R(3, 4, 6, 7, 8)], {"n": 3}),
    "adaptive": lambda: (M(lambda m, x: m(x), nn.AdaptiveAvgPool2d((3, 2))), [R(3, 4, 7, 8)], {"n": 3}),
    "adaptive1": lambda: (M(lambda m, x: m(x), nn.AdaptiveAvgPool2d(1)), [R(3, 4, 7, 8)], {"n": 3}),
    "adaptive_max": lambda: (
        M(lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True)),
        [R(3, 4, 7, 8)],
        {"n": 3, "h": 7},
    ),
    "cumsum": lambda: (M(lambda x: x.cumsum(1)), [R(7, 5)], {"n": 7}),
    "logcumsumexp": lambda: (M(lambda x: x.logcumsumexp(1)), [R(7, 5) * 5], {"n": 7}),
    "cumprod": lambda: (M(lambda x: x.cumprod(1)), [R(7, 5)], {"n": 7}),
    "revcumsum": lambda: (M(lambda x: torch.cumsum(x.flip(1), 1).flip(1)), [R(7, 5)], {"n": 7, "m": 5}),
    "exclcumsum": lambda: (
        M(lambda x: torch.cumsum(torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), 1), 1)[:-1]),
        [R(7, 5)],
        {},
    ),
    "maskedcumsum": lambda: (M(lambda x, m: torch.cumsum(x * m, 1)), [R(7, 5), R(7, 5) > 0], {}),
    "cummax": lambda: (M(lambda x: x.cummax(1)), [R(7, 5)], {}),
    "sort": lambda: (M(lambda x: x.sort(1, descending=True)), [R(7, 9)], {"n": 7}),
    "topk": lambda: (M(lambda x: x.topk(3, 1)), [R(7, 9)], {"n": 7}),
    "argsort": lambda: (M(lambda x: x.argsort(1)), [R(7, 9)], {"n": 7}),
    "gather": lambda: (M(lambda x, i: x.gather(1, i)), [R(7, 9), I(9, 7, 4)], {"n": 7}),
    "scatter": lambda: (
        M(lambda x, i, s: x.scatter(1, i, s)),
        [R(7, 9), torch.stack([torch.randperm(9)[:4] for _ in range(7)]), R(7, 4)],
        {},
    ),
    "scatteradd": lambda: (M(lambda x, i, s: x.scatter_add(1, i, s)), [R(7, 9), I(9, 7, 4), R(7, 4)], {}),
    "indexselect": lambda: (M(lambda x, i: x.index_select(1, i)), [R(7, 9), I(9, 4)], {"n": 7}),
    "index": lambda: (M(lambda x, i, j: x[:, i, j]), [R(7, 9, 8), I(9, 4), I(8, 3, 4)], {"n": 7}),
    "index2": lambda: (M(lambda x, i, j: x[i, :, j]), [R(7, 9, 8), I(7, 4), I(8, 3, 4)], {}),
    "embedding": lambda: (M(lambda e, i: e(i), nn.Embedding(10, 4)), [I(10, 7, 3)], {"n": 7}),
    "cat": lambda: (M(lambda x, y: torch.cat([x, y * 2], 1)), [R(7, 9), R(7, 4)], {"n": 7}),
    "stack": lambda: (M(lambda x, y: torch.stack([x, y * 2], 1)), [R(7, 9), R(7, 9)], {"n": 7}),
    "pad": lambda: (M(lambda x: F.pad(x, (1, 2, 0, 3), value=1.5)), [R(7, 9)], {"n": 7}),
    "padreflect": lambda: (M(lambda x: F.pad(x, (1, 2, 2, 3), mode="reflect")), [R(7, 3, 9, 8)], {}),
    "padrepl": lambda: (M(lambda x: F.pad(x, (1, 2, 2, 3), mode="replicate")), [R(7, 3, 9, 8)], {}),
    "views": lambda: (M(lambda x: (x.permute(2, 0, 1)[1:, :, ::2].reshape(-1, 7) + 1).t()), [R(7, 6, 5)], {}),
    "views2": lambda: (
        M(lambda x: x.transpose(1, 2).reshape(7, -1).unsqueeze(1).expand(7, 3, 30) * 2),
        [R(7, 6, 5)],
        {},
    ),
    "split": lambda: (M(lambda x: torch.cat([p * k for k, p in enumerate(x.chunk(3, 1))], 0)), [R(7, 9)], {}),
    "outview": lambda: (M(lambda x: (x.t(), x + 1, x)), [R(7, 9)], {}),
    "tril": lambda: (M(lambda x, y: torch.tril(x @ y)), [R(9, 9), R(9, 9)], {"n": 9}),
    "mask": lambda: (
        M(lambda x: x.masked_fill(torch.triu(torch.ones(9, 9), 1) > 0, float("-inf")).softmax(-1)),
        [R(7, 9, 9)],
        {},
    ),
    "arange": lambda: (M(lambda x: x + torch.arange(x.shape[1]) * 0.5), [R(7, 9)], {"n": 7, "m": 9}),
    "bmm": lambda: (M(lambda x, y: x @ y), [R(7, 9, 4), R(7, 4, 5)], {"b": 7}),
    "matmul4": lambda: (M(lambda x, y: x @ y), [R(2, 7, 9, 4), R(4, 5)], {"b": 2}),
    "mv": lambda: (M(lambda x, y: x @ y), [R(7, 9), R(9)], {}),
    "einsum": lambda: (M(lambda x, y: torch.einsum("bij,jk->bik", x, y)), [R(2, 7, 9), R(9, 4)], {}),
    "sdpa": lambda: (M(lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), [R(2, 3, 7, 8)] * 3, {"b": 2}),
    "sdpac": lambda: (
        M(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        [R(2, 3, 7, 8)] * 3,
        {},
    ),
    "mha": lambda: (M(lambda m, x: m(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)), [R(2, 5, 8)], {}),
    "nearest": lambda: (M(lambda x: F.interpolate(x, scale_factor=2.0)), [R(2, 3, 7, 8)], {}),
    "bilinear": lambda: (M(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")), [R(2, 3, 7, 8)], {}),
    "bilinearc": lambda: (
        M(lambda x: F.interpolate(x, size=(11, 5), mode="bilinear", align_corners=True)),
        [R(2, 3, 7, 8)],
        {},
    ),
    "pixelshuffle": lambda: (M(lambda x: F.pixel_shuffle(x, 2)), [R(2, 8, 3, 4)], {}),
    "ce": lambda: (M(lambda x, t: F.cross_entropy(x, t)), [R(7, 9), I(9, 7)], {}),
    "mse": lambda: (M(lambda x, t: F.mse_loss(x, t)), [R(7, 9), R(7, 9)], {}),
    "smoothl1": lambda: (M(lambda x, t: F.smooth_l1_loss(x, t)), [R(7, 9), R(7, 9)], {}),
    "kl": lambda: (
        M(lambda x, t: F.kl_div(torch.log(x), t, reduction="batchmean")),
        [T(7, 9) + 0.1, T(7, 9) + 0.1],
        {},
    ),
    "triplet": lambda: (M(lambda a, b, c: F.triplet_margin_loss(a, b, c)), [R(7, 9)] * 3, {}),
    "hinge": lambda: (M(lambda a, b: torch.mean(torch.clamp(1 - a * b, min=0))), [R(7, 9), R(7, 9)], {}),
    "logsumexp": lambda: (M(lambda x: torch.logsumexp(x, 1, keepdim=True)), [R(7, 9)], {}),
    "norm": lambda: (M(lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True)), [R(7, 9)], {}),
    "fro": lambda: (M(lambda x: x / torch.norm(x, p="fro")), [R(7, 9)], {}),
    "norms": lambda: (
        M(lambda x: torch.stack([torch.linalg.vector_norm(x, p, 1) for p in (-torch.inf, -1.5, 0, 0.5, 3, torch.inf)])),
        [R(7, 9)],
        {"n": 7},
    ),
    "l1": lambda: (M(lambda x: x / torch.mean(x.abs(), 1, keepdim=True)), [R(7, 9)], {}),
    "normalize": lambda: (M(lambda x: F.normalize(x)), [R(7, 9)], {}),
    "cosine": lambda: (M(lambda x, y: F.cosine_similarity(x, y)), [R(7, 9), R(7, 9)], {}),
    "acts": lambda: (
        M(
            lambda x: (
                F.relu(x)
                + F.silu(x)
                + F.mish(x)
                + F.softplus(x)
                + F.elu(x)
                + F.selu(x)
                + F.hardtanh(x)
                + F.hardswish(x)
                + F.hardsigmoid(x)
                + F.leaky_relu(x, 0.2)
                + F.softsign(x)
                + F.logsigmoid(x)
                + F.gelu(x, approximate="tanh")
                + F.celu(x)
                + F.hardshrink(x)
                + F.softshrink(x)
            )
        ),
        [R(7, 9) * 3],
        {"n": 7},
    ),
    "diag": lambda: (M(lambda a, b: torch.diag(a) @ b), [R(7), R(7, 9)], {}),
    "lstm": lambda: (M(lambda m, x: m(x)[0], nn.LSTM(5, 4)), [R(6, 2, 5)], {}),
    "gru": lambda: (M(lambda m, x: m(x)[0], nn.GRU(5, 4, 2, bidirectional=True)), [R(4, 2, 5)], {}),
    "lstm_both": lambda: (
        M(
            lambda m, x, h, c: (lambda y, ends: (y, *ends))(*m(x, (h, c))),
            nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True),
        ),
        [R(3, 7, 5), R(4, 3, 6), R(4, 3, 6)],
        {"batch": 3},
    ),
    "lstm_projected": lambda: (
        M(
            lambda m, x: (lambda y, ends: (y, *ends))(*m(x)),
            nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True, proj_size=4),
        ),
        [R(3, 7, 5)],
        {"batch": 3},
    ),
    "lstm_last": lambda: (M(lambda m, x: m(x)[1][1], nn.LSTM(5, 6, 2, bias=False)), [R(7, 3, 5)], {"batch": 3}),
    "gru_states": lambda: (M(lambda m, x, h: m(x, h), nn.GRU(5, 6, 2)), [R(7, 3, 5), R(2, 3, 6)], {"batch": 3}),
    "rnn": lambda: (
        M(lambda m, n, x: n(m(x)[0])[1], nn.RNN(5, 6), nn.RNN(6, 4, nonlinearity="relu")),
        [R(7, 3, 5)],
        {},
    ),
    "roll": lambda: (M(lambda x: torch.roll(x, (2, 1), (0, 1))), [R(7, 5)], {}),
    "repeat": lambda: (M(lambda x: x.repeat(2, 3) * 2), [R(7, 5)], {}),
    "inplace": lambda: (M(lambda x, y: x.index_put((torch.arange(3),), y[:3] * 2)), [R(7, 5), R(7, 5)], {}),
    "lerp": lambda: (
        M(
            lambda x, y: (
                torch.lerp(x, y, 0.3)
                + torch.addcmul(x, x, y)
                + torch.where(x > 0, x, y)
                + torch.maximum(x, y)
                + torch.floor(x)
            )
        ),
        [R(7, 5), R(7, 5)],
        {},
    ),
    "unfold": lambda: (M(lambda x: F.unfold(x, 3, padding=1)), [R(2, 3, 6, 5)], {}),
    "logical": lambda: (M(lambda x: (x > 0) & ~(x > 1)), [R(7, 5)], {}),
    "flash_mask": lambda: (
        M(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m)),
        [R(2, 3, 7, 8), R(7, 7) > -1],
        {},
    ),
}

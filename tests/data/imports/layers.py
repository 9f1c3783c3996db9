import torch


def centred(x, counts):
    x = x - x.mean(dim=-1, keepdim=True)
    return x * counts[:, None]


def make_inputs(rows=64):
    return torch.randn(rows, 300), torch.randint(0, 7, (rows,))

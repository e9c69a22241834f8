"""A small transformer is trained twice, with PyTorch's attention and with the daemon's, forward and backward. The losses are the same."""

import json
import tempfile
import unittest

import torch
from eager import SAFETENSORS, Daemon
from safetensors.torch import load, save
from torch import nn

STEPS = 200
WORDS, COLUMNS, HEADS, LENGTH, BATCH = 12, 32, 4, 16, 8


class Served(torch.autograd.Function):
    """Causal attention of the daemon over Q, K and V (batch, heads, n, d)."""

    daemon = None

    @staticmethod
    def ask(results, **tensors):
        body = save({name: x.detach().contiguous() for name, x in tensors.items()},
                    {"causal": "true", "return": json.dumps(results)})
        status, answer = Served.daemon.send("POST", "/attention", body, {"Content-Type": SAFETENSORS})
        assert status == 200, answer.decode()
        answer = load(answer)
        return [answer[name] for name in results]

    @staticmethod
    def forward(context, q, k, v):  # pylint: disable=arguments-differ
        context.save_for_backward(q, k, v)
        return Served.ask(["output"], Q=q, K=k, V=v)[0]

    @staticmethod
    def backward(context, gradient):  # pylint: disable=arguments-differ
        q, k, v = context.saved_tensors
        return tuple(Served.ask(["grad_Q", "grad_K", "grad_V"], Q=q, K=k, V=v, grad_output=gradient))


def own(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList(nn.LayerNorm(COLUMNS) for _ in range(2))
        self.project, self.out = nn.Linear(COLUMNS, 3 * COLUMNS), nn.Linear(COLUMNS, COLUMNS)
        self.feed = nn.Sequential(nn.Linear(COLUMNS, 4 * COLUMNS), nn.GELU(), nn.Linear(4 * COLUMNS, COLUMNS))

    def forward(self, x):
        heads = self.project(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(*heads).transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


def train(attend):
    """Trains a model to predict words that repeat themselves. Returns the loss of each step."""
    torch.set_num_threads(1)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Embedding(WORDS, COLUMNS), Block(attend), Block(attend), nn.Linear(COLUMNS, WORDS))
    places = nn.Parameter(torch.randn(LENGTH, COLUMNS) * 0.1)
    optimizer = torch.optim.Adam([*model.parameters(), places], lr=3e-3)
    losses = []
    for _ in range(STEPS):
        words = torch.randint(0, WORDS, (BATCH, LENGTH // 4)).repeat(1, 4)
        logits = model[1:](model[0](words) + places)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


class Training(unittest.TestCase):
    def test_losses_follow_those_of_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            Served.daemon = Daemon(folder)
            served = train(Served.apply)
            Served.daemon.stop()
        expected = train(own)
        error = float((served - expected).abs().max())
        print(f"{STEPS} steps: the loss falls from {expected[0]:.3f} to {expected[-1]:.3f}; the losses differ by {error:.2g} at most")
        self.assertLess(expected[-1], 0.8 * expected[0])
        self.assertLess(error, 1e-5)


if __name__ == "__main__":
    unittest.main()

"""Groups of parameters; fused optimisers and ones spread over ranks take the steps of others."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.optim import SGD, AdamW

from pcnn.graphs.capture import CudaGraphs, Work
from pcnn.tasks.fused_optimizer import UpdateScaler, made_for
from pcnn.tasks.network_task import NetworkTask, parameter_groups
from pcnn.tasks.schedules import cosine
from tests.graphs.graphed import rerun
from tests.tasks.quiet import loader, trainer_for
from tests.waits import nothing_waits

CUDA = torch.device("cuda")


def groups() -> list[dict[str, Any]]:
    return [{"params": [nn.Parameter(torch.ones(3))]}]


@pytest.mark.parametrize("kind", [SGD, AdamW])
@pytest.mark.parametrize("fused", [False, True])
def test_a_state_loads_into_the_other_kind(kind: Any, fused: bool) -> None:
    devices = (torch.device("cpu"), CUDA)
    factory = partial(kind, lr=0.1, weight_decay=0.1)
    first, second = (made_for(device, factory, groups()) for device in devices[:: 1 - 2 * fused])
    for optimizer in (first, second):
        (parameter,) = optimizer.param_groups[0]["params"]
        parameter.grad = torch.tensor([1.0, -2.0, 3.0])
    first.step()
    other = first.param_groups[0]["params"][0].detach().clone()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    (mine,) = second.param_groups[0]["params"]
    mine.data.copy_(other)
    assert bool(second.param_groups[0]["fused"]) == (not fused)
    first.step()
    second.step()
    torch.testing.assert_close(mine, first.param_groups[0]["params"][0])


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_begins_behind_a_step_that_was_left_out(loaded: bool, nesterov: bool) -> None:
    factory = partial(SGD, lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.1)
    plain, fused = (made_for(torch.device(kind), factory, groups()) for kind in ("cpu", "cuda"))
    if loaded:
        fused.load_state_dict(plain.state_dict())
    for broken in (True, False, False):
        for optimizer in (plain, fused):
            (parameter,) = optimizer.param_groups[0]["params"]
            parameter.grad = torch.tensor([1.0, -2.0, torch.nan if broken else 3.0])
        if not broken:
            plain.step()
        fused.found_inf = torch.tensor(float(broken))  # type: ignore[attr-defined]
        fused.step()
    ends = [optimizer.param_groups[0]["params"][0] for optimizer in (plain, fused)]
    torch.testing.assert_close(*ends)


class Line(NetworkTask):
    """Gradients lie where they lay before, as those of graphs do, but in every fifth step."""

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.net(batch).square().mean()
        self.log_step(1, 8)
        return loss

    def on_after_backward(self) -> None:
        weight = self.net.weight
        self.place = getattr(self, "place", torch.empty_like(weight))
        if self.trainer.global_step % 5 != 4:
            weight.grad = self.place.copy_(weight.grad)


def trained(
    path: Any, fused: bool, batches: list[Tensor], clip: float | None, scaler: Any = None
) -> Tensor:
    net = nn.Linear(4, 1, bias=False)
    nn.init.ones_(net.weight)
    optimizer = partial(SGD, lr=0.1, momentum=0.9, fused=fused)
    scaler = scaler or torch.amp.GradScaler("cpu", init_scale=64.0)
    trainer = trainer_for(
        path,
        max_epochs=1,
        gradient_clip_val=clip,
        plugins=[MixedPrecision("16-mixed", "cpu", scaler)],
    )
    trainer.fit(Line(net, optimizer, partial(cosine, warmup_steps=3)), loader(batches))
    return net.weight.detach()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("clip", [None, 0.5])
def test_fused_steps_scale_clip_and_skip_like_others(tmp_path: Any, clip: float | None) -> None:
    torch.manual_seed(0)
    batches = list(torch.randn(4, 8, 4))
    plain = trained(tmp_path, False, batches, clip)
    torch.testing.assert_close(trained(tmp_path, True, batches, clip), plain)
    assert not torch.equal(plain, torch.ones(1, 4))
    broken = [torch.full((8, 4), torch.inf)]
    assert torch.equal(trained(tmp_path, True, broken, clip), torch.ones(1, 4))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("fails", [False, True])
def test_an_update_that_is_captured_does_the_same(
    tmp_path: Any, clip: Any, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    torch.manual_seed(0)
    batches = list(torch.randn(14, 8, 4))
    batches[8] = torch.full((8, 4), torch.inf)
    made: list[int] = []

    def capture(work: Work) -> Work:
        """Does nothing yet, as on a device; counts how often it is done again."""
        if fails:
            raise RuntimeError("no graph")
        made.append(0)

        def again() -> None:
            made[-1] += 1
            work()

        return rerun(again)

    plain = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    own = UpdateScaler("cpu", capture, init_scale=64.0, growth_interval=3)
    expected = trained(tmp_path, True, batches, clip, plain)
    found = trained(tmp_path, True, batches, clip, own)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert own.state_dict() == plain.state_dict()
    assert own.state_dict()["scale"] != 64.0
    # steps 0, 4 and 9 are no repetitions, nor is one whose gradients have gone elsewhere
    assert made == ([] if fails else [11])
    assert own.reason == ("no graph" if fails else None)
    assert ("updates ran eagerly: no graph" in caplog.text) == fails


def updated(kind: Any, scaler: torch.amp.GradScaler) -> tuple[list[Tensor], dict[str, Any]]:
    """Weights behind ten updates from gradients that lie still, and the state of the scaler."""
    draw = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(n, generator=draw).cuda()) for n in (3, 70, 4000)]
    factory = partial(kind, lr=0.1, weight_decay=0.1, **({"momentum": 0.9} if kind is SGD else {}))
    optimizer = made_for(CUDA, factory, [{"params": weights[:2]}, {"params": weights[2:]}])
    clip = partial(lambda: nn.utils.clip_grad_norm_(weights, 3.0))
    places = [torch.zeros_like(weight) for weight in weights]
    for step in range(10):
        size = scaler.scale(torch.ones((), device="cuda"))
        for weight, there in zip(weights, places, strict=True):
            given = torch.randn(there.shape, generator=draw).cuda()
            weight.grad = there.copy_(given * size / (0.0 if step == 5 else 1.0))
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (1 + step)
        with nothing_waits() if step > 2 else nullcontext():
            if isinstance(scaler, UpdateScaler):
                scaler.clip = clip
            else:
                scaler.unscale_(optimizer)
                clip()
            scaler.step(optimizer)
            scaler.update()
    return weights, scaler.state_dict()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_updates_on_a_device_are_graphs(kind: Any) -> None:
    settings: Any = {"init_scale": 64.0, "growth_interval": 3}
    graphs: list[Work] = []

    def capture(work: Work) -> Work:
        graphs.append(CudaGraphs(torch.device("cuda"))(work))
        return graphs[-1]

    weights, state = updated(kind, torch.amp.GradScaler("cuda", **settings))
    own = UpdateScaler("cuda", capture, **settings)
    found, mine = updated(kind, own)
    torch.testing.assert_close(found, weights, rtol=1e-5, atol=1e-6)
    assert mine == state
    assert len(graphs) == 1
    assert own.reason is None


def test_norms_and_biases_do_not_decay() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))
    decayed, free = parameter_groups(net, decay_norms_and_biases=False)
    assert [p.ndim for p in decayed["params"]] == [2, 2]
    assert [p.ndim for p in free["params"]] == [1, 1, 1]
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    before = [p.detach().clone() for p in net.parameters()]
    torch.optim.SGD([decayed, free], lr=1.0, weight_decay=0.5).step()
    for old, new in zip(before, net.parameters(), strict=True):
        assert torch.equal(new, old * (0.5 if old.ndim == 2 else 1.0))

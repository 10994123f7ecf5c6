"""A U-Net that makes sites and prunes them, as ``examples/completion.py`` of MinkowskiEngine."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

import pcnn
from pcnn.geometry import Kernel, grid_of_cells
from pcnn.interop import MINKOWSKI, load_state
from pcnn.nn import Conv3d, ConvTranspose3d, prune, union
from tests.interop import definitions as defined
from tests.interop.plain_networks import Plain

CHANNELS = (4, 6, 8)


class Completion(Plain):
    """The definition, of three levels: sites of the decoder are dictionaries of what was kept."""

    norm_suffix = ".bn"

    def conv(
        self, name: str, x: Tensor, out: int, size: int, sites: tuple[Tensor, Tensor], step: int
    ) -> Tensor:
        shape = (size**3, x.shape[1], out) if size > 1 else (x.shape[1], out)
        kernel = self.parameter(f"{name}.kernel", *shape, scale=(2 * x.shape[1]) ** -0.5)
        places, up = defined.minkowski_offsets((size,) * 3), step < 0
        return defined.by_offset(*sites, x, kernel, places, (abs(step),) * 3, up)

    def block(
        self, name: str, x: Tensor, out: int, size: int, sites: tuple[Tensor, Tensor], step: int
    ) -> Tensor:
        x = elu(self.norm(f"{name}.1", self.conv(f"{name}.0", x, out, size, sites, step)))
        same = sites[1], sites[1]
        return elu(self.norm(f"{name}.4", self.conv(f"{name}.3", x, out, 3, same, 1)))

    def __call__(self, x: Tensor, target: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        found, sites = [], self.level(0)
        for number, out in enumerate(CHANNELS):
            steps = (sites, self.level(number))
            x = self.block(
                f"encoder.{number}", x, out, 2 if number else 3, steps, 2 if number else 1
            )
            found.append(x)
            sites = self.level(number)
        answers = []
        for number in (1, 0):
            size = 4 if number else 2
            offsets = torch.tensor([(0, *o) for o in defined.minkowski_offsets((size,) * 3)])
            made = (sites * torch.tensor([1, 2, 2, 2]))[:, None] + offsets
            made = made.flatten(0, 1).unique(dim=0)
            name = f"decoder.{1 - number}"
            x = self.block(name, x, CHANNELS[number], size, (sites, made), -2)
            rows = {tuple(site): value for site, value in zip(made.tolist(), x, strict=True)}
            for site, value in zip(self.level(number).tolist(), found[number], strict=True):
                rows[tuple(site)] = rows[tuple(site)] + value if tuple(site) in rows else value
            sites = torch.tensor(sorted(rows))
            x = torch.stack([rows[tuple(site)] for site in sites.tolist()])
            answer = self.conv(f"classes.{1 - number}", x, 1, 1, (sites, sites), 1)
            answer = answer + self.parameter(f"classes.{1 - number}.bias", 1, 1, scale=0.1)
            answers.append(answer)
            aims = {(b, *(c >> number for c in site)) for b, *site in target.tolist()}
            keep = torch.tensor([tuple(site) in aims for site in sites.tolist()])
            keep |= answer[:, 0] > 0
            x, sites = x[keep], sites[keep]
        return answers, x, sites


def block(layer: nn.Module, out: int) -> nn.Sequential:
    parts = layer, nn.BatchNorm1d(out), nn.ELU(), Conv3d(out, out, 3, bias=False)
    return nn.Sequential(*parts, nn.BatchNorm1d(out), nn.ELU())


class Ours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        a, b, c = CHANNELS
        steps = Conv3d(3, a, 3, bias=False), Conv3d(a, b, 2, 2, bias=False)
        layers = *steps, Conv3d(b, c, 2, 2, bias=False)
        ups = ConvTranspose3d(c, b, 4, 2, bias=False), ConvTranspose3d(b, a, 2, 2, bias=False)
        self.encoder = nn.ModuleList(map(block, layers, CHANNELS))
        self.decoder = nn.ModuleList(map(block, ups, (b, a)))
        self.classes = nn.ModuleList([Conv3d(b, 1, 1), Conv3d(a, 1, 1)])

    def forward(
        self, x: pcnn.SparseTensor, target: pcnn.SparseTensor
    ) -> tuple[list[Tensor], pcnn.SparseTensor]:
        skips, answers = [], []
        for level in self.encoder:
            x = level(x)
            skips.append(x)
        for up, classify, skip in zip(self.decoder, self.classes, skips[-2::-1], strict=True):
            x = union(up(x), skip)
            answers.append(classify(x).features)
            step = x.tensor_stride
            aims = target.geometry.strided(Kernel.of(step, step))  # type: ignore[attr-defined]
            ones = pcnn.SparseTensor(torch.ones(aims.rows, 1), aims)
            _, wanted = pcnn.lookup(ones, x.coords[:, 1:], x.coords[:, 0])
            x = prune(x, (answers[-1][:, 0] > 0) | wanted)
        return answers, x


def test_a_network_that_completes_clouds_gives_what_its_definition_gives() -> None:
    draw = torch.Generator().manual_seed(3)
    whole = torch.randint(-4, 5, (40, 3), generator=draw).unique(dim=0)
    batch = torch.arange(len(whole)) % 2
    grid = grid_of_cells(whole[::2], batch[::2], 3)  # the third cloud is empty
    target = grid_of_cells(whole, batch, 3)
    features = torch.randn(grid.rows, 3, generator=draw).requires_grad_()
    plain = Completion(grid.coords.long())
    expected, wanted, sites = plain(features, target.coords.long())
    network = Ours().eval()
    order = {name: f"{name}.bn" for name, m in network.named_modules() if hasattr(m, "momentum")}
    load_state(network, plain.state, MINKOWSKI, order)
    found, y = network(
        pcnn.SparseTensor(features, grid), pcnn.SparseTensor(torch.ones(target.rows, 1), target)
    )
    assert torch.equal(y.coords.long(), sites)
    assert len(found[0]) < len(y) < len(found[1])
    ours, theirs = [*found, y.features], [*expected, wanted]
    for results in (ours, theirs):
        total = sum(answer.square().sum() for answer in results)
        results += torch.autograd.grad(total, features)
    for own, other in zip(ours, theirs, strict=True):
        assert float((own - other).detach().abs().max() / other.detach().abs().max()) < 1e-5

"""Rooms and drives in one training: shares, units, names, and figures by source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pcnn.datamodules import PairSource, RegistrationDataModule
from pcnn.datasets.registration import KITTISets, PairAugmentation, ThreeDMatchSets
from pcnn.datasets.registration.placed_pairs import MixedPairs
from pcnn.datasets.registration.sensors import Sparser
from pcnn.errors import UserError
from pcnn.metrics.registration import PairResult, validation_protocol
from pcnn.tasks.registration import figures, named_figures
from tests.datasets.registration.training_sets import write_drive, write_predator

AUGMENT = PairAugmentation(rotation=40.0, sensors=(Sparser((300, 900)),))


@pytest.fixture
def data(tmp_path: Path) -> RegistrationDataModule:
    write_predator(tmp_path / "rooms", ("a", "b", "c"))
    for sequence in (0, 6):
        write_drive(tmp_path / "drives", sequence)
    return mixed(tmp_path)


def mixed(root: Path, **options: Any) -> RegistrationDataModule:
    drives = KITTISets(
        root=str(root / "drives"),
        ground_truth="odometry",
        distances=(2.0, 7.0),
        allow_missing=True,
    )
    sources = {
        "rooms": PairSource(ThreeDMatchSets(root=str(root / "rooms")), 0.1, AUGMENT),
        "drives": PairSource(drives, 0.3, AUGMENT),
    }
    settings: dict[str, Any] = {"num_workers": 0, "feature_noise": 0.01, "batch_size": 4}
    return RegistrationDataModule(sources=sources, voxel_size=1.0, **(settings | options))


def test_sources_alternate_in_units_of_their_cells(
    data: RegistrationDataModule, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="after setup"):
        _ = data.source_kind
    data.setup("fit")
    assert data.source_kind == "real"
    assert data.data_root == tmp_path / "rooms"
    train, val = data.build("train"), data.build("val")
    assert isinstance(train, MixedPairs)
    assert isinstance(val, MixedPairs)
    sizes = {name: len(part) for name, part in train.parts.items()}
    assert len(set(sizes.values())) == 2  # one source is the shorter
    assert len(train) == 2 * max(sizes.values())
    samples = [train[0, index] for index in range(len(train))]
    assert [one.name.source_set for one in samples] == ["rooms", "drives"] * max(sizes.values())
    # a pair that comes again is changed in another way
    shorter = min(sizes, key=lambda name: sizes[name])
    first = list(sizes).index(shorter)
    one, again = samples[first], samples[first + 2 * sizes[shorter]]
    assert one.name == again.name
    assert not torch.equal(one.transform, again.transform)
    # the same again, and another in the next epoch
    assert torch.equal(train[0, 1].source.features, samples[1].source.features)
    assert not torch.equal(train[1, 1].transform, samples[1].transform)
    # every pair once in validation, as a module of its own source has it, in cells
    assert len(val) == sum(map(len, val.parts.values()))
    own = RegistrationDataModule(ThreeDMatchSets(root=str(tmp_path / "rooms")), voxel_size=0.1)
    alone = own.build("val")
    assert alone is not None
    single, joined = alone[0], val[0]
    assert joined.name.scene == f"rooms::{single.name.scene}"
    torch.testing.assert_close(
        joined.source.features[:, :3], single.source.features[:, :3] / 0.1, atol=1e-4, rtol=1e-5
    )
    expected = single.transform.clone()
    expected[:3, 3] /= 0.1
    torch.testing.assert_close(joined.transform, expected)
    with pytest.raises(IndexError):
        train[0, len(train)]


def test_a_resumed_stream_goes_on_with_the_same_pairs(
    data: RegistrationDataModule, tmp_path: Path
) -> None:
    def read(module: RegistrationDataModule, number: int) -> list[tuple[Any, ...]]:
        found = []
        for batch in module.train_dataloader():
            bits = float(batch.source_places.double().sum())
            found.append((batch.names, len(batch.source_places), bits))
            if len(found) == number:
                return found
        return found

    data.setup("fit")
    whole = read(data, 5)  # those of an epoch at most
    assert len(whole) > 1
    names = {name.source_set for batch in whole for name in batch[0]}
    assert names == {"rooms", "drives"}
    other = mixed(tmp_path)
    other.setup("fit")
    sampler, dataset = other.train_sampler(), other.build("train")
    assert dataset is not None
    keys = next(iter(sampler.batches(len(whole) - 1)))
    batch = other.collate()([dataset[key] for key in keys])
    assert (batch.names, len(batch.source_places)) == whole[-1][:2]
    assert float(batch.source_places.double().sum()) == whole[-1][2]


def test_what_is_refused(data: RegistrationDataModule) -> None:
    with pytest.raises(UserError, match="dataset=threedmatch"):
        data.pairs("test")
    with pytest.raises(ValueError, match="source"):
        RegistrationDataModule(voxel_size=1.0)
    growing = PairAugmentation(rotation_growth=((0.0, 10.0),))
    source = PairSource(KITTISets(), 0.3, growing)
    with pytest.raises(ValueError, match="rotation_growth"):
        RegistrationDataModule(sources={"drives": source}, voxel_size=1.0)


def test_figures_of_every_source_by_itself() -> None:
    rules = validation_protocol("cells")
    assert rules.benchmark == "cells"
    rooms = [PairResult("rooms::a", 0, n, 1.0, 1.0, inlier_ratio=0.5, loss=1.0) for n in range(2)]
    drives = [PairResult("drives::00", 0, 1, 90.0, 50.0, inlier_ratio=0.01, loss=3.0)]
    found = named_figures("val", [*rooms, *drives], rules)
    assert found["val/rooms/rr"] == 1.0
    assert found["val/drives/rr"] == 0.0
    assert found["val/rr"] == pytest.approx(2 / 3)
    assert found["val/drives/loss"] == 3.0
    plain = [PairResult("a", 0, 1, 1.0, 1.0, inlier_ratio=0.5, loss=1.0)]
    same = {f"val/{name}": value for name, value in figures(plain, rules).items()}
    assert named_figures("val", plain, rules) == same

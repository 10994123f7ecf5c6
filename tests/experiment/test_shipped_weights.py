"""Weights that come with the package are whole, small, and have a card that says what they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig

from pcnn.checkpoints import RunCheckpoint
from pcnn.errors import ConfigError
from pcnn.experiment import build, registration
from pcnn.experiment.descriptors import VERIFIED, of_checkpoint
from pcnn.experiment.predict import predict
from pcnn.experiment.predictor import Predictor
from pcnn.experiment.run import completed
from pcnn.experiment.run_config import checked, data_module
from pcnn.experiment.stored_options import keys_of, with_stored_options
from pcnn.experiment.weights import SHIPPED, catalogue, weights_file
from pcnn.registration.verifier import shipped_verifier
from tests.experiment.sweep import CONF, composed

#: Cards of the weights, by name.
CARDS = dict(
    re.findall(
        r"^### (\w+)\n(.*?)(?=^##)",
        (Path(__file__).parents[2] / "docs/models.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
)
MOST = 20 * 2**20  # bytes of a file


def test_weights_and_cards_belong_together() -> None:
    named = {*VERIFIED, "seg_rooms", "seg_streets", "seg_aerial"}
    there = {path.stem for path in SHIPPED.glob("*.safetensors")}
    assert there <= named, "a file that no place stands for"
    assert set(CARDS) == there == set(catalogue())
    for stem in there:
        path, card = SHIPPED / f"{stem}.safetensors", CARDS[stem]
        assert path.stat().st_size < MOST
        found = RunCheckpoint.read(path)
        facts, entry = found.content["pcnn_export"], catalogue()[stem]
        assert weights_file(entry.name) == path
        assert (entry.task, entry.source) == (facts["task"], facts["source"])
        assert facts["revision"]
        assert facts["revision"] in card
        assert str(facts["steps"]) in card
        if facts["source"] != "real":
            assert "simulated" in card.lower()
        if entry.task == "segmentation":
            assert stem.startswith("seg_")
            predictor = Predictor.load(path, torch.device("cpu"))
            assert predictor.class_names == entry.classes
            assert predictor.temperature != 1, "pcnn export --temperature"
            given = {name: np.ones(300) for name in predictor.reading.channels or ()}
            points = np.random.default_rng(0).uniform(0, 3, (300, 3))
            assert predict(points, path, channels=given).confidence.min() > 0
            continue
        assert (facts["task"], facts["name"]) == ("registration", stem)
        (described,) = of_checkpoint(path)([torch.rand(200, 3) * 2])
        assert bool(torch.isfinite(described.features).all())


def evaluated(name: str, *own: str) -> DictConfig:
    """The configuration of an evaluation of shipped weights."""
    words = with_stored_options([f"ckpt_path={name}", *own], CONF)
    cfg = composed(*words, name="eval")
    cfg.ckpt_path = str(weights_file(name))
    return checked(completed(cfg, keys_of(words)))


@pytest.mark.parametrize("name", catalogue())
def test_their_configurations_are_evaluated_today(name: str) -> None:
    real = evaluated(name, "dataset.root=mine")
    data_module(real)
    if name != "seg_aerial":  # which is of clouds of one's own
        data_module(evaluated(name))
        # all of the real data of a user, not what a simulation was cut down to
        usual = composed(f"dataset={real.dataset.name}").dataset
        for key in {"source", "limit_val", "test_sequences", "test_areas"} & usual.keys():
            assert real.dataset[key] == usual[key]
    if name == "seg_streets":
        assert evaluated(name, "dataset.test_sequences=[3]").dataset.test_sequences == [3]
        given = evaluated(name, "dataset.root=mine", "dataset.test_sequences=[3]").dataset
        assert (given.test_sequences, given.val_sequences) == ([3], [])


def test_channels_that_do_not_fit_are_refused_before_data_are_made(tmp_path: Path) -> None:
    cfg = evaluated("seg_streets", "dataset=s3dis", f"dataset.data_dir={tmp_path}")
    with pytest.raises(ConfigError, match=r"'intensity'.*'red'"):
        build.data(cfg)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", VERIFIED)
def test_an_evaluation_chooses_by_the_verifier_of_the_network(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registration, "trained_descriptor", lambda *_: None)
    monkeypatch.setattr(registration, "report_pairs", lambda *given: given[-1])
    given: Any = (None, tmp_path, None, weights_file(name), torch.device("cpu"))
    assert registration.evaluate_trained(*given) == shipped_verifier(name)

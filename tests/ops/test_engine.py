import pytest
import torch

from pcnn.dataflows import Reference
from pcnn.maps import BruteForce
from pcnn.ops import ENGINES, Engine, resolve


def test_engines_by_name_and_by_object() -> None:
    own = Engine("own", BruteForce(), Reference())
    assert resolve(own) is own
    assert resolve(None) is ENGINES["auto"]
    assert resolve("reference").deterministic_on(torch.device("cpu"))
    assert {name: engine.name for name, engine in ENGINES.items()} == {n: n for n in ENGINES}


def test_an_unknown_engine_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="there are auto, reference"):
        resolve("warp")

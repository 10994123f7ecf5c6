import pytest
import torch

from pcnn.dataflows import Reference
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.maps import BruteForce
from pcnn.ops import ENGINES, Engine, resolve
from pcnn.ops.engine import check_served


def test_engines_by_name_and_by_object() -> None:
    own = Engine("own", BruteForce(), Reference())
    assert resolve(own) is own
    assert resolve(None) is ENGINES["auto"]
    assert resolve("reference").deterministic_on(torch.device("cpu"))
    assert {name: engine.name for name, engine in ENGINES.items()} == {n: n for n in ENGINES}


def test_a_deterministic_engine_is_the_same_one_without_atomics() -> None:
    auto = resolve(None, deterministic=True)
    assert auto.name == "auto"
    assert auto.builder == ENGINES["auto"].builder
    for kind in ("cpu", "cuda"):
        assert auto.deterministic_on(torch.device(kind))
    for name in ("reference", "torchsparse", "minuet", "brute_force"):
        assert resolve(name, deterministic=True) is ENGINES[name]
        assert ENGINES[name].deterministic_on(torch.device("cuda"))
    assert not ENGINES["auto"].deterministic_on(torch.device("cuda"))


def test_an_engine_that_adds_by_atomics_refuses_to_be_deterministic() -> None:
    with pytest.raises(ValueError, match=r"'spira' adds by atomics.* deterministic are auto, ref"):
        resolve("spira", deterministic=True)
    own = Engine("own", BruteForce(), WeightStationary())
    assert resolve(own) is own
    with pytest.raises(ValueError, match="'own' adds by atomics"):
        resolve(own, deterministic=True)


def test_an_unknown_engine_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="there are auto, reference"):
        resolve("warp")


def test_engines_made_of_device_kernels_refuse_a_cpu() -> None:
    cpu = torch.device("cpu")
    for name, engine in ENGINES.items():
        if name in ("torchsparse", "minuet", "spira"):
            with pytest.raises(ValueError, match=r"device is cpu; there serve auto, reference"):
                check_served(engine, cpu)
        else:
            check_served(engine, cpu)

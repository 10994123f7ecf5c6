from dataclasses import replace

import pytest
import torch

from pcnn.dataflows import Blocked, OutputStationary, Reference
from pcnn.maps import BruteForce, MapBuilder
from pcnn.ops import ENGINES, Engine, resolve
from pcnn.ops.conformance import random_map
from pcnn.ops.engine import check_served
from pcnn.ops.engine_settings import setting_names
from tests.engines import BUILDERS


def test_engines_by_name_and_by_object() -> None:
    own = Engine("own", BruteForce(), Reference())
    assert resolve(own) is own
    assert resolve(None) is ENGINES["auto"]
    assert resolve("reference").dataflows(torch.device("cpu"))[0].deterministic
    assert {name: engine.name for name, engine in ENGINES.items()} == {n: n for n in ENGINES}


def test_a_deterministic_engine_is_the_same_one_without_atomics() -> None:
    auto = resolve(None, deterministic=True)
    assert auto.name == "auto"
    assert auto.builder == ENGINES["auto"].builder
    for kind in ("cpu", "cuda"):
        assert auto.dataflows(torch.device(kind))[0].deterministic
    for name in ("reference", "torchsparse", "minuet", "brute_force"):
        assert resolve(name, deterministic=True) == replace(ENGINES[name], reproducible=True)
        assert ENGINES[name].dataflows(torch.device("cuda"))[0].deterministic
    assert not ENGINES["auto"].dataflows(torch.device("cuda"))[0].deterministic


def test_every_engine_says_which_geometries_it_serves() -> None:
    served = {
        geometry: {name for name, engine in ENGINES.items() if engine.serves_geometry(geometry)}
        for geometry in ("voxel", "point")
    }
    assert served["point"] == {"auto", "reference", "pointcnnpp"}
    assert served["voxel"] == set(ENGINES) - {"pointcnnpp"}
    cpu = torch.device("cpu")
    for geometry, names in served.items():
        for name, engine in ENGINES.items():
            if name in names and engine.serves(cpu):
                check_served(engine, cpu, geometry)
            elif name not in names:
                with pytest.raises(ValueError, match=f"{name!r} does not serve .* serve auto, ref"):
                    check_served(engine, cpu, geometry)
    with pytest.raises(ValueError, match="'pointcnnpp' adds by atomics"):
        resolve("pointcnnpp", deterministic=True)


@pytest.mark.parametrize("deterministic", [False, True])
def test_auto_chooses_by_device_and_map(deterministic: bool) -> None:
    auto = resolve("auto", deterministic)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    unique, several = random_map(6, 9, 8, 20), random_map(6, 9, 8, 20)
    unique = replace(unique, edges=replace(unique.edges, one_per_slot=(True, True)))
    for side in (several, several.transpose()):
        assert auto.choose(side, cpu) == Blocked()
        chosen = auto.choose(side, cuda)
        assert chosen.needs == OutputStationary().needs
        assert chosen.deterministic
    for side in (unique, unique.transpose()):
        assert auto.choose(side, cpu) == Blocked()
        assert auto.choose(side, cuda) == auto.dataflows(cuda)[0]
    huge = replace(several, edges=replace(several.edges, rows=(1 << 30, 9)))
    assert auto.choose(huge, cuda).needs == (("steps",) if deterministic else ("pairs", "counts"))
    own = Engine("own", BruteForce(), Reference())
    assert own.choose(several, cuda) == Reference()


#: Other values of the settings of papers, where one more than the usual one will not do.
OTHER_VALUES = {
    "epsilon": 0.5,
    "grouping": "fixed",
    "search": "grid",
    "threshold": 7,
    "t": 3,
    "key_bits": 32,
    "sort": "i",
    "source_block": 128,
    "streams": 2,
    "block_in": 16,
    "block_out": 16,
}


@pytest.mark.parametrize(
    "name", [name for name, one in ENGINES.items() if one.dataflow and one.settings]
)
def test_every_setting_of_a_paper_reaches_its_search_or_its_dataflow(name: str) -> None:
    engine = ENGINES[name]
    assert engine.settings is not None
    if name == "torchsparse":
        engine = engine.having(locality=False)  # which takes fused products
    for setting in setting_names(engine.settings):
        usual = getattr(engine.settings, setting)
        other = not usual if isinstance(usual, bool) else OTHER_VALUES.get(setting)
        changed = engine.having(**{setting: (usual or 0) + 1 if other is None else other})
        own, theirs = (engine.builder, engine.dataflow), (changed.builder, changed.dataflow)
        assert own != theirs, setting


@pytest.mark.parametrize("builder", BUILDERS, ids=str)
def test_searches_of_device_kernels_serve_no_cpu(builder: MapBuilder) -> None:
    engine = Engine("own", builder, Reference())
    assert engine.serves(torch.device("cpu")) == (not getattr(builder, "device_only", False))
    assert engine.serves(torch.device("cuda"))

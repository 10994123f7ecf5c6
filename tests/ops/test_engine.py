from dataclasses import replace

import pytest
import torch

from pcnn.dataflows import Blocked, OutputStationary, Reference
from pcnn.maps import BruteForce
from pcnn.ops import Engine, resolve
from tests.random_maps import random_map


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

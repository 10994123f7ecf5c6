import pytest
import torch

from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.nearest import nearest_descriptors
from pcnn.registration.ransac import ransac_batch
from pcnn.registration.settings import RansacSettings
from tests.registration.test_ransac import matches

pytestmark = pytest.mark.gpu


def test_a_batch_on_the_gpu_finds_every_pose() -> None:
    made = [matches(seed, 5000, right=0.05) for seed in range(16)]
    settings = RansacSettings(distance=0.05)
    found = ransac_batch([one[0].cuda() for one in made], [one[1].cuda() for one in made], settings)
    for solution, (_, _, truth) in zip(found, made, strict=True):
        assert float(rotation_error(solution.transform, truth)) < 2
        assert float(translation_error(solution.transform, truth)) < 0.06


def test_tf32_changes_nothing() -> None:
    source, target, _ = matches(0, 2000, right=0.1)
    settings = RansacSettings(distance=0.05)
    plain = ransac_batch([source.cuda()], [target.cuda()], settings)[0]
    torch.backends.cuda.matmul.allow_tf32 = True
    fast = ransac_batch([source.cuda()], [target.cuda()], settings)[0]
    assert torch.equal(plain.transform, fast.transform)


def test_nearest_descriptors_on_the_gpu() -> None:
    query, others = torch.rand(3000, 33), torch.rand(4000, 33)
    _, expected = nearest_descriptors(query, others)
    _, found = nearest_descriptors(query.cuda(), others.cuda())
    assert float((found.cpu() == expected).double().mean()) > 0.999

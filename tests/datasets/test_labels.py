from __future__ import annotations

import numpy as np
import pytest

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.semantic_kitti import SEMANTIC_KITTI, SPVNAS_COMPAT, label_map


def test_official_map():
    assert SEMANTIC_KITTI.num_classes == 19
    assert SEMANTIC_KITTI.class_names[:5] == (
        "car",
        "bicycle",
        "motorcycle",
        "truck",
        "other-vehicle",
    )
    raw = np.array([0, 1, 10, 252, 13, 16, 20, 40, 60, 44, 52, 99, 81, 254, 258, 259, 255])
    train = SEMANTIC_KITTI.encode(raw.astype(np.uint32), "scan")
    expected = [255, 255, 0, 0, 4, 4, 4, 8, 8, 9, 255, 255, 18, 5, 3, 4, 7]
    assert train.tolist() == expected
    assert train.dtype == np.int64
    assert len(SEMANTIC_KITTI.raw_to_train) == 34


def test_spvnas_map_ignores_what_the_official_one_merges():
    differing = {
        raw
        for raw, train in SEMANTIC_KITTI.raw_to_train.items()
        if SPVNAS_COMPAT.raw_to_train[raw] != train
    }
    assert differing == {13, 16, 60, 256, 257}
    assert {SPVNAS_COMPAT.raw_to_train[raw] for raw in differing} == {IGNORE}
    assert SPVNAS_COMPAT.class_names == SEMANTIC_KITTI.class_names


def test_decode_inverts_encode():
    train = np.array([*range(19), IGNORE])
    raw = SEMANTIC_KITTI.decode(train)
    assert raw.dtype == np.uint32
    assert raw[-1] == 0
    assert SEMANTIC_KITTI.encode(raw, "scan").tolist() == train.tolist()


@pytest.mark.parametrize("raw", [2, 100, 260, 65535])
def test_unknown_raw_id_names_file_and_id(raw: int):
    with pytest.raises(ValueError, match=rf"a/b\.label: raw label {raw} \(2 points"):
        SEMANTIC_KITTI.encode(np.array([40, raw, raw], dtype=np.uint32), "a/b.label")


@pytest.mark.parametrize("train", [-1, 19, 256])
def test_decode_refuses_what_is_no_class(train: int):
    with pytest.raises(ValueError, match=str(train)):
        SEMANTIC_KITTI.decode(np.array([0, train]))


def test_unknown_map():
    with pytest.raises(ValueError, match="official, spvnas_compat"):
        label_map("spvnas")

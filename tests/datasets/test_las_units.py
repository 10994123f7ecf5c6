"""Units of length in the headers of LAS files."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest

from pcnn.cli.predictor import doubt_of
from pcnn.datasets.readers.units import declared_unit, unit_of_wkt
from tests.datasets.las_files import write_las

FOOT = 1200 / 3937
WKT = (
    'PROJCS["NAD83 / Ohio North (ftUS)",GEOGCS["NAD83",DATUM["NAD83",SPHEROID["GRS 1980",6378137,'
    '298.257,AUTHORITY["EPSG","7019"]]],UNIT["degree",0.0174532925199433]],PARAMETER["x",1968500],'
    'UNIT["US survey foot",0.304800609601219],AXIS["X",EAST]]'
)
WKT2 = (
    'PROJCRS["Ohio",BASEGEOGCRS["NAD83",DATUM["NAD83",ELLIPSOID["GRS 1980",6378137,298.257,'
    'LENGTHUNIT["metre",1]]]],CONVERSION["x",PARAMETER["False easting",600000,'
    'LENGTHUNIT["metre",1]]],CS[Cartesian,2],AXIS["east",east],LENGTHUNIT["foot",0.3048]]'
)
METRES = 'PROJCS["UTM 32N",UNIT["degree",0.0174],PROJECTION["x"],UNIT["metre",1]]'


def keys(unit: int) -> bytes:
    """GeoTIFF keys of a projected system in a unit of EPSG."""
    numbers = [1, 1, 0, 2, 1024, 0, 1, 1, 3076, 0, 1, unit]
    return np.array(numbers, dtype="<u2").tobytes()


def with_record(path: Path, number: int, data: bytes, behind: bool = False) -> Path:
    las = write_las(path)
    record = laspy.VLR("LASF_Projection", number, "", data)
    if behind:
        las.evlrs = laspy.vlrs.vlrlist.VLRList([record])
    else:
        las.vlrs.append(record)
    las.write(path)
    return path


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(
    ("number", "data", "scale"),
    [
        (2112, WKT.encode() + b"\0", FOOT),
        (2112, WKT2.encode(), 0.3048),
        (2112, METRES.encode(), None),
        (2112, b'UNIT["foot"', None),
        (34735, keys(9003), FOOT),
        (34735, keys(9002), 0.3048),
        (34735, keys(9001), None),
        (34735, keys(9002)[:-3], None),
    ],
)
def test_feet_of_a_header_are_told(
    number: int, data: bytes, scale: float | None, behind: bool, tmp_path: Path
) -> None:
    found = declared_unit(with_record(tmp_path / "a.las", number, data, behind))
    assert (found is None) == (scale is None)
    if found is not None:
        assert found.scale == pytest.approx(scale, rel=1e-9)
        assert "foot" in str(found)


def test_files_without_a_declaration_tell_nothing(tmp_path: Path) -> None:
    write_las(tmp_path / "a.las")
    (tmp_path / "b.las").write_bytes(b"LASF" + bytes(40))
    (tmp_path / "c.bin").write_bytes(bytes(32))
    assert [declared_unit(tmp_path / name) for name in ("a.las", "b.las", "c.bin")] == [None] * 3
    assert unit_of_wkt('LOCAL_CS["x",UNIT["degree",0.017]]') is None


def test_a_prediction_names_the_scale_unless_it_is_given(tmp_path: Path) -> None:
    path = with_record(tmp_path / "a.las", 34735, keys(9003))
    places = np.zeros((3, 3))
    said = doubt_of(path, places, 0.1, scale=1.0)
    assert said is not None
    assert "US survey foot" in said
    assert "--scale 0.304800609601" in said
    assert doubt_of(path, places, 0.1, scale=FOOT) is None

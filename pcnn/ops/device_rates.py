"""What devices can do at best, as measured, for lower bounds of times."""

from __future__ import annotations

#: Device memory, bytes read plus bytes written [bytes/s], by a word in the device's name: a copy of
#: gigabytes from device to device.
BANDWIDTH = {"H200": 4.2e12, "H100": 3.0e12}
#: Matrix products [operations/s] by the same word and the dtype: a square product of 8192.
MATRIX_RATE = {
    ("H200", "float16"): 7.2e14,
    ("H200", "bfloat16"): 7.37e14,
    ("H200", "tf32"): 3.82e14,
}


def known_bandwidth(device_name: str) -> float | None:
    """Bandwidth of a device by its name, ``None`` if it is not in `BANDWIDTH`."""
    return next((rate for word, rate in BANDWIDTH.items() if word in device_name), None)


def known_matrix_rate(device_name: str, dtype: str) -> float | None:
    """Rate of matrix products of a device by its name and a dtype, ``None`` if it is unknown."""
    rates = (
        rate for (word, name), rate in MATRIX_RATE.items() if word in device_name and name == dtype
    )
    return next(rates, None)


def convolution_floor_ms(
    device_name: str, dtype: str, multiplications: int, moved_bytes: int
) -> float | None:
    """Lower bound of a convolution: the longer of its arithmetic and its memory traffic [ms].

    Args:
        device_name: as torch gives it.
        dtype: of features and weights.
        multiplications: ``|T| C_in C_out``, of all products together.
        moved_bytes: operands and results, each once.

    Returns:
        ``None`` where one of the two rates is unknown.
    """
    rate, bandwidth = known_matrix_rate(device_name, dtype), known_bandwidth(device_name)
    if rate is None or bandwidth is None:
        return None
    return 1e3 * max(2 * multiplications / rate, moved_bytes / bandwidth)

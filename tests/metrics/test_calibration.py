"""Temperatures and calibration errors of logits whose truth is known."""

from __future__ import annotations

import pytest
import torch

from pcnn.metrics.calibration import calibration_error, fitted_temperature


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_that_logits_were_multiplied_by(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20_000, 5, generator=generator, dtype=torch.float64) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    found = fitted_temperature((logits * temperature).float(), labels)
    assert found == pytest.approx(temperature, rel=0.05)
    right = calibration_error((logits * temperature / found).softmax(1), labels)
    assert right < 0.015
    if temperature != 1.0:
        assert calibration_error((logits * temperature).softmax(1), labels) > 3 * right


def test_errors_by_hand() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.4, 0.6]])
    labels = torch.tensor([0, 1, 1, 0])
    # three bins: 0.9 twice, one right; 0.7 right; 0.6 wrong
    expected = (abs(1.8 - 1) + abs(0.7 - 1) + 0.6) / 4
    assert calibration_error(probabilities, labels, bins=20) == pytest.approx(expected, abs=1e-6)
    assert calibration_error(probabilities[:0], labels[:0]) == 0
    assert fitted_temperature(probabilities[:0], labels[:0]) == 1

"""A checkpoint of one number of devices, read by a training on another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Counters of batches in the state of Lightning's loop over an epoch.
_COUNTED = ("ready", "started", "processed", "completed")


def samples_a_batch(checkpoint: Mapping[str, Any]) -> int | None:
    """Samples of a batch over all devices of the training that wrote a checkpoint."""
    found = next(_loaders(checkpoint), None)
    return None if found is None else found["world"] * found["batch_size"]


def continue_with(checkpoint: Mapping[str, Any], now: Mapping[str, int]) -> str | None:
    """Count a checkpoint's batches as a training with other batches counts them, in place.

    An epoch visits its samples in one order, whatever the devices are: so a place in it is a number
    of samples. The next batch begins with the sample after the last one that was trained on; where
    the new batches do not meet that place, with one up to a batch before it.
    """
    found = next(_loaders(checkpoint), None)
    if found is None or found["samples"] != now["samples"]:
        return None
    before, after = found["world"] * found["batch_size"], now["world"] * now["batch_size"]
    said = (
        f"{found['world']} x {found['batch_size']} samples a batch before, "
        f"{now['world']} x {now['batch_size']} now"
    )
    changed = any(found[name] != now[name] for name in ("world", "batch_size"))
    if before != after:
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (progress["total"], progress["current"]):
            done = counts["processed"]  # the others are one batch away from it, or none
            moved = _batches(done, now["samples"], before, after) - done
            for name in _COUNTED:
                counts[name] += moved
        if progress["current"]["completed"] >= now["samples"] // after:
            # saved behind a whole epoch: another one begins, with no batch accumulated yet
            progress["current"].update(dict.fromkeys(_COUNTED, 0))
    found.update({name: now[name] for name in ("world", "batch_size")})
    return said if changed else None


def _batches(count: int, samples: int, before: int, after: int) -> int:
    """Batches of `after` samples in place of `count` of `before` ones."""
    epoch, offset = divmod(count, samples // before)
    whole = samples // after
    return epoch * whole + min(offset * before // after, whole - 1)


def _loaders(checkpoint: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Fingerprints of the samplers of a training, as its loaders stored them."""
    loop = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
    for state in loop.get("combined_loader", ()):
        if isinstance(state, dict) and {"samples", "world", "batch_size"} <= state.keys():
            yield state

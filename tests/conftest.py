"""Settings of every test: options, skips, seeds, threads, and poisoned uninitialised memory."""

from __future__ import annotations

import copy
import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from importlib.machinery import PathFinder
from itertools import groupby, islice
from pathlib import Path
from typing import Any

# one thread a process: workers of pytest-xdist share the cores, and sums keep one order
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
import typer.testing
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from torch.utils._device import _device_constructors
from torch.utils.data import _utils as loading
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

# a run started in the background of a shell ignores Ctrl-C, and so would all trainings of the tests
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

POISONED = ("pcnn.dataflows", "pcnn.kernels", "pcnn.ops", "pcnn.maps")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data-root",
        default=None,
        help="folder with one folder a data set (kitti/, ...); without it tests marked data skip",
    )
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


@pytest.hookimpl(trylast=True)  # after -m has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {
        "gpu": None if torch.cuda.is_available() else "no CUDA device",
        "multigpu": None if torch.cuda.device_count() > 1 else "fewer than two CUDA devices",
        "data": None if config.getoption("--data-root") else "no --data-root given",
        "slow": None if config.getoption("--slow") else "slow: give --slow",
    }
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1 and not missing["gpu"]:
        items[:] = dealt(items, workers)


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests and modules that stay: collections need not look at them


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Tests in an order whose equal shares, one after another, begin with the long ones.

    pytest-xdist's ``worksteal`` gives every worker one stretch of the list, and those that are done
    the ends of others'. A test that takes minutes must not be met at the end of a stretch; and what
    tests of one file compile and check is kept in their process.
    """
    long = [item for item in items if item.get_closest_marker("long") is not None]
    files = [list(group) for _, group in groupby(long, key=lambda item: item.path)]
    rest = iter([item for item in items if item.get_closest_marker("long") is None])
    found: list[pytest.Item] = []
    for number in range(workers):
        size = (len(items) - len(found)) // (workers - number)
        share = [item for part in files[number::workers] for item in part]
        share += islice(rest, max(0, size - len(share)))
        found += share
    return [*found, *rest]


def absent_package(error: BaseException | None) -> str | None:
    """The third-party package whose absence is behind an error, if that is its cause."""
    while error is not None:
        name = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and name not in ("", "pcnn", "tests"):
            # found by the file system alone: a test may hide a package that is there
            return None if PathFinder.find_spec(name) else name
        error = error.__cause__ or error.__context__
    return None


class Module(pytest.Module):
    """A file of tests that skips where a package that it imports is absent."""

    def _getobj(self) -> Any:
        try:
            return super()._getobj()
        except self.CollectError as error:
            name = absent_package(error.__cause__ or error.__context__)
            if name is None:
                raise
            pytest.skip(f"{name} is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    module: pytest.Module = Module.from_parent(parent, path=module_path)
    return module


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    try:
        return (yield)
    except Exception as error:
        name = absent_package(error)
        if name is None:
            raise
        pytest.skip(f"{name} is not installed")


@pytest.fixture
def data_root(request: pytest.FixtureRequest) -> Path:
    """Folder given by --data-root; for tests marked data only."""
    if request.node.get_closest_marker("data") is None:
        raise RuntimeError("a test that asks for data_root carries the marker data")
    root = Path(request.config.getoption("--data-root")).expanduser().resolve()
    if not root.is_dir():
        raise FileNotFoundError(f"--data-root {root} is not a folder")
    return root


@pytest.fixture(autouse=True)
def reproducible() -> Iterator[None]:
    """Fixed seed, one thread, full fp32 products."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    yield
    if torch.are_deterministic_algorithms_enabled():  # the call imports torch._inductor
        torch.use_deterministic_algorithms(False)


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill with NaN, or with the most negative integer, so that an unwritten value shows."""
    with torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor.fill_(float("nan"))
        if tensor.dtype == torch.bool:
            return tensor.fill_(True)
        return tensor.fill_(torch.iinfo(tensor.dtype).min)


def poisoning(allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same allocation, poisoned when the caller belongs to the rooms that write results."""

    def allocate_poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = allocate(*args, **kwargs)
        if torch.compiler.is_compiling():
            return tensor
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return poison(tensor) if caller.startswith(POISONED) else tensor

    return allocate_poisoned


def parsed_once(
    load: Callable[[ConfigSource, str], ConfigResult],
) -> Callable[[ConfigSource, str], ConfigResult]:
    """The same reader of a configuration's files, which parses every state of a file once."""
    parsed: dict[tuple[object, ...], ConfigResult] = {}

    def load_parsed(source: ConfigSource, config_path: str) -> ConfigResult:
        file = Path(source.path, source._normalize_file_name(config_path))
        if not file.is_file():
            return load(source, config_path)  # it says what is wrong
        state = file.stat()
        key = (source.provider, file, state.st_ino, state.st_mtime_ns, state.st_size)
        if key not in parsed:
            parsed[key] = load(source, config_path)
        return copy.deepcopy(parsed[key])  # composing changes it

    return load_parsed


# tests and the runs that they fork compose a thousand configurations of some twenty files each
Plugins.instance()  # imports the class that reads files, and registers it
CONFIG_FILES = SourcesRegistry.instance().resolve("file")
CONFIG_FILES.load_config = parsed_once(CONFIG_FILES.load_config)

# typer would build all commands of a program again for every command line
typer.testing._get_command = cache(typer.testing._get_command)

# torch looks every 5 s whether a loader's process is alive, and gives it as long to end
loading.MP_STATUS_CHECK_INTERVAL = 0.5
_MultiProcessingDataLoaderIter._try_get_data.__defaults__ = (0.5,)

# torch notes by identity which functions obey `with torch.device(...)`: before any is replaced
_device_constructors()


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uninitialised memory holds NaN in the rooms that write results."""
    monkeypatch.setattr(torch, "empty", poisoning(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poisoning(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoning(torch.Tensor.new_empty))


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA kernels serve CPU tensors, compiled by the C++ compiler (tests/kernels/emulator.h)."""
    from pcnn.kernels import cuda
    from tests.kernels.emulator import COMPILER, emulated_module

    if COMPILER is None:
        pytest.skip("no C++ compiler to emulate kernels with")
    monkeypatch.setitem(cuda.LOADERS, "cpu", emulated_module)


@pytest.fixture(params=["torch", "emulated"])
def where(request: pytest.FixtureRequest) -> str:
    """By torch's operations, or by device kernels on CPU tensors."""
    if request.param == "emulated":
        request.getfixturevalue("emulated")
    return str(request.param)

"""Data modules by one list of arguments, those of the sets among them."""

import inspect
from typing import Any

from pcnn.datamodules import CloudDataModule
from pcnn.datasets import FolderSets, S3DISSets, SemanticKITTISets


def kitti_module(root: str | None = None, **options: Any) -> CloudDataModule:
    return _made(
        CloudDataModule,
        SemanticKITTISets,
        **{"root": root, "voxel_size": 0.1, "cache": True} | options,
    )


def s3dis_module(root: str | None = None, **options: Any) -> CloudDataModule:
    return _made(CloudDataModule, S3DISSets, **{"root": root, "voxel_size": 0.05} | options)


def folder_module(root: str, voxel_size: float, **options: Any) -> CloudDataModule:
    return _made(CloudDataModule, FolderSets, root=root, voxel_size=voxel_size, **options)


def _made(module: Any, sets: Any, **options: Any) -> Any:
    of_sets, of_module = (inspect.signature(one).parameters for one in (sets, module))
    unknown = [name for name in options if name not in of_sets and name not in of_module]
    assert not unknown, unknown
    made = sets(**{name: value for name, value in options.items() if name in of_sets})
    return module(made, **{name: value for name, value in options.items() if name in of_module})

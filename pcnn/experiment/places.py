"""The places of objects in a configuration, and what may stand in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name


@dataclass(frozen=True)
class Place:
    """Rules for the object of a node.

    Args:
        name: what is asked for, in words.
        bases: a class must be one of these or inherit from one. They are dotted names: only the
            places that a configuration fills import their packages.
        packages: a target must be one of these dotted names or lie in one; nothing else is
            imported. A class that a package only imports from elsewhere does not count as its own.
        example: a target that serves.
        functions: targets that are functions, by their full names.
        homes: where classes of ``packages`` are really defined, if that is elsewhere.
        inner: arguments that hold nodes themselves, with the names of their places.
    """

    name: str
    bases: tuple[str, ...]
    packages: tuple[str, ...]
    example: str
    functions: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    inner: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        base = self.bases[0]
        return f"{self.name}, a {base.partition('.')[0]} {base.rpartition('.')[2]}"

    def holds(self, found: type) -> bool:
        """True where a class is one of the bases or inherits from one."""
        # by the base itself, not by its name, which any class may take
        return any(resolve_name(base) in found.__mro__ for base in self.bases)


_SCHEDULES = tuple(
    f"pcnn.tasks.schedules.{name}"
    for name in ("constant", "cosine", "exponential", "multi_step", "one_cycle", "poly")
)
_NETWORKS = tuple(
    f"pcnn.models.{name}"
    for name in (
        *("MinkUNet42", "ResNet18", "ResUNetBN2C", "SparseResNet21", "SparseResNetLarge"),
        *("LitePTS", "SpUNet", "sparse_resnet_for"),
    )
)

#: By the group of the configuration, or by the argument that holds such nodes.
PLACES: Mapping[str, Place] = {
    "model": Place(
        "a network or a descriptor",
        (
            "torch.nn.Module",
            "pcnn.registration.descriptor.Descriptor",
            "pcnn.registration.fpfh.FPFH",
        ),
        ("pcnn.models", "pcnn.registration.fpfh"),
        "pcnn.models.MinkUNet42",
        functions=_NETWORKS,
        inner={"backbone": "model"},
    ),
    "task": Place(
        "a task",
        ("lightning.LightningModule",),
        ("pcnn.tasks",),
        "pcnn.tasks.SegmentationTask",
        inner={name: name for name in ("loss", "optimizer", "scheduler")},
    ),
    "loss": Place(
        "a loss",
        ("torch.nn.Module",),
        ("pcnn.losses", "torch.nn"),
        "pcnn.losses.CrossEntropy",
        inner={"losses": "loss"},
    ),
    "optimizer": Place(
        "an optimiser", ("torch.optim.Optimizer",), ("torch.optim",), "torch.optim.AdamW"
    ),
    "scheduler": Place(
        "a schedule",
        ("torch.optim.lr_scheduler.LRScheduler",),
        ("torch.optim.lr_scheduler",),
        "pcnn.tasks.schedules.one_cycle",
        functions=_SCHEDULES,
    ),
    "geometry": Place(
        "a placement",
        (
            "pcnn.datasets.placement.Placement",
            "pcnn.datasets.OnVoxels",
            "pcnn.datasets.OnPoints",
        ),
        ("pcnn.datasets",),
        "pcnn.datasets.OnVoxels",
    ),
    "dataset": Place(
        "a data module",
        ("lightning.LightningDataModule",),
        ("pcnn.datamodules",),
        "pcnn.datamodules.CloudDataModule",
        inner={name: name for name in ("sets", "augment", "geometry")} | {"sources": "source"},
    ),
    "source": Place(
        "a source of pairs",
        ("pcnn.datamodules.mixed_pairs.PairSource",),
        ("pcnn.datamodules",),
        "pcnn.datamodules.PairSource",
        inner={name: name for name in ("sets", "augment")},
    ),
    "sets": Place(
        "the splits of a data set",
        (
            "pcnn.datasets.cloud_sets.CloudSets",
            "pcnn.datasets.registration.pair_sets.PairSets",
            "pcnn.datasets.registration.ThreeDMatchSets",
            "pcnn.datasets.registration.KITTISets",
        ),
        ("pcnn.datasets",),
        "pcnn.datasets.SemanticKITTISets",
    ),
    "augment": Place(
        "an augmentation",
        (
            "pcnn.datasets.transforms.augment.Augmentation",
            "pcnn.datasets.registration.PairAugmentation",
        ),
        ("pcnn.datasets",),
        "pcnn.datasets.transforms.Augmentation",
        inner={name: name for name in ("mix", "pieces", "elastic", "chromatic", "remission")}
        | {"sensors": "sensor"},
    ),
    "sensor": Place(
        "a change of a sensor",
        ("pcnn.datasets.registration.sensors.Sensor",),
        ("pcnn.datasets",),
        "pcnn.datasets.registration.scan_patterns.Beams",
        inner={"sensors": "sensor"},
    ),
    "mix": Place(
        "a mix of scans",
        (
            "pcnn.datasets.transforms.mixes.ScanMix",
            "pcnn.datasets.transforms.mixes.LaserMix",
            "pcnn.datasets.transforms.mixes.PolarMix",
            "pcnn.datasets.transforms.mixes.OneOf",
        ),
        ("pcnn.datasets",),
        "pcnn.datasets.transforms.LaserMix",
        inner={"mixes": "mix"},
    ),
    "pieces": Place(
        "pieces of rooms",
        ("pcnn.datasets.transforms.pieces.Pieces",),
        ("pcnn.datasets",),
        "pcnn.datasets.transforms.Pieces",
    ),
    "elastic": Place(
        "a distortion",
        ("pcnn.datasets.transforms.features.Elastic",),
        ("pcnn.datasets",),
        "pcnn.datasets.transforms.Elastic",
    ),
    "chromatic": Place(
        "a change of colour",
        ("pcnn.datasets.transforms.features.Chromatic",),
        ("pcnn.datasets",),
        "pcnn.datasets.transforms.Chromatic",
    ),
    "remission": Place(
        "a change of remission",
        ("pcnn.datasets.transforms.features.Remission",),
        ("pcnn.datasets",),
        "pcnn.datasets.transforms.Remission",
    ),
    "tta": Place(
        "views", ("pcnn.tasks.EvaluationViews",), ("pcnn.tasks",), "pcnn.tasks.EvaluationViews"
    ),
    "trainer": Place(
        "a trainer",
        ("lightning.Trainer",),
        ("lightning.Trainer", "lightning.pytorch.Trainer"),
        "lightning.Trainer",
        homes=("lightning.pytorch.trainer",),
        inner={name: name for name in ("strategy", "profiler", "plugins")},
    ),
    "strategy": Place(
        "a strategy",
        ("lightning.pytorch.strategies.Strategy",),
        ("lightning.pytorch.strategies",),
        "lightning.pytorch.strategies.DDPStrategy",
        inner=dict.fromkeys(
            ("cluster_environment", "checkpoint_io", "precision_plugin"), "plugins"
        ),
    ),
    "profiler": Place(
        "a profiler",
        ("lightning.pytorch.profilers.Profiler",),
        ("lightning.pytorch.profilers",),
        "lightning.pytorch.profilers.SimpleProfiler",
    ),
    "plugins": Place(
        "a plugin",
        (
            "lightning.pytorch.plugins.Precision",
            "lightning.fabric.plugins.ClusterEnvironment",
            "lightning.fabric.plugins.CheckpointIO",
            "lightning.pytorch.plugins.LayerSync",
        ),
        ("lightning.pytorch.plugins", "lightning.fabric.plugins"),
        "lightning.pytorch.plugins.MixedPrecision",
        inner={"checkpoint_io": "plugins"},
    ),
    "callbacks": Place(
        "a callback",
        ("lightning.pytorch.callbacks.Callback",),
        ("pcnn.callbacks", "lightning.pytorch.callbacks"),
        "pcnn.callbacks.Checkpoint",
    ),
    # others of Lightning's send what they log to a server that the configuration names
    "logger": Place(
        "a logger",
        ("lightning.pytorch.loggers.Logger",),
        (
            "pcnn.loggers",
            "lightning.pytorch.loggers.CSVLogger",
            "lightning.pytorch.loggers.TensorBoardLogger",
        ),
        "lightning.pytorch.loggers.CSVLogger",
        homes=("lightning.pytorch.loggers.csv_logs", "lightning.pytorch.loggers.tensorboard"),
    ),
}

#: Names of earlier versions that checkpoints and run folders hold, and what they are called now.
RENAMED: Mapping[str, str] = {
    "pcnn.datasets.augment.Augmentation": "pcnn.datasets.transforms.Augmentation",
    "pcnn.datasets.colour.Chromatic": "pcnn.datasets.transforms.Chromatic",
    "pcnn.datasets.elastic.Elastic": "pcnn.datasets.transforms.Elastic",
    "pcnn.datasets.mixes.LaserMix": "pcnn.datasets.transforms.LaserMix",
    "pcnn.datasets.mixes.OneOf": "pcnn.datasets.transforms.OneOf",
    "pcnn.datasets.mixes.PolarMix": "pcnn.datasets.transforms.PolarMix",
    "pcnn.datasets.remission.Remission": "pcnn.datasets.transforms.Remission",
    "pcnn.experiment.progress.StepProgress": "pcnn.callbacks.TrainingProgress",
}

#: Data modules of earlier versions, each a module and its sets now.
SPLIT_UP: Mapping[str, tuple[str, str]] = {
    f"pcnn.datamodules.{old}": (f"pcnn.datamodules.{module}", f"pcnn.datasets.{sets}")
    for old, module, sets in (
        ("KITTISegmentation", "CloudDataModule", "SemanticKITTISets"),
        ("S3DISSegmentation", "CloudDataModule", "S3DISSets"),
        ("S3DISClassification", "ClassificationDataModule", "S3DISTypeSets"),
        ("FolderSegmentation", "CloudDataModule", "FolderSets"),
    )
}

"""Examples that the help of every command ends with, by the words of the command."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "doctor": ("pcnn doctor",),
    "predict": (
        "pcnn predict scan.bin --model logs/segmentation/RUN/checkpoints/best.ckpt",
        "pcnn predict SURVEY --model tiles.safetensors --tile 50 --out labels",
    ),
    "view": (
        "pcnn view scan.bin --labels predictions/scan.label --open",
        "pcnn view a.ply b.ply --pose registration/transform.json",
    ),
    "report": (
        "pcnn report logs/segmentation/RUN --open",
        "pcnn report logs/segmentation/RUN logs/segmentation/OTHER --out both.html",
    ),
    "register": (
        "pcnn register a.ply b.ply --icp 0.05",
        "pcnn register a.ply b.ply --model fpfh --voxel-size 0.1 --view",
        "pcnn register a.ply b.ply c.ply d.ply --graph",
    ),
    "describe": ("pcnn describe scan.ply --model fpfh --out scan.npz",),
    "download": ("pcnn download", "pcnn download resunet_streets_voxel"),
    "export": (
        "pcnn export logs/segmentation/RUN/checkpoints/best.ckpt net.safetensors",
        "pcnn export best.ckpt net.safetensors --bits 8",
    ),
    "convert": (
        "pcnn convert init.pt --from torchsparse --model minkunet",
        "pcnn convert init.pt --from torchsparse --model minkunet \\",
        "  --out minkunet.safetensors",
    ),
    "stats": (
        "pcnn stats data/kitti data/simulated/kitti-0-5 --out page.png",
        "pcnn stats scans --voxel 0.1 --voxel 0.2 --limit 100",
    ),
    "tune": (
        "pcnn tune model=minkunet dataset=kitti trainer.precision=16-mixed",
        "pcnn tune model=minkunet dataset=kitti --backward --samples 10",
    ),
    "warmup": ("pcnn warmup semantic_kitti_minkunet trainer.precision=16-mixed",),
    "make-gt": ("pcnn make-gt FOLDER/SCENE --min-overlap 0.3",),
    "kitti-gt": ("pcnn kitti-gt data/kitti --split test",),
    "gain": (
        "pcnn gain POINTS0/pairs.csv POINTS1/pairs.csv \\",
        "  --over VOXELS0/pairs.csv --over VOXELS1/pairs.csv --chart gain.png",
    ),
    "calibrate": (
        "pcnn simulate fragments rooms --scenes 0 --test-scenes 0 --val-scenes 8",
        "pcnn calibrate rooms --out verifier.json --picture reliability.png",
    ),
    "sixfold": ("pcnn sixfold RUN1 RUN2 RUN3 RUN4 RUN5 RUN6 --output sixfold.json",),
    "height-range": ("pcnn height-range SIMULATED REAL --test-sequences 0",),
    "preprocess kitti": (
        "pcnn preprocess kitti data/kitti --voxel-size 0.05 --crop 0",
        "pcnn train model=minkunet dataset.root=data/kitti dataset.voxel_size=0.05 \\",
        "  dataset.crop=null",
    ),
    "preprocess s3dis": ("pcnn preprocess s3dis Stanford3dDataset_v1.2 --out data/s3dis",),
    "preprocess folder": ("pcnn preprocess folder tiles --classes classes.yaml --voxel-size 0.5",),
    "preprocess tiles": ("pcnn preprocess tiles SURVEY tiles --size 50",),
    "simulate kitti": ("pcnn simulate kitti streets --scans 60 --val-scans 4 --seed 1",),
    "simulate fragments": ("pcnn simulate fragments --scenes 40 --fragments 40 --seed 1",),
    "simulate rooms": ("pcnn simulate rooms --rooms 40 --spacing 0.01 --seed 1",),
    "bench mapping": ("pcnn bench mapping --figure spira_fig12 --workload scan.npz",),
    "bench layers": ("pcnn bench layers --engine auto --layers 16:16:3,32:32:3",),
    "bench networks": (
        "pcnn bench networks --engine auto --model minkunet --mode infer \\",
        "  --workload scan.npz",
    ),
    "bench native": ("pcnn bench native --figure fig4 --line native --line voxel",),
    "bench latency": (
        "pcnn bench latency --figure drive --drive FOLDER --voxel-size 0.05 \\",
        "  --model minkunet",
    ),
    "bench data": ("pcnn bench data dataset.root=data/kitti dataset.num_workers=14",),
    "bench solvers": (
        "pcnn bench solvers",
        "pcnn bench solvers --root FOLDER --solver cliques --solver kiss-matcher",
    ),
    "bench step": (
        "pcnn bench step streets_minkunet_quick",
        "pcnn bench step model=minkunet dataset=kitti trainer=cpu --steps 5",
    ),
    "bench papers": (
        "pcnn bench papers --limit 0",
        "pcnn bench papers --paper spira --figure spira_fig8 --workload scan.npz",
    ),
    "bench claims": ("pcnn bench claims --results benchmarks/results",),
    "bench join": ("pcnn bench join a.json b.json --out both.json",),
    "bench charts": ("pcnn bench charts result.json --peers benchmarks/peers/h200.json",),
    "bench compare": ("pcnn bench compare result.json --peers benchmarks/peers/h200.json",),
}

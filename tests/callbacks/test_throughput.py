import time

import torch

from pcnn.callbacks import Throughput
from tests.callbacks.tiny import Data, Task, trainer_for


def test_waiting_is_told_from_moving_and_from_validating(tmp_path):
    class SlowClouds(Data):
        def train_dataloader(self):
            stream = super().train_dataloader()
            stream.collate = lambda rows: (time.sleep(0.03), torch.stack(rows))[1]
            return stream

    class Slow(Task):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            time.sleep(0.06 if self.trainer.training else 0.0)
            return batch

        def validation_step(self, batch, batch_idx):
            time.sleep(0.8)

    speed = Throughput()
    options = {"val_check_interval": 1, "enable_checkpointing": False}
    trainer_for(tmp_path, [speed], max_steps=4, **options).fit(Slow(), SlowClouds())
    step = speed.latest["speed/step_seconds"]
    data, between = (step * speed.latest[f"speed/{name}_share"] for name in ("data", "between"))
    assert data > 0.03
    assert between - data > 0.06
    assert step < 0.7

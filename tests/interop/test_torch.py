"""Trainings in PyTorch log what transformers' own attention maps and hidden states say about the weights of that step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from sinkjax import metrics  # noqa: E402
from sinkjax.errors import SinkjaxError  # noqa: E402
from sinkjax.interop.torch import watch  # noqa: E402

ROWS = np.random.default_rng(0).integers(0, 64, (3, 12))
LENGTHS = np.array([12, 9, 12])


def tiny() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        attention_dropout=0.5, initializer_range=0.3,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def check(logged: dict[str, float], model: Any) -> None:
    """Compare with the model's own maps and hidden states."""
    model.eval()
    mask = torch.arange(12)[None] < torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        out = model.to("cpu")(torch.tensor(ROWS), attention_mask=mask.long(), output_attentions=True, output_hidden_states=True)
    record = metrics.from_tensors(out.attentions, out.hidden_states, LENGTHS)
    rates = metrics.sink_rate(record, per="layer").mean(axis=0)
    np.testing.assert_allclose([logged[f"sinks/rate/{layer}"] for layer in range(2)], rates, atol=1e-6)
    shares = np.asarray(record["attention_received"])[..., 0].mean(axis=(0, 2))
    np.testing.assert_allclose([logged[f"sinks/share/{layer}"] for layer in range(2)], shares, rtol=1e-5)
    spike = np.nanmax(record["resid_max"][:, 1], axis=-1).mean()  # transformers' last one has passed the norm
    np.testing.assert_allclose(logged["sinks/spike/0"], spike, rtol=1e-5)
    np.testing.assert_allclose(logged["sinks/rate"], rates.mean(), atol=1e-6)


def data() -> list[dict[str, Any]]:
    rows = torch.tensor(np.random.default_rng(1).integers(0, 64, (8, 12)))
    return [{"input_ids": row, "labels": row} for row in rows]


def test_the_trainer_of_transformers_logs_every_so_many_steps(tmp_path: Path):
    pytest.importorskip("accelerate")
    args = transformers.TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=2, learning_rate=0.02, report_to=[], use_cpu=True,
        save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(tiny(), args, train_dataset=data())
    watch(trainer, ROWS, LENGTHS, every=2)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "sinks/rate" in entry]
    assert [entry["step"] for entry in logged] == [2, 4]
    assert logged[0]["sinks/share"] != logged[1]["sinks/share"]
    assert trainer.model.training
    check(logged[-1], trainer.model)


def test_lightning_logs_to_its_loggers(tmp_path: Path):
    pl = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.loggers import CSVLogger

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = tiny()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.inner(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 0.02)

    module, logger = Module(), CSVLogger(tmp_path)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(max_steps=4, accelerator="cpu", logger=logger, accumulate_grad_batches=1, **quiet)
    watch(trainer, ROWS, LENGTHS, every=2)
    trainer.fit(module, torch.utils.data.DataLoader(data(), batch_size=2))
    table = pandas.read_csv(Path(logger.log_dir) / "metrics.csv").dropna(subset="sinks/rate")
    assert table["step"].tolist() == [2, 4]
    logged = table.to_dict("records")
    check(logged[-1], module.inner)


def test_wrong_trainers_and_intervals_are_refused():
    with pytest.raises(SinkjaxError, match=r"watch takes a transformers.Trainer or a lightning.Trainer, not 3"):
        watch(3, ROWS)
    with pytest.raises(SinkjaxError, match="every must be a number of steps from 1 on, not 0"):
        watch(3, ROWS, every=0)


def test_a_module_without_a_language_model_is_refused():
    from sinkjax.interop.torch import _Measured

    with pytest.raises(SinkjaxError, match="this Linear contains no causal language model of transformers"):
        _Measured(ROWS, None).of(torch.nn.Linear(2, 2))

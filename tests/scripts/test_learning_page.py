"""The page of edits while learning: the order of events from planted curves, and rows compared with their own baseline."""

from __future__ import annotations

import numpy as np
import xarray

SCRIPT = "learning_page.py"
STEPS = np.arange(0.0, 60, 10)


def training(runs: int = 8) -> xarray.Dataset:
    """Loss falls at step 10, values shrink at 20, activations grow at 30, attention at 40 (in run 0: 50), norms at 50."""

    def curve(at: int, first: float, last: float) -> np.ndarray:
        return np.stack([np.where(STEPS >= at, last, first) for _ in range(runs)])

    def of(dim: str, values: np.ndarray) -> tuple:
        return ("run", "point", dim), np.repeat(values[..., None], 2, axis=-1)

    attention = np.broadcast_to(curve(40, 0.05, 0.35)[..., None, None], (runs, len(STEPS), 2, 3)).copy()
    attention[0, 4] = 0.05
    return xarray.Dataset(
        {
            "step": (("run", "point"), np.broadcast_to(STEPS, (runs, len(STEPS)))),
            "loss": (("run", "point"), curve(10, 6, 3)),
            "received": (("run", "point", "layer", "head"), attention),
            "spike": of("layer", curve(30, 4, 100)),
            "norm_ratio": of("depth", curve(50, 1, 9)),
            "value_ratio": of("layer", curve(20, 1, 0.2)),
        },
        {"run": np.arange(runs) + 3},
        {"training": {"config": {"normaliser": "softmax"}}},
    )


def test_events_are_in_the_order_in_which_quantities_pass_their_middle(script) -> None:
    found = script["events"](training())
    assert [steps[1] for steps in found.values()] == [10, 20, 30, 40, 50]
    assert found["attention to the first token"][0] == 50
    table, numbers = script["of_order"](training())
    assert numbers["seeds"] == 8
    assert ["attention to the first token", "41 [38, 44]", "41 [38, 44]"] in table.lines
    assert numbers["values_linear"] == "21 [18, 24]"
    assert [numbers[f"{name}_word"] for name in ("values", "activation")] == ["it is second on both scales"] * 2


def test_whether_attention_is_later_is_said_of_both_scales(script) -> None:
    """Values that fall by half at step 20 and to a hundredth at 50: their logarithm is halfway later than attention."""
    data = training()
    data["value_ratio"] = data["value_ratio"] * 0 + np.array([1, 1, 0.5, 0.5, 0.5, 0.01])[:, None]
    data["received"][0, 4] = 0.35
    data["spike"] = data["received"].mean("head") + 1
    found = [
        script["apart"]("x", name, *(script["events"](data, scale) for scale in (np.array, np.log)))["x_word"]
        for name in (script["VALUES"], script["ACTIVATION"])
    ]
    assert found == ["an order is shown on one scale only", "no order is shown"]


def test_a_row_is_compared_with_the_row_of_its_own_table(script) -> None:
    """`released` fine-tunes a model, so the baseline of the queue is not what it is compared with."""
    assert script["PLAIN"]["released"] in script["learning_rows"]()
    line = script["all_tables"].__globals__["line"]
    data = {"released/plain": training(), "released/hidden": training()}
    for row in data.values():
        row.attrs["training"] = {"config": {"normaliser": "softmax"}}
        row["sink"] = (("run", "point", "key"), np.zeros((8, len(STEPS), 5)))
        row["outcome"] = ("run", ["all steps"] * 8)
    cells = line("released/hidden", {}, data, "released/plain")
    assert cells[5] == "0.000 [0.000, 0.000]"
    assert line("released/plain", {}, data, "released/plain")[5] == ""


def course(*values: float) -> xarray.Dataset:
    """Eight seeds with the same attention to the first token at each step, and no sink elsewhere."""
    data = training()
    data["received"] = (("run", "point", "layer", "head"), np.broadcast_to(np.array(values)[:, None, None], (8, 6, 2, 3)))
    data["sink"] = (("run", "point", "key"), np.zeros((8, len(STEPS), 5)))
    data["outcome"] = ("run", ["all steps"] * 8)
    return data


def test_a_sink_that_was_hidden_is_compared_after_as_many_steps_of_sight(script, monkeypatch) -> None:
    monkeypatch.setitem(script["rise"].__globals__, "LATE", 20)
    data = {script["BASELINE"]: course(0, 0.1, 0.2, 0.35, 0.4, 0.5), "hidden/until-2000": course(0, 0, 0, 0.1, 0.15, 0.2)}
    numbers = script["of_hidden"](data, until=20)
    assert numbers["seen"] == 30
    assert (numbers["late"], numbers["plain"]) == ("0.200 [0.200, 0.200]", "0.350 [0.350, 0.350]")
    assert numbers["hidden_rise"] == "0.100 [0.100, 0.100]"
    assert (numbers["came"], numbers["others"], numbers["hidden_seeds"]) == (0, 8, 8)


def test_half_of_what_was_lost_is_counted_from_the_release(script) -> None:
    data = {"released/hidden": course(0.3, 0, 0, 0.1, 0.2, 0.25), "released/plain": course(*[0.3] * 6)}
    for each in data.values():
        each["step"] = each["step"].copy(data=np.broadcast_to([0.0, 10, 20, 30, 35, 40], (8, 6)))
    assert script["of_released"](data)["back"] == "15 [15, 15]"


def test_rows_whose_sink_still_grows_at_the_end_are_named(script, monkeypatch) -> None:
    """One run of the flat row rises too, within the interval."""
    flat, rising = training(), training()
    rising["received"][:, -1] += np.linspace(0.1, 0.2, 8)[:, None, None]
    data = {"optimisers/adamw": rising, "optimisers/sgd": flat, "optimisers/muon": rising, "optimisers/tanh": rising}
    monkeypatch.setitem(script["rise"].__globals__, "LATE", 10)
    assert script["rising"](data) == "Muon and DynamicTanh"
    assert script["rising"]({"optimisers/sgd": flat}) == "no other row"


def test_the_kurtosis_of_seeds_that_were_trained_again_is_read_at_the_steps_of_the_row(script) -> None:
    row, again = training(), training(3)
    steps = np.arange(0.0, 55, 5)
    again = again.isel(point=[0]).assign(
        step=(("run", "late"), np.broadcast_to(steps, (3, 11))),
        kurtosis=(("run", "late", "layer"), np.repeat(steps[None, :, None], 3, axis=0).repeat(2, axis=2)),
    )
    found = script["with_kurtosis"](
        row, again.drop_vars([name for name in again if "point" in again[name].dims]).rename(late="point")
    )
    np.testing.assert_array_equal(found["kurtosis"][0, :, 0], STEPS)
    assert np.isnan(found["kurtosis"][3:]).all()
    assert found.sizes == row.sizes


def test_a_run_on_another_device_is_compared_with_its_own_seed(script, monkeypatch) -> None:
    data = {"optimisers/muon": course(0, 0, 0, 0, 0.1, 0.2), "optimisers/sgd": course(0, 0, 0, 0, 0.1, 0.3)}
    data["optimisers/muon"]["received"] = data["optimisers/muon"]["received"] + 0
    data["optimisers/muon"]["received"][1, -1] = 0.5
    again = {row: course(0, 0, 0, 0, 0.1, 0.45).isel(run=[1]) for row in data}
    again["optimisers/sgd"]["spike"] = again["optimisers/sgd"]["spike"] * 2
    for name, value in {"learning": lambda: [(row, 4) for row in data], "on_gpu": lambda row, seed: True}.items():
        monkeypatch.setitem(script["of_devices"].__globals__, name, value)
    numbers = script["of_devices"](data, again)
    assert numbers["listed"] == "Muon (1), SGD with momentum (1)"
    assert (numbers["first_gap"], numbers["repeated"], numbers["largest_gap"]) == ("0.050", 2, "0.150")
    assert (numbers["low_ratio"], numbers["high_ratio"]) == ("1.00", "2.00")

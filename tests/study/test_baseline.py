"""What a study knows of the unedited model: measured once for each model, prompts and probe of a run, without overflow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

from sinkjax.analysis.estimates import Absent
from sinkjax.study import largest_activation
from sinkjax.study.lab import Lab, finite


def stored(*sizes: list[float]) -> xarray.Dataset:
    """The largest |h| of some prompts at one position and each depth; infinite: overflowed."""
    values = np.array(sizes)[None]
    return xarray.Dataset(
        {
            "resid_max": (("edit", "prompt", "depth", "position"), values[..., None]),
            "non_finite": (("edit", "prompt", "depth"), ~np.isfinite(values)),
        }
    )


def onset(data: xarray.Dataset, prompts: int) -> int:
    """The layer in which an activation forms in stored prompts, as a study asks for it."""
    given: Any = SimpleNamespace(layers=data.sizes["depth"] - 1)
    run: Any = SimpleNamespace(data=lambda probe: data.isel(prompt=slice(prompts)))
    lab = Lab(given, SimpleNamespace(), None, unedited=run)
    found = lab.onset("forms", lambda layers: largest_activation(0, layers))
    assert lab.values == {"forms": found}
    return found


INF = np.inf


@pytest.mark.parametrize(
    ("sizes", "layer"),
    [
        ([[9, 1, 1, 9, 9]], 2),  # the embedding is no layer
        ([[1, 1, 5, 10, 9]], 2),  # half of the largest is not above half
        ([[1, 1, 6, 10, 9]], 1),
        ([[1, 1, 1, 8, 9], [1, 9, 8, 8, 9]], 0),  # by the mean over prompts
        ([[1, 0, 0, 0, 0]], 3),  # formed in no layer
        ([[1, INF, 1, 1, 1], [1, 1, 9, 9, 9]], 1),  # a prompt that overflowed counts for nothing
    ],
)
def test_an_activation_forms_in_the_first_layer_above_half_of_its_largest(sizes, layer):
    assert onset(stored(*sizes), len(sizes)) == layer


def test_nothing_is_known_where_every_prompt_overflows():
    broken, sound = [1, 1, INF], [1, 1, 9.0]
    with pytest.raises(Absent, match="every prompt overflows"):
        onset(stored(broken, sound), 1)
    kept = finite(stored(broken, sound, broken))
    np.testing.assert_array_equal(kept["resid_max"].values[0, :, :, 0], [sound])
    whole = stored(sound, sound)
    assert finite(whole).identical(whole)
    assert finite(whole.drop_vars("non_finite")).identical(whole.drop_vars("non_finite"))

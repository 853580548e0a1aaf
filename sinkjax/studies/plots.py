"""Further figures that studies share: heat maps over two choices, one measure against another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinkjax.studies.figures import Figure, drawn
from sinkjax.studies.study import Measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from sinkjax.studies.results import Results


def against(
    name: str, x: Measure, y: Measure, clouds: Mapping[str, tuple[str, str]], caption: str, log_y: bool = False
) -> Figure:
    """One measure against another: a dot for the mean of each condition.

    Args:
        name, caption: As for `drawn`.
        x, y: The measures.
        clouds: Name in the legend -> (store, series) of the conditions; one without conditions is left out.
        log_y: Whether the y axis is logarithmic.

    Returns:
        The figure, for `Study.figures`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures.scatter import Cloud, scatter
        from sinkjax.report.figures.style import reach

        found = []
        for title, (store, series) in clouds.items():
            rows = [row for row, condition in enumerate(results.conditions(store)) if condition.series == series]
            if rows:
                found.append(Cloud(title, *(results.values(measure, store)[rows].mean(axis=1) for measure in (x, y))))
        top = 1.05 * max(reach(x.name), *(float(cloud.x.max()) for cloud in found))
        return scatter({"": found}, x.name, y.name, log="y" if log_y else False, limits=((-0.03 * top, top), None))

    return drawn(name, picture, caption, bands=False)

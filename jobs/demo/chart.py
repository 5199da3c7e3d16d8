"""The due load of a year as a picture: weeks across, hours of the day down."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

from jobs.demo.flights import NEW_YORK

mpl.use("Agg")

from matplotlib import pyplot as plt


def load(due: pd.Series) -> pd.DataFrame:
    """Messages due by hour of the day (rows, 0 to 23, New York time) and week (columns, the Monday it starts on)."""
    local = due.dt.tz_convert(NEW_YORK).dt.tz_localize(None)
    week = local.dt.normalize() - pd.to_timedelta(local.dt.dayofweek, unit="D")
    counts = pd.crosstab(local.dt.hour, week)
    weeks = pd.date_range(week.min(), week.max(), freq="7D")
    return counts.reindex(index=range(24), columns=weeks, fill_value=0)


def draw(counts: pd.DataFrame, file: Path) -> None:
    """Write the picture as PNG."""
    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    image = axes.imshow(counts.to_numpy(), aspect="auto", origin="lower", cmap="viridis")
    marks = list(range(0, counts.shape[1], 4))
    axes.set_xticks(marks, [f"{counts.columns[mark]:%d %b}" for mark in marks], rotation=45)
    axes.set(xlabel="week", ylabel="hour of the day, New York", title="Messages due, flights from New York in 2013")
    figure.colorbar(image, label="messages")
    figure.savefig(file, dpi=110)
    plt.close(figure)

"""The paper's figure 2: trajectories of the converter's output, and recovery against SNR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsl.diagnostics.geometry import Rays
from dsl.extras import require


def geometry(rays: Rays, names: Sequence[str], path: Path) -> None:
    """Draw both panels; `names` are the texts of the tokens.

    The paper projects with t-SNE. Principal components keep straight what is straight and have
    no parameters, so two runs draw the same picture.
    """
    require("matplotlib", extra="figures")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import LogNorm

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    plane, snr = rays.principal_plane(), rays.snr.double()
    for column, name in enumerate(names):
        x, y = plane[:, column].unbind(dim=-1)
        left.plot(x, y, color="#cccccc", linewidth=0.8, zorder=1)
        dots = left.scatter(
            x, y, c=snr, norm=LogNorm(float(snr[0]), float(snr[-1])), s=9, cmap="viridis", zorder=2
        )
        left.annotate(name, (float(x[-1]), float(y[-1])), fontsize=9)
    left.set_xlabel("first principal component")
    left.set_ylabel("second principal component")
    left.set_title("converter output along γ·x, from [MASK]", fontsize=10)
    figure.colorbar(dots, ax=left, label="SNR γ")

    right.plot(snr, rays.recovered, label="top-1 recovery")
    right.plot(snr, rays.target_probability.double().mean(dim=1), label="target probability")
    right.set_xscale("log")
    right.set_xlabel("SNR γ")
    right.set_title(f"mean of {len(names)} tokens", fontsize=10)
    right.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)

"""What all pictures share: where they are drawn, their colours, their legends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from sktifa.exceptions import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "OneAxesDisplay",
    "axes_or_new",
    "legend_beside",
    "looks",
    "new_axes",
]

# Okabe and Ito's colours, told apart by the colour-blind; yellow, faint on white, is
# left out.
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#000000",
)
GREY = "#8C8C8C"
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, BLACK)
_MARKERS = ("o", "^", "s", "D", "v", "P", "X")


def new_axes(
    n_rows: int = 1,
    n_columns: int = 1,
    *,
    width: float = 6.0,
    height: float = 4.0,
    share_y: bool = False,
) -> Any:
    """Make a figure that ``plt.show()`` shows; return its array of axes, two-dim.

    Width and height are inches a panel; `share_y` gives panels one scale.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingPackageError(
            "pictures need matplotlib, which is not installed: pip install "
            "'sktifa[plot]'."
        ) from error
    _, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(width * n_columns, height * n_rows),
        layout="constrained",
        squeeze=False,
        sharey=share_y,
    )
    return axes


def axes_or_new(ax: Axes | None, *, width: float = 6.0, height: float = 4.0) -> Axes:
    """Return the axes given, or those of a new figure."""
    return new_axes(width=width, height=height)[0, 0] if ax is None else ax


class OneAxesDisplay:
    """A picture in one pair of axes."""

    # Inches of a figure of its own.
    width: ClassVar[float] = 6.0
    height: ClassVar[float] = 4.0

    ax_: Axes
    figure_: Figure | SubFigure

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self
        """
        ax = axes_or_new(ax, width=self.width, height=self.height)
        self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def legend_beside(ax: Axes, **options: Any) -> None:
    """Put a legend right of the axes, where it covers nothing, if the figure has room.

    A figure without a layout engine would cut it off: there it goes where it covers
    least.
    """
    if ax.figure.get_layout_engine() is None:
        ax.legend(loc="best", **options)
        return
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(1.02, 1),
        borderaxespad=0,
        frameon=False,
        **options,
    )


def looks(n: int) -> list[tuple[str, str]]:
    """Give each of `n` things its own colour and marker."""
    # Shifted by one every seven things: 49 of them differ.
    return [(_COLOURS[i % 7], _MARKERS[(i + i // 7) % 7]) for i in range(n)]

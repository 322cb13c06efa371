"""Draw the layers of `docs/architecture.md`: python docs/figures/layers.py."""

from html import escape
from pathlib import Path

FILE = Path(__file__).parents[1] / "_static" / "layers.svg"

# From the first imported to the last.
LAYERS = (
    ("errors, checks", "exceptions, checks"),
    ("graph", "graph, frames"),
    ("labels, data sets", "labels, rows, datasets, device"),
    ("tensors", "adjacency, features, kernels"),
    ("information", "propagation, gain, loss weights"),
    ("contrast", "perturbed views, pairs, losses"),
    ("sampling", "walks, neighbours, subgraphs"),
    ("training", "one loop for one model and many"),
    ("prediction", "layer by layer, in bounded memory"),
    ("classifiers", "parameters, fit, predict"),
    ("model selection", "splits, searches"),
    ("people", "diagnostics, displays, cli"),
)
# What happens in a fit, in its order; all but the first in `training`.
ENGINE = (
    ("prepare", "X, y and parameters, in classifiers"),
    ("Problem", "one a model; B of them are a stack"),
    ("source", "the whole graph, or subgraphs"),
    ("encoder", "training, evaluation, views"),
    ("terms", "cross-entropy + contrast + yours"),
    ("Adam", "each model at its own rate"),
)
WIDTH, HEIGHT, GAP = 270, 34, 8
STEP = HEIGHT + GAP
LEFT, RIGHT, TOP = 10, 400, 10
INK, MUTED = "#1f2933", "#52606d"
BLUE, ORANGE = "#d9e8f6", "#fbe5cf"


def box(x, y, name, text, fill):
    """Return a box with a name and what is in it."""
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" '
        f'fill="{fill}"/>'
        f'<text x="{x + 10}" y="{y + 14}" fill="{INK}" font-weight="bold">'
        f"{escape(name)}</text>"
        f'<text x="{x + 10}" y="{y + 28}" fill="{MUTED}">{escape(text)}</text>'
    )


def line(path):
    """Return an arrow along a path."""
    return f'<path d="{path}" stroke="{MUTED}" fill="none" marker-end="url(#tip)"/>'


def draw():
    """Return the picture as SVG."""
    names = [name for name, _ in LAYERS]
    parts = []
    for i, layer in enumerate(LAYERS):
        y = TOP + i * STEP
        parts.append(box(LEFT, y, *layer, BLUE))
        if i:
            parts.append(line(f"M{LEFT + WIDTH / 2} {y - GAP}v{GAP - 2}"))
    middle = TOP + names.index("training") * STEP + HEIGHT / 2
    first = middle - HEIGHT / 2 - 3 * STEP
    for i, stage in enumerate(ENGINE):
        y = first + i * STEP
        parts.append(box(RIGHT, y, *stage, ORANGE if i else BLUE))
        if i:
            parts.append(line(f"M{RIGHT + WIDTH / 2} {y - GAP}v{GAP - 2}"))
    # Batch after batch, epoch after epoch.
    side, last = RIGHT + WIDTH, first + 5 * STEP + HEIGHT / 2
    parts.append(line(f"M{side} {last}h20V{first + 2 * STEP + HEIGHT / 2}h-18"))
    bracket = f"M{RIGHT - 12} {first + STEP}h-8V{first + 6 * STEP - GAP}h8"
    parts.append(f'<path d="{bracket}" stroke="{MUTED}" fill="none"/>')
    parts.append(
        f'<path d="M{LEFT + WIDTH + 4} {middle}H{RIGHT - 20}" stroke="{MUTED}" '
        'fill="none" stroke-dasharray="4 3"/>'
    )
    width, height = side + 30, TOP + len(LAYERS) * STEP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="white"/>'
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" '
        f'markerHeight="6" orient="auto"><path d="M0 0L6 3L0 6z" fill="{MUTED}"/>'
        "</marker></defs>" + "\n".join(parts) + "</svg>\n"
    )


if __name__ == "__main__":
    FILE.write_text(draw())

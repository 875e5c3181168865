"""Figures by their properties: labels with units, finite limits, curves that hold the numbers and can be told apart."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import lgjax
from lgjax import plot
from lgjax.collisions.bounce import Impacts
from lgjax.simulate.contact_rollout import ContactRecord

pytest.importorskip("matplotlib")
TS = np.linspace(0.0, 1.0, 11)
RNG = np.random.default_rng(0)
SAMPLES = RNG.normal(size=(200, 11, 2)) + np.arange(2.0)
HISTORY = np.exp(-RNG.uniform(size=(3, 20)).cumsum(1))
IMPACTS = Impacts(
    np.array([[0.1, 0.4, 0.0], [0.2, 0.0, 0.0]]), np.array([[0, 1, -1], [0, -1, -1]]),
    np.array([[-2.0, -1.0, 0.0], [-3.0, 0.0, 0.0]]), np.array([[4.0, 2.0, 0.0], [6.0, 0.0, 0.0]]),
)  # fmt: skip
STEPS = np.array([0.1, 0.05, 0.025, 0.0125])
ERRORS = {"RK4": 3.0 * STEPS**4, "LIE_EULER": 0.5 * STEPS}
STATISTICS = type("Statistics", (), {
    "probabilities": np.array([0.9, 0.1, 0.5]), "quantiles": np.quantile(SAMPLES, [0.9, 0.1, 0.5], axis=0)
})  # fmt: skip
FORCE = np.abs(RNG.normal(size=(11, 3, 3)))
RECORD = ContactRecord(
    FORCE, 0 * FORCE, RNG.normal(size=(11, 3)), RNG.integers(0, 3, (11, 3)), np.zeros(11), np.zeros((11, 6))
)  # fmt: skip
FIGURES = {
    "contacts": lambda: plot.contact_figure(TS, RECORD, ("left", "right", "tail"), 2),
    "fan": lambda: plot.fan_figure(TS, SAMPLES, ("height", "speed"), "m"),
    "fan of statistics": lambda: plot.fan_figure(TS, STATISTICS, ("height",), "m"),
    "impacts": lambda: plot.impact_figure(IMPACTS),
    "work": lambda: plot.work_precision_figure({"RK4": STEPS, "LIE_EULER": STEPS}, ERRORS),
    "convergence": lambda: plot.convergence_figure(STEPS, ERRORS, {"RK4": 4}),
    "phase": lambda: plot.phase_figure(SAMPLES[:5], SAMPLES[5:10], ("a", "b")),
    "controls": lambda: plot.controls_figure(TS, SAMPLES[0, :10], SAMPLES[1], HISTORY, (-1.0, [1.5, 2.0]), ("a", "b")),
}


@pytest.mark.parametrize("name", FIGURES)
def test_axes_have_labels_units_and_finite_limits(name, tmp_path):
    made = FIGURES[name]()
    assert made.axes
    for axes in made.axes:
        for label, limits in ((axes.get_xlabel(), axes.get_xlim()), (axes.get_ylabel(), axes.get_ylim())):
            assert label
            assert np.all(np.isfinite(limits))
            assert limits[0] < limits[1]
            assert "(" in label or label in ("error", "N m or N", "rad or m", "iteration", "cost - least cost")
    plot.save(made, tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["work", "convergence", "phase", "controls", "contacts"])
def test_curves_differ_in_more_than_their_color(name):
    """So that they can be told apart in grey: by dashes or markers."""
    for axes in FIGURES[name]().axes:
        curves = [line for line in axes.lines if line.get_color() in plot.COLORS]
        looks = [(line.get_linestyle(), line.get_marker()) for line in curves]
        assert len(set(looks)) == min(len(curves), len(plot.DASHES))
        assert all(line.get_linewidth() >= 1.2 for line in curves)


def test_a_fan_shows_the_quantiles():
    """The median as a curve, the bands between the outer pairs; samples that are not finite are left out."""
    broken = np.concatenate([SAMPLES, np.full((3, 11, 2), np.nan)])
    for values in (SAMPLES, broken):
        axes = plot.fan_figure(TS, values, ("height", "speed"), "m").axes[1]
        np.testing.assert_allclose(axes.lines[0].get_ydata(), np.median(SAMPLES[..., 1], axis=0))
        outer = axes.collections[0].get_paths()[0].vertices
        assert outer[:, 1].min() == pytest.approx(np.quantile(SAMPLES[..., 1], 0.05, axis=0).min())
        assert outer[:, 1].max() == pytest.approx(np.quantile(SAMPLES[..., 1], 0.95, axis=0).max())
        assert [text.get_text() for text in axes.get_legend().texts] == ["5 to 95 %", "25 to 75 %", "50 %"]
    axes = FIGURES["fan of statistics"]().axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.median(SAMPLES[..., 0], axis=0))


def test_an_impact_map_pairs_each_impact_with_the_next():
    when, following = FIGURES["impacts"]().axes
    points = [tuple(p) for c in when.collections for p in c.get_offsets().tolist()]
    assert sorted(points) == [(0.1, 4.0), (0.2, 6.0), (0.4, 2.0)]
    pairs = [tuple(p) for c in following.collections for p in c.get_offsets().tolist()]
    assert pairs == [(2.0, 1.0)]


def test_a_convergence_figure_says_the_order():
    axes = FIGURES["convergence"]().axes[0]
    labels = [text.get_text() for text in axes.get_legend().texts]
    assert labels == ["RK4, order 4.00", "LIE_EULER, order 1.00"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), ERRORS["RK4"])  # the line of the order that was expected


def test_controls_are_drawn_with_their_bounds():
    axes = FIGURES["controls"]().axes[0]
    levels = [line.get_ydata()[0] for line in axes.lines if line.get_color() == plot.BOUND["color"]]
    assert levels == [-1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: plot.fan_figure(TS, SAMPLES[0, 0]), "expected \\(batch, T\\)"),
        (lambda: plot.fan_figure(TS[:3], SAMPLES[..., 0]), "ts and names ask for"),
        (lambda: plot.fan_figure(TS, SAMPLES[..., 0], probabilities=(2.0,)), "probabilities lie between 0 and 1"),
        (lambda: plot.controls_figure(TS, SAMPLES[0], SAMPLES[1], HISTORY), "controls has shape"),
        (lambda: plot.fan_figure(TS, np.full((2, 11), np.nan)), "no sample is finite"),
        (lambda: plot.phase_figure(SAMPLES, SAMPLES[:3], ("a", "b")), "have shapes"),
        (lambda: plot.work_precision_figure({"a": STEPS}, {"b": STEPS}), "errors are of"),
        (lambda: plot.convergence_figure(STEPS, {"a": STEPS[:2]}), "two arrays of one length"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_contact_figure_shows_the_record():
    """Of the contacts with the largest normal forces: force, friction, gap, and a mark where one sticks or slides."""
    chosen = np.sort(np.argsort(-FORCE[..., 0].max(0))[:2])
    pushes, rubs, gaps, states = FIGURES["contacts"]().axes
    for axes, values in (
        (pushes, FORCE[..., 0]), (rubs, np.linalg.norm(FORCE[..., 1:], axis=-1)), (gaps, RECORD.gap),
    ):  # fmt: skip
        np.testing.assert_array_equal([line.get_ydata() for line in axes.lines], values[:, chosen].T)
    marks = [np.asarray(dots.get_offsets()) for dots in states.collections]
    for row, i in enumerate(chosen):
        for value, dots in zip((1, 2), marks[2 * row : 2 * row + 2], strict=True):
            np.testing.assert_array_equal(dots[:, 0], TS[RECORD.state[:, i] == value])
    assert [x.get_text() for x in states.get_yticklabels()] == [("left", "right", "tail")[i] for i in chosen]
    with pytest.raises(ValueError, match="one system"):
        plot.contact_figure(TS, RECORD._replace(force=FORCE[0]))


@pytest.mark.parametrize(("conserved", "title"), [(True, "energy error"), (False, "change of mechanical energy")])
def test_only_energy_that_should_stay_has_an_error(conserved, title):
    model = lgjax.models.chain(1)
    q = jax.tree.map(lambda x: np.broadcast_to(x, (2, 11, *x.shape)), lgjax.neutral(model))
    made = plot.rollout_figure(model, SimpleNamespace(ts=TS, q=q, energy=SAMPLES[:2, :, 0]), conserved=conserved)
    assert made.axes[2].get_title() == title

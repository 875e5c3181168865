"""Spaces beyond the groups themselves: TS², coadjoint orbits, cotangent bundles, charts, frames."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax.groups import (
    SE3,
    SO3,
    TS2,
    Covector,
    Rn,
    TangentPoint,
    cayley_coordinates,
    coadjoint_orbit,
    cotangent_bundle,
    cotangent_group,
    frame_space,
    left_translation,
    power_space,
    product,
    product_space,
    right_translation,
    second_kind_coordinates,
    tangent_sphere,
    ts2,
    two_sided_translation,
    vector_space,
)
from lgjax.integrators import CF3, CF4, RK4, RK4_TWO_COMMUTATORS, CommutatorFree, MuntheKaas, SymplecticLie, integrate
from tests.groups.cases import close

BUNDLES = {g.name: cotangent_group(g) for g in (SO3, SE3, product(SO3, Rn(2)))}
CHARTS = {
    g.name: g
    for g in (
        cayley_coordinates(SO3),
        cayley_coordinates(SE3),
        cayley_coordinates(cotangent_group(SO3)),
        second_kind_coordinates(SO3),
        second_kind_coordinates(SE3),
    )
}
Q = TangentPoint(jnp.asarray([0.6, 0.0, 0.8]), jnp.asarray([0.8, 2.0, -0.6]))


def vectors(n, seed, size=0.5):
    return jnp.asarray(size * np.random.default_rng(seed).normal(size=(4, n)))


def flow_rate(group, u, v, t=1e-5):
    """The spatial velocity of exp(u + tv) at 0 by differences."""
    plain = {"SO3": SO3, "SE3": SE3, "T*SO3": BUNDLES["SO3"]}
    log = (group if group.chart == "exp" else plain[group.name.split(" ")[0]]).log
    return log(group.compose(group.exp(u + t * v), group.inverse(group.exp(u - t * v)))) / (2 * t)


@pytest.mark.parametrize("name", BUNDLES)
def test_cotangent_bundles_are_groups(name):
    group = BUNDLES[name]
    u, v, w = (vectors(group.dim, seed) for seed in range(3))

    def sentences(u, v, w):
        g, h, k = group.exp(u), group.exp(v), group.exp(w)
        pair = lambda a, b: jnp.sum(a * b, axis=-1)
        return [
            (group.compose(group.compose(g, h), k), group.compose(g, group.compose(h, k))),
            (group.compose(g, group.inverse(g)), group.identity(u.dtype, (4,))),
            (group.log(g), u),
            (group.dexpinv(u, group.dexp(u, v)), v),
            (group.Ad(group.compose(g, h), w), group.Ad(g, group.Ad(h, w))),
            (group.dexp(u, group.ad(u, v)), group.Ad(g, v) - v),  # (e^z - 1)/z · z
            *((pair(getattr(group, f)(g, v), w), pair(v, getattr(group, c)(g, w))) for f, c in [("Ad", "coAd")]),
            *(
                (pair(getattr(group, f)(u, v), w), pair(v, getattr(group, c)(u, w)))
                for f, c in [("ad", "coad"), ("dexp", "codexp"), ("dexpinv", "codexpinv")]
            ),
        ]

    for left, right in jit(sentences)(u, v, w):
        close(left, right, 1e-13)
    close(flow_rate(group, u, v), group.dexp(u, v), 1e-9)


def test_the_cotangent_bundle_of_so3_is_se3():
    """In three dimensions momenta turn like translations."""
    group, u, v = BUNDLES["SO3"], vectors(6, 0), vectors(6, 1)
    g, h = group.exp(u), SE3.exp(u)
    close(tuple(g), tuple(h), 1e-15)
    for f in ("ad", "coad", "dexp", "dexpinv", "codexp", "codexpinv"):
        close(getattr(group, f)(u, v), getattr(SE3, f)(u, v), 1e-14)


@pytest.mark.parametrize("name", CHARTS)
def test_charts_have_their_own_differentials(name):
    chart = CHARTS[name]
    u, v = vectors(chart.dim, 0, 0.3), vectors(chart.dim, 1)
    close(chart.log(chart.exp(u)), u, 1e-14)
    close(chart.dexpinv(u, chart.dexp(u, v)), v, 1e-14)
    close(flow_rate(chart, u, v), chart.dexp(u, v), 1e-9)
    w = vectors(chart.dim, 2)
    close(jnp.sum(chart.codexpinv(u, w) * v, -1), jnp.sum(w * chart.dexpinv(u, v), -1), 1e-14)


@pytest.mark.parametrize("size", [0.0, 1e-9, 0.5, 3.0, 50.0])
def test_the_cayley_chart_of_ts2_needs_no_matrix(size):
    """Its move is the action of the pose cay(u), which stays on TS2 whatever the angle."""
    u = vectors(6, 7, size)
    space, many = tangent_sphere(cayley_coordinates(SE3)), TangentPoint(*(jnp.tile(x, (4, 1)) for x in Q))
    moved = space.move(u, many)
    close(moved, ts2.act(SE3.cay(u), many), 1e-14 * (1 + size))
    close(jnp.sum(moved.q**2, -1), jnp.ones(4), 1e-14)
    close(jnp.sum(moved.q * moved.omega, -1), jnp.zeros(4), 1e-14 * (1 + size))


SPACES = {
    "TS2": (TS2, Q),
    "TS2 in Cayley coordinates": (tangent_sphere(cayley_coordinates(SE3)), Q),
    "coadjoint orbit of SE3": (coadjoint_orbit(SE3), jnp.arange(1.0, 7.0)),
    "cotangent bundle": (cotangent_bundle(SO3), Covector(SO3.exp(jnp.ones(3)), jnp.arange(3.0))),
    "both sides": (two_sided_translation(SO3), SO3.exp(jnp.ones(3))),
    "right in coordinates of the second kind": (right_translation(second_kind_coordinates(SE3)), SE3.exp(jnp.ones(6))),
    "right bundle in Cayley coordinates": (
        right_translation(cotangent_group(cayley_coordinates(SO3))),
        Covector(SO3.exp(jnp.ones(3)), jnp.arange(3.0)),
    ),
    "right bundle, the Cayley map of the bundle": (
        right_translation(cayley_coordinates(cotangent_group(SO3))),
        Covector(SO3.exp(jnp.ones(3)), jnp.arange(3.0)),
    ),
    "right bundle in coordinates of the second kind": (
        right_translation(cotangent_group(second_kind_coordinates(SO3))),
        Covector(SO3.exp(jnp.ones(3)), jnp.arange(3.0)),
    ),
    "left in Cayley coordinates": (left_translation(cayley_coordinates(SE3)), SE3.exp(jnp.ones(6))),
}


@pytest.mark.parametrize("name", SPACES)
def test_dexpinv_makes_the_exponent_follow_the_field(name):
    """d/dt move(σ(t), y) = the rate of move(sξ, move(σ, y)) at s = 0 when σ' = dexpinv(σ, ξ)."""
    space, y = SPACES[name]
    dims = space.dim if isinstance(space.dim, tuple) else (space.dim,)
    parts = lambda seed: tuple(vectors(n, seed)[i] for i, n in enumerate(dims))
    pack = lambda p: p if isinstance(space.dim, tuple) else p[0]
    sigma, xi = pack(parts(3)), pack(parts(4))

    def rates(sigma, xi):
        zero = jax.tree.map(jnp.zeros_like, xi)
        _, left = jax.jvp(lambda s: space.move(s, y), (sigma,), (space.dexpinv(sigma, xi),))
        _, right = jax.jvp(lambda s: space.move(s, space.move(sigma, y)), (zero,), (xi,))
        return left, right

    close(*jit(rates)(sigma, xi), 1e-13)


def test_ts2_generator_and_invariants():
    xi = vectors(6, 5)[0]
    _, rate = jax.jvp(lambda s: TS2.move(s * xi, Q), (0.0,), (1.0,))
    close(tuple(rate), tuple(ts2.generator(xi, Q)), 1e-15)
    many = TangentPoint(jnp.stack([Q.q] * 3), jnp.stack([Q.omega] * 3))
    moved = TS2.move(vectors(6, 6)[:3], many)
    close(jnp.sum(moved.q * moved.omega, axis=-1), jnp.zeros(3), 1e-14)
    close(TS2.move(vectors(6, 6)[1], Q).q, moved.q[1], 1e-15)
    assert power_space(TS2, 3).distance(many, moved).shape == ()
    point = ts2.project(jnp.asarray([0.0, 3.0, 4.0]), jnp.ones(3))
    close((jnp.linalg.norm(point.q), point.q @ point.omega), (1.0, 0.0), 1e-15)
    with pytest.raises(ValueError, match="n must be a positive integer, got 0"):
        power_space(TS2, 0)


def spin_field(t, y):
    """A field on TS² that changes in time."""
    return jnp.concatenate([y.omega, jnp.cross(y.q, jnp.asarray([jnp.sin(t), 0.3, -1.0]))])


@pytest.mark.parametrize("name", ["TS2", "TS2 in Cayley coordinates"])
def test_charts_change_the_method_not_the_order(name):
    space, y0 = SPACES[name]
    method = MuntheKaas(RK4, scan_stages=True)
    runs = {
        n: jit(lambda y, n=n: integrate(space, spin_field, y, 0.0, 1.0, n, method, None).ys)(y0) for n in (10, 20, 200)
    }
    errors = [float(TS2.distance(runs[n], runs[200])[0]) for n in (10, 20)]
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.2


def test_what_needs_the_exponential_refuses_other_charts():
    space, y0 = SPACES["left in Cayley coordinates"]
    field = lambda t, y: jnp.ones(6)
    for method in (CommutatorFree(CF4), MuntheKaas(RK4, 2), MuntheKaas(RK4_TWO_COMMUTATORS)):
        with pytest.raises(ValueError, match="SE3 \\(Cayley\\)"):
            integrate(space, field, y0, 0.0, 1.0, 2, method)
    for chart in (cayley_coordinates, second_kind_coordinates):
        bundle, start = cotangent_bundle(chart(SO3)), Covector(SO3.exp(jnp.ones(3)), jnp.arange(3.0))
        for method in (CommutatorFree(CF4), MuntheKaas(RK4, 2), SymplecticLie()):
            with pytest.raises(ValueError, match=r"T\*SO3|cotangent_bundle"):
                integrate(bundle, field, start, 0.0, 1.0, 2, method)
    mixed = product_space(space, vector_space(2))
    assert mixed.chart == "mixed"
    with pytest.raises(ValueError, match="SymplecticLie integrates on cotangent_bundle"):
        integrate(TS2, spin_field, Q, 0.0, 1.0, 2, SymplecticLie())
    with pytest.raises(ValueError, match="second kind are there for SO3 and SE3, not for R2"):
        second_kind_coordinates(Rn(2))


def test_frozen_fields_on_a_frame_without_a_group():
    """Polar coordinates with the frame ∂_r, ∂_φ / r: a field constant in the plane is followed to the order."""

    def flow(xi, y):
        # r' = a, φ' = b / r: the frozen flow is a logarithmic spiral, or a circle where a = 0.
        r, phi = y[..., 0], y[..., 1]
        a, b = xi[..., 0], xi[..., 1]
        ratio = a / r
        safe = jnp.where(ratio == 0, 1.0, ratio)
        angle = jnp.where(ratio == 0, 1.0, jnp.log1p(safe) / safe) * b / r
        return jnp.stack([r + a, phi + angle], axis=-1)

    space = frame_space("polar frame", 2, flow, lambda a, b: jnp.linalg.norm(a - b, axis=-1))
    wind = np.array([0.3, -0.5])

    def field(t, y):
        c, s = jnp.cos(y[1]), jnp.sin(y[1])
        return jnp.stack([wind[0] * c + wind[1] * s, wind[1] * c - wind[0] * s])

    y0 = jnp.asarray([1.0, 0.4])
    x1 = np.array([np.cos(0.4), np.sin(0.4)]) + wind
    exact = np.array([np.hypot(*x1), np.arctan2(x1[1], x1[0])])
    for table, order in ((CF3, 3), (CF4, 4)):
        ends = [integrate(space, field, y0, 0.0, 1.0, n, CommutatorFree(table), None).ys[0] for n in (16, 32)]
        errors = [np.linalg.norm(np.asarray(e) - exact) for e in ends]
        assert abs(np.log2(errors[0] / errors[1]) - order) < 0.2
    with pytest.raises(TypeError, match="polar frame is a frame without a group"):
        integrate(space, field, y0, 0.0, 1.0, 2, MuntheKaas(RK4))

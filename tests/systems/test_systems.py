"""What the systems keep, and that their formulations are one motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from lgjax.collisions import bounce
from lgjax.groups import SO3, so3
from lgjax.integrators import (
    CF4,
    DORMAND_PRINCE54,
    DORMAND_PRINCE85,
    RK4,
    CommutatorFree,
    MuntheKaas,
    SymplecticLie,
    integrate,
    integrate_adaptive,
    triple_jump,
)
from lgjax.systems import (
    bouncing_body,
    free_rigid_body,
    heavy_top,
    in_coordinates,
    quadrotors_with_load,
    spherical_pendulum,
)
from lgjax.systems.quadrotors_with_load import LoadState, parabola
from lgjax.systems.spherical_pendulum import CHARTS
from tests import optimized
from tests.systems import references
from tests.systems.cases import DIRECTIONS, EXPLICIT, PENDULUM, SPINS, TOP

RKMK4 = MuntheKaas(RK4, scan_stages=True)
RKMK5 = MuntheKaas(DORMAND_PRINCE54, scan_stages=True)
RKMK8 = MuntheKaas(DORMAND_PRINCE85, scan_stages=True)


def run(system, end, steps, method=RKMK4, save_every=None, compiler=jit):
    return compiler(lambda y: integrate(system.space, system.field, y, 0.0, end, steps, method, save_every).ys)(
        system.y0
    )


def last(ys):
    return jax.tree.map(lambda x: x[-1], ys)


@pytest.mark.parametrize(
    "name",
    [n if n in ("RK4", "CF4", "DORMAND_PRINCE54") else pytest.param(n, marks=pytest.mark.slow) for n in EXPLICIT],
)
def test_ten_thousand_steps_stay_on_the_tangent_bundle_of_the_sphere(name):
    q, omega = run(spherical_pendulum(2, "dense", **PENDULUM), 50.0, 10_000, EXPLICIT[name], 100)
    assert jnp.max(jnp.abs(jnp.linalg.norm(q, axis=-1) - 1.0)) < 1e-13
    assert jnp.max(jnp.abs(jnp.sum(q * omega, -1)) / (1.0 + jnp.linalg.norm(omega, axis=-1))) < 1e-13


@pytest.mark.parametrize("method", [RKMK4, CommutatorFree(CF4)], ids=["RKMK4", "CF4"])
@pytest.mark.parametrize("make", [free_rigid_body, heavy_top], ids=["SO3", "SE3"])
def test_casimirs_are_kept_to_round_off(make, method):
    """|Π|² on coadjoint orbits of SO(3); |Γ|² and Π·Γ on those of SE(3): ten thousand steps, at any accuracy."""
    s = make("lie_poisson")
    ys = run(s, 100.0, 10_000, method, 100)
    for name in s.invariants.keys() - {"energy"}:
        values = jax.vmap(s.invariants[name])(ys)
        np.testing.assert_allclose(values, values[0], rtol=1e-13)


@pytest.mark.parametrize("formulation", ["body", "spatial", "two_sided", "cotangent", "lie_poisson", "quadratic"])
def test_formulations_of_the_heavy_top_are_one_motion(formulation):
    """The published benchmark, whose angular velocity at 1 s is known to ten digits."""
    s = heavy_top(formulation)
    y = last(run(s, 1.0, 600 if formulation != "body" else 1500, RKMK8))
    q_ref, omega_ref = references.benchmark_top()
    np.testing.assert_allclose(omega_ref, [-0.8220781017, 150.0, -5.9232913481], atol=3e-10)
    tensor, gravity = s.parameters["tensor"], s.parameters["gravity"]
    if formulation == "lie_poisson":
        momentum, gamma = y[:3], y[3:]
        np.testing.assert_allclose(gamma, -q_ref.T @ gravity, atol=2e-7)
    else:
        q = {"quadratic": lambda: y.g[0], "cotangent": lambda: y.g}.get(formulation, lambda: y[0])()
        p = y.mu[:3] if formulation in ("quadratic", "cotangent") else y[1]
        momentum = p if formulation == "body" else so3.coAd(q, p)
        assert SO3.distance(q, jnp.asarray(q_ref)) < 2e-8
        known = [0.73294398, 0.27828572, 0.53182461, 0.32017614]  # wxyz
        np.testing.assert_allclose(np.abs(so3.to_quaternion(q)), known, atol=1e-7)
    np.testing.assert_allclose(jnp.linalg.solve(tensor, momentum), omega_ref, atol=2e-7)
    for name, invariant in s.invariants.items():
        np.testing.assert_allclose(invariant(y), invariant(s.y0), rtol=1e-8, err_msg=name)


def test_readings_of_the_heavy_top_are_named():
    printed, upright = heavy_top(reading="printed").parameters, heavy_top(reading="printed_upright").parameters
    assert printed["length"] == upright["length"] == 2.0
    assert (printed["gravity"][2], upright["gravity"][2]) == (9.81, -9.81)  # Γ_0 is its opposite
    np.testing.assert_array_equal(printed["tensor"], np.diag([0.234375, 0.46875, 0.234375]))
    np.testing.assert_allclose(heavy_top().parameters["tensor"], np.diag([15.234375, 0.46875, 15.234375]))
    with pytest.raises(ValueError, match="reading must be one of benchmark, printed, printed_upright, got 'x'"):
        heavy_top(reading="x")
    with pytest.raises(ValueError, match="formulation must be one of body"):
        heavy_top("x")


@pytest.mark.parametrize("n", [1, 20, 100])
def test_chain_and_dense_pendulums_agree(n):
    rng = np.random.default_rng(n)
    q = rng.normal(size=(n, 3))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    data = {
        "q": q,
        "omega": np.cross(q, rng.normal(size=(n, 3))),
        "masses": rng.uniform(0.5, 2.0, n),
        "lengths": rng.uniform(0.5, 2.0, n),
    }
    chain, dense, hamiltonian = (spherical_pendulum(n, form, **data) for form in ("chain", "dense", "hamiltonian"))
    rate = dense.field(0.0, dense.y0)
    np.testing.assert_allclose(chain.field(0.0, chain.y0), rate, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(hamiltonian.field(0.0, hamiltonian.y0)[:, :3], data["omega"], rtol=1e-11, atol=1e-11)
    for name in chain.invariants:
        np.testing.assert_allclose(hamiltonian.invariants[name](hamiltonian.y0), chain.invariants[name](chain.y0))
    gradient = jax.grad(lambda y: chain.invariants["energy"](y))(chain.y0)
    q_dot, omega_dot = np.cross(data["omega"], q), np.cross(rate[:, 3:], q)  # ω' less ξ × ω + η × q, ξ × ω = 0
    assert abs(np.sum(gradient.q * q_dot) + np.sum(gradient.omega * omega_dot)) < 1e-10 * n


def test_pendulums_swing_alike_in_both_charts():
    """Cayley coordinates are another way to take the same step: both errors fall as h^5, and rods keep their length."""
    ends = {(c, n): last(run(spherical_pendulum(3, chart=c), 1.0, n, RKMK5)) for c in CHARTS for n in (10, 20, 80)}
    exact = ends["exp", 80]
    gap = lambda chart, n: max(float(np.abs(a - b).max()) for a, b in zip(ends[chart, n], exact, strict=True))
    assert gap("cayley", 80) < 1e-2 * gap("cayley", 20) < 1e-3
    assert 20 < gap("cayley", 10) / gap("cayley", 20) < 60
    np.testing.assert_allclose(np.linalg.norm(ends["cayley", 20].q, axis=-1), 1.0, rtol=1e-14)
    with pytest.raises(ValueError, match="chart must be one of exp, cayley, got 'euler'"):
        spherical_pendulum(3, chart="euler")


def test_adaptive_steps_find_the_sudden_turn_of_two_pendulums():
    """The source's chain of two turns suddenly at 2.2 s; as many constant steps lose three digits there."""
    s = spherical_pendulum(2)
    exact, rough = (
        jit(lambda t: integrate_adaptive(s.space, s.field, s.y0, 0.0, 3.0, RKMK5, t, t, 1500))(t) for t in (1e-10, 1e-6)
    )
    steps = int(rough.accepted)
    sizes = np.diff(rough.times)[1 : steps - 1]
    assert 2.1 < rough.times[1 + np.argmin(sizes)] < 2.4
    constant = run(s, 3.0, steps, RKMK5)
    error = lambda ys: float(s.space.distance(last(ys), last(exact.ys)))
    assert error(rough.ys) < 1e-4
    assert error(constant) > 100 * error(rough.ys)


def test_pendulums_refuse_nonsense():
    with pytest.raises(ValueError, match="n must be a positive integer, got 0"):
        spherical_pendulum(0)
    with pytest.raises(ValueError, match=r"masses has shape \(2,\), expected \(3,\)"):
        spherical_pendulum(3, masses=(1.0, 2.0))


@pytest.mark.parametrize("attitude", ["ideal", "controlled"])
def test_the_load_reaches_its_path_and_the_links_stay_links(attitude):
    s = quadrotors_with_load(attitude=attitude)
    y = LoadState(*last(run(s, 14.0, 1400)))
    np.testing.assert_allclose(y.position, parabola(jnp.asarray(14.0)), atol=5e-3)
    np.testing.assert_allclose(jnp.linalg.norm(y.link.q, axis=-1), 1.0, atol=1e-14)
    np.testing.assert_allclose(jnp.sum(y.link.q * y.link.omega, axis=-1), 0.0, atol=1e-13)
    np.testing.assert_allclose(y.attitude @ jnp.swapaxes(y.attitude, 1, 2), np.tile(np.eye(3), (2, 1, 1)), atol=1e-13)
    with pytest.raises(ValueError, match="unknown gains"):
        quadrotors_with_load(gains={"typo": 1.0})


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_systems_keep_their_dtype_and_batch_over_parameters(dtype):
    makers = [
        lambda g, f=f: heavy_top(f, gravity=g * jnp.asarray([0, 0, -1], dtype), dtype=dtype)
        for f in ("two_sided", "quadratic")
    ]
    makers += [lambda g, f=f: spherical_pendulum(3, f, gravity=g, dtype=dtype) for f in ("chain", "hamiltonian")]
    makers += [lambda g: quadrotors_with_load(gravity=g, dtype=dtype)]
    for make in makers:

        def end(g, make=make):
            s = make(g)
            return integrate(s.space, s.field, s.y0, 0.0, 0.02, 2, RKMK4, None).ys

        for leaf in jax.tree.leaves(jax.eval_shape(jax.vmap(end), jnp.asarray([9.0, 10.0], dtype))):
            assert leaf.dtype == dtype
            assert leaf.shape[0] == 2


def test_a_step_and_its_reversal_cancel():
    s = heavy_top("cotangent")
    there = last(run(s, 5.0, 500, SymplecticLie(0.5)))
    back = jit(lambda y: integrate(s.space, s.field, y, 5.0, 0.0, 500, SymplecticLie(0.5), None).ys)(there)
    np.testing.assert_allclose(back.g[0], s.y0.g, atol=1e-11)
    np.testing.assert_allclose(back.mu[0], s.y0.mu, atol=1e-10)


def test_steps_that_cannot_be_solved_are_a_status():
    """Four steps of one turn and more: those trajectories end in NaN, the others do not notice."""
    s = heavy_top("cotangent")
    method = SymplecticLie(0.5)
    end = jnp.asarray([0.04, 4.0, 0.08])
    batch = jit(jax.vmap(lambda t: integrate(s.space, s.field, s.y0, 0.0, t, 4, method)))(end)
    assert batch.success.tolist() == [True, False, True]
    assert np.all(np.isfinite(batch.ys.mu[::2]))
    assert np.all(np.isnan(batch.ys.mu[1, -1]))
    alone = integrate(s.space, s.field, s.y0, 0.0, end[2], 4, method)
    np.testing.assert_allclose(batch.ys.mu[2], alone.ys.mu, rtol=1e-12)
    assert alone.success
    many = jit(lambda: integrate(s.space, s.field, s.y0, 0.0, 4.0, 4, triple_jump(method), None).success)
    assert not many()


def test_symplectic_methods_say_where_they_apply():
    s = heavy_top("spatial")
    with pytest.raises(ValueError, match=r"integrates on cotangent_bundle\(G\), got left_translation\(SO3\) x"):
        integrate(s.space, s.field, s.y0, 0.0, 1.0, 2, SymplecticLie())
    s = heavy_top("cotangent")
    two = jax.tree.map(lambda x: jnp.stack([x, x]), s.y0)
    with pytest.raises(ValueError, match=r"takes one point, got leading axes \(2,\); vmap over several"):
        integrate(s.space, s.field, two, 0.0, 1.0, 2, SymplecticLie())


@pytest.mark.parametrize(
    ("make", "defect"),
    [
        (lambda: heavy_top("two_sided", **TOP), lambda q: jnp.swapaxes(q, -1, -2) @ q - jnp.eye(3)),
        (lambda: spherical_pendulum(2, **PENDULUM), lambda q: jnp.sum(q * q, axis=-1) - 1.0),
    ],
    ids=["top", "pendulum"],
)
def test_in_coordinates_the_motion_is_the_same_but_leaves_the_space(make, defect):
    s = make()
    plain = in_coordinates(s)
    lie, classical = (run(x, 0.4, 40, RKMK8, 40) for x in (s, plain))
    for a, b in zip(jax.tree.leaves(lie), classical, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    for name, invariant in plain.invariants.items():
        np.testing.assert_allclose(invariant(last(classical)), s.invariants[name](s.y0), rtol=1e-9)
    lie, classical = (jax.tree.leaves(run(x, 0.4, 10))[0] for x in (s, plain))
    assert jnp.max(jnp.abs(defect(lie))) < 1e-14
    assert jnp.max(jnp.abs(defect(classical))) > 1e-7


def drift(system, h, steps, compiler=jit):
    """|slope| T of a line through the energy, relative to its oscillation."""
    ys = run(system, h * steps, steps, SymplecticLie(0.5), max(1, steps // 2000), compiler)
    energy = np.asarray(jax.vmap(system.invariants["energy"])(ys))
    assert np.all(np.isfinite(energy))
    slope = np.polyfit(np.linspace(0.0, 1.0, len(energy)), energy, 1)[0]
    return abs(slope) / np.ptp(energy)


def test_symplectic_energy_does_not_drift():
    """The source's experiment, h = 0.01 s and 6000 steps, 1.5 rad of spin in each of them."""
    assert drift(heavy_top("cotangent"), 0.01, 6000) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["cotangent", "quadratic"])
def test_symplectic_energy_does_not_drift_in_a_million_steps(formulation):
    assert drift(heavy_top(formulation), 0.01, 1_000_000, optimized.jit) < 0.1


def test_symplectic_gradients_are_difference_quotients():
    def value(g, theta):
        s = heavy_top("cotangent", gravity=g * jnp.asarray([0.0, 0.0, -1.0]), angular_velocity=(1.0, 5.0, 2.0))
        ys = integrate(s.space, s.field, s.y0, 0.0, 0.3, 6, SymplecticLie(theta), None).ys
        return jnp.sum(ys.g[0] ** 3) + jnp.sum(jnp.sin(ys.mu))

    for theta in (0.5,):
        plain = lambda g, theta=theta: value(g, theta)
        f = jit(jax.value_and_grad(plain))
        g = jnp.asarray(9.81)
        quotient = (f(g + 1e-4)[0] - f(g - 1e-4)[0]) / 2e-4
        np.testing.assert_allclose(f(g)[1], quotient, rtol=1e-7)
        np.testing.assert_allclose(jit(jax.jacfwd(plain))(g), quotient, rtol=1e-7)


def test_the_chain_is_linear_in_its_length():
    """Operations in the compiled field, which timing on a busy machine would blur."""

    def cost(n):
        s = spherical_pendulum(n, q=np.tile(DIRECTIONS[0], (n, 1)), omega=np.tile(SPINS[0], (n, 1)))
        text = jax.make_jaxpr(lambda y: s.field(0.0, y))(s.y0)
        sizes = [v.aval.size for eqn in text.eqns for v in eqn.outvars]
        return sum(sizes), max(sizes)

    small, large = cost(10), cost(1000)
    assert large[0] < 105 * small[0]
    assert large[1] <= 12 * 1000


def test_bouncing_bodies_fly_as_other_integrators_say():
    """Between impacts the system is one like the others: space, field, state, invariants."""
    p = bouncing_body("tilted", dtype=jnp.float64)
    end = run(p, 1.0, 400, save_every=400)
    flown = jit(lambda s: bounce(p.body, p.shape, p.planes, s, 0.005, 200))(p.state).states
    np.testing.assert_allclose(end[0].translation[-1], flown.pose.translation[-1], atol=1e-12)
    np.testing.assert_allclose(end[0].rotation[-1], flown.pose.rotation[-1], atol=1e-4)
    for name, invariant in p.invariants.items():
        values = jax.vmap(invariant)(end)
        np.testing.assert_allclose(values[-1], values[0], rtol=1e-8, err_msg=name)

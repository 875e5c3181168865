"""What the ready systems refuse, that gravity means one thing in all of them, and that they take traced numbers."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.groups import SO3, left_translation, product_space, so3, vector_space
from lgjax.integrators import CF4, RK4, CommutatorFree, MuntheKaas, integrate
from lgjax.multibody.models.multirotor_with_arms import MECHANISM, MOTION, PROPELLERS
from lgjax.systems import (
    aerial_manipulator,
    bouncing_body,
    five_bar,
    four_bar,
    free_rigid_body,
    heavy_top,
    heavy_top_maximal,
    puma560,
    puma560_minimal,
    quadrotors_with_load,
    rotor,
    slider_crank,
    spherical_pendulum,
    stewart_platform,
)
from lgjax.systems.problem import arrays
from tests.systems import references

NAN = float("nan")
TRIANGLE = "inertia breaks the triangle inequality"
FLAT_ROD = ((1e-4, 1e-4, 1e-5), (4e-4, 4e-3, 6e-3), (1e-4, 1e-4, 1e-4))
REFUSED = [
    (spherical_pendulum, {"n": 0}, "n must be a positive integer, got 0"),
    (spherical_pendulum, {"n": 1, "form": "x"}, "form must be one of chain, dense, hamiltonian, got 'x'"),
    (
        spherical_pendulum,
        {"n": 1, "q": (0, 0, 2)},
        r"q must have length 1, got \[\[0.0, 0.0, 2.0\]\] of length \[2.0\]",
    ),
    (spherical_pendulum, {"n": 1, "q": (0, 0, 1), "omega": (0, 1, 1)}, "omega must be orthogonal to q"),
    (spherical_pendulum, {"n": 2, "masses": (1, -1)}, r"masses is not positive: \[1.0, -1.0\]"),
    (spherical_pendulum, {"n": 2, "lengths": 0.0}, "lengths is not positive"),
    (spherical_pendulum, {"n": 3, "masses": (1, 2)}, r"masses has shape \(2,\), expected \(3,\)"),
    (spherical_pendulum, {"n": 1, "omega": (NAN, 0, 0)}, "omega is not finite"),
    (heavy_top, {"axis": (0, 2, 0)}, "axis must have length 1"),
    (heavy_top, {"inertia": (0.2, -0.5, 0.2)}, "inertia is not positive definite"),
    (heavy_top, {"inertia": (1, 1, 3)}, TRIANGLE),
    (heavy_top, {"mass": -15.0}, "mass is not positive: -15.0"),
    (heavy_top, {"mass": "15 kg"}, r"mass must be numbers of shape \(\), got '15 kg'"),
    (heavy_top, {"length": 0.0}, "length is not positive"),
    (heavy_top, {"gravity": -9.81}, "gravity is negative: -9.81"),
    (heavy_top, {"gravity": (0, -9.81)}, r"gravity has shape \(2,\), expected \(3,\)"),
    (heavy_top, {"angular_velocity": (0, 0, float("inf"))}, "angular_velocity is not finite"),
    (heavy_top_maximal, {"inertia": (1, 1, 3)}, TRIANGLE),
    (heavy_top_maximal, {"length": -1.0}, "length is not positive"),
    (free_rigid_body, {"inertia": (1.0, 2.0, 3.5)}, TRIANGLE),
    (free_rigid_body, {"momentum": (1, 2)}, r"momentum has shape \(2,\), expected \(3,\)"),
    (quadrotors_with_load, {"load_mass": 0.0}, "load_mass is not positive"),
    (quadrotors_with_load, {"lengths": (1.0, -1.0)}, "lengths is not positive"),
    (quadrotors_with_load, {"inertia": (1, 1, 3)}, TRIANGLE),
    (quadrotors_with_load, {"gains": {"attitude": -1.0}}, "attitude is negative"),
    (quadrotors_with_load, {"path": lambda t: jnp.stack([t, t])}, r"path must give points \(3,\)"),
    (rotor, {"inertia": (0.2, 0.046, 0.046)}, TRIANGLE),
    (rotor, {"stiffness": (800, -1, 800)}, "stiffness is negative"),
    (rotor, {"mass": 0.0}, "mass is not positive"),
    (slider_crank, {"masses": (0.12, 0.5, -2.0)}, "masses is not positive"),
    (slider_crank, {"inertias": FLAT_ROD}, "inertias breaks the triangle inequality"),
    (puma560, {"masses": (20.0, 17.4, 4.8, 0.82, 0.34, 0.0)}, "masses is not positive"),
    (puma560, {"damping": -1.0}, "damping is negative"),
    (bouncing_body, {"case": "x"}, "case must be one of ellipsoid, tilted, union, cube, got 'x'"),
    (bouncing_body, {"case": "cube", "rounding": -1.0}, "rounding is negative"),
    (four_bar, {"masses": (0.4, 0.9, -0.7)}, "masses is not positive"),
    (four_bar, {"lengths": (1.0, NAN, 0.9, 0.7)}, "lengths is not finite"),
    (four_bar, {"closure": "x"}, "closure must be one of point_on_line, revolute, got 'x'"),
    (five_bar, {"lengths": (0.5, 0.4, 0.6, 0.6)}, r"lengths has shape \(4,\), expected \(5,\)"),
    (five_bar, {"actuated": (0, 4)}, "actuated velocity index 4 is out of range for nv=4"),
    (stewart_platform, {"height": 0.0}, "height is not positive"),
    (stewart_platform, {"leg_mass": -1.0}, "leg_mass is not positive"),
    (stewart_platform, {"gravity": -9.81}, "gravity is negative"),
    (aerial_manipulator, {"mechanism": MECHANISM._replace(link_mass=-1.0)}, "mechanism.link_mass is not positive"),
    (
        aerial_manipulator,
        {"mechanism": MECHANISM._replace(axes=("y", "w", "y"))},
        "mechanism.axes must be one of x, y, z",
    ),
    (aerial_manipulator, {"mechanism": MECHANISM._replace(base_inertia=(1, 1, 3))}, "base_inertia breaks the triangle"),
    (aerial_manipulator, {"propellers": PROPELLERS._replace(thrust=-1.0)}, "propellers.thrust is not positive"),
    (aerial_manipulator, {"propellers": PROPELLERS._replace(spins=(2,) * 6)}, "propellers.spins must be 1 or -1"),
    (aerial_manipulator, {"motion": MOTION._replace(joint_start=(0.1, 0.2))}, r"motion.joint_start has shape \(2,\)"),
]


@pytest.mark.parametrize(("maker", "given", "message"), REFUSED, ids=lambda x: getattr(x, "__name__", None))
def test_nonsense_is_refused_with_its_name(maker, given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        maker(**given)


def test_known_numbers_are_judged_inside_jit_too():
    with pytest.raises(ValueError, match="axis must have length 1"):
        jax.eval_shape(lambda g: heavy_top(axis=(0, 2, 0), gravity=g).y0, 9.81)


def test_the_published_puma_breaks_the_triangle_inequality_and_loads():
    problem = puma560()
    np.testing.assert_allclose(problem.system.inertia[0], np.diag([0.0, 0.35, 0.0]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        puma560_minimal()
    assert [w.category for w in caught] == [UserWarning] * 2


GRAVITATIONAL = (
    heavy_top,
    heavy_top_maximal,
    partial(spherical_pendulum, 2),
    quadrotors_with_load,
    rotor,
    slider_crank,
    puma560,
    four_bar,
    five_bar,
    stewart_platform,
)


@pytest.mark.parametrize("maker", GRAVITATIONAL, ids=lambda f: getattr(f, "func", f).__name__)
def test_gravity_is_a_vector_or_a_number_that_pulls_down(maker):
    def vector(**given):
        made = maker(**given)
        return made.model.gravity if hasattr(made, "model") else made.parameters["gravity"]

    np.testing.assert_array_equal(vector(), [0.0, 0.0, -9.81])
    np.testing.assert_array_equal(vector(gravity=3.7), [0.0, 0.0, -3.7])
    np.testing.assert_array_equal(vector(gravity=(1.0, 0.0, 2.0)), [1.0, 0.0, 2.0])


def test_the_top_feels_the_torque_of_its_weight():
    """At rest and at the identity the momentum changes by mass length χ × g, in every formulation that has it."""
    g = np.array([0.3, -2.0, 5.0])
    torque = np.cross(15.0 * np.array([0.0, 1.0, 0.0]), g)
    for formulation in ("body", "spatial", "two_sided"):
        s = heavy_top(formulation, gravity=g, angular_velocity=0.0)
        np.testing.assert_allclose(s.field(0.0, s.y0)[1], torque, rtol=1e-14)
    for formulation, part in (("cotangent", slice(3, 6)), ("quadratic", slice(6, 9))):
        s = heavy_top(formulation, gravity=g, angular_velocity=0.0)
        np.testing.assert_allclose(s.field(0.0, s.y0)[part], torque, rtol=1e-14)
    s = heavy_top("lie_poisson", gravity=g, angular_velocity=0.0)
    np.testing.assert_allclose(s.y0[3:], -g)


def test_pendulums_fall_along_any_gravity():
    """Accelerations of linked masses by multipliers; the momentum keeps its part along gravity."""
    rng = np.random.default_rng(5)
    q = rng.normal(size=(3, 3))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    omega = np.cross(q, rng.normal(size=(3, 3)))
    masses, lengths, g = np.array([1.0, 0.7, 1.4]), np.array([1.2, 0.8, 1.1]), np.array([1.0, -3.0, 4.0])
    x, v = (np.cumsum(lengths[:, None] * r, axis=0) for r in (q, np.cross(omega, q)))
    links = [(0, None), (1, 0), (2, 1)]
    acceleration = references.linked_masses(x, v, masses, links, np.outer(masses, g))
    relative = np.diff(acceleration, axis=0, prepend=np.zeros((1, 3)))
    expected = np.cross(q, relative / lengths[:, None])
    for form in ("chain", "dense"):
        s = spherical_pendulum(3, form, masses, lengths, g, q, omega)
        rate = np.cross(s.field(0.0, s.y0)[:, 3:], q)
        np.testing.assert_allclose(rate, expected, rtol=1e-12, atol=1e-12)
    s = spherical_pendulum(3, "hamiltonian", masses, lengths, g, q, omega)
    xi = np.asarray(s.field(0.0, s.y0))
    push = np.cross(xi[:, :3], s.y0.omega) + np.cross(xi[:, 3:], q)
    assert abs(np.sum(push, axis=0) @ g) < 1e-12
    up = -g / np.linalg.norm(g)
    np.testing.assert_allclose(s.invariants["vertical_momentum"](s.y0), np.sum(s.y0.omega, axis=0) @ up, rtol=1e-12)


def numbers_of_all(x):
    """One number per system, each made with parameters that depend on x."""
    top = heavy_top("spatial", mass=15 * x, length=x, inertia=(0.2 * x, 0.3, 0.4), gravity=9.81 * x)
    chain = spherical_pendulum(2, masses=(x, 1.0), lengths=x, gravity=(0.0, 0.0, -9.81 * x), omega=(0.0, x, 0.0))
    free = free_rigid_body(inertia=(x, 2 * x, 2.5), momentum=(x, 1.0, 2.0))
    held = heavy_top_maximal(mass=x, gravity=9.81 * x)
    crank = slider_crank(masses=(x, x, 2.0), speed=6 * x)
    disc = rotor(mass=x, stiffness=800 * x)
    arm = puma560(masses=20 * x, gravity=(0.0, 0.0, -9.81 * x))
    quads = quadrotors_with_load(load_mass=x, gains={"attitude": x}, gravity=9.81 * x)
    return jnp.stack(
        [
            jnp.sum(top.field(0.0, top.y0)[1] ** 2),
            chain.invariants["energy"](chain.y0),
            free.invariants["energy"](free.y0),
            held.invariants["energy"](held.q0, held.v0),
            crank.invariants["energy"](crank.q0, crank.v0),
            jnp.sum(disc.system.mass) * disc.parameters["stiffness"][0],
            arm.system.potential_energy(arm.q0),
            jnp.sum(quads.y0[-1].q ** 3),
        ]
    )


def test_makers_take_traced_batched_and_differentiated_numbers():
    x = jnp.asarray([0.9, 1.0, 1.0 + 1e-5, 1.0 - 1e-5])

    @jax.jit
    def run(x):
        both = jax.vmap(lambda x: jax.jvp(numbers_of_all, (x,), (jnp.ones_like(x),)))(x)
        return both, numbers_of_all(1.0)

    (values, rates), known = run(x)
    np.testing.assert_allclose(values[1], known, rtol=1e-13)
    np.testing.assert_allclose(rates[1], (values[2] - values[3]) / 2e-5, rtol=1e-6, atol=1e-8)
    assert np.all(np.isfinite(values))


def test_attitudes_moved_from_either_side_take_the_same_steps():
    """R exp(h Ω) of the quadrotors against exp(h RΩ) R of [celledoni2021] section 6.1, on a free body."""
    s = free_rigid_body()
    space = product_space(left_translation(SO3), vector_space(3))
    field = lambda t, y: (so3.act(y[0], s.field(t, y)[0]), s.field(t, y)[1])
    ends = {}
    for name, method in (("RKMK4", MuntheKaas(RK4)), ("CF4", CommutatorFree(CF4))):
        ends[name] = jax.jit(
            lambda y, m=method: [
                integrate(*pair, y, 0.0, 2.0, 10, m, None).ys[0] for pair in ((s.space, s.field), (space, field))
            ]
        )(s.y0)
    np.testing.assert_allclose(*ends["RKMK4"], atol=1e-14)
    assert 1e-9 < np.max(np.abs(ends["CF4"][0] - ends["CF4"][1])) < 1e-3


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_arrays_fill_rows_and_keep_the_dtype(dtype):
    p = arrays(dtype, a=(2, (3,)), b=((1.0, 2.0), (4, 2)), c=(np.ones((4, 2)), (4, 2)))
    assert {name: (value.shape, value.dtype) for name, value in p.items()} == {
        "a": ((3,), dtype),
        "b": ((4, 2), dtype),
        "c": ((4, 2), dtype),
    }

"""Bodies in absolute coordinates: joints, forces and their derivatives against differences, energy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from lgjax import SE3, R3xSO3, maximal
from lgjax.maximal.generalized_alpha import consistent_accelerations, constraint_rates
from lgjax.maximal.integrate import constrained_problem

GROUPS = (R3xSO3, SE3)
KINDS = ("spherical", "revolute", "universal", "prismatic", "cylindrical", "fixed", "distance")
random = np.random.default_rng(0)


def rotation():
    return Rotation.random(random_state=random).as_matrix()


def vector():
    return random.normal(size=3)


def drive(t):
    return 0.3 + 0.2 * jnp.sin(2.0 * t)


def gap(t, q, p):
    """A user constraint that couples a body and a node."""
    return q.coordinates[:1] * p["gain"] - q.bodies.translation[0, :1] + 0.1 * t


def joints():
    """Every kind between two bodies and to the world, in random places, and every drive."""
    made = []
    for i, kind in enumerate(KINDS):
        for a, b in (("world", "one"), ("one", "two"), ("two", "world")):
            name, driven = f"{kind} {a} {b}", None
            if (a, b) == ("one", "two") and kind in ("revolute", "prismatic", "distance"):
                driven = drive
            place = (vector(), vector(), rotation(), rotation(), 0.5 + i)
            made.append(maximal.Joint(name, kind, a, b, *place, driven))
    return made


PARTS = (
    [
        maximal.Body("one", 2.0, (0.3, 0.4, 0.5)),
        maximal.Body("two", 1.5, np.diag([0.2, 0.3, 0.4])),
        maximal.VectorNode("x", 2, 0.7),
    ],
    [*joints(), maximal.UserConstraint("gap", gap, 1, {"gain": 1.5})],
)
POTENTIALS = [
    maximal.Gravity((0.3, -0.2, -9.81)),
    maximal.Spring("one", "two", vector(), vector(), 30.0, 0.0, 0.7),
    maximal.Bushing("world", "two", vector(), vector(), (10.0, 20.0, 30.0)),
]


WEIGHT = (maximal.Gravity(),)


def example(group, forces=WEIGHT):
    system = maximal.System(*PARTS, forces, group)
    q = system.configuration([rotation(), rotation()], [vector(), vector()], random.normal(size=2))
    return system, q, jnp.asarray(random.normal(size=system.nv))


def difference(f, system, q, v, step=1e-6):
    """Central difference of f along q exp(s v)."""
    return (f(system.move(q, step * v)) - f(system.move(q, -step * v))) / (2 * step)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_spring_without_rest_length_is_a_bushing(dtype):
    """Also where its points coincide: forces, energy, and their first and second derivatives."""
    places = jnp.asarray([[0, 0, 0, d, 0, -d] for d in (0.0, 1e-13, 0.3)], dtype)

    def found(force):
        system = maximal.System([maximal.Body("b", 1.0, (0.1, 0.2, 0.3))], [], [force], R3xSO3, dtype)
        turned = jnp.asarray(Rotation.from_rotvec([0.3, -0.2, 0.5]).as_matrix(), dtype)
        q = system.configuration(turned[None], jnp.zeros((1, 3), dtype))
        forces = lambda x: system.generalized_forces(0.0, system.move(q, x), jnp.zeros_like(x))
        energy = lambda x: system.potential_energy(system.move(q, x))

        def derivatives(x):
            bent = jax.jvp(jax.grad(lambda x: jnp.sum(forces(x))), (x,), (jnp.ones_like(x),))[1]
            slopes = jax.jacfwd(forces)(x), jax.jacrev(forces)(x), jax.hessian(energy)(x)
            return forces(x), energy(x), jax.grad(energy)(x), bent, *slopes

        return jax.jit(jax.vmap(derivatives))(places)

    spring = found(maximal.Spring("world", "b", stiffness=30.0))
    bushing = found(maximal.Bushing("world", "b", stiffness=(30.0, 30.0, 30.0)))
    for ours, theirs in zip(spring, bushing, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e2 * jnp.finfo(dtype).eps, atol=1e2 * jnp.finfo(dtype).eps)
    np.testing.assert_array_equal(np.linalg.matrix_rank(spring[-1]), 3)


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_constraint_jacobian_is_the_derivative_along_the_group(group):
    system, q, v = example(group)
    t = jnp.asarray(0.4)
    assert system.nc == 3 * (3 + 5 + 4 + 5 + 4 + 6 + 1) + 2 + 1
    expected = difference(lambda q: system.constraints(t, q), system, q, v)
    np.testing.assert_allclose(system.jacobian(t, q) @ v, expected, atol=1e-8)


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_constraint_rates_are_the_derivatives_in_time(group):
    system, q, v = example(group)
    t, step = jnp.asarray(0.4), 1e-4
    phi = lambda s: system.constraints(t + s, system.move(q, s * v))
    rate, second = constraint_rates(constrained_problem(system), t, q, v)
    np.testing.assert_allclose(rate, (phi(step) - phi(-step)) / (2 * step), atol=1e-6)
    np.testing.assert_allclose(second, (phi(step) - 2 * phi(0.0) + phi(-step)) / step**2, atol=1e-5)


@pytest.mark.parametrize("force", POTENTIALS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_forces_are_minus_the_gradient_of_the_potential(group, force):
    system, q, _ = example(group, [force])
    rest = jnp.zeros(system.nv)
    for v in np.eye(system.nv):
        expected = -difference(system.potential_energy, system, q, jnp.asarray(v))
        np.testing.assert_allclose(system.generalized_forces(0.0, q, rest) @ v, expected, atol=2e-7)


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_torsion_springs_turn_about_a_common_axis(group):
    """Axes that agree, as a hinge makes them: torque 4 angle about z, minus the gradient in every direction."""
    system, q, _ = example(group, [])
    one, two, axes = *np.asarray(q.bodies.rotation), rotation()
    turned = axes @ Rotation.from_rotvec([0.0, 0.0, 0.7]).as_matrix()
    spring = maximal.TorsionSpring("one", "two", one.T @ axes, two.T @ turned, 4.0)
    system = maximal.System(*PARTS, [spring], group)
    given = system.generalized_forces(0.0, q, jnp.zeros(system.nv))
    for v in np.eye(system.nv):
        expected = -difference(system.potential_energy, system, q, jnp.asarray(v))
        np.testing.assert_allclose(given @ v, expected, atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(given[:3]), 4.0 * 0.7, rtol=1e-12)


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_dampers_take_power_and_gyroscopic_forces_none(group):
    dampers = [
        maximal.Spring("one", "two", vector(), vector(), 0.0, 3.0),
        maximal.Bushing("world", "two", vector(), vector(), damping=(1.0, 2.0, 3.0)),
        maximal.TorsionSpring("one", "two", damping=4.0),
    ]
    for forces, sign in (([], 0.0), *(([damper], -1.0) for damper in dampers)):
        system, q, v = example(group, forces)
        power = float(system.generalized_forces(0.0, q, v) @ v)
        assert power < -1e-3 if sign else abs(power) < 1e-12


def test_loads_act_at_their_points_in_their_axes():
    """Power of forces at a moving point and of torques, in world axes throughout."""
    f, g, n, m, s = (vector() for _ in range(5))
    for group in GROUPS:
        system, q, v = example(group, [maximal.Load("two", s, f, g, n, m)])
        free, *_ = example(group, [])
        motion = system.motion(q, v)
        r, omega = np.asarray(motion.rotation[1]), np.asarray(motion.omega[1])
        velocity = motion.velocity[1] + r @ np.cross(omega, s)
        expected = (f + r @ g) @ velocity + (n + r @ m) @ (r @ omega)
        given = system.generalized_forces(0.0, q, v) - free.generalized_forces(0.0, q, v)
        np.testing.assert_allclose(given @ v, expected, rtol=1e-12)


def test_both_groups_describe_the_same_motion():
    """Accelerations on SE(3), turned into world axes, and multipliers are those on R³ x SO(3)."""
    bodies = [maximal.Body("one", 2.0, (0.3, 0.4, 0.5)), maximal.Body("two", 1.5, (0.2, 0.3, 0.4))]
    hinge = maximal.Joint("hinge", "universal", "one", "two", vector(), vector(), rotation(), rotation())
    r, p, omega, velocity = [rotation(), rotation()], [vector(), vector()], random.normal(size=(2, 3)), [vector()] * 2
    found = []
    for group in GROUPS:
        system = maximal.System(bodies, [hinge], POTENTIALS, group)
        q = system.configuration(r, p)
        v = system.velocity(q, omega, velocity)
        vdot, multipliers, regular = consistent_accelerations(constrained_problem(system), jnp.asarray(0.0), q, v)
        assert regular
        h = 1e-6
        later = system.motion(system.move(q, h * v), v + h * vdot)
        acceleration = np.asarray(later.velocity - system.motion(q, v).velocity) / h
        found.append((acceleration, multipliers, vdot.reshape(2, 6)[:, :3]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-4, atol=1e-4)
    for a, b in zip(found[0][1:], found[1][1:]):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_arrays_are_leaves_and_structure_is_static():
    system, q, v = example(R3xSO3)
    heavier = jax.vmap(lambda m: system.replace(mass=m).generalized_forces(0.0, q, v))(jnp.ones((4, 2)))
    assert heavier.shape == (4, system.nv)
    assert jax.tree.structure(system) == jax.tree.structure(jax.tree.map(lambda x: 2.0 * x, system))
    with pytest.raises(ValueError, match="has no leaf weight"):
        system.replace(weight=1.0)


def test_rotation_vectors_compose_like_rotations():
    a, b = random.normal(size=(2, 50, 3))
    expected = (Rotation.from_rotvec(a) * Rotation.from_rotvec(b)).as_rotvec()
    np.testing.assert_allclose(maximal.compose_rotation_vectors(jnp.asarray(a), jnp.asarray(b)), expected, atol=1e-12)


BODY = maximal.Body("one", 1.0, (1.0, 1.0, 1.0))
TIP = maximal.Joint("tip", "spherical", "world", "one")
BAD = {
    "at least one body": ([], []),
    "two bodies are named 'one'": ([BODY, BODY], []),
    "'world' is the inertial frame": ([maximal.Body("world", 1.0, (1, 1, 1))], []),
    "mass of body 'one' is negative: -1": ([maximal.Body("one", -1.0, (1, 1, 1))], []),
    "mass of body 'one' is not finite": ([maximal.Body("one", np.nan, (1, 1, 1))], []),
    "not positive semi-definite": ([maximal.Body("one", 1.0, (1.0, 1.0, -1.0))], []),
    "is not symmetric": ([maximal.Body("one", 1.0, np.eye(3) + np.eye(3, k=1))], []),
    r"inertia of body 'one' has shape \(2,\)": ([maximal.Body("one", 1.0, (1.0, 1.0))], []),
    "there is no body 'two'": ([BODY], [maximal.Joint("tip", "spherical", "two", "one")]),
    "connects 'one' with itself": ([BODY], [maximal.Joint("tip", "spherical", "one", "one")]),
    "two joints are named 'tip'": ([BODY], [TIP, TIP]),
    "unknown kind 'glue'": ([BODY], [maximal.Joint("tip", "glue", "world", "one")]),
    "a spherical joint takes no drive": ([BODY], [maximal.Joint("tip", "spherical", "world", "one", drive=drive)]),
    "length of joint 'rod' is not positive: 0.0": ([BODY], [maximal.Joint("rod", "distance", "world", "one")]),
    "frame_a of joint 'tip' is not a rotation": (
        [BODY],
        [maximal.Joint("tip", "fixed", "world", "one", frame_a=2 * np.eye(3))],
    ),
    "size of node 'x' must be a positive integer": ([maximal.VectorNode("x", 0)], []),
    "a joint is a maximal.Joint": ([BODY], ["tip"]),
    "a body is a maximal.Body": (["one"], []),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_descriptions_are_named(message):
    with pytest.raises(ValueError, match=message):
        maximal.System(*BAD[message])


def test_bad_forces_and_functions_are_named():
    with pytest.raises(ValueError, match="unknown force"):
        maximal.System([BODY], [], ["wind"])
    with pytest.raises(ValueError, match="acts on a body"):
        maximal.System([BODY], [], [maximal.Load("world")])
    with pytest.raises(ValueError, match="group must be"):
        maximal.System([BODY], [], group=None)
    q = maximal.System([BODY]).configuration(np.eye(3)[None], np.zeros((1, 3)))
    pushed = maximal.System([BODY], [], [maximal.UserForce(lambda t, q, v, p: v[:3])])
    with pytest.raises(ValueError, match="a user force returned"):
        pushed.generalized_forces(0.0, q, jnp.zeros(6))
    held = maximal.System([BODY], [maximal.UserConstraint("c", lambda t, q, p: q.coordinates, 2)])
    with pytest.raises(ValueError, match="constraint 'c' returned"):
        held.constraints(0.0, q)
    with pytest.raises(ValueError, match="rotations have shape"):
        pushed.configuration(np.eye(3), np.zeros((1, 3)))

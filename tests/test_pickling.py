"""Every public value can be pickled and copied, and what is static is equal afterwards, with the same hash."""

import copy
import enum
import pickle
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import SE3, SO3, Rn, contact, control, forces, groups, integrators, maximal, models, shapes, systems
from lgjax.control import costs
from lgjax.identification import armature, coulomb, frames, gear, inertias, masses, placements, viscous
from tests.robots.whole import TEXT
from tests.test_site import public

ROOT = Path(__file__).parent.parent
# Bases and protocols, of which there are no values; a viewer is a running server.

ABSTRACT = {
    "lgjax.control.ControllerWithMemory", "lgjax.forces.Force", "lgjax.identification.Record",
    "lgjax.integrators.Method", "lgjax.shapes.Shape", "lgjax.view.Viewer",
}  # fmt: skip
WAYS = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "deepcopy": copy.deepcopy, "copy": copy.copy}


def roll(q):
    c, s, z = jnp.cos(q[0]), jnp.sin(q[0]), 0 * q[0]
    return lgjax.Pose(jnp.stack([c, -s, z, s, c, z, z, z, 1 + z]).reshape(3, 3), jnp.stack([-0.1 * q[0], z, z]))


def twist(q):
    c, s, z = jnp.cos(q[0]), jnp.sin(q[0]), 0 * q[0]
    return jnp.stack([z, z, 1 + z, -0.1 * c, 0.1 * s, z])[:, None]


def held(t, x, u):
    return u[:1]


def step(x, u):
    return x + 0.1 * u


def push(t, q, v):
    return -v


def start(key, model):
    return lgjax.neutral(model), jnp.zeros(model.nv)


def seen(model, q, v):
    return v


def reward(model, q, v, action):
    return -jnp.sum(v * v)


def ball(x):
    return jnp.sum(x * x) - 1.0


def rolling():
    return lgjax.joint_kind("rolling", roll, twist, nv=1)


@cache
def wheel():
    axle = lgjax.Joint("axle", rolling())
    return lgjax.build([lgjax.Body("wheel", None, axle, mass=1.0, inertia=0.005 * jnp.eye(3))])


@cache
def chain():
    return models.chain(2)


@cache
def touching():
    return lgjax.Contacts(chain(), shapes.Plane((0.0, 0.0, 1.0)), {chain().body_names[-1]: shapes.sphere(0.1)})


@cache
def spaces():
    pair = groups.product_space(groups.right_translation(SE3), groups.vector_space(2))
    both = lgjax.product(SO3, Rn(3))
    made = [lgjax.S3, SE3, SO3, lgjax.R3xSO3, Rn(3), both, groups.TS2, groups.cotangent_group(SE3), pair]
    made += [turn(SO3) for turn in (groups.left_translation, groups.right_translation, groups.two_sided_translation)]
    made += [groups.power_space(groups.TS2, 3), groups.power_space(pair, 2), groups.vector_space(n=2)]
    made += [groups.coadjoint_orbit(SE3), groups.cotangent_bundle(both), groups.cotangent_bundle(groups.s3.S3)]
    charts = [groups.cayley_coordinates(SE3), groups.second_kind_coordinates(SO3)]
    return [*made, *charts, *map(groups.tangent_sphere, charts[:1]), groups.frame_space("frame", 2, step, held)]


@cache
def steppers():
    """Methods, their tables, kinds of joints, topologies: all that is static."""
    tables = [x for x in vars(integrators).values() if hasattr(x, "__dataclass_fields__") and not isinstance(x, type)]
    methods = [lgjax.MuntheKaas(lgjax.RK4), lgjax.CommutatorFree(lgjax.CF4), lgjax.Taylor(4), lgjax.GeneralizedAlpha()]
    methods += [lgjax.SymplecticLie(), maximal.NewtonRule(), integrators.StepSizeController()]
    methods += [contact.TimeStepping(), contact.EventDriven(), control.SemiImplicitEuler()]
    methods += [control.ILQR(), control.FDDP(), control.Shooting(), control.MultipleShooting()]
    methods += [integrators.triple_jump(lgjax.SymplecticLie(0.5), 4), integrators.Flow(((1.0,),))]
    trees = [wheel().tree, models.quadruped().tree]
    return [*tables, *methods, rolling(), *trees, lgjax.saving.Checkpoint("run", every=10)]


@cache
def expensive():
    """What takes long to make."""
    plain = ("four_bar", "five_bar", "stewart_platform", "slider_crank", "rotor", "aerial_manipulator", "puma560")
    made = [getattr(systems, name)() for name in (*plain, "heavy_top_maximal", "quadrotors_with_load")]
    with pytest.warns(UserWarning, match="triangle"):
        made.append(systems.puma560_minimal())
    made.append(systems.heavy_top_maximal(constrained=False))
    made += [systems.heavy_top(kind) for kind in ("body", "spatial", "two_sided", "lie_poisson", "quadratic")]
    made += [systems.spherical_pendulum(2, form) for form in ("chain", "dense", "hamiltonian")]
    made += [systems.bouncing_body(case) for case in ("ellipsoid", "tilted", "union", "cube")]
    made += [systems.spherical_pendulum(1, chart="cayley"), systems.in_coordinates(systems.heavy_top())]
    return [*made, shapes.intersection(shapes.sphere(0.1), shapes.sphere(0.2)), shapes.implicit(ball)]


@cache
def mechanisms():
    arm, flat, m = models.arm(), shapes.Plane((0.0, 0.0, 1.0)), chain()
    frame = m.body_names[-1]
    spring, loop = forces.spring(m, 1.0), lgjax.Loop("distance", frame, None, distance=0.5)
    acting = [spring, forces.friction(m, 0.1), forces.limits(m, 10.0), forces.contact(m, touching(), 1e3)]
    acting += [forces.point_spring(m, (frame, (0.0, 0.0, 0.0)), (None, (1.0, 1.0, 1.0)), 1.0), spring + push]
    acting += [forces.motors(m, push)]
    bodies = [shapes.sphere(0.1), shapes.box((1.0, 1.0, 1.0)), shapes.ellipsoid((1.0, 2.0, 3.0)), flat]
    bodies += [shapes.capsule(0.1, 0.2), shapes.cylinder(0.1, 0.2), shapes.rounded(bodies[1], 0.1)]
    bodies += [shapes.union(*bodies[:2])]
    ground = contact.HeightField(np.zeros((4, 4)), spacing=0.1)
    parts = [lgjax.Joint("joint", rolling()), lgjax.Body("b", None, lgjax.Joint("j", "free"), mass=1.0)]
    whole = [wheel(), arm, models.quadruped(), lgjax.specialize(arm), lgjax.neutral(m)]
    push_series = lgjax.time_derivatives.motion_series(m)
    body = lgjax.collisions.rigid_body(1.0, (1.0, 1.0, 1.0))
    whole += [systems.free_rigid_body(kind) for kind in ("body", "spatial", "lie_poisson")]
    whole += [systems.heavy_top("cotangent")]
    whole.append(lgjax.view.Inline("<html></html>", 10))
    return [*acting, *bodies, *parts, *whole, ground, touching(), loop, push_series, body, lgjax.Spread(mass=0.1)]


@cache
def absolute():
    turn = np.eye(3)
    parts = [maximal.Body("a", 1.0, (1.0, 1.0, 1.0)), maximal.Joint("j", "revolute", "world", "a"), maximal.Gravity()]
    parts += [maximal.Spring("world", "a", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 1.0, 1.0, 1.0), maximal.Load("a")]
    parts += [maximal.Bushing("world", "a"), maximal.TorsionSpring("world", "a", turn, turn, 1.0, 1.0)]
    parts += [maximal.UserForce(push, 1.0), maximal.UserConstraint("c", held, 1, 1.0), maximal.VectorNode("n", 1.0)]
    system = maximal.System(parts[:1], (), [maximal.TorsionSpring("world", "a", turn, turn, 1.0, 1.0, push)])
    q = system.configuration(turn[None], np.zeros((1, 3)))
    return [*parts, system, maximal.unconstrained_problem(system, q, jnp.zeros(6))]


@cache
def searches():
    m = chain()
    q, v = lgjax.neutral(m), jnp.zeros(2)
    frame = m.body_names[-1]
    goals = [costs.frame(m, frame, SE3.identity(m.dtype)), costs.frame_position(m, frame, (1.0, 0.0, 0.0))]
    goals += [costs.momentum(m), costs.state(m, (q, v)), costs.control(), costs.forces(m)]
    made = [control.ControlSystem.of_model(m, 0.01), control.ControlSystem.of_accelerations(wheel(), dt=0.01)]
    made += [control.ControlSystem.on_space(groups.vector_space(2), step, 2), made[0].with_rates()]
    stepping = contact.TimeStepping()
    made += [control.ControlSystem.of_model(m, 0.01, contacts=touching(), method=stepping, substeps=2)]
    made += [control.PredictiveController(system=made[0], steps=3, running=0.1 * goals[0] + goals[4])]
    made += [lgjax.adapters.Environment(model=m, dt=0.1, steps=3, start=start, observe=seen, reward=reward)]
    unknown = [make(m) for make in (masses, inertias, viscous, coulomb, armature, gear, placements)]
    unknown += [unknown[0] + unknown[2], frames(m, [m.tree.frames[0][0]] if m.tree.frames else [])]
    qs, vs = jax.tree.map(lambda x: x[None], (q, v))
    told = lgjax.identification
    records = [told.TorqueRecord(qs, vs, vs, vs, 1.0), told.MotionRecord((q, v), vs, qs, 0.1, 1.0)]
    records += [told.BatchedRecord(records[0]), told.PoseRecord(qs, SE3.identity(m.dtype, (1,)), 1.0, frame)]
    chances = told.log_likelihood(m, records[0], unknown[0])
    rest = [control.Stagewise(held), chances, lgjax.adapters.flat_field(m)]
    return [*goals, sum(goals[:2]), *made, *unknown, *records, *rest]


@cache
def robots():
    robot = lgjax.load_robot(TEXT)
    drives, place = robot.actuators, (0.0, 0.0, 1.0)
    parts = [*robot.forces.forces, robot, drives, drives.transmission, robot.sensors, lgjax.actuators.Pulley(2.0)]
    parts += [drives.as_force(jnp.zeros(3)), forces.Medium(*jnp.ones((2, 1)), jnp.zeros(3))]
    parts += [forces.damper(chain(), 0.1), lgjax.sensors.ContactForces(*jnp.asarray([[place]] * 3), (("a", None),))]
    return parts


MAKERS = (spaces, steppers, mechanisms, absolute, searches, robots, expensive)


def unchanged(x, y) -> bool:
    """Whether two values have the same structure, and leaves that are equal or functions that do the same."""
    if jax.tree.structure(x) != jax.tree.structure(y):
        return False
    same = lambda a, b: np.array_equal(a, b) if isinstance(a, jax.Array | np.ndarray) else type(a) is type(b)
    return all(map(same, jax.tree.leaves(x), jax.tree.leaves(y)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", MAKERS)
def test_values_are_copied_and_pickled(make, way):
    for value in make():
        found = WAYS[way](value)
        assert type(found) is type(value)
        if make in (spaces, steppers):
            assert found == value, value
            assert hash(found) == hash(value), value
        elif jax.tree.leaves(value)[:1] != [value]:
            assert unchanged(value, found), value
        if hasattr(value, "system") and hasattr(value.system, "structure"):
            assert hash(found.system.structure) == hash(value.system.structure), value


def test_every_public_type_is_in_the_lists():
    """Named tuples and flags besides: those are pickled by their names."""
    known = {type(x) for make in MAKERS if make is not expensive for x in make()}
    for name in public():
        thing = pkgutil.resolve_name(name)
        if not isinstance(thing, type) or name in ABSTRACT:
            continue
        if issubclass(thing, enum.Enum):
            values = [*thing, ~thing(0)]
        elif hasattr(thing, "_fields"):
            values = [thing(*map(float, range(len(thing._fields))))]
        else:
            assert thing in known, name
            values = []
        for value, way in [(value, way) for value in values for way in WAYS.values()]:
            assert way(value) == value


def test_a_pickled_copy_compiles_nothing_again():
    move = jax.jit(lambda space, xi, y: space.move(xi, y), static_argnums=0)
    space = groups.product_space(groups.right_translation(SO3), groups.vector_space(2))
    y = SO3.identity(jnp.float64), jnp.zeros(2)
    acceleration, q, v = jax.jit(lgjax.forward_dynamics), lgjax.neutral(wheel()), jnp.ones(1)
    first = acceleration(wheel(), q, v, v)
    move(space, (jnp.ones(3), jnp.ones(2)), y)
    for way in WAYS.values():
        move(way(space), (jnp.ones(3), jnp.ones(2)), y)
        np.testing.assert_array_equal(acceleration(way(wheel()), way(q), v, v), first)
    assert (move._cache_size(), acceleration._cache_size()) == (1, 1)


def test_a_pickled_system_and_a_pickled_field_do_the_same():
    m, control_system, field = chain(), searches()[7], searches()[-1]
    x, u = (lgjax.neutral(m), jnp.ones(2)), jnp.ones(2)
    again = WAYS["pickle"](control_system)
    jax.tree.map(np.testing.assert_array_equal, again.step(x, u), control_system.step(x, u))
    y = lgjax.adapters.flat_state(m, *x)
    np.testing.assert_array_equal(WAYS["pickle"](field)(0.0, y), field(0.0, y))


def test_other_processes_find_the_same_values(tmp_path):
    """As a worker process gets them: made anew there, they are equal to what was sent."""
    (tmp_path / "values").write_bytes(pickle.dumps((spaces(), steppers(), wheel())))
    code = f"""
import pickle, jax
from pathlib import Path
from tests import test_pickling as t
spaces, steppers, wheel = pickle.loads(Path({str(tmp_path / "values")!r}).read_bytes())
assert spaces == t.spaces() and list(map(hash, spaces)) == list(map(hash, t.spaces()))
assert steppers == t.steppers() and list(map(hash, steppers)) == list(map(hash, t.steppers()))
assert t.unchanged(wheel, t.wheel())
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

"""Gaps, frames and velocities of contacts; shapes and grounds of all kinds; errors for bad input."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.contact import HeightField, TimeStepping, contact_points, contact_torques, contact_velocities
from lgjax.multibody.build import Body, Joint, build

FLOOR = lgjax.shapes.Plane((0.0, 0.0, 1.0))
shapes = lgjax.shapes


@cache
def everything():
    """The quadruped with shapes of every kind on a tilted plane and a height field, and pairs of its links."""
    model = lgjax.models.quadruped()
    placed = shapes.placed(
        shapes.capsule(0.03, 0.1), lgjax.Pose(lgjax.so3.exp(jnp.array([0.3, 0.2, 0.1])), jnp.ones(3))
    )
    fixed = {
        "trunk": shapes.union(shapes.box((0.2, 0.1, 0.1), rounding=0.01), shapes.ellipsoid((0.1, 0.2, 0.3))),
        "FL_foot": shapes.sphere(0.02),
        "FR_foot": shapes.sphere(0.02, (0.0, 0.0, 0.01)),
        "RL_calf": placed,
        "RR_calf": shapes.cylinder(0.05, 0.1),
        "RR_thigh": shapes.polyhedron(np.vstack([np.eye(3), -np.ones((1, 3))])),
    }
    heights = 0.1 * np.random.default_rng(0).standard_normal((6, 5))
    grounds = [shapes.Plane((0.1, -0.2, 1.0), 0.3), HeightField(heights, (0.5, 0.7))]
    return model, lgjax.Contacts(model, grounds, fixed, pairs=[("FL_foot", "FR_foot"), ("FL_foot", "RL_calf")])


def test_gaps_change_at_the_velocities_of_the_contacts():
    """d gap/dt = normal velocity, for planes and pairs; frames are rotations; J^T is the transpose of J."""
    model, contacts = everything()
    q, v = lgjax.random_configuration(jax.random.key(1), model), jax.random.normal(jax.random.key(2), (18,))
    path = lambda s: contact_points(model, contacts, lgjax.retract(model, q, s * v))
    points, rates = jax.jit(lambda: jax.jvp(path, (0.0,), (1.0,)))()
    velocity = contact_velocities(model, contacts, q, v)
    # a support point on a height field is exact at contact only; of a cylinder's rims only the lowest stay lowest
    beside = {f"RR_calf[{k}] on ground 0" for k in (1, 2, 4, 5)}
    beside |= {"trunk[8] on ground 1", *(f"RR_calf[{k}] on ground 1" for k in range(6))}
    exact = np.array([name not in beside for name in contacts.names])
    np.testing.assert_allclose(velocity[exact, 0], rates.gap[exact], atol=1e-9)
    square = points.frame @ np.swapaxes(points.frame, 1, 2)
    np.testing.assert_allclose(square, np.broadcast_to(np.eye(3), square.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(points.frame), 1, atol=1e-12)
    forces = jax.random.normal(jax.random.key(3), (len(contacts), 3))
    power = jnp.sum(contact_torques(model, contacts, q, forces) * v)
    np.testing.assert_allclose(power, jnp.sum(forces * velocity), rtol=1e-10)


def test_a_ball_on_a_slope_of_a_height_field_has_the_gap_of_the_plane():
    model = lgjax.models.quadruped()
    x = np.arange(5.0) - 2
    field = HeightField(0.3 * x[:, None] - 0.2 * x[None] + 0.1, 1.0)
    plane = shapes.Plane((-0.3, 0.2, 1.0), -0.1 / np.sqrt(1.13))
    fixed = {"FL_foot": shapes.sphere(0.05), "RR_foot": shapes.sphere(0.02), "trunk": shapes.ellipsoid((0.1, 0.2, 0.3))}
    q = lgjax.random_configuration(jax.random.key(5), model)
    one, other = (contact_points(model, lgjax.Contacts(model, g, fixed), q) for g in (field, plane))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_the_gap_of_two_capsules_is_the_distance_of_the_closest_points():
    model = build([Body(n, None, Joint(f"{n}_joint", "free"), mass=1.0, inertia=np.eye(3)) for n in "ab"])
    contacts = lgjax.Contacts(model, (), {n: shapes.capsule(0.1, 0.5) for n in "ab"}, pairs=[("a", "b")])
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(jax.random.split(jax.random.key(0), 20))
    gaps = jax.vmap(lambda q: contact_points(model, contacts, q).gap)(q)[:, 0]
    along = np.linspace(-0.5, 0.5, 401)
    for k in range(20):
        R, p = (np.asarray(x[k]) for x in q.free_poses)
        lines = [p[b] + along[:, None] * R[b, :, 2] for b in (0, 1)]
        distance = np.linalg.norm(lines[0][:, None] - lines[1][None], axis=-1).min()
        assert abs(gaps[k] - (distance - 0.2)) < 1e-5


def test_candidates_are_the_same_where_a_radius_is_traced():
    """Friction and restitution are given in their order, and pairs are of spheres that are known to be spheres."""
    model = build([Body(n, None, Joint(f"{n}_joint", "free"), mass=1.0, inertia=np.eye(3)) for n in "abc"])

    def candidates(radius):
        fixed = {"a": shapes.cylinder(0.1, 0.1), "b": shapes.sphere(radius), "c": shapes.sphere(0.1)}
        contacts = lgjax.Contacts(model, FLOOR, fixed, pairs=[("b", "c")])
        return contacts.names, contact_points(model, contacts, lgjax.neutral(model)).gap

    names, gaps = candidates(0.2)
    traced = []
    found = jax.jit(lambda radius: traced.append(candidates(radius)) or traced[0][1])(0.2)
    assert traced[0][0] == names
    np.testing.assert_allclose(found, gaps, atol=1e-15)


def test_the_built_in_models_and_their_files_have_the_same_geometry():
    for name, floating in (("quadruped", True), ("arm", False)):
        own = lgjax.models.by_name(name).geometry
        assert own == lgjax.load_urdf(lgjax.models.urdf(name), floating_base=floating).geometry
        assert len(lgjax.Contacts(lgjax.models.by_name(name), FLOOR)) >= len(own)


def test_mjcf_geoms_that_collide_are_geometry_and_weigh_nothing():
    text = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="b"><freejoint/>
    <inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/><geom type="capsule" size="0.1" fromto="0 0 0 0.2 0 0"/>
    <geom type="box" size="1 1 1" contype="0" conaffinity="0"/><geom type="cylinder" size="0.1 0.3"/>
    </body></worldbody></mujoco>"""
    model = lgjax.load_mjcf(text)
    assert [(one.link, one.kind, one.size) for one in model.geometry] == [
        ("b", "capsule", (0.1, 0.1)),
        ("b", "cylinder", (0.1, 0.3)),
    ]
    assert float(model.inertias.mass[0]) == 2.0
    assert len(lgjax.Contacts(model, FLOOR)) == 8


def one_foot(model, **law):
    """Contacts of one foot with the floor."""
    return lgjax.Contacts(model, FLOOR, ["FL_foot"], restitution=0.5, **law)


def step_of(model, dt):
    return lgjax.contact.contact_step(model, one_foot(model), lgjax.neutral(model), jnp.zeros(18), jnp.zeros(18), dt)


def roll_of(model, dt, method):
    contacts = one_foot(model)
    return lgjax.rollout(model, lgjax.neutral(model), jnp.zeros(18), None, dt, 1, method, contacts=contacts)


BAD = {
    "different bodies, got 'FL_foot' and 'FL_foot'": lambda m: lgjax.Contacts(m, FLOOR, pairs=[("FL_foot", "FL_foot")]),
    "different bodies, got 'FL_foot' and 'FL_calf'": lambda m: lgjax.Contacts(
        m, (), {"FL_foot": shapes.sphere(0.02), "FL_calf": shapes.sphere(0.02)}, pairs=[("FL_foot", "FL_calf")]
    ),
    "pairs name 'FR_foot' and 'FL_foot' twice": lambda m: lgjax.Contacts(
        m, FLOOR, pairs=[("FL_foot", "FR_foot"), ("FR_foot", "FL_foot")]
    ),
    "friction of the contacts is negative: ": lambda m: one_foot(m).replace(friction=-1),
    "friction of the contacts is not finite": lambda m: one_foot(m).replace(friction=np.nan),
    "friction of the contacts must be numbers": lambda m: one_foot(m).replace(friction=None),
    "friction of the contacts has shape": lambda m: one_foot(m).replace(friction=[1.0, 2.0]),
    "restitution of the contacts must lie between 0 and 1, got": lambda m: one_foot(m).replace(restitution=2),
    "smoothing of the contacts must be numbers": lambda m: one_foot(m).replace(smoothing="little"),
    "dt must be positive and finite": lambda m: step_of(m, -1e-3),
    "dt must be positive": lambda m: step_of(m, 0.0),
    "dt is not positive": lambda m: roll_of(m, -1e-3, TimeStepping()),
    "dt is not positive: 0": lambda m: roll_of(m, 0.0, lgjax.contact.EventDriven()),
    "no frame 'wheel'": lambda m: lgjax.Contacts(m, FLOOR, {"wheel": shapes.sphere(0.1)}),
    "friction of the contacts is negative": lambda m: lgjax.Contacts(m, FLOOR, friction=-0.1),
    "restitution of the contacts must lie between 0 and 1": lambda m: lgjax.Contacts(m, FLOOR, restitution=1.5),
    "smoothing of the contacts is negative": lambda m: lgjax.Contacts(m, FLOOR, smoothing=-1.0),
    "no support function": lambda m: lgjax.Contacts(m, FLOOR, {"trunk": shapes.complement(shapes.sphere(1.0))}),
    "link 'trunk' cannot be in a pair: .* not convex": lambda m: lgjax.Contacts(
        m,
        FLOOR,
        {
            "trunk": shapes.intersection(shapes.sphere(1.0), shapes.complement(shapes.sphere(1.0, (1, 0, 0)))),
            "FL_foot": shapes.sphere(0.1),
        },
        pairs=[("trunk", "FL_foot")],
    ),
    "which has no shape": lambda m: lgjax.Contacts(m, FLOOR, pairs=[("FL_hip", "FL_foot")]),
    "nothing can touch": lambda m: lgjax.Contacts(m),
    "at least two columns": lambda m: HeightField(np.zeros((4, 1)), 1.0),
    "spacing of the height field is not positive": lambda m: HeightField(np.zeros((4, 4)), 0.0),
    "heights of the height field is not finite": lambda m: HeightField(np.full((4, 4), np.nan), 1.0),
    "came with no collision geometry": lambda m: lgjax.Contacts(m, FLOOR, ["FL_hip"]),
    "take method=lgjax.contact.TimeStepping": lambda m: lgjax.rollout(
        m, lgjax.neutral(m), jnp.zeros(18), None, 1e-3, 1, contacts=lgjax.Contacts(m, FLOOR)
    ),
    r"^heights of the height field is not finite: nan at \[3, 7\] \(1 of 40000 entries\)$": lambda m: HeightField(
        np.zeros((200, 200)) + np.where(np.arange(40000) == 607, np.nan, 0).reshape(200, 200), 1.0
    ),
    r"^exponent of the contact must be at least 1, got \[0\.5\]$": lambda m: lgjax.forces.contact(
        m, one_foot(m), 1.0, exponent=0.5
    ),
    r"slip_speed of the contact is not positive: \[0\.0\]": lambda m: lgjax.forces.contact(
        m, one_foot(m), 1.0, slip_speed=0
    ),
    "stiffness of the contact is negative": lambda m: lgjax.forces.contact(m, lgjax.Contacts(m, FLOOR), -1.0),
    "geometry of 'nobody', which is no body": lambda m: build(
        [Body("a", None, Joint("j", "free"), mass=1.0, inertia=np.eye(3))],
        geometry=[lgjax.multibody.geometry.Geometry("nobody", "mesh")],
    ),
}


def test_shapes_take_the_dtype_of_the_model():
    """Of every kind: one with a support point alone was refused, as if it had none."""
    model = lgjax.models.chain(1).astype(jnp.float32)
    made = [shapes.ellipsoid(jnp.asarray([0.1, 0.2, 0.3], jnp.float64)), shapes.sphere(jnp.asarray(0.1, jnp.float64))]
    contacts = lgjax.Contacts(model, FLOOR, {model.body_names[0]: made})
    assert {leaf.dtype for leaf in jax.tree.leaves(contacts)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises((ValueError, TypeError), match=message):
        BAD[message](lgjax.models.quadruped())


def test_time_stepping_needs_numbers_in_range_and_drivers_of_mechanisms():
    with pytest.raises(TypeError, match="rollout takes that one"):
        lgjax.integrate(lgjax.right_translation(lgjax.Rn(1)), lambda t, y: y, jnp.zeros(1), 0.0, 1.0, 2, TimeStepping())
    with pytest.raises(ValueError, match="max_sweeps"):
        TimeStepping(max_sweeps=0)
    turning = Body("b", "a", Joint("j", "revolute"), mass=1.0, inertia=np.eye(3))
    base = build([Body("a", None, Joint("fix", "fixed")), turning])
    with pytest.raises(ValueError, match="fixed to the world"):
        lgjax.Contacts(base, FLOOR, {"a": shapes.sphere(0.1)})


def test_a_traced_time_step_that_is_not_positive_has_a_status():
    model = build([Body("b", None, Joint("j", "free"), mass=1.0, inertia=np.eye(3))])
    contacts = lgjax.Contacts(model, FLOOR, {"b": shapes.sphere(0.1)})
    step = lambda dt: lgjax.contact.contact_step(model, contacts, lgjax.neutral(model), jnp.zeros(6), jnp.zeros(6), dt)
    status = jax.jit(lambda dt: step(dt).status)
    assert status(1e-3) == 0
    assert status(-1e-3) & lgjax.contact.ContactStatus.NOT_SOLVED


def test_replacing_a_number_of_the_law_by_none_is_another_structure_and_another_number_is_not():
    contacts = one_foot(lgjax.models.quadruped(), smoothing=0.0)
    structure = jax.tree.structure(contacts)
    assert jax.tree.structure(contacts.replace(restitution=0.1, friction=[0.2], smoothing=0.1)) == structure
    assert contacts.replace(restitution=None).restitution is None
    assert contacts.replace(smoothing=None).smoothing is None
    assert one_foot(lgjax.models.quadruped()).replace(smoothing=0.1).smoothing == 0.1


def test_no_smoothing_is_smoothing_of_zero():
    """In states and in their derivatives with respect to everything else."""
    model = lgjax.models.quadruped()
    random = np.random.default_rng(3)
    q = lgjax.neutral(model)
    q = q._replace(free_poses=q.free_poses._replace(translation=jnp.array([[0.0, 0.0, 0.28]])))
    v = jnp.asarray(random.normal(size=18))

    def cost(smoothing, v, friction, inertias):
        feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
        contacts = lgjax.Contacts(model, FLOOR, feet, friction=0.4, restitution=0.2, smoothing=smoothing)
        own = model.replace(inertias=inertias)
        step = lgjax.contact.contact_step(own, contacts.replace(friction=friction), q, v, jnp.zeros(18), 2e-2)
        return jnp.sum(step.v**2), (step.impulse, step.status)

    args = v, jnp.full(4, 0.4), model.inertias
    found = [jax.jit(jax.value_and_grad(partial(cost, s), (0, 1, 2), has_aux=True))(*args) for s in (None, 0.0)]
    assert np.any(found[0][0][1][0] > 0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), *found)

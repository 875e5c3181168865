"""Arguments that do not fit, found by `soak/doors.py`: each is named in one sentence, nothing passes silently."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import collisions, forces, groups, identification, integrators, maximal, shapes, systems
from lgjax.execution.callbacks import contents
from lgjax.simulate.identification.record_checks import check_record
from soak import doors
from soak.door_calls import of_groups

BODY = lgjax.Body("b", None, lgjax.Joint("j", "revolute"), mass=1.0, inertia=np.eye(3))


@cache
def arm() -> lgjax.Model:
    return lgjax.models.chain(2)


arm()  # made outside of a trace, so that its numbers are known
ONES = jnp.ones(10)


def state():
    return lgjax.neutral(arm()), jnp.zeros(2)


def record(**changes):
    q = jax.tree.map(lambda x: jnp.stack([x] * 4), lgjax.neutral(arm()))
    given = {"q": q, **dict.fromkeys(("v", "vdot", "command"), jnp.ones((4, 2))), "sigma": 1.0} | changes
    return identification.TorqueRecord(**given)


def touching():
    return lgjax.Contacts(arm(), shapes.Plane((0.0, 0.0, 1.0)), {arm().body_names[0]: shapes.sphere(0.1)})


def contact_step(**changes):
    given = {"tau": jnp.zeros(2), "dt": 0.1} | changes
    return lgjax.contact.contact_step(arm(), touching(), *state(), **given)


def motion(**changes):
    q = record().q
    given = {"start": state(), "command": jnp.ones((4, 2)), "q": q, "dt": 0.1, "sigma": 1.0} | changes
    return identification.MotionRecord(**given)


def maximal_start(rotation, v):
    system = maximal.System([maximal.Body("b", 1.0, (0.1, 0.1, 0.1))])
    bodies = groups.r3_so3.identity(jnp.float64, (1,))._replace(rotation=rotation)
    return maximal.integrate(system, maximal.AbsoluteConfiguration(bodies, jnp.zeros(0)), v, 0.0, 0.1, 1).v


def built(**joint):
    return lgjax.build([lgjax.Body("b", None, lgjax.Joint("j", **{"kind": "revolute"} | joint), mass=1.0)])


SPACE = groups.right_translation(groups.SO3)
METHOD = lgjax.MuntheKaas(lgjax.RK4)
run = lambda space, field: lgjax.integrate(space, field, jnp.eye(3), 0.0, 1.0, 2, METHOD)
still = lambda t, y: jnp.zeros(3)
reversible = lambda step, y0: integrators.reversible_steps(step, 1.0, y0, 0.0, 1.0, 2)
to_mujoco = lambda *given, **more: lgjax.conventions.to_mujoco(arm(), *given, **more)

body, at_rest = (
    (lambda: collisions.rigid_body(1.0, (0.1, 0.2, 0.25))),
    (lambda: collisions.rigid_state((0.0, 0.0, 1.0))),
)
touch = lambda: collisions.impact.ContactPoint(
    jnp.zeros(()), jnp.zeros(3), jnp.asarray([0.0, 0.0, 1.0]), jnp.asarray(False), jnp.asarray(0)
)
struck = lambda *laws: collisions.lagrangian_impact(
    body(), at_rest().pose, at_rest().pose, 0.1, 0.1, touch(), collisions.impact.Laws(*laws)
)
LOOP = lgjax.Loop("point", arm().body_names[-1], None)
closed = lambda **given: lgjax.constrained_forward_dynamics(arm(), LOOP, *state(), jnp.zeros(2), **given)
plane_system = lambda: lgjax.control.ControlSystem.on_space(groups.vector_space(2), lambda x, u: x + u, 2)
effort = lambda t, x, u: u @ u
predictor = lambda: predict(system=plane_system(), running=effort)
predict = lambda **given: lgjax.control.PredictiveController(**{"steps": 2, "system": None} | given)
ensemble = lambda **given: lgjax.ensemble(arm(), batch=2, steps=1, dt=0.1, key=jax.random.key(0), **given)
spread = lambda **given: ensemble(spread=lgjax.Spread(**given))

search = lambda **given: lgjax.optimize_controls(
    **{"system": plane_system(), "guesses": jnp.zeros((1, 3, 2)), "steps": 3, "running": effort, "state": jnp.zeros(2)}
    | given
)

WRONG = {
    # shapes, bodies and drivers
    "shape is of type float, expected a Shape": lambda: shapes.rounded(0.5, 0.1),
    "plane is None, expected a Plane": lambda: shapes.gap(shapes.sphere(1.0), None, lgjax.se3.identity(jnp.float64)),
    "pose is of type tuple, expected a Pose": lambda: shapes.placed(shapes.sphere(1.0), (np.eye(3), np.zeros(3))),
    "parameters must be a tuple of arrays, got 0.5": lambda: shapes.support(lambda d, r: r * d, 0.5),
    "function must be a function, got 'ball'": lambda: shapes.implicit("ball"),
    "rays must be": lambda: shapes.mass_properties(shapes.sphere(1.0), rays=20.5),
    "body is None, expected a RigidBody": lambda: collisions.kinetic_energy(None, at_rest()),
    "state.angular has shape (1,), expected (..., 3)": lambda: collisions.variational_step(
        body(), at_rest()._replace(angular=jnp.zeros(1)), 0.1
    ),
    "state.linear has leading axes (5,), where one is taken": lambda: collisions.variational_step(
        body(), at_rest()._replace(linear=jnp.zeros((5, 3))), 0.1
    ),
    "chart must be one of cayley, exp, got 'log'": lambda: collisions.variational_step(body(), at_rest(), 0.1, "log"),
    "inertia must be numbers of shape (3, 3), got 'text'": lambda: collisions.rigid_body(1.0, "text"),
    "laws.restitution has leading axes (5,), where one is taken": lambda: struck(jnp.ones(5), None),
    "laws.friction is of type str, expected an array": lambda: struck(1.0, "much"),
    "system must be a ControlSystem, got None": predict,
    "first has shape (2,), expected (..., 3)": lambda: maximal.compose_rotation_vectors(jnp.ones(2), jnp.ones(3)),
    "spread.mass must be numbers of shape (), got 'text'": lambda: spread(mass="text"),
    "spread.gravity has shape (2,), expected () or (3,)": lambda: spread(gravity=jnp.ones(2)),
    "spread.position has shape (0,), expected () or (2,)": lambda: spread(position=jnp.ones(0)),
    "q.joints is of type str, expected an array": lambda: ensemble(q=state()[0]._replace(joints="text")),
    "v is of type list, expected an array": lambda: ensemble(v=[0.0, 1.0]),
    "v is bool, the model is float64": lambda: ensemble(v=jnp.ones(2, bool)),
    # searches, costs and figures
    "bounds are (lower, upper), each one number or (2,): bounds must be numbers": lambda: search(bounds=(1j, 2j)),
    "bounds are (lower, upper), each one number or (2,): 'float' object": lambda: search(bounds=1.0),
    "displacement of the state has shape (10,), expected (2,)": lambda: search(state=jnp.zeros((5, 2))),
    "target has shape (3,), the controls have (2,)": lambda: lgjax.control.costs.control(np.ones(3))(
        0.0, None, jnp.ones(2)
    ),
    "weights has shape (1,), the controls have (2,)": lambda: lgjax.control.costs.control(0.0, np.ones(1))(
        0.0, None, jnp.ones(2)
    ),
    "names are of at least one quantity, got none": lambda: lgjax.plot.phase_figure(
        np.ones((3, 1)), np.ones((3, 1)), ()
    ),
    "unit must be a text, got 3": lambda: lgjax.plot.fan_figure(np.ones(2), np.ones((3, 2)), unit=3),
    "probabilities lie between 0 and 1, at least one of them, got ()": lambda: lgjax.plot.fan_figure(
        np.ones(2), np.ones((3, 2)), probabilities=()
    ),
    "system must be a ControlSystem, got 'arm'": lambda: search(system="arm"),
    "running must be a function, got {}": lambda: search(running={}),
    "memory must be a PredictiveMemory, got None": lambda: predictor().step(jnp.zeros(2), None),
    "memory.plan must be an array of shape (2, 2) and dtype float64": lambda: predictor().step(
        jnp.zeros(2), predictor().init(jnp.zeros(2))._replace(plan=jnp.zeros(3))
    ),
    "model is of type str, expected a Model": lambda: lgjax.control.ControlSystem.of_model("arm", 0.1),
    "actuation must be a function, got 'gears'": lambda: lgjax.control.ControlSystem.of_model(
        arm(), 0.1, 2, actuation="gears"
    ),
    "observe must be a function, got {}": lambda: ensemble(observe={}),
    "folder must be a path, got 3": lambda: lgjax.load_ensemble(3),
    # loops
    "alpha must be a number, got 'soft'": lambda: closed(alpha="soft"),
    "beta must be a scalar, got shape (2,)": lambda: closed(beta=jnp.ones(2)),
    "tolerance must be a number, got 1j": lambda: closed(tolerance=1j),
    "rank must be a number, got {}": lambda: lgjax.project_positions(arm(), LOOP, state()[0], rank={}),
    "checkpoint must be a Checkpoint, got 'run'": lambda: lgjax.rollout(
        arm(), *state(), None, 0.1, 1, checkpoint="run"
    ),
    "cannot draw an object of type str": lambda: lgjax.view.scene_of("ball", visuals=False),
    # wrong lengths that gave a result
    "v has shape (1,), expected (..., 2)": lambda: to_mujoco(state()[0], jnp.zeros(1)),
    "v has shape (3,), expected (..., 2)": lambda: to_mujoco(state()[0], jnp.zeros(3)),
    "vdot is complex128, expected real numbers": lambda: to_mujoco(*state(), jnp.zeros(2, complex)),
    "q has shape (3,), expected (..., 2)": lambda: lgjax.conventions.from_pinocchio(arm(), jnp.zeros(3)),
    "q is an array of shape (2,), expected a Configuration": lambda: to_mujoco(jnp.zeros(2)),
    "order must be a list of names, got 'rod'": lambda: to_mujoco(state()[0], order="rod"),
    "v has shape (1,), expected (nv,) of the model": lambda: forces.damper(arm(), 1.0)(0.0, None, jnp.zeros(1)),
    # leaves of models
    "model.gravity is of type list, expected an array": lambda: lgjax.mass_matrix(
        arm().replace(gravity=[0.0, 0.0, 1.0]), state()[0]
    ),
    "model.gravity is complex128, expected real numbers": lambda: lgjax.mass_matrix(
        arm().replace(gravity=jnp.zeros(3, complex)), state()[0]
    ),
    "model.gravity is float32, the masses of the model are float64": lambda: lgjax.mass_matrix(
        arm().replace(gravity=jnp.zeros(3, jnp.float32)), state()[0]
    ),
    "model is None, expected a Model": lambda: lgjax.specialize(None),
    "model is of type dict, expected a Model": lambda: forces.spring({}, 1.0),
    "model is of type float, expected a Model": lambda: lgjax.control.rollout_memory(1.5, 3),
    # forces
    "stiffness must be numbers, got 'stiff'": lambda: forces.spring(arm(), "stiff"),
    "stiffness must be numbers, got 1j": lambda: forces.spring(arm(), 1j),
    "rest is an array of shape (2,), expected a Configuration": lambda: forces.spring(arm(), 1.0, jnp.zeros(2)),
    "joints must be a list of names, got 'joint0'": lambda: forces.damper(arm(), 1.0, joints="joint0"),
    "command must be a function, got 3": lambda: forces.motors(arm(), 3),
    "a must be a pair of a body and a point, got None": lambda: forces.point_spring(arm(), None, None, 1.0),
    "pairs must be a list of pairs of links, got None": lambda: lgjax.Contacts(
        arm(), shapes.Plane((0.0, 0.0, 1.0)), {arm().body_names[0]: shapes.sphere(0.1)}, pairs=None
    ),
    "v is bool, expected floating numbers": lambda: forces.spring(arm(), 1.0)(0.0, state()[0], jnp.ones(2, bool)),
    "contacts must be Contacts, got None": lambda: lgjax.contact.contact_points(arm(), None, state()[0]),
    "contacts must be Contacts, got 'floor'": lambda: lgjax.contact.contact_velocities(arm(), "floor", *state()),
    "contacts must be Contacts, got 0.5": lambda: lgjax.contact.contact_torques(arm(), 0.5, state()[0], jnp.ones(3)),
    "forces must be numbers of shape (1, 3), got": lambda: lgjax.contact.contact_torques(
        arm(), touching(), state()[0], jnp.ones((1, 3), complex)
    ),
    "tau has shape (3,), expected (2,)": lambda: contact_step(tau=jnp.ones(3)),
    "tau is None, expected an array of shape (2,)": lambda: contact_step(tau=lambda q, v: None),
    "wrenches has shape (6,), expected (2, 6)": lambda: contact_step(wrenches=jnp.ones(6)),
    "guess is of type float, expected an array of shape (1, 3)": lambda: contact_step(guess=0.5),
    "dt must be a number, got 'short'": lambda: contact_step(dt="short"),
    "pose.rotation has shape (3, 2), expected (3, 3)": lambda: lgjax.time_derivatives.pose_derivatives(
        lgjax.Pose(jnp.ones((3, 2)), jnp.ones(3)), jnp.ones((2, 6))
    ),
    "prescribed takes velocity indices, several; got 0.5": lambda: lgjax.hybrid_dynamics(
        arm(), *state(), jnp.ones(2), jnp.ones(2), prescribed=0.5
    ),
    "steps must be a Python integer, known when the program is built; got None": lambda: lgjax.rollout(
        arm(), *state(), None, 0.1, None
    ),
    "controller is of type str, expected a function of (t, q, v) or None": lambda: lgjax.rollout(
        arm(), *state(), "still", 0.1, 1, contacts=touching(), method=lgjax.contact.TimeStepping()
    ),
    # descriptions
    "bodies must be a list of Body, got 'b'": lambda: lgjax.build("b"),
    "bodies must be a list of Body with names, got None in it": lambda: lgjax.build([None]),
    "body 'b': joint must be a Joint with a name, got 'j'": lambda: lgjax.build([lgjax.Body("b", None, "j")]),
    "joint 'j' of body 'b': unknown type {}": lambda: built(kind={}),
    "axis of joint 'j' of body 'b' must be numbers of shape (3,)": lambda: built(axis=(1j, 0, 0)),
    "damping of joint 'j' must be numbers, got 'much'": lambda: built(damping="much"),
    "a body is given by its name or its index, got 1.5": lambda: lgjax.jacobian(arm(), state()[0], 1.5),
    "name must be the name of a built-in model, got 3": lambda: lgjax.models.by_name(3),
    "key must be a Python integer": lambda: lgjax.models.random_tree(0.5, 3),
    "damping must be a number, got 'a'": lambda: lgjax.models.random_tree(0, 3, damping="a"),
    "key must be one key, such as jax.random.key(0), got None": lambda: lgjax.random_configuration(None, arm()),
    "key must be one key, such as jax.random.key(0), got an array of shape (3,)": lambda: lgjax.random_configuration(
        jax.random.split(jax.random.key(0), 3), arm()
    ),
    "loop (distance a-b): distance must be numbers, got 'far'": lambda: lgjax.Loop(
        "distance", "a", "b", distance="far"
    ),
    "body_a of a loop must be a name or an index, got 1.5": lambda: lgjax.Loop("point", 1.5, "b"),
    # integrators
    "space must be a HomogeneousSpace": lambda: run(groups.SO3, still),
    "field must be a function, got None": lambda: run(SPACE, None),
    "the state must hold arrays, got 'text' in it": lambda: reversible(still, "text"),
    "arguments must hold arrays, got 'text' in it": lambda: lgjax.monte_carlo(
        lambda key, x: x, ("text",), batch=2, key=jax.random.key(0)
    ),
    "right_translation(SO3) cannot move the state: y has shape (3, 2), expected (..., 3, 3)": lambda: lgjax.integrate(
        SPACE, still, jnp.ones((3, 2)), 0.0, 1.0, 2, METHOD
    ),
    "space must be a HomogeneousSpace, such as right_translation(SO3), got 'SO3'": lambda: (
        integrators.integrate_reversible("SO3", still, jnp.eye(3), 0.0, 1.0, 2, lgjax.SymplecticLie())
    ),
    "the state: SymplecticLie takes one point, got leading axes (5,)": lambda: integrators.integrate_reversible(
        groups.cotangent_bundle(groups.SO3),
        lambda t, y: jnp.zeros(6),
        groups.Covector(jnp.eye(3), jnp.zeros((5, 3))),
        0.0,
        1.0,
        2,
        lgjax.SymplecticLie(),
    ),
    "step must be a function, got 3": lambda: reversible(3, jnp.zeros(2)),
    "step must return the pair": lambda: reversible(lambda *given: given[2], jnp.zeros(2)),
    "step must return a state like the one before it: state is float64(2,) before and float64(3,) after": (
        lambda: reversible(lambda a, t, y, h, c: (jnp.zeros(3), c), jnp.zeros(2))
    ),
    "order 100 would take 3^49 steps": lambda: integrators.triple_jump(lgjax.SymplecticLie(), order=100),
    "order must be a Python integer": lambda: integrators.suzuki(lgjax.SymplecticLie(), order="4"),
    "scan_stages must be True or False, got 'yes'": lambda: lgjax.MuntheKaas(lgjax.RK4, scan_stages="yes"),
    "running must be a function, got 'speed'": lambda: lgjax.control.Stagewise("speed"),
    "tau must be a function, got 'zero'": lambda: lgjax.time_derivatives.motion_series(arm(), "zero"),
    "plane.normal has shape (5, 3), expected (3,)": lambda: shapes.gap(
        shapes.sphere(1.0), shapes.Plane(jnp.ones((5, 3))), lgjax.se3.identity(jnp.float64)
    ),
    # ready systems
    "dtype must be a floating dtype, such as jnp.float32, got 'double-double'": lambda: systems.rotor(
        dtype="double-double"
    ),
    "gravity must be a number, got 'down'": lambda: systems.heavy_top(gravity="down"),
    "path must be a function, got None": lambda: systems.quadrotors_with_load(None),
    "q.bodies.translation has shape (3, 1), expected (..., 3, 3)": lambda: systems.slider_position(
        maximal.AbsoluteConfiguration(groups.RotationTranslation(jnp.eye(3), jnp.ones((3, 1))), jnp.zeros(0))
    ),
    "system must be a Problem, got None": lambda: systems.in_coordinates(None),
    # records
    "TorqueRecord.v has shape (4, 3), expected (4, 2)": lambda: check_record(record(v=jnp.ones((4, 3))), arm()),
    "TorqueRecord.command has shape (3, 2), expected (4, 2)": lambda: check_record(
        record(command=jnp.ones((3, 2))), arm()
    ),
    "TorqueRecord.q is of type list, expected a Configuration": lambda: check_record(record(q=[]), arm()),
    "TorqueRecord.sigma has shape (3,)": lambda: check_record(record(sigma=jnp.ones(3)), arm()),
    "theta must be numbers of shape (10,)": lambda: identification.from_log_cholesky("ten"),
    "parameters: the pseudo-inertia of a body is not positive definite": lambda: identification.log_cholesky(ONES),
    "MotionRecord.command is None, expected an array": lambda: check_record(motion(command=None), arm()),
    "MotionRecord.start[0].joints is float32, the model is float64": lambda: check_record(
        motion(start=(state()[0]._replace(joints=jnp.zeros(2, jnp.float32)), jnp.zeros(2))), arm()
    ),
    "MotionRecord.start[1] is int64, the model is float64": lambda: check_record(
        motion(start=(state()[0], jnp.zeros(2, int))), arm()
    ),
    # bodies in absolute coordinates
    "name of a body must be text, got 3": lambda: maximal.System([maximal.Body(3, 1.0, (0.1, 0.1, 0.1))]),
    "vector of Gravity has shape (2,), expected (3,)": lambda: maximal.System(
        [maximal.Body("b", 1.0, (0.1, 0.1, 0.1))], [], [maximal.Gravity((0.0, 1.0))]
    ),
    "q must hold arrays, got 'text' in it": lambda: maximal_start("text", jnp.zeros(6)),
    "v must be numbers of shape (6,), got None": lambda: maximal_start(np.eye(3)[None], None),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_named(message):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)) as caught:
        jax.eval_shape(WRONG[message])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < doors.LONGEST


def test_batched_records_have_one_more_axis():
    batch = identification.BatchedRecord(jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 3), record()))
    check_record(record(), arm())
    check_record(batch, arm())
    with pytest.raises(ValueError, match=r"TorqueRecord.v has shape \(3, 4, 2\), expected \(4, 2\)"):
        check_record(record(v=batch.record.v), arm())


def test_what_is_known_inside_jit_is_judged_there():
    """Constants of a traced program are known; their checks compute at once, with no tracer in them."""
    ten = identification.inertial_parameters(arm()).reshape(-1, 10)
    corners = jnp.concatenate([jnp.eye(3), -jnp.ones((1, 3))])
    loops = (lgjax.Loop("point", arm().body_names[-1], None, (0.0, 0.0, -1.0), (0.0, 0.0, -2.5)),)
    assert jax.eval_shape(lambda: identification.log_cholesky(ten)).shape == ten.shape
    assert jax.eval_shape(lambda: shapes.polyhedron(corners).support(jnp.ones(3)).point).shape == (3,)
    assert identification.base_parameters(ten).independent.size > 0
    jax.eval_shape(lambda: jnp.asarray(identification.base_parameters(ten).combine))
    start, bad = state(), -ten
    with pytest.raises(ValueError, match="is open at the start"):
        jax.eval_shape(lambda: lgjax.rollout(arm(), *start, None, 0.1, 1, loops=loops).v)
    with pytest.raises(ValueError, match="not positive"):
        jax.eval_shape(lambda: identification.log_cholesky(bad))
    alpha = jnp.asarray(0.7)
    controller = jax.eval_shape(lambda: jnp.asarray(integrators.StepSizeController(alpha).alpha))
    assert controller.shape == ()


def test_a_state_without_a_batch_goes_with_a_batch_of_velocities():
    q, v = state()
    found = jax.eval_shape(lambda: to_mujoco(q, jnp.stack([v] * 5)))
    assert found.q.shape == (2,)
    assert found.v.shape == (5, 2)


def test_functions_that_check_are_read_as_the_library_s():
    """A controller that reads one is the same function when it is written anew."""
    exp = lgjax.so3.exp
    make = lambda: lambda t, q, v: exp(v)
    assert contents(make()) == contents(make()) is not None


# ---- the search itself
FEW = ("so3.exp", "se3.Ad", "r3_so3.compose", "ts2.project", "left().move", "Rn")


def test_a_few_doors_hold():
    with jax.numpy_dtype_promotion("standard"):
        hold(of_groups())


def hold(calls):
    for name in FEW:
        function, args, kwargs = *calls[name], {}
        right = doors.shapes(function, args, kwargs)
        for argument, mutation, call in doors.attempts(name, function, args, kwargs):
            kind, said = doors.judge(name, argument, mutation, call, right)
            assert kind != "failure", (name, argument, mutation.what, said)


def test_an_open_door_is_found():
    def careless(x):
        return x[0] * jnp.sin(x[-1])

    found = {}
    for argument, mutation, call in doors.attempts("careless", careless, (jnp.ones(3),), {}):
        found[mutation.what] = doors.judge(
            "careless", argument, mutation, call, doors.shapes(careless, (jnp.ones(3),), {})
        )
    assert all(found[what][0] == "failure" for what in ("too short", "too long", "complex numbers", "text"))
    assert found["a NumPy array"][0] == "accepted"

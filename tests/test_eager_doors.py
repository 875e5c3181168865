"""Arguments of what runs outside of JAX's transformations: searches, ensembles, figures and views."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import collisions, groups, shapes
from lgjax.view import sources

ARM = lgjax.models.chain(2)
FLAT = jax.tree.map(lambda x: x[:2] if x.ndim else x, shapes.Plane((0.0, 0.0, 1.0)))
SYSTEM = lgjax.control.ControlSystem.on_space(groups.vector_space(2), lambda x, u: x + u, 2)
effort = lambda t, x, u: u @ u
search = lambda **given: lgjax.optimize_controls(
    SYSTEM, **{"guesses": jnp.zeros((1, 3, 2)), "steps": 3, "running": effort, "state": jnp.zeros(2)} | given
)
ensemble = lambda **given: lgjax.ensemble(ARM, batch=2, steps=1, dt=0.1, key=jax.random.key(0), **given)
carlo = lambda simulate, given=(), folder=None, resume=False: lgjax.monte_carlo(
    simulate, given, batch=2, key=jax.random.key(0), folder=folder, resume=resume
).statistics.mean[0]
above = lambda planes: sources.scene_of(shapes.sphere(1.0), collisions.rigid_state((0.0, 0.0, 1.0)), planes=planes)

PENDULUM = lgjax.systems.spherical_pendulum(2)
turn = lambda q: jnp.zeros((6, 1), q.dtype)


class Unhashable:
    """A function with numbers of its own, which can be compared."""

    __hash__ = None

    def __call__(self, q):
        return turn(q)


WRONG = {
    "checkpoint must be a path, got 3": lambda: search(checkpoint=3),
    "nodes must have shape (guesses, segments - 1, ...) = (1, 2, 2), got (3,)": lambda: search(
        nodes=jnp.zeros(3), method=lgjax.control.MultipleShooting(segments=3)
    ),
    "compiler_options must be a dict, got 'fast'": lambda: ensemble(compiler_options="fast"),
    "width must be a number, known when the program is built; got": lambda: jax.eval_shape(
        lambda x: lgjax.plot.figure(x, 3.0), 1.0
    ),
    "width must be a number, got 'wide'": lambda: lgjax.plot.figure("wide", 3.0),
    "result must have ts, energy, got None": lambda: lgjax.plot.rollout_figure(ARM, None),
    "events must have planes, ts, rates, impulses, got {}": lambda: lgjax.plot.impact_figure({}),
    "record must have force, gap, state, got 'c'": lambda: lgjax.plot.contact_figure(np.ones(2), "c"),
    "bounds must be a pair, got 1.0": lambda: lgjax.plot.controls_figure(
        np.arange(3.0), np.ones((2, 1)), np.ones((3, 1)), np.ones((1, 2)), bounds=1.0
    ),
    "units are one or 1, as many as names, got 2": lambda: lgjax.plot.phase_figure(
        np.ones((3, 1)), np.ones((3, 1)), units=("m", "rad")
    ),
    "orders must be a Mapping, got 'two'": lambda: lgjax.plot.convergence_figure(np.ones(2), {}, "two"),
    "made must be a Figure, got None": lambda: lgjax.plot.save(None, "a.png"),
    "path ends in '.docx', figures are written as": lambda: lgjax.plot.save(lgjax.plot.figure(1.0, 1.0), "a.docx"),
    "port must be less than 65536, got 70000": lambda: lgjax.view.show(ARM, port=70_000),
    "port must be a Python integer": lambda: lgjax.view.show(ARM, port="8080"),
    "scene must be a Scene, got 'arm'": lambda: lgjax.view.Viewer("arm", ARM, None),
    "labels must be True or False, got 'no'": lambda: lgjax.view.show(ARM, labels="no"),
    "visuals must be a path, got 3": lambda: sources.scene_of(ARM, visuals=3),
    "text must be a str, got None": lambda: lgjax.view.Inline(None, 100),
    "a spherical pendulum moves by the result of integrate, not by a float": lambda: sources.scene_of(PENDULUM, 1.0),
    "q of the motion has shape (2, 2), expected (..., 2, 3)": lambda: sources.scene_of(
        PENDULUM, PENDULUM.y0._replace(q=jnp.ones((2, 2)))
    ),
    "resume must be True or False, got 'no'": lambda: carlo(lambda key: key, (), None, "no"),
    "progress must be True or False, got 'bar'": lambda: search(progress="bar"),
    "floating_base must be True or False, got 'no'": lambda: lgjax.load_urdf(lgjax.models.urdf("arm"), "no"),
    "floating_base must be True or False, got 0": lambda: lgjax.models.chain(2, 0),
    "folder must be a path, got 3": lambda: lgjax.load_mjcf("<mujoco/>", folder=3),
    "name of a joint kind must be text, got 3": lambda: lgjax.joint_kind(3, turn, turn, 1),
    "transform must be a function, got None": lambda: lgjax.joint_kind("a", None, turn, 1),
    "subspace must be hashable, such as a plain function": lambda: lgjax.joint_kind("a", turn, Unhashable(), 1),
    "joint kind 'a': samples must be numbers, got 'zero'": lambda: lgjax.joint_kind("a", turn, turn, 1, "zero"),
    "joint kind 'a': transform must return a Pose": lambda: lgjax.joint_kind("a", turn, turn, 1),
    "joint_kind runs on the host": lambda: jax.jit(lambda x: [lgjax.joint_kind("a", turn, turn, 1), x][1])(1.0),
    "planes must be a Plane or several, got 1.5": lambda: above(1.5),
    "planes have normals (2,) and offsets (), expected (3,) and ()": lambda: above(FLAT),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_named(message):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)) as caught:
        WRONG[message]()
    assert "\n" not in str(caught.value).split("\n---")[0]


ON_HOST = {
    "ensemble": lambda x: ensemble(v=jnp.full(2, x)).v,
    "monte_carlo": lambda x: carlo(lambda key, x: x, (x,)),
}
TRANSFORMS = {"grad": jax.grad, "jit": jax.jit, "vmap": lambda f: lambda x: jax.vmap(f)(x[None])}


@pytest.mark.parametrize("name", ON_HOST)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_runs_on_the_host_says_so(name, transform):
    with pytest.raises(TypeError, match=rf"^{name} runs on the host: it cannot be traced, mapped or differentiated"):
        TRANSFORMS[transform](ON_HOST[name])(jnp.asarray(1.0))


def test_a_search_can_be_traced_but_not_differentiated():
    cost = lambda x: jnp.sum(search(state=jnp.full(2, x)).cost)
    x = jnp.asarray(1.0)
    for found in (jax.jit(cost)(x), jax.vmap(cost)(x[None])[0]):
        np.testing.assert_allclose(found, cost(x), rtol=1e-9)
    with pytest.raises(TypeError, match=r"^optimize_controls cannot be differentiated"):
        jax.grad(cost)(x)


@pytest.mark.parametrize("kept", [False, True], ids=["returned", "in a folder"])
def test_what_is_traced_in_a_closure_is_found(kept, tmp_path):
    simulate = lambda x: lambda key: lgjax.ensembles.Sample(x * jax.random.normal(key, (1,)))
    folder = tmp_path / "run" if kept else None
    with pytest.raises(TypeError, match=r"^monte_carlo runs on the host"):
        jax.grad(lambda x: carlo(simulate(x), (), folder))(1.0)
    with pytest.raises(TypeError, match=r"^ensemble runs on the host"):
        jax.grad(lambda x: ensemble(controller=lambda t, q, v: x * v, folder=folder).statistics.mean[0])(1.0)
    assert not (tmp_path / "run").exists()
    with pytest.raises(TypeError, match=r"^optimize_controls cannot be differentiated"):
        jax.grad(lambda x: search(running=lambda t, y, u: x * (u @ u)).cost[0])(1.0)

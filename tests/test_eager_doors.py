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
carlo = lambda *given: lgjax.monte_carlo(*given, batch=2, key=jax.random.key(0)).statistics.mean[0]
above = lambda planes: sources.scene_of(shapes.sphere(1.0), collisions.rigid_state((0.0, 0.0, 1.0)), planes=planes)

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
    "planes must be a Plane or several, got 1.5": lambda: above(1.5),
    "planes have normals (2,) and offsets (), expected (3,) and ()": lambda: above(FLAT),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_named(message):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)) as caught:
        WRONG[message]()
    assert "\n" not in str(caught.value).split("\n---")[0]


ON_HOST = {
    "optimize_controls": lambda x: search(state=jnp.full(2, x)).cost,
    "ensemble": lambda x: ensemble(v=jnp.full(2, x)).v,
    "monte_carlo": lambda x: carlo(lambda key, x: x, (x,)),
}
TRANSFORMS = {"grad": jax.grad, "jit": jax.jit, "vmap": lambda f: lambda x: jax.vmap(f)(x[None])}


@pytest.mark.parametrize("name", ON_HOST)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_runs_on_the_host_says_so(name, transform):
    with pytest.raises(TypeError, match=rf"^{name} runs on the host: it cannot be traced, mapped or differentiated"):
        TRANSFORMS[transform](ON_HOST[name])(jnp.asarray(1.0))


def test_what_is_traced_in_a_closure_is_found():
    simulate = lambda x: lambda key: lgjax.ensembles.Sample(x * jax.random.normal(key, (1,)))
    with pytest.raises(TypeError, match=r"^monte_carlo runs on the host"):
        jax.grad(lambda x: carlo(simulate(x)))(1.0)
    with pytest.raises(TypeError, match=r"^optimize_controls runs on the host"):
        jax.grad(lambda x: search(running=lambda t, y, u: x * (u @ u)).cost[0])(1.0)

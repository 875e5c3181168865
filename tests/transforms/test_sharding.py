"""A batch that is spread over devices stays so: each device computes its part and asks no other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import lgjax

CODE = """
import json
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
import lgjax

model = lgjax.models.quadruped()
functions = {
    "forward": lambda q, v, x: lgjax.forward_dynamics(model, q, v, x),
    "inverse": lambda q, v, x: lgjax.inverse_dynamics(model, q, v, x),
    "mass": lambda q, v, x: lgjax.mass_matrix(model, q),
    "gradient": jax.grad(lambda q, v, x: jnp.sum(lgjax.forward_dynamics(model, q, v, x) ** 2), 1),
    "rollout": lambda q, v, x: lgjax.rollout(model, q, v, lambda t, q, v: x, 0.01, 3).v,
}
v, x = (jax.random.normal(jax.random.key(i), (18, model.nv)) for i in (0, 1))
q = jax.vmap(lambda u: lgjax.retract(model, lgjax.neutral(model), u))(0.3 * v)
kinds = {"Auto": jax.sharding.AxisType.Auto, "Explicit": jax.sharding.AxisType.Explicit}
meshes = {kind: jax.make_mesh((2,), ("batch",), axis_types=(axis,)) for kind, axis in kinds.items()}
found = {}
alone = {name: np.asarray(jax.jit(jax.vmap(function))(q, v, x)) for name, function in functions.items()}
for kind, mesh in meshes.items():
    split = NamedSharding(mesh, PartitionSpec("batch"))
    for name, function in functions.items():
        program = jax.jit(jax.vmap(function)).lower(*jax.device_put((q, v, x), split)).compile()
        out = program(*jax.device_put((q, v, x), split))
        text = program.as_text()
        found[name + kind] = {
            "split": out.sharding.is_equivalent_to(split, out.ndim),
            "asks": [word for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute") if word in text],
            "kernel": "lgjax_" in text,
            "same": bool((np.asarray(out) == alone[name]).all()),
        }
# What all systems share is whole on each device, and its gradient is the sum over both.
split = NamedSharding(meshes["Auto"], PartitionSpec("batch"))
loss = lambda mass, q, v, x: jnp.sum(jax.vmap(
    lambda *y: lgjax.forward_dynamics(model.replace(inertias=model.inertias._replace(mass=mass)), *y))(q, v, x) ** 2)
slopes = [jax.jit(jax.grad(loss))(model.inertias.mass, *y) for y in ((q, v, x), jax.device_put((q, v, x), split))]
found["shared"] = float(np.abs(slopes[0] - slopes[1]).max() / np.abs(slopes[0]).max())
# A search: states of two numbers, guesses spread over the devices.
system = lgjax.control.ControlSystem(
    lambda y, u: y + 0.1 * jnp.stack([y[1], u[0] - jnp.sin(y[0])]), lambda y, x: y + x, lambda a, b: b - a, 1, 0.1
)
guesses = 0.1 * jax.random.normal(jax.random.key(2), (18, 6, 1))
search = lambda guesses: lgjax.optimize_controls(
    system, jnp.zeros(2), guesses, steps=6, running=lambda t, y, u: 0.1 * u[0] ** 2,
    terminal=lambda y: 20 * (y[0] - 1) ** 2 + 5 * y[1] ** 2, progress=False,
    method=lgjax.control.FDDP(line_search="first"),
)
here, there = search(guesses), search(jax.device_put(guesses, split))
found["search"] = {
    "error": float(np.abs(np.asarray(there.controls) - np.asarray(here.controls)).max()),
    "status": int(np.asarray(there.status).max()),
}
# JAX gives a mesh explicit axes unless it is told otherwise.
mesh = jax.make_mesh((2,), ("batch",))
spec = PartitionSpec("batch")
for name, function in functions.items():
    here = jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    out = jax.jit(here)(*jax.device_put((q, v, x), NamedSharding(mesh, spec)))
    found[name + "mapped"] = bool((np.asarray(out) == alone[name]).all())
print(json.dumps(found))
"""


CONTACTS = """
import json
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
import lgjax

joint = lgjax.Joint("slide", "prismatic", (0.0, 0.6, 0.8))
model = lgjax.build([lgjax.Body("ball", None, joint, mass=1.0, inertia=0.01 * np.eye(3))]).astype("float64")
floor, ball = lgjax.shapes.Plane((0.0, 0.0, 1.0)), {"ball": lgjax.shapes.sphere(0.1)}
contacts = lgjax.Contacts(model, floor, ball, friction=0.5)
start = lgjax.configuration(model, joints=jnp.full(1, 0.11))

def rollout(v, x):  # the controller closes over an array of the batch
    steps = (lambda t, q, v: x, 0.01, 4, lgjax.contact.TimeStepping())
    path = lgjax.rollout(model, start, v, *steps, contacts=contacts)
    return path.v, path.contacts.force, path.status

gradient = jax.grad(lambda v, x: jnp.sum(rollout(v, x)[0][-1] ** 2), (0, 1))
mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Explicit,))
split = NamedSharding(mesh, PartitionSpec("batch"))
args = jax.random.normal(jax.random.key(0), (2, 18, 1))
here, there = (jax.jit(jax.vmap(FUNCTION))(*x) for x in (args, jax.device_put(tuple(args), split)))
here, there = jax.tree.leaves(here), jax.tree.leaves(there)
print(json.dumps({
    "split": all(x.sharding.is_equivalent_to(split, x.ndim) for x in there),
    "same": [bool((np.asarray(x) == np.asarray(y)).all()) for x, y in zip(here, there)],
    "touch": int((np.asarray(here[1]) != 0).any((1, 2, 3)).sum()) if len(here) == 3 else None,
}))
"""


def on_two_devices(code):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=root, env={**os.environ, "XLA_FLAGS": flags, "JAX_ENABLE_X64": "1"}
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def found():
    return on_two_devices(CODE)


NAMES = ["forward", "inverse", "mass", "gradient", "rollout"]


@pytest.mark.parametrize("axes", ["Auto", "Explicit"])
@pytest.mark.parametrize("name", NAMES)
def test_each_device_runs_the_kernel_for_its_part_of_a_batch(found, name, axes):
    assert found[name + axes] == {"split": True, "asks": [], "kernel": True, "same": True}


@pytest.mark.parametrize("name", NAMES)
def test_within_shard_map_results_are_the_same(found, name):
    assert found[name + "mapped"]


def test_the_gradient_of_what_is_shared_is_the_sum_over_devices(found):
    assert found["shared"] <= 1e-14


def test_a_search_from_guesses_on_two_devices_is_that_on_one(found):
    assert found["search"]["status"] == 0
    assert found["search"]["error"] <= 1e-9


def test_a_rollout_with_contacts_on_two_devices_is_that_on_one():
    """Bit by bit, where axes are explicit; several systems touch the ground."""
    found = on_two_devices(CONTACTS.replace("FUNCTION", "rollout"))
    assert found["split"]
    assert all(found["same"])
    assert found["touch"] >= 5


def test_a_gradient_through_contacts_on_two_devices_is_that_on_one():
    found = on_two_devices(CONTACTS.replace("FUNCTION", "gradient"))
    assert found["split"]
    assert all(found["same"])


@pytest.mark.parametrize("name", ["forward", "mass", "gradient", "rollout"])
def test_a_mesh_may_have_one_device(name):
    model = lgjax.models.chain(2)
    q = lgjax.neutral(model)
    functions = {
        "forward": lambda v: lgjax.forward_dynamics(model, q, v, 0 * v),
        "mass": lambda v: lgjax.mass_matrix(model, q._replace(joints=v)),
        "gradient": jax.grad(lambda v: jnp.sum(lgjax.forward_dynamics(model, q, v, v) ** 2)),
        "rollout": lambda v: lgjax.rollout(model, q, v, lambda t, q, v: -v, 0.01, 3).v,
    }
    mesh = jax.make_mesh((1,), ("batch",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    v, run = jax.random.normal(jax.random.key(0), (8, 2)), jax.jit(jax.vmap(functions[name]))
    found = run(jax.device_put(v, split))
    assert found.sharding.is_equivalent_to(split, found.ndim)
    assert (jax.device_get(found) == jax.device_get(run(v))).all()

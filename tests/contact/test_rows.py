"""The rows of a step by segments of the tree: their operator is that of the mass matrix and the Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import shapes
from lgjax.contact import contact_points
from lgjax.contact.geometry.detection import detect
from lgjax.contact.responses import FactoredDynamics, segments
from lgjax.contact.rows import Acting, BodyRows, joint_rows
from lgjax.contact.time_stepping import columns_at
from lgjax.dynamics.forward import articulated_body
from lgjax.multibody.build import Body, Joint, build

FLOOR = shapes.Plane((0.0, 0.0, 1.0))
KINDS = "free", "spherical", "revolute", "prismatic", "revolute", "revolute"


def mechanism(seed, count):
    """Random trees, one body of which stands for each kind of joint, and contacts of some with the floor and others."""
    rng = np.random.default_rng(seed)
    bodies: list[Body] = []
    for n in range(count):
        kind = KINDS[n % len(KINDS)]
        parent = None if kind == "free" or n < 2 else f"body{rng.integers(max(0, n - 3), n)}"
        axis = {"axis": rng.normal(size=3)} if kind in ("revolute", "prismatic") else {}
        more = {"lower": -0.5, "upper": 0.7, "friction": 0.3} if kind == "revolute" else {}
        bodies.append(
            Body(
                f"body{n}",
                parent,
                Joint(f"joint{n}", kind, **axis, **more),
                position=rng.normal(size=3),
                mass=rng.uniform(0.5, 2),
                com=rng.normal(size=3),
                inertia=rng.uniform(0.1, 0.2) * np.eye(3),
            )
        )
    model = build(bodies)
    model = model.replace(armature=jnp.asarray(rng.uniform(0, 0.3, model.nv)))  # of free and ball joints, too
    touching = {f"body{n}": shapes.sphere(0.1) for n in rng.permutation(count)[: 2 + count // 2].tolist()}
    names = list(touching)
    pairs = [(names[0], names[1]), (names[-1], names[0])]
    dry = [f"joint{n}" for n in range(count) if KINDS[n % len(KINDS)] == "revolute"][::2]
    return model, lgjax.Contacts(model, FLOOR, touching, pairs, 0.5, joint_limits=True, joint_friction=dry)


@pytest.mark.parametrize(("seed", "count"), [(1, 3), (3, 9)])
def test_the_operator_of_all_rows_is_that_of_the_mass_matrix(seed, count):
    """J M^-1 J^T, its factor, J v and M^-1 J^T x of contacts, limits and dry joints; and accelerations at rest."""
    model, contacts = mechanism(seed, count)
    rng = np.random.default_rng(seed)
    q = lgjax.random_configuration(jax.random.key(seed), model)
    v, tau = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))

    def both(q, v, tau):
        free = FactoredDynamics(model, q, v, tau, None, model.armature, from_rest=True)
        points = detect(contacts, model, free.poses, free.origin)
        joints = joint_rows(contacts, model, q, 1e-3)
        rows = BodyRows(Acting.of(contacts, model), free.columns, points, joints)
        J = columns_at(contacts, model, free.columns.S, points.point)
        J = jnp.einsum("nij,nvj->niv", points.frame, J).reshape(-1, model.nv)
        own = [model.tree.v_start[body] for body in (*contacts.limited, *contacts.dry)]
        signs = jnp.concatenate([joints.side, jnp.ones_like(joints.dry)])
        J = jnp.concatenate([J, signs[:, None] * jnp.eye(model.nv)[np.asarray(own, int)]])
        x = jnp.asarray(np.random.default_rng(0).normal(size=len(J)))
        answers = jnp.linalg.solve(lgjax.mass_matrix(model, q), jnp.concatenate([J, (J.T @ x)[None], tau[None]]).T)
        G, F, y = rows.operator(), rows.factor(), rows.response(x)
        still = articulated_body(model, q, jnp.zeros_like(v), tau, None)
        found = G.matrix(), F.T @ F, rows.rates(v), free.respond(y, y)[0], free.from_rest
        found += G.diagonal(), free.solve(tau)
        whole = J @ answers[:, :-2]
        wanted = whole, whole, J @ v, answers[:, -2], still
        return found, (*wanted, jnp.diagonal(whole), answers[:, -1])

    with lgjax.execution.plain():
        found, wanted = jax.jit(both)(q, v, tau)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-9 * (1 + np.max(np.abs(y)))), found, wanted)
    assert len(contact_points(model, contacts, q).gap) == len(contacts)


def test_segments_are_the_parts_of_the_ways_that_the_same_forces_take():
    """Two forces on a leg and one on another, of a tree with a base of two velocities; one force meets nothing."""
    parts = segments([(4, 3, 1, 0), (3, 1, 0), (2, 1, 0), ()])
    assert [(part.dofs, part.forces) for part in parts] == [
        ((4,), (0,)), ((3,), (0, 1)), ((2,), (2,)), ((1, 0), (0, 1, 2)),
    ]  # fmt: skip
    assert [part.above for part in parts] == [1, 3, 3, -1]

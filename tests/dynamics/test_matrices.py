"""Jacobians, centroidal momentum and the inverse of the mass matrix, against derivatives and Pinocchio."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from jax import jit

import lgjax
from lgjax import Pose
from lgjax.dynamics.centroidal import (
    center_of_mass_velocity,
    centroidal_momentum_derivative,
    centroidal_momentum_matrix,
)
from lgjax.dynamics.jacobians import jacobian, jacobian_derivative
from lgjax.dynamics.mass_solve import solve_mass_matrix
from lgjax.numerics import small_matrix as sm
from tests.dynamics import trees
from tests.oracles import pinocchio_robots as oracle

FRAMES = ("body", "world", "spatial")
PINOCCHIO_FRAMES = dict(zip(FRAMES, (pin.LOCAL, pin.LOCAL_WORLD_ALIGNED, pin.WORLD), strict=True))


@cache
def arm() -> lgjax.Model:
    """A floating body with joints whose motions depend on coordinates, and a tool fixed to one of them."""
    return lgjax.build(
        [
            trees.body("base", None, "free", 1),
            trees.body("shoulder", "base", "universal", 2, armature=0.1),
            trees.body("tool", "shoulder", "fixed", 3),
            trees.body("tail", "base", "universal", 4),
        ],
        "arm",
    )


def velocities(R, p, dR, dp):
    """[w, v] of a moving pose, by frame."""
    w = sm.vee(sm.matmult(dR, R))
    return {
        "body": jnp.concatenate([sm.tmatvec(R, w), sm.tmatvec(R, dp)]),
        "world": jnp.concatenate([w, dp]),
        "spatial": jnp.concatenate([w, dp - sm.cross(w, p)]),
    }


def along_motion(f, model, q, v):
    """Value and time derivative of f(q) along v."""
    dt = jnp.zeros((), model.dtype)
    return jax.jvp(lambda t: f(lgjax.retract(model, q, t * v)), (dt,), (jnp.ones_like(dt),))


@cache
def facts():
    def functions(model, q, f):
        return {
            "jacobians": {frame: jacobian(model, q, "tool", frame) for frame in FRAMES},
            "pose": lgjax.frame_pose(model, q, "tool"),
            "A": centroidal_momentum_matrix(model, q),
            "center": lgjax.center_of_mass(model, q),
            "M": lgjax.mass_matrix(model, q),
            "x": solve_mass_matrix(model, q, f),
        }

    def of(model, q, v, f):
        at, rate = along_motion(lambda q: functions(model, q, f), model, q, v)
        seen = velocities(*at["pose"], *rate["pose"])
        out = {
            frame: (J @ v, seen[frame], jacobian_derivative(model, q, v, "tool", frame), rate["jacobians"][frame])
            for frame, J in at["jacobians"].items()
        }
        h = lgjax.momentum(model, q, v)
        eye = jnp.eye(model.nv, dtype=model.dtype)
        return out | {
            "centroidal rate": (centroidal_momentum_derivative(model, q, v), rate["A"]),
            "center's velocity": (center_of_mass_velocity(model, q, v), rate["center"]),
            "momentum": (at["A"] @ v, h - jnp.concatenate([sm.cross(at["center"], h[3:]), 0 * h[3:]])),
            "inverse": (at["M"] @ jax.vmap(lambda f: solve_mass_matrix(model, q, f), 0, 1)(eye), eye),
            "inverse's rate": (at["M"] @ rate["x"], -rate["M"] @ at["x"]),
        }

    model = arm()
    q, v, _, f, _ = trees.random_states(model)
    return jax.tree.map(np.asarray, jit(jax.vmap(of, (None, 0, 0, 0)))(model, q, v, f))


def close(actual, expected, tolerance=1e-11):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(np.abs(expected).max(), 1.0))


@pytest.mark.parametrize("frame", FRAMES)
def test_jacobians_give_the_velocity_of_a_frame_and_their_derivative_is_along_the_motion(frame):
    actual, velocity, derivative, rate = facts()[frame]
    close(actual, velocity)
    close(derivative, rate)
    assert np.abs(rate).max() > 0.1


@pytest.mark.parametrize("what", ["centroidal rate", "center's velocity", "momentum", "inverse", "inverse's rate"])
def test_matrices_are_what_they_say(what):
    close(*facts()[what])


def test_a_frame_of_the_world_does_not_move_and_an_unknown_one_is_refused():
    model = lgjax.build([trees.body("stand", None, "fixed", 1), trees.body("wheel", "stand", "revolute", 2)])
    q = lgjax.neutral(model)
    assert not np.any(jacobian(model, q, "stand"))
    np.testing.assert_array_equal(jacobian(model, q, "wheel"), jacobian(model, q, 0))
    with pytest.raises(ValueError, match="no frame 'hub' in 'model'; frames: wheel, stand"):
        jacobian(model, q, "hub")
    with pytest.raises(ValueError, match="frame is one of body, world, spatial, not 'local'"):
        jacobian(model, q, "wheel", "local")  # type: ignore[arg-type]


# ---- Pinocchio
@cache
def robot():
    model = lgjax.load_urdf(oracle.path("hyq"), check_inertia="warn")
    return model, oracle.Ordered(oracle.read("hyq"), model.joint_names, model.body_names)


def expected(theirs: oracle.Ordered, tip: str, pose: Pose, angles, v):
    model, data = theirs.model, theirs.data
    q, qd = theirs.q(pose, angles), theirs.theirs(v)
    ours = lambda X: X[oracle.SWAP][:, theirs.v_index]
    centroidal = ours(pin.computeCentroidalMap(model, data, q))
    out = {"centroidal": centroidal, "centroidal rate": ours(pin.dccrba(model, data, q, qd))}
    pin.computeJointJacobiansTimeVariation(model, data, q, qd)
    pin.updateFramePlacements(model, data)
    frame = model.getFrameId(tip)
    for name, where in PINOCCHIO_FRAMES.items():
        out[name] = ours(pin.getFrameJacobian(model, data, frame, where))
        out[f"{name} rate"] = ours(pin.getFrameJacobianTimeVariation(model, data, frame, where))
    return out


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_agrees_with_pinocchio(dtype):
    model, theirs = robot()
    tip = "rh_foot"
    q = lgjax.random_configuration(jax.random.key(4), model)
    v = jax.random.normal(jax.random.key(5), (model.nv,), model.dtype)

    @jit
    def ours(model, q, v):
        out = {"centroidal": centroidal_momentum_matrix(model, q)}
        out["centroidal rate"] = centroidal_momentum_derivative(model, q, v)
        for frame in FRAMES:
            out[frame] = jacobian(model, q, tip, frame)
            out[f"{frame} rate"] = jacobian_derivative(model, q, v, tip, frame)
        return out

    found = ours(*jax.tree.map(lambda x: jnp.asarray(x, dtype), (model, q, v)))
    pose = Pose(*(np.asarray(x[0]) for x in q.free_poses))
    for name, wanted in expected(theirs, tip, pose, np.asarray(q.joints), np.asarray(v)).items():
        assert found[name].dtype == dtype
        close(found[name], wanted, 1e-12 if dtype == jnp.float64 else 1e-5)

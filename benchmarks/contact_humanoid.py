"""A humanoid with 16 spheres on a plane: a step and its derivative on one core, beside MuJoCo C and Pinocchio.

    python benchmarks/contact_humanoid.py [--batch 1024] [--steps 50] [--programs lgjax,MuJoCo,Pinocchio]
        [--gradient none|state|everything] [--restitution 0.0] [--out FILE]

The model of `humanoid.py` (35 velocities), with dampers at the joints, falls from random attitudes; what is timed are
steps of 2 ms after `SETTLE` of them, when all lie or kneel. lgjax advances a batch in float32. Its derivative is the
pullback of a step with respect to the state, or to everything: all parameters of the model, friction and restitution,
too. It compiles for most of a minute, so it is left out by default. --restitution gives one, with its account of
energy, which the other programs do not have.
MuJoCo runs one after the other, its derivative is by differences (`mjd_transitionFD`), with respect to the state alone.
Of Pinocchio only the mass matrix, the forces of inertia and the contact solver are timed, on lgjax's matrices at the
same states. `residual`: lgjax, Pinocchio: the largest violation of the law of contact over 1 m/s plus the fastest
velocity; MuJoCo: the gradient that its solver has left, scaled as its tolerance is. Times are processor time.
"""

import argparse
from typing import Any

import harness
import numpy as np
from contact import clock
from humanoid import bodies, humanoid, spheres

DT, FRICTION, DAMPING, SETTLE, FEW = 2e-3, 0.8, 2.0, 500, 32
COLUMNS = ["program", "dtype", "batch", "us", "gradient us", "residual", "touching", "compile s", "share"]


def starts(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Rotation vectors (batch, 3) and joints (batch, 29) at the start."""
    random = np.random.default_rng(0)
    return 0.4 * random.standard_normal((batch, 3)), 0.2 * random.standard_normal((batch, 29))


def ours(options: Any, states: dict[str, Any]) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    import lgjax

    dtype = jnp.float32
    model = humanoid().astype(dtype)
    model = model.replace(damping=jnp.asarray([0.0] * 6 + [DAMPING] * 29, dtype))
    shapes = {link: [lgjax.shapes.sphere(r, c) for r, c in parts] for link, parts in spheres().items()}
    ground = lgjax.shapes.Plane(np.array([0, 0, 1], dtype))
    contacts = lgjax.Contacts(model, ground, shapes, friction=FRICTION, restitution=options.restitution)
    method = lgjax.contact.TimeStepping(1e-5, 100)

    def step(model, contacts, q, v, guess):
        return lgjax.contact.contact_step(model, contacts, q, v, 0 * v, jnp.asarray(DT, dtype), guess, method=method)

    def run(q, v, guess):
        def each(state, _):
            found = jax.vmap(step, (None, None, 0, 0, 0))(model, contacts, *state)
            ratio = found.residual / (1 + jnp.max(jnp.abs(found.v), 1))
            return (found.q, found.v, found.impulse), (jnp.max(ratio), jnp.mean(jnp.sum(found.impulse[:, :, 0] > 0, 1)))

        state, seen = jax.lax.scan(each, (q, v, guess), None, length=options.steps)
        return state, jnp.max(seen[0]), jnp.mean(seen[1].astype(dtype))

    def gradient(q, v, guess, weights):
        one = lambda q, v, model, contacts: (lambda x: (x.q, x.v))(step(model, contacts, q, v, guess))
        state = lambda q, v: one(q, v, model, contacts)
        whole = options.gradient == "everything"
        _, back = jax.vjp(one, q, v, model, contacts) if whole else jax.vjp(state, q, v)
        return back((jax.tree.map(jnp.ones_like, q), weights))

    tilt, joints = (jnp.asarray(x, dtype) for x in starts(options.batch))
    place = jnp.tile(jnp.asarray([0, 0, 1.1], dtype), (options.batch, 1))
    pose = lgjax.Pose(lgjax.so3.exp(tilt)[:, None], place[:, None])
    q = lgjax.Configuration(pose, joints, jnp.zeros((options.batch, 0, 3, 3), dtype))
    state = q, jnp.zeros((options.batch, model.nv), dtype), jnp.zeros((options.batch, len(contacts), 3), dtype)
    built: list[Any] = []
    compiling, _ = clock(lambda: built.append(jax.jit(run).lower(*state).compile()))
    for _ in range(-(-SETTLE // options.steps)):
        state, _, _ = built[0](*state)
    seconds, share = min(clock(lambda: jax.block_until_ready(built[0](*state))) for _ in range(3))
    _, residual, touching = built[0](*state)
    states |= {"model": model, "contacts": contacts, "q": state[0], "v": state[1]}
    slower = back = np.nan
    if options.gradient != "none":
        args = (*state, jnp.ones_like(state[1]))
        slower, _ = clock(lambda: built.append(jax.jit(jax.vmap(gradient)).lower(*args).compile()))
        jax.block_until_ready(built[1](*args))
        back, _ = min(clock(lambda: jax.block_until_ready(built[1](*args))) for _ in range(3))
    return {
        "program": "lgjax", "dtype": "float32", "batch": options.batch, "share": share,
        "us": 1e6 * seconds / options.steps / options.batch, "gradient us": 1e6 * back / options.batch,
        "residual": float(residual), "touching": float(touching), "compile s": f"{compiling:.1f}, {slower:.1f}",
    }  # fmt: skip


def mujoco_c(options: Any, states: dict[str, Any]) -> dict[str, Any]:
    import mujoco

    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    made: dict[Any, Any] = {None: spec.worldbody}
    for body in bodies():
        made[body.name] = new = made[body.parent].add_body(name=body.name, pos=body.position, mass=float(body.mass))
        new.ipos, new.inertia, new.explicitinertial = body.com, np.diag(body.inertia), True
        if body.parent is None:
            new.add_freejoint()
        else:
            new.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE, axis=body.joint.axis, damping=DAMPING)
        for radius, center in spheres().get(body.name, []):
            new.add_geom(
                type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[radius, 0, 0], pos=center, contype=1, conaffinity=2,
                friction=[FRICTION, 0, 0], condim=3, mass=0,
            )  # fmt: skip
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=2, conaffinity=1, friction=[FRICTION, 0, 0]
    )
    spec.option.timestep, spec.option.cone = DT, mujoco.mjtCone.mjCONE_ELLIPTIC
    model = spec.compile()
    data, seconds, left, touching, back = mujoco.MjData(model), 0.0, [], [], 0.0
    A = np.zeros((2 * model.nv, 2 * model.nv))
    for tilt, joints in zip(*starts(FEW), strict=True):
        mujoco.mj_resetData(model, data)
        angle = np.linalg.norm(tilt)
        mujoco.mju_axisAngle2Quat(data.qpos[3:7], tilt / angle, angle)
        data.qpos[2], data.qpos[7:] = 1.1, joints
        mujoco.mj_step(model, data, SETTLE)
        seconds += clock(lambda: mujoco.mj_step(model, data, options.steps))[0]
        left.append(data.solver.gradient[max(int(data.solver_niter[0]) - 1, 0)] if data.nefc else 0.0)
        touching.append(data.ncon)
        back += clock(lambda: mujoco.mjd_transitionFD(model, data, 1e-6, True, A, None, None, None))[0]
    return {
        "program": "MuJoCo", "dtype": "float64", "batch": FEW, "us": 1e6 * seconds / options.steps / FEW,
        "gradient us": 1e6 * back / FEW, "residual": float(np.max(left)), "touching": float(np.mean(touching)),
    }  # fmt: skip


def pinocchio(options: Any, states: dict[str, Any]) -> dict[str, Any]:
    """Its solver of the law on lgjax's matrices, and its mass matrix and forces of inertia."""
    import jax
    import pinocchio as pin

    import lgjax

    model = pin.Model()
    made: dict[Any, int] = {}
    for body in bodies():
        moves = pin.JointModelFreeFlyer() if body.parent is None else pin.JointModelRevoluteUnaligned(*body.joint.axis)
        place = pin.SE3(np.eye(3), np.asarray(body.position, float))
        made[body.name] = model.addJoint(made.get(body.parent, 0), moves, place, body.name)
        inertia = pin.Inertia(float(body.mass), np.asarray(body.com, float), np.asarray(body.inertia, float))
        model.appendBodyToJoint(made[body.name], inertia, pin.SE3.Identity())
    data, q = model.createData(), pin.neutral(model)
    terms, _ = clock(
        lambda: [(pin.crba(model, data, q), pin.nonLinearEffects(model, data, q, q[1:])) for _ in range(FEW)]
    )
    ours, contacts, seconds, left, touching = states["model"], states["contacts"], 0.0, [], []

    @jax.jit
    def matrices(q, v):
        gap = lgjax.contact.contact_points(ours, contacts, q).gap
        J = jax.jacfwd(lambda v: lgjax.contact.contact_velocities(ours, contacts, q, v))(v)
        M = lgjax.mass_matrix(ours, q) + DT * jax.numpy.diag(ours.damping)
        free = v + DT * jax.numpy.linalg.solve(M, -lgjax.bias_forces(ours, q, v))
        return gap, J, M, free

    for k in range(FEW):
        gap, J, M, free = (
            np.asarray(x, float) for x in matrices(*jax.tree.map(lambda x, k=k: x[k], (states["q"], states["v"])))
        )
        on = np.flatnonzero(gap < 1e-4)
        J = J[on][:, [1, 2, 0]].reshape(-1, len(M))
        G, b = np.ascontiguousarray(J @ np.linalg.solve(M, J.T)), J @ free
        found, spent = solved(G, b)
        seconds, touching = seconds + spent, [*touching, len(on)]
        left.append(violated(G, b, found) / (1 + np.abs(free).max()))
    return {
        "program": "Pinocchio", "dtype": "float64", "batch": FEW, "us": 1e6 * (seconds + terms) / FEW,
        "residual": float(np.max(left)), "touching": float(np.mean(touching)),
    }  # fmt: skip


def solved(G: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    """Impulses (3 n,), rows (two tangents, normal), and the seconds that Pinocchio's solver took."""
    import pinocchio as pin

    model, n = pin.Model(), len(b) // 3
    model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "free")
    constraints, datas = pin.StdVec_ConstraintModel(), pin.StdVec_ConstraintData()
    for _ in range(n):
        one = pin.PointContactConstraintModel(model, 1)
        one.setFriction(FRICTION)
        constraints.append(pin.ConstraintModel(one))
        datas.append(constraints[len(constraints) - 1].createData())
    solver, settings, result = pin.ADMMConstraintSolver(3 * n), pin.ADMMSolverSettings(), pin.ADMMSolverResult()
    settings.max_iterations, settings.solve_ncp = 2000, True
    for kind in ("feasibility", "complementarity"):
        setattr(settings, f"absolute_{kind}_tol", 1e-5)
        setattr(settings, f"relative_{kind}_tol", 1e-14)
    dense: Any = pin.DelassusOperatorDense(G)
    spent, _ = clock(lambda: solver.solve(dense, b, constraints, datas, settings, result))
    return np.asarray(result.retrieveConstraintImpulses()), spent


def violated(G: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
    """The largest violation of Coulomb's law, m/s: the change in a projection onto the cones, along u + mu |u_t| n."""
    u, worst = (G @ x + b).reshape(-1, 3), 0.0
    for k, (own, speed) in enumerate(zip(x.reshape(-1, 3), u, strict=True)):
        size = np.trace(G[3 * k : 3 * k + 3, 3 * k : 3 * k + 3]) / 3
        normal = max(own[2] - speed[2] / size, 0.0)
        slip = own[:2] - speed[:2] / size
        slip *= min(1.0, FRICTION * normal / max(np.linalg.norm(slip), 1e-300))
        worst = max(worst, size * np.abs(np.append(slip, normal) - own).max())
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--programs", default="lgjax,MuJoCo,Pinocchio")
    parser.add_argument("--gradient", default="none", choices=("everything", "state", "none"))
    parser.add_argument("--restitution", type=float, help="of lgjax's contacts; by default none")
    parser.add_argument("--out", help="JSON file for the rows")
    options, states = parser.parse_args(), {}
    harness.pin_to_cores(1)
    programs = {"lgjax": ours, "MuJoCo": mujoco_c, "Pinocchio": pinocchio}
    rows = (programs[name](options, states) for name in options.programs.split(","))
    harness.collect("a humanoid with 16 spheres", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()

"""Velocities after a step with Coulomb contacts, with Pinocchio's mass matrix, Jacobians and contact solver."""

from typing import Any

import numpy as np
import pinocchio as pin

from tests.oracles.pinocchio_robots import Ordered


def problem(robot: Ordered, pose, angles, v, tau, damping, h, spheres, ground, turns):
    """Free velocities (nv,), M^-1 J^T (nv, 3 n), G, J v_free, gaps (n,) of spheres (body, center, radius).

    The ground is at z = ground. Rows of a contact: along z, x and y of the world. Damping is implicit; the velocity of
    a free body is carried in the axes of the start of the step. Terms of the velocity are at the mean velocity of the
    step, after a number of fixed-point turns from v.
    """
    model, data = robot.model, robot.data
    q = robot.q(pose, angles)
    order = np.ix_(robot.v_index, robot.v_index)
    mass = pin.crba(model, data, q)
    mass = (np.triu(mass) + np.triu(mass, 1).T)[order] + h * np.diag(damping)

    def change(w):
        bias = robot.ours(pin.nonLinearEffects(model, data, q, robot.theirs(w)))
        turning = np.zeros(len(v))
        turning[3:6] = np.cross(w[:3], w[3:6])
        # (M + h D) (dv - h turning) = h (tau - bias - D v) with the mass matrix of the accelerations alone
        return h * (np.linalg.solve(mass, tau - bias - damping * v) + turning)

    mean = v
    for _ in range(turns):
        mean = v + change(mean) / 2
    free = v + change(mean)
    pin.framesForwardKinematics(model, data, q)
    rows, gaps = [], []
    for body, center, radius in spheres:
        frame = robot.frames[body]
        place = data.oMf[frame]
        point = place.act(np.asarray(center)) - [0, 0, radius]
        J = pin.computeFrameJacobian(model, data, q, frame, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)[:, robot.v_index]
        at_point = J[:3] - pin.skew(point - place.translation) @ J[3:]
        rows.append(at_point[[2, 0, 1]])
        gaps.append(point[2] - ground)
    J = np.concatenate(rows)
    response = np.linalg.solve(mass, J.T)
    return free, response, J @ response, J @ free, np.array(gaps)


def solve(G, b, friction) -> tuple[np.ndarray, bool]:
    """Impulses (3 n,), rows (normal, two tangents), by Pinocchio's solver of the law itself; whether it converged."""
    n = len(friction)
    model = pin.Model()
    model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "free")
    constraints, datas = pin.StdVec_ConstraintModel(), pin.StdVec_ConstraintData()
    for mu in friction:
        one = pin.PointContactConstraintModel(model, 1)
        one.setFriction(float(mu))
        constraints.append(pin.ConstraintModel(one))
        datas.append(constraints[len(constraints) - 1].createData())
    order = np.concatenate([[3 * i + 1, 3 * i + 2, 3 * i] for i in range(n)])
    solver, settings, result = pin.PGSConstraintSolver(3 * n), pin.PGSSolverSettings(), pin.PGSSolverResult()
    settings.max_iterations, settings.solve_ncp = 20000, True
    for kind in ("feasibility", "complementarity"):
        setattr(settings, f"absolute_{kind}_tol", 1e-12)
        setattr(settings, f"relative_{kind}_tol", 1e-14)
    dense: Any = pin.DelassusOperatorDense(np.ascontiguousarray(G[np.ix_(order, order)]))
    done = solver.solve(dense, b[order], constraints, datas, settings, result)
    x = np.empty(3 * n)
    x[order] = result.retrieveConstraintImpulses()
    return x, bool(done)


def violation(G, b, friction, x) -> float:
    """The largest violation, in m/s, of Coulomb's law by impulses x, without any solver."""
    worst = 0.0
    for i, mu in enumerate(friction):
        u = G[3 * i : 3 * i + 3] @ x + b[3 * i : 3 * i + 3]
        own, mass = x[3 * i : 3 * i + 3], 1 / G[3 * i, 3 * i]
        size = np.linalg.norm(own[1:])
        slip = np.linalg.norm(u[1:])
        worst = max(worst, -u[0], -own[0] / mass, (size - mu * own[0]) / mass, min(abs(u[0]), own[0] / mass))
        # friction either holds, or has its full size against the slip
        full = np.linalg.norm(own[1:] * slip + mu * own[0] * u[1:]) / (mass * max(slip, 1e-300))
        worst = max(worst, min(slip, full))
    return worst

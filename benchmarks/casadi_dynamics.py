"""Dynamics of trees of revolute joints on a floating base in CasADi, and their time derivatives by jtimes.

Recursive Newton-Euler and the articulated-body algorithm in SX, the motion as polynomials of t, no JIT: the way of
[ali2026] to time derivatives by automatic differentiation. Bodies have neither armature nor damping.
"""

import math
import time

AXIS = (0, 0, 1)


def _constant(x):
    import casadi as ca
    import numpy as np

    return ca.sparsify(ca.DM(np.asarray(x)))


def _polynomial(t, stack, first: int, order: int):
    """The sum of columns first ... first + order as derivatives at t = 0."""
    return sum(stack[:, first + k] * (t**k / math.factorial(k)) for k in range(order + 1))


def _pose(model, i: int, angle):
    """Rotation and translation of joint i, child to parent."""
    import casadi as ca

    c, s = ca.cos(angle), ca.sin(angle)
    turn = ca.vertcat(ca.horzcat(c, -s, 0), ca.horzcat(s, c, 0), ca.horzcat(0, 0, 1))
    return _constant(model.placements.rotation[i]) @ turn, _constant(model.placements.translation[i])


def _momentum(model, i: int, w, v):
    import casadi as ca

    mass, moment, second = (_constant(x[i]) for x in model.inertias)
    return second @ w + ca.cross(moment, v), mass * v - ca.cross(moment, w)


def _gyroscopic(model, i: int, w, v):
    """What a wrench [n, f] has besides inertia times acceleration."""
    import casadi as ca

    h, l = _momentum(model, i, w, v)
    return ca.cross(w, h) + ca.cross(v, l), ca.cross(w, l)


def _along(model, i: int, pose, twist, rate):
    """Twist of a body and the acceleration that its motion at the joint adds."""
    import casadi as ca

    (R, p), (w, v) = pose, twist
    spin = ca.DM(AXIS) * rate
    w, v = R.T @ w + spin, R.T @ (v + ca.cross(w, p))
    return (w, v), (ca.cross(w, spin), ca.cross(v, spin))


def _derivatives(name: str, out, t, inputs, order: int, cse: bool, started: float):
    """The function of (t, *inputs) with derivatives 0 ... order of `out` in columns, and the time to make it."""
    import casadi as ca

    columns = [out]
    for _ in range(order):
        columns.append(ca.jtimes(columns[-1], t, ca.SX(1)))
    columns = ca.cse(columns) if cse else columns
    return ca.Function(name, [t, *inputs], [ca.horzcat(*columns)]), time.perf_counter() - started


def inverse(model, order: int, cse: bool):
    """Of (t, joint derivatives, base twist derivatives, gravity derivatives)."""
    import casadi as ca

    started = time.perf_counter()
    n, t = model.nbodies - 1, ca.SX.sym("t")
    Q, W, G = ca.SX.sym("Q", n, order + 3), ca.SX.sym("W", 6, order + 2), ca.SX.sym("G", 3, order + 1)
    q, qd, qdd = (_polynomial(t, Q, i, order) for i in range(3))
    V, A = (_polynomial(t, W, i, order) for i in range(2))
    twists, accelerations = [(V[:3], V[3:])], [(A[:3], A[3:] - _polynomial(t, G, 0, order))]
    poses, own = [None], []
    for i in range(n + 1):
        if i:
            parent = model.tree.parents[i]
            R, p = pose = _pose(model, i, q[i - 1])
            twist, more = _along(model, i, pose, twists[parent], qd[i - 1])
            alpha, a = accelerations[parent]
            turned = R.T @ alpha + more[0] + ca.DM(AXIS) * qdd[i - 1], R.T @ (a + ca.cross(alpha, p)) + more[1]
            twists.append(twist)
            accelerations.append(turned)
            poses.append(pose)
        pairs = zip(_momentum(model, i, *accelerations[i]), _gyroscopic(model, i, *twists[i]), strict=True)
        own.append([x + y for x, y in pairs])
    torques = []
    for i in range(n, 0, -1):
        (moment, force), (R, p), parent = own[i], poses[i], model.tree.parents[i]
        torques.append(moment[2])
        up = R @ force
        own[parent] = [own[parent][0] + R @ moment + ca.cross(p, up), own[parent][1] + up]
    return _derivatives("inverse", ca.vertcat(*own[0], *torques[::-1]), t, (Q, W, G), order, cse, started)


def forward(model, order: int, cse: bool):
    """Of (t, joint derivatives, base twist derivatives, gravity derivatives, force derivatives)."""
    import casadi as ca

    started = time.perf_counter()
    n, t = model.nbodies - 1, ca.SX.sym("t")
    Q, W, G = ca.SX.sym("Q", n, order + 2), ca.SX.sym("W", 6, order + 1), ca.SX.sym("G", 3, order + 1)
    T = ca.SX.sym("T", n + 6, order + 1)
    q, qd = (_polynomial(t, Q, i, order) for i in range(2))
    V, gravity, tau = (_polynomial(t, x, 0, order) for x in (W, G, T))
    twists, shifts, biases = [(V[:3], V[3:])], [None], [None]
    inertias, wrenches = [], []
    for i in range(n + 1):
        if i:
            pose = R, p = _pose(model, i, q[i - 1])
            twist, more = _along(model, i, pose, twists[model.tree.parents[i]], qd[i - 1])
            twists.append(twist)
            biases.append(ca.vertcat(*more))
            shifts.append(ca.blockcat([[R.T, ca.SX(3, 3)], [-R.T @ ca.skew(p), R.T]]))
        mass, moment, second = (_constant(x[i]) for x in model.inertias)
        hat = ca.skew(moment)
        inertias.append(ca.SX(ca.blockcat([[second, hat], [hat.T, mass * ca.DM.eye(3)]])))
        wrenches.append(ca.vertcat(*_gyroscopic(model, i, *twists[i])))
    passed = [None] * (n + 1)
    for i in range(n, 0, -1):
        inertia, parent, X = inertias[i], model.tree.parents[i], shifts[i]
        U, u = inertia[:, 2], tau[5 + i] - wrenches[i][2]
        passed[i] = U, u
        behind = inertia - U @ U.T / U[2]
        inertias[parent] += X.T @ behind @ X
        wrenches[parent] += X.T @ (wrenches[i] + behind @ biases[i] + U * (u / U[2]))
    accelerations = [ca.solve(inertias[0], tau[:6] - wrenches[0])]
    found = [accelerations[0] + ca.vertcat(ca.SX(3, 1), gravity)]
    for i in range(1, n + 1):
        (U, u), own = passed[i], shifts[i] @ accelerations[model.tree.parents[i]] + biases[i]
        found.append((u - ca.dot(U, own)) / U[2])
        accelerations.append(own + ca.vertcat(0, 0, found[-1], 0, 0, 0))
    return _derivatives("forward", ca.vertcat(*found), t, (Q, W, G, T), order, cse, started)


# ---- what the functions take
def _motion(model, order: int, q, v) -> list:
    """t, and derivatives of joints, base twist and gravity in the base's axes."""
    import casadi as ca
    import numpy as np

    v = np.asarray(v)
    joints = np.concatenate([np.asarray(q.joints)[None], v[:, 6:]])
    gravity = [np.asarray(q.free_poses.rotation[0]).T @ np.asarray(model.gravity)]
    for k in range(order):
        turned = (math.comb(k, i) * np.cross(v[i, :3], gravity[k - i]) for i in range(k + 1))
        gravity.append(-sum(turned))
    return [ca.DM(0.0), ca.DM(joints.T), ca.DM(v[:, :6].T), ca.DM(np.array(gravity).T)]


def inverse_arguments(model, order: int, q, v) -> list:
    """v: (order + 2, nv)."""
    return _motion(model, order, q, v)


def forward_arguments(model, order: int, q, v, tau) -> list:
    """v: (order + 1, nv) or more, tau: (order + 1, nv)."""
    import casadi as ca
    import numpy as np

    return [*_motion(model, order, q, v[: order + 1]), ca.DM(np.asarray(tau).T)]


FUNCTIONS = {"inverse": inverse, "forward": forward}
ARGUMENTS = {"inverse": inverse_arguments, "forward": forward_arguments}


def seconds_per_call(function, arguments: list) -> float:
    """Mean of 1000 calls (100 where one takes longer than 5 ms) without conversions, after warming up."""
    import numpy as np

    buffer, call = function.buffer()
    held = [np.array(x, float).ravel(order="F") for x in arguments]
    for i, x in enumerate(held):
        buffer.set_arg(i, memoryview(x))
    out = np.zeros(function.nnz_out(0))
    buffer.set_res(0, memoryview(out))
    for _ in range(5):
        call()
    started = time.perf_counter()
    call()
    calls = 1000 if time.perf_counter() - started < 5e-3 else 100
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls

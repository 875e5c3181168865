"""Two sets of equations of trees of bodies for references: Kane's with Jacobians, and Newton's and Euler's with the
forces of joints as unknowns.  They share nothing but the data, and no code with the library.

Both give rate(t, y) for the integrators of `reference.py`, on numbers of any kind: mpmath's, or numpy.longdouble.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.suite.problem import matrix

Array = Any
GROUND = -1


class Link(NamedTuple):
    """A body with its joint to the parent; all frames of bodies are parallel at zero coordinates.

    kind: "hinge" (one angle), "slide" (a length, in the first set alone), "ball" (a quaternion) or "free" (a place of
    the center of mass, which is the origin of the body's frame then, and a quaternion). at: the joint in the parent's
    frame; it is the origin of the body's frame.
    """

    parent: int
    kind: str
    at: Sequence[Any]
    axis: Sequence[Any]
    com: Sequence[Any]
    mass: Any
    inertia: Sequence[Any]  # about the center of mass, along the body's axes
    thrust: Sequence[Any] = (0, 0, 0)  # a force on the center of mass that turns with the body


class Spring(NamedTuple):
    """Between points of two bodies, with a damper; in the first set alone."""

    ends: Sequence[int]
    points: Sequence[Sequence[Any]]
    stiffness: Any
    damping: Any
    length: Any


class Loop(NamedTuple):
    """A joint that closes a loop, only in the second set: two bodies share a point, and `across` directions across an
    axis see no relative turn (2 make a hinge; fewer where the rest follows from the other joints).
    """

    child: int
    parent: int
    at_child: Array
    at_parent: Array
    axis: Array
    across: int


def cross(a: Array, b: Array) -> Array:
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def turned(quaternion: Array, omega: Array) -> list[Any]:
    """The rate of a quaternion; omega in the body."""
    a, b, c, d = quaternion
    p, q, r = omega
    return [(-b * p - c * q - d * r) / 2, (a * p + c * r - d * q) / 2, (a * q + d * p - b * r) / 2,
            (a * r + b * q - c * p) / 2]  # fmt: skip


def solved(a: Array, b: Array) -> Array:
    """Elimination with pivots, a row operation at a time."""
    rows = np.concatenate([a, b[:, None]], axis=1)
    n = len(rows)
    for k in range(n):
        pivot = k + max(range(n - k), key=lambda i: abs(rows[k + i, k]))
        rows[[k, pivot]] = rows[[pivot, k]]
        below = k + 1 + np.flatnonzero(rows[k + 1 :, k])
        rows[below, k:] -= (rows[below, k] / rows[k, k])[:, None] * rows[k, k:]
    x = rows[:, n]
    for k in reversed(range(n)):
        x[k] = (x[k] - rows[k, k + 1 : n] @ x[k + 1 :]) / rows[k, k]
    return x


class Tree:
    """Links, and gravity, in one kind of number."""

    def __init__(self, links: Sequence[Link], gravity: Sequence[Any], number: Any, loops: Sequence[Loop] = (),
                 springs: Sequence[Spring] = ()) -> None:  # fmt: skip
        make = lambda values: np.array([number(str(x)) for x in values])
        exact = lambda k, names: k._replace(**{name: make(getattr(k, name)) for name in names})
        self.links = [
            exact(k, ("at", "axis", "com", "inertia", "thrust"))._replace(mass=number(str(k.mass))) for k in links
        ]
        hinges = {"hinge": 2, "ball": 0}
        none = make((0, 0, 0))
        self.joints = [
            Loop(i, k.parent, none, k.at, k.axis, hinges[k.kind]) for i, k in enumerate(self.links) if k.kind in hinges
        ]
        self.joints += [
            k._replace(**{f: make(getattr(k, f)) for f in ("at_child", "at_parent", "axis")}) for k in loops
        ]
        self.springs = [Spring(k.ends, [make(x) for x in k.points], *(number(str(x)) for x in k[2:])) for k in springs]
        self.gravity, self.number = make(gravity), number
        self.one, self.zero = number("1"), number("0")
        self.positions = sum({"ball": 4, "free": 7}.get(k.kind, 1) for k in links)
        self.rates = sum({"ball": 3, "free": 6}.get(k.kind, 1) for k in links)

    def joint(self, link: Link, q: Array) -> tuple[Array, int]:
        """The rotation of a joint, and how many of the coordinates q are its own."""
        if link.kind == "hinge":
            sqrt = lambda x: x ** (self.one / 2)
            half = q[0] / 2
            c, s = _circle(half)
            return np.array(matrix([c, *(s * x / sqrt(link.axis @ link.axis) for x in link.axis)])), 1
        if link.kind == "slide":
            return np.array(matrix([self.one, *[self.zero] * 3])), 1
        place = 3 if link.kind == "free" else 0
        return np.array(matrix(list(q[place : place + 4]))), place + 4

    def bodies(self, y: Array) -> list[tuple[Array, Array, Array, Array, Array]]:
        """Of every body, in the world: rotation, origin, velocity of the origin, angular velocity, own joint's rate."""
        found, q, v = [], y[: self.positions], y[self.positions :]
        eye, none = np.array(matrix([self.one, *[self.zero] * 3])), np.array([self.zero] * 3)
        for link in self.links:
            r, x, u, w = found[link.parent][:4] if link.parent >= 0 else (eye, none, none, none)
            turn, used = self.joint(link, q)
            x_joint, rotation = x + r @ link.at, r @ turn
            velocity = u + cross(w, x_joint - x)
            if link.kind == "hinge":
                own, taken = rotation @ link.axis * v[0], 1
            elif link.kind == "slide":
                along = r @ link.axis
                x_joint, own, taken = x_joint + along * q[0], 0 * w, 1
                velocity = u + cross(w, x_joint - x) + along * v[0]
            elif link.kind == "ball":
                own, taken = rotation @ v[:3], 3
            else:
                x_joint, velocity, own, taken = np.array(q[:3]), np.array(v[:3]), rotation @ v[3:6], 6
            found.append((rotation, x_joint, velocity, w + own, own))
            q, v = q[used:], v[taken:]
        return found

    def kane(self, t: Any, y: Array) -> list[Any]:
        """The rate of joint coordinates."""
        y = np.asarray(y)
        return [*self._turned(y), *solved(*self.mass_and_force(y))]

    def mass_and_force(self, y: Array) -> tuple[Array, Array]:
        """M v̇ = -Σ Jᵀ (inertial forces without v̇)."""
        states, n, none = self.bodies(y), self.rates, np.array([self.zero] * 3)
        mass, force = np.full((n, n), self.zero), np.full(n, self.zero)
        angular, linear, biases, at = [], [], [], 0
        for link, (rotation, x, u, w, own) in zip(self.links, states, strict=True):
            p = link.parent
            jw = angular[p].copy() if p >= 0 else np.full((3, n), self.zero)
            jv = linear[p].copy() if p >= 0 else np.full((3, n), self.zero)
            alpha, a = biases[p] if p >= 0 else (none, none)
            x_parent, w_parent = (states[p][1], states[p][3]) if p >= 0 else (none, none)
            d = x - x_parent
            jv = jv - np.stack([cross(d, jw[:, j]) for j in range(n)], axis=1)
            a = a + cross(alpha, d) + cross(w_parent, cross(w_parent, d))
            if link.kind == "slide":
                along = rotation @ link.axis
                speed = (u - (states[p][2] if p >= 0 else none) - cross(w_parent, d)) @ along
                a, jv[:, at], at = a + 2 * speed * cross(w_parent, along), along, at + 1
            alpha = alpha + cross(w_parent, own)
            columns = {"hinge": [rotation @ link.axis], "slide": []}.get(link.kind, list(rotation.T))
            if link.kind == "free":
                for i in range(3):
                    jv[i, at + i] = self.one
                at += 3
            for column in columns:
                jw[:, at] = column
                at += 1
            angular, linear, biases = [*angular, jw], [*linear, jv], [*biases, (alpha, a)]
            c = rotation @ link.com
            jc = jv - np.stack([cross(c, jw[:, j]) for j in range(n)], axis=1)
            ac = a + cross(alpha, c) + cross(w, cross(w, c)) - self.gravity
            inertia = rotation @ (link.inertia[:, None] * rotation.T)
            force = force + jc.T @ (rotation @ link.thrust)
            mass = mass + link.mass * (jc.T @ jc) + jw.T @ inertia @ jw
            force = force - link.mass * (jc.T @ ac) - jw.T @ (inertia @ alpha + cross(w, inertia @ w))
        for spring in self.springs:
            force = force + self._pull(spring, states, angular, linear)
        return mass, force

    def _pull(self, spring: Spring, states: Any, angular: Any, linear: Any) -> Array:
        """The forces of a spring on the joints."""
        found = []
        for i, point in zip(spring.ends, spring.points, strict=True):
            rotation, x, u, w, _ = states[i]
            s = rotation @ point
            jacobian = linear[i] - np.stack([cross(s, column) for column in angular[i].T], axis=1)
            found.append((x + s, u + cross(w, s), jacobian))
        (x, u, first), (z, v, second) = found
        long = ((z - x) @ (z - x)) ** (self.one / 2)
        along = (z - x) / long
        size = spring.stiffness * (long - spring.length) + spring.damping * (along @ (v - u))
        return size * ((first - second).T @ along)

    def _turned(self, y: Array) -> list[Any]:
        """The rates of the coordinates."""
        found, q, v = [], y[: self.positions], y[self.positions :]
        for link in self.links:
            if link.kind in ("hinge", "slide"):
                found, q, v = [*found, v[0]], q[1:], v[1:]
                continue
            if link.kind == "free":
                found, q, v = [*found, *v[:3]], q[3:], v[3:]
            found, q, v = [*found, *turned(q[:4], v[:3])], q[4:], v[3:]
        return found

    def absolute_start(self, y: Array) -> list[Any]:
        """Of every body: center of mass, quaternion, velocity, angular velocity in the world."""
        found = []
        for link, (rotation, x, u, w, _) in zip(self.links, self.bodies(np.asarray(y)), strict=True):
            c = rotation @ link.com
            found += [*(x + c), *_quaternion(rotation, self.one), *(u + cross(w, c)), *w]
        return found

    def newton_euler(self, t: Any, y: Array) -> list[Any]:
        """The rate of all bodies on their own, with the forces of joints as unknowns."""
        y, n = np.asarray(y).reshape(-1, 13), len(self.links)
        size = 6 * n + sum(3 + k.across for k in self.joints)
        m, b = np.full((size, size), self.zero), np.full(size, self.zero)
        r = [np.array(matrix(list(s[3:7]))) for s in y]
        for i, (link, s) in enumerate(zip(self.links, y, strict=True)):
            inertia = r[i] @ (link.inertia[:, None] * r[i].T)
            for k in range(3):
                m[6 * i + k, 6 * i + k] = link.mass
            m[6 * i + 3 : 6 * i + 6, 6 * i + 3 : 6 * i + 6] = inertia
            b[6 * i : 6 * i + 3] = link.mass * self.gravity + r[i] @ link.thrust
            b[6 * i + 3 : 6 * i + 6] = -cross(s[10:], inertia @ s[10:])
        row = 6 * n
        for joint in self.joints:
            row = self._holds(joint, y[:, 10:], r, m, b, row)
        m[: 6 * n, 6 * n :] = m[6 * n :, : 6 * n].T
        x = solved(m, b)[: 6 * n].reshape(n, 6)
        rate = []
        for i, s in enumerate(y):
            rate += [*s[7:10], *turned(s[3:7], r[i].T @ s[10:]), *x[i]]
        return rate

    def _holds(self, joint: Loop, w: Array, r: list[Array], m: Array, b: Array, row: int) -> int:
        """Write the rows of a joint; gives the next row."""
        c, p, one = joint.child, joint.parent, self.one
        axes = np.array(matrix([one, *[self.zero] * 3]))
        ends = [(c, r[c] @ (joint.at_child - self.links[c].com), one)]
        if p >= 0:
            ends.append((p, r[p] @ (joint.at_parent - self.links[p].com), -one))
        for k in range(3):  # the two points of the joint have one acceleration
            for e, arm, sign in ends:
                m[row, 6 * e : 6 * e + 3] = sign * axes[k]
                m[row, 6 * e + 3 : 6 * e + 6] = sign * cross(arm, axes[k])
                b[row] -= sign * cross(w[e], cross(w[e], arm))[k]
            row += 1
        w_p, r_p = (w[p], r[p]) if p >= 0 else (0 * w[c], axes)
        first = cross(joint.axis, axes[int(np.argmin([abs(x) for x in joint.axis]))])
        for u in (r_p @ first, r_p @ cross(joint.axis, first))[: joint.across]:
            for e, _, sign in ends:
                m[row, 6 * e + 3 : 6 * e + 6] = sign * u
            b[row] = -(w[c] - w_p) @ cross(w_p, u)
            row += 1
        return row

    def from_absolute(self, y: Array, atan2: Any) -> list[Any]:
        """The suite's state: matrices, then places of free bodies and angles, then rates."""
        y = np.asarray(y).reshape(-1, 13)
        r = [np.array(matrix(list(s[3:7]))) for s in y]
        balls, joints, rates, none = [], [], [], np.array([self.zero] * 3)
        for i, (link, s) in enumerate(zip(self.links, y, strict=True)):
            p = link.parent
            relative = r[p].T @ r[i] if p >= 0 else r[i]
            w = s[10:] - (y[p][10:] if p >= 0 else none)
            if link.kind == "hinge":
                a = link.axis
                u = cross(a, np.roll(a, 1))
                joints.append(atan2(cross(a, u) @ relative @ u, u @ relative @ u))
                rates.append(a @ r[i].T @ w)
                continue
            balls += list(relative.ravel())
            if link.kind == "free":
                joints += list(s[:3])
                rates += list(s[7:10])
            rates += list(r[i].T @ w)
        return [*balls, *joints, *rates]

    def from_joints(self, y: Array) -> list[Any]:
        """The same from joint coordinates."""
        balls, joints, q = [], [], np.asarray(y)
        for link in self.links:
            if link.kind in ("hinge", "slide"):
                joints, q = [*joints, q[0]], q[1:]
                continue
            if link.kind == "free":
                joints, q = [*joints, *q[:3]], q[3:]
            balls, q = [*balls, *(x for row in matrix(list(q[:4])) for x in row)], q[4:]
        return [*balls, *joints, *q]


def _circle(angle: Any) -> tuple[Any, Any]:
    if isinstance(angle, (float, np.longdouble)):
        return np.cos(angle), np.sin(angle)
    import mpmath

    return mpmath.mp.cos(angle), mpmath.mp.sin(angle)


def _quaternion(r: Array, one: Any) -> list[Any]:
    """Of a rotation by less than half a turn."""
    w = (one + r[0, 0] + r[1, 1] + r[2, 2]) ** (one / 2) / 2
    return [w, (r[2, 1] - r[1, 2]) / (4 * w), (r[0, 2] - r[2, 0]) / (4 * w), (r[1, 0] - r[0, 1]) / (4 * w)]

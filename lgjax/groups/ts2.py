"""Tangent bundle TS²: directions q on the sphere with angular velocities ω, |q| = 1 and q·ω = 0, moved by SE(3).

The pose (R, r) takes (q, ω) to (R q, R ω + r × R q), as it moves twists, so |q| and q·ω do not change
and the action is transitive on TS².  A field f(t, (q, ω)) = [ξ, η] makes q' = ξ × q and ω' = ξ × ω + η × q; for the
motion q' = ω × q, ω' = a with a·q = 0 it is [ω, q × a].  Leading axes broadcast: N directions (N, 3) are (TS²)^N.
Source: [celledoni2021] section 5.1.
"""

from typing import NamedTuple

import jax

from lgjax.groups import se3
from lgjax.groups.arguments import Fields, cached, takes
from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.groups.lie_group import LieGroup
from lgjax.groups.se3 import SE3, Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm

Array = jax.Array


class TangentPoint(NamedTuple):
    """A unit direction q (..., 3) and its angular velocity or momentum omega (..., 3), orthogonal to q."""

    q: Array
    omega: Array


POINT = Fields(TangentPoint, ((3,), (3,)))


@takes(g=se3.POSE, y=POINT)
def act(g: Pose, y: TangentPoint) -> TangentPoint:
    """The action of a pose (R, r): (R q, R ω + r × R q)."""
    q = sm.matvec(g.rotation, y.q)
    return TangentPoint(q, sm.matvec(g.rotation, y.omega) + sm.cross(g.translation, q))


@takes(xi=(6,), y=POINT)
def generator(xi: Array, y: TangentPoint) -> TangentPoint:
    """The rate of y under the algebra element xi = [ξ, η] (..., 6): (ξ × q, ξ × ω + η × q)."""
    spin, push = xi[..., :3], xi[..., 3:]
    return TangentPoint(sm.cross(spin, y.q), sm.cross(spin, y.omega) + sm.cross(push, y.q))


@takes(q=(3,), omega=(3,))
def project(q: Array, omega: Array) -> TangentPoint:
    """The point of TS² next to any q != 0 and omega: q made unit, the part of omega along q removed."""
    q = q / norm(q)[..., None]
    return TangentPoint(q, omega - sm.scale(sm.dot(q, omega), q))


@takes(y0=POINT, y1=POINT)
def distance(y0: TangentPoint, y1: TangentPoint) -> Array:
    """Euclidean distance (...) in R⁶."""
    return norm(sm.join(y1.q - y0.q, y1.omega - y0.omega))


def parts(y: TangentPoint, start: TangentPoint | None = None) -> tuple[Array, Array]:
    """The direction and the angular velocity, whatever the start."""
    del start
    return y.q, y.omega


@takes(u=(6,), y=POINT)
def cayley_act(u: Array, y: TangentPoint) -> TangentPoint:
    """The action of the pose cay(u) (u (..., 6)) without its matrix: a third of the products and no sine."""
    half = 0.5 * u
    h, v = half[..., :3], half[..., 3:]
    factor = 2.0 / (1.0 + sm.dot(h, h))

    def turned(x: Array) -> Array:
        across = sm.cross(h, x)
        return x + sm.scale(factor, across + sm.cross(h, across))

    q = turned(y.q)
    shift = sm.scale(factor, v + sm.cross(h, v) + sm.scale(sm.dot(h, v), h))
    return TangentPoint(q, turned(y.omega) + sm.cross(shift, q))


@cached(group=LieGroup)
def tangent_sphere(group: LieGroup = SE3) -> HomogeneousSpace:
    """Space TS² under SE(3), in the coordinates of the given record of SE(3), whose `exp` may be another map."""

    @takes(xi=(6,), y=POINT)
    def move(xi: Array, y: TangentPoint) -> TangentPoint:
        return cayley_act(xi, y) if group.chart == "cay" else act(group.exp(xi), y)

    return HomogeneousSpace(
        name="TS2" if group == SE3 else f"TS2 under {group.name}",
        dim=6,
        move=move,
        dexpinv=group.dexpinv,
        bracket=group.ad,
        distance=distance,
        group=group,
        chart=group.chart,
        parts=parts,
    )


TS2 = tangent_sphere()

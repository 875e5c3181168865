"""Convex bodies and signed distances of coal, the collision library of Pinocchio."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull

coal = pytest.importorskip("coal")


def coals_hull(corners):
    """A body of coal; its triangles turn left as seen from outside."""
    hull, points, triangles = ConvexHull(corners), coal.StdVec_Vec3s(), coal.StdVec_Triangle()
    points.extend(list(corners))
    for face, normal in zip(hull.simplices, hull.equations[:, :3]):
        a, b, c = face if np.linalg.det(corners[face] - corners.mean(0)) > 0 else face[::-1]
        assert np.cross(corners[b] - corners[a], corners[c] - corners[a]) @ normal > 0
        triangles.append(coal.Triangle(int(a), int(b), int(c)))
    return coal.Convex(points, triangles)


def coals_distances(first, second, R, S, p, of_gjk, of_epa):
    """Signed distances of two bodies of coal, to its tolerances; infinite where it fails."""
    request = coal.DistanceRequest()
    request.gjk_tolerance, request.epa_tolerance = of_gjk, of_epa
    request.gjk_max_iterations = request.epa_max_iterations = 1000
    request.gjk_variant = coal.GJKVariant.NesterovAcceleration
    request.gjk_convergence_criterion = coal.GJKConvergenceCriterion.DualityGap
    request.gjk_convergence_criterion_type = coal.GJKConvergenceCriterionType.Absolute
    places = [(coal.Transform3s(a, 0 * c), coal.Transform3s(b, c)) for a, b, c in zip(R, S, p)]
    run = lambda place, there: coal.distance(first, place, second, there, request, coal.DistanceResult())
    found = np.array([run(*both) for both in places])
    return np.where(np.abs(found) < 1e3, found, np.inf)

"""Meshes as hulls: beside SciPy's, of every format, with few vertices and a gap that a quadratic program confirms.

And the places where files are looked for, and errors in one line.
"""

import copy
import importlib
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from scipy.optimize import nnls
from scipy.spatial import ConvexHull

import lgjax
from lgjax.multibody.geometry import Geometry, Hull, hull
from lgjax.multibody.importers.meshes import read_hull, read_points, resolve, simplified

ANGLES = 2 * np.pi * np.arange(40) / 40


def cloud(seed=0, count=400):
    return np.random.default_rng(seed).normal(size=(count, 3)) * [0.1, 0.05, 0.2] + [0.3, -0.1, 0.02]


def sphere(count=1500):
    points = np.random.default_rng(1).normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


# Convex and not, with corners that others lie between, rounded, thin.
SOLIDS = {
    "cloud": cloud(),
    "sphere": 0.1 * sphere(),
    "cylinder": np.concatenate([np.stack([np.cos(ANGLES), np.sin(ANGLES), z + 0 * ANGLES], 1) for z in (-2.0, 2.0)]),
    "plate": sphere() * [1.0, 0.5, 1e-3],
    "needle": sphere() * [1e-3, 2e-3, 1.0] + 5.0,
}


def solid(points=None):
    """A mesh with a part that its hull covers."""
    outer = trimesh.convex.convex_hull(cloud() if points is None else points)
    inner = trimesh.creation.icosphere(1, 0.01).apply_translation(outer.center_mass)
    return trimesh.util.concatenate([outer, inner])


def same_points(found, expected, tolerance):
    """Each point of either is near one of the other."""
    apart = np.linalg.norm(np.asarray(found)[:, None] - np.asarray(expected), axis=2)
    assert apart.min(1).max() < tolerance
    assert apart.min(0).max() < tolerance


def distance(point, corners):
    """From a convex hull, by least squares with weights >= 0 that add to 1."""
    size = np.abs(corners - point).max()
    rows = np.vstack([(corners - point).T / size, 1e4 * np.ones(len(corners))])
    weights = nnls(rows, np.append(np.zeros(3), 1e4))[0]
    return float(np.linalg.norm((corners - point).T @ (weights / weights.sum())))


# ---- hulls
@pytest.mark.parametrize("name", SOLIDS)
def test_a_hull_of_few_vertices_is_inside_and_as_near_as_it_says(name):
    points = SOLIDS[name]
    corners, size = points[ConvexHull(points).vertices], np.ptp(points, axis=0).max()
    before = np.inf
    for count in (4, 8, 16, 32, 64):
        found, gap = simplified(points, count)
        assert len(found) <= count
        assert {tuple(x) for x in found} <= {tuple(x) for x in corners}
        true = max(distance(corner, found) for corner in corners)
        assert gap == pytest.approx(true, abs=1e-6 * size)
        assert gap <= before + 1e-12
        before = gap
    every, none = simplified(points, None)
    assert none == 0
    same_points(every, corners, 1e-12 * size)


def test_a_ball_is_as_near_as_caps_that_cover_it():
    """N caps cover a unit sphere only if their height is at least 2 / N, and hexagons give about 4.84 / N."""
    for count in (32, 64):
        gap = simplified(sphere(5000), count)[1]
        assert 2 / count < gap < 1.7 * 4.84 / 2 / count


def test_a_fine_mesh_of_a_box_has_eight_corners():
    """Whatever lies on its faces and edges, also with the round-off of float32."""
    half = np.array([0.1, 0.2, 0.3])
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 15)] * 3), -1).reshape(-1, 3)
    points = (grid[np.abs(grid).max(1) == 1] * half).astype(np.float32)
    found, gap = simplified(points)
    same_points(found, half * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]), 1e-7)
    assert gap <= 1e-6 * 0.6


def test_the_hull_does_not_depend_on_the_order_of_the_points():
    points = cloud()
    first = simplified(points, 24)
    turned = simplified(points[::-1], 24)
    np.testing.assert_array_equal(np.unique(first[0], axis=0), np.unique(turned[0], axis=0))
    assert first[1] == turned[1]


# ---- files
def written(kind, mesh):
    if kind == "obj":
        return trimesh.exchange.obj.export_obj(mesh, digits=12).encode()
    return (
        mesh.export(
            file_type={"text stl": "stl_ascii"}.get(kind, kind), **({"encoding": "ascii"} if kind == "text ply" else {})
        )
        if kind != "dae"
        else trimesh.exchange.dae.export_collada(mesh, digits=12)
    )


@pytest.mark.parametrize("scale", [(1.0, 1.0, 1.0), (0.001, 0.001, 0.001), (1.0, -1.0, 2.0)])
@pytest.mark.parametrize("kind", ["stl", "text stl", "obj", "dae", "ply", "glb"])
def test_every_format_has_the_hull_of_its_points(kind, scale, tmp_path):
    """That of SciPy: the same vertices and volume, by content, by path, and under a name that misleads."""
    content = written(kind, solid())
    content = content.encode() if isinstance(content, str) else content
    expected = cloud() * scale
    size = np.ptp(expected, axis=0).max()
    path = tmp_path / f"part.{kind.removeprefix('text ')}".upper()
    path.write_bytes(content)
    for given in (content, path, str(path)):
        found = read_hull(given, scale, None)
        same_points(found, expected[ConvexHull(expected).vertices], 1e-6 * size)
        assert ConvexHull(found).volume == pytest.approx(ConvexHull(expected).volume, rel=1e-5)
    misnamed = tmp_path / "part.mesh"
    misnamed.write_bytes(content)
    np.testing.assert_array_equal(read_hull(misnamed, scale, 20), read_hull(content, scale, 20))
    assert len(read_hull(content, scale, 20)) == 20


DAE = """<?xml version="1.0"?><COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1"><asset>
<created>2020-01-01T00:00:00</created><modified>2020-01-01T00:00:00</modified>{unit}{up}</asset>
<library_geometries><geometry id="g"><mesh><source id="p"><float_array id="a" count="12">0 0 0 1 0 0 0 2 0 0 0 3
</float_array><technique_common><accessor source="#a" count="4" stride="3"><param name="X" type="float"/>
<param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
<vertices id="v"><input semantic="POSITION" source="#p"/></vertices><triangles count="4">
<input semantic="VERTEX" source="#v" offset="0"/><p>0 2 1 0 1 3 0 3 2 1 2 3</p></triangles></mesh></geometry>
</library_geometries><library_visual_scenes><visual_scene id="s"><node id="n"><translate>0.5 0 0</translate>
<rotate>0 0 1 90</rotate><instance_geometry url="#g"/></node></visual_scene></library_visual_scenes>
<scene><instance_visual_scene url="#s"/></scene></COLLADA>"""
LINK = """<robot name="r"><link name="a"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0"
iyz="0"/></inertial><collision><geometry><mesh filename="{path}"/></geometry></collision></link></robot>"""


@pytest.mark.parametrize("up", ["", "<up_axis>Y_UP</up_axis>", "<up_axis>Z_UP</up_axis>"])
def test_nodes_and_axes_of_a_dae_are_as_pinocchio_takes_them_and_its_unit_counts(up, tmp_path):
    pin = pytest.importorskip("pinocchio")
    path = tmp_path / "part.dae"
    for unit, meters in (("", 1.0), ('<unit meter="0.0254" name="inch"/>', 0.0254), ("<unit meter='1'/>", 1.0)):
        path.write_text(DAE.format(up=up, unit=unit))
        robot = tmp_path / "robot.urdf"
        robot.write_text(LINK.format(path=path))
        other = pin.buildGeomFromUrdf(pin.buildModelFromUrdf(str(robot)), str(robot), pin.GeometryType.COLLISION)
        same_points(read_hull(path), meters * np.array(other.geometryObjects[0].geometry.vertices()), 1e-6)


def test_what_follows_the_triangles_of_an_stl_does_not_count(tmp_path):
    content, path = written("stl", solid()), tmp_path / "part.stl"
    path.write_bytes(content + b"more")
    np.testing.assert_array_equal(read_hull(path), read_hull(content))


def test_a_hull_is_read_once_and_cannot_be_changed(tmp_path, monkeypatch):
    content = written("stl", solid(cloud(7)))
    first = read_hull(content)
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"imports {name}"))
    path = tmp_path / "other.stl"
    path.write_bytes(content)
    assert read_hull(path) is read_hull(content) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0


def test_without_its_reader_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trimesh", None)
    with pytest.raises(ImportError, match=r"^read_hull needs the package trimesh: pip install 'lgjax\[urdf\]'$"):
        read_hull(written("stl", solid(cloud(8))))


FLAT = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3\nf 1 3 4\n"
LINE = "v 0 0 0\nv 1 0 0\nv 2 0 0\nv 3 0 0\nf 1 2 3\nf 2 3 4\n"
POINT = "v 1 1 1\nv 1 1 1\nv 1 1 1\nv 1 1 1\nf 1 2 3\nf 2 3 4\n"
ENTITY = '<!DOCTYPE COLLADA [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
TEXT = b"solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 "
BROKEN = {
    "the mesh is flat, so it has no convex body": FLAT.encode(),
    "the mesh is flat": LINE.encode(),
    "all vertices are in one place": POINT.encode(),
    "a body needs at least 4 vertices, got 3": b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n",
    "vertex 1 is not finite": FLAT.replace("v 1 0 0", "v nan 0 1").encode(),
    "the mesh has no triangles": b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n",
    "the file is empty": b"",
    "unknown kind of mesh": b"\x89PNG and so on",
    "not a readable STL mesh: of [0-9]+ triangles it has 18$": written("stl", solid())[:1001],
    "not a readable STL mesh|no triangles|at least 4": TEXT,
    "not a readable PLY mesh": b"ply\nformat binary_little_endian 1.0\nelement vertex 9\nend_header\n",
    "the file declares entities": ENTITY.encode() + DAE.format(unit="", up="").split("?>")[1].encode(),
    "not a readable DAE mesh|no triangles": DAE.format(unit="", up="").encode()[:700] + b"</COLLADA>",
    "the unit of the file is 0.0 m": DAE.format(unit='<unit meter="0"/>', up="").encode(),
    "could not convert": DAE.format(unit='<unit meter="two"/>', up="").encode(),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_meshes_are_named_in_one_line(message, tmp_path):
    kind = "stl" if "STL" in message else "dat"
    path = tmp_path / f"part.{kind}"
    path.write_bytes(BROKEN[message])
    with pytest.raises(ValueError, match=message) as caught:
        read_hull(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_arguments_that_make_no_hull_are_named(tmp_path):
    content = written("stl", solid())
    for scale, message in (((1, 1, 0), "flat"), ((1, 1), "scale must be three"), ((1, np.nan, 1), "scale must be")):
        with pytest.raises(ValueError, match=message):
            read_hull(content, scale)
    with pytest.raises(ValueError, match="vertices must be an integer of at least 4"):
        read_hull(content, vertices=3)
    with pytest.raises(ValueError, match=r"nowhere\.stl: cannot read the mesh: No such file"):
        read_hull(tmp_path / "nowhere.stl")
    with pytest.raises(ValueError, match=r"not \(k, 3\)"):
        simplified(np.zeros((5, 2)))


# ---- places
@pytest.fixture
def places(tmp_path):
    """A robot in a package, with another one beside it."""
    for name in ("ws/one/meshes/a b.stl", "ws/one/urdf/part.stl", "ws/two/meshes/a.stl", "far/meshes/b.stl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"solid")
    return tmp_path


FOUND = {
    "package://one/meshes/a b.stl": "ws/one/meshes/a b.stl",
    "package://one/meshes/a%20b.stl": "ws/one/meshes/a b.stl",
    "package://two/meshes/a.stl": "ws/two/meshes/a.stl",
    "model://two/meshes/a.stl": "ws/two/meshes/a.stl",
    "package://three/meshes/b.stl": "far/meshes/b.stl",
    "package://far/meshes/b.stl": "far/meshes/b.stl",
    "part.stl": "ws/one/urdf/part.stl",
    "../meshes/a b.stl": "ws/one/meshes/a b.stl",
    "..\\meshes\\a b.stl": "ws/one/meshes/a b.stl",
    "file://{here}/far/meshes/b.stl": "far/meshes/b.stl",
    "file://{here}/ws/one/meshes/a%20b.stl": "ws/one/meshes/a b.stl",
    "{here}/far/meshes/b.stl": "far/meshes/b.stl",
}


@pytest.mark.parametrize("uri", FOUND)
def test_files_are_found_by_packages_and_paths(uri, places):
    found = resolve(uri.format(here=places), places / "ws/one/urdf", {"three": places / "far"})
    assert found.resolve() == (places / FOUND[uri]).resolve()


@pytest.mark.parametrize(("variable", "value"), [("ROS_PACKAGE_PATH", "ws:far"), ("AMENT_PREFIX_PATH", "far:ws")])
def test_files_are_found_in_the_folders_of_ros(variable, value, places, monkeypatch):
    share = places / "ws" / "share" if variable.startswith("AMENT") else places / "ws"
    (share / "deep").mkdir(parents=True)
    (share / "deep" / "c.stl").write_bytes(b"solid")
    monkeypatch.setenv(variable, ":".join(str(places / x) for x in value.split(":")))
    assert resolve("package://deep/c.stl", places / "far") == share / "deep" / "c.stl"


MISSING = {
    "package://one/meshes/z.stl": r"looked in .*ws/one; give the folder by packages=\{'one': folder\} or in ROS",
    "package://nine/z.stl": r"looked in no folder 'nine' in .*urdf or above; give the folder by packages=\{'nine'",
    "package://three/z.stl": r"looked in .*far; give the folder",
    "z.stl": r"^z.stl is not there: looked in .*urdf$",
    "http://one/z.stl": r"not at a place that is read: package://, file:// or a path",
    "$(find one)/z.stl": "an expression of xacro",
}


@pytest.mark.parametrize("uri", MISSING)
def test_files_that_are_missing_say_where_they_were_looked_for(uri, places):
    with pytest.raises(ValueError, match=MISSING[uri]):
        resolve(uri, places / "ws/one/urdf", {"three": places / "far"})


# ---- geometry
def test_hulls_are_equal_by_their_vertices_and_hash_alike_in_copies():
    points = cloud()
    one, other, copied = (hull("a", x) for x in (points, points.copy(), points + 0.1))
    assert one == other
    assert one is not other
    assert hash(one) == hash(other)
    assert one != copied
    assert len({one, other, copied}) == 2
    assert Hull(points) != "a hull"
    for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert again == one
        assert hash(again) == hash(one)
        assert "_hash" not in vars(pickle.loads(pickle.dumps(Hull(points))))
    zero = np.vstack([np.zeros(3), np.eye(3)])
    assert hash(Hull(zero)) == hash(Hull(-0.0 + np.where(zero == 0, -0.0, zero)))
    with pytest.raises(ValueError, match="read-only"):
        one.hull.vertices[0] = 0


def test_equal_hulls_do_not_compile_again():
    model = lgjax.models.chain(1)
    link, traced = model.body_names[0], []
    mass = jax.jit(lambda model: traced.append(1) or model.inertias.mass)
    for _ in range(2):
        mass(model.replace(geometry=(hull(link, cloud()),)))
    assert len(traced) == 1
    mass(model.replace(geometry=(hull(link, cloud(1)),)))
    assert len(traced) == 2


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_shape_of_a_hull_is_its_polyhedron(dtype):
    points = simplified(SOLIDS["plate"], 64)[0]  # thin: no check in float32 refuses it
    shape = hull("a", points).shape(dtype)
    assert shape.vertices.dtype == dtype
    np.testing.assert_allclose(shape.vertices, points, rtol=1e-6)
    moved = Geometry("a", "hull", (), (1.0, 2.0, 3.0), (0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0), Hull(points))
    d = np.array([0.3, -0.5, 0.2])
    turned = points @ np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]).T + [1, 2, 3]
    found = moved.shape(dtype).support(jnp.asarray(d, dtype)).point
    np.testing.assert_allclose(found, turned[np.argmax(turned @ d)], atol=1e-6)


WRONG = {
    r"geometry of 'a': a hull has at least 4 vertices \(n, 3\), got \(3, 3\)": lambda: hull("a", np.eye(3)),
    "geometry of 'a': vertices of a hull are finite": lambda: hull("a", np.vstack([np.eye(3), [0, 0, np.inf]])),
    "geometry of 'a': vertices of a hull do not lie in one plane": lambda: hull("a", np.eye(3)[[0, 1, 2, 0]]),
    "geometry of 'a': a hull has vertices, hull=Hull": lambda: Geometry("a", "hull"),
    "geometry of 'a': a box has no hull": lambda: Geometry("a", "box", (1.0, 1.0, 1.0), hull=Hull(cloud())),
    "geometry of 'a': friction is a number of at least 0, got -1": lambda: Geometry("a", "mesh", friction=-1.0),
    "geometry of 'a': friction is a number of at least 0, got nan": lambda: Geometry("a", "mesh", friction=np.nan),
    "geometry of 'a': mask is a Python integer": lambda: Geometry("a", "mesh", mask=1.0),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_geometry_is_named(message):
    with pytest.raises((ValueError, TypeError), match=message):
        WRONG[message]()


def test_geometries_meet_as_mujoco_filters_them():
    mujoco = pytest.importorskip("mujoco")
    bits = [(0, 0), (1, 1), (1, 0), (0, 1), (2, 1), (2, 2), (6, 8), (8, 4)]
    geoms = "".join(
        f'<body pos="0 0 {0.01 * k}"><freejoint/><geom size="1" contype="{a}" conaffinity="{b}"/></body>'
        for k, (a, b) in enumerate(bits)
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    touching = {tuple(sorted(pair)) for pair in data.contact.geom.tolist()}
    of = [Geometry("a", "sphere", (1.0,), group=a, mask=b) for a, b in bits]
    found = {(i, j) for i in range(len(of)) for j in range(i + 1, len(of)) if of[i].meets(of[j])}
    assert found == touching
    assert len(found) > 3


@pytest.mark.slow
def test_collision_meshes_of_published_robots_are_found_and_have_hulls_near_them():
    """Of example-robot-data: 64 vertices are nearer than 3 % of the size, and inside SciPy's hull."""
    from soak.packages import files

    found = {}
    for path in files("urdf", ("example-robot-data",)):
        for name in re.findall(
            r'filename="([^"]+)"', "".join(re.findall(r"(?s)<collision.*?</collision>", path.read_text()))
        ):
            found[resolve(name, path.parent)] = None
    assert len(found) > 300
    for path in sorted(found)[::3]:
        points = read_points(path)
        vertices, gap = simplified(points)
        assert gap < 0.03 * np.ptp(points, axis=0).max(), path
        assert ConvexHull(vertices).volume <= ConvexHull(points).volume * (1 + 1e-9), path

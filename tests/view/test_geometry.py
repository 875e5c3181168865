"""Meshes: closed, facing outwards, of the right volume; visual geometry where Pinocchio and MuJoCo put it."""

import warnings

import jax
import numpy as np
import pytest
import trimesh
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

import lgjax
from lgjax import shapes
from lgjax.view import geometry, solids
from lgjax.view.geometry import Mesh
from lgjax.view.skeleton import LIMBS
from lgjax.view.visuals import load_meshes, visual_parts

BALL = 4 / 3 * np.pi


def volume(mesh: Mesh) -> float:
    """By the divergence theorem; positive if the faces look outwards."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    return float(np.sum(a * np.cross(b, c)) / 6)


def is_closed(mesh: Mesh) -> bool:
    """Every edge belongs to two faces, which pass it in opposite directions; points at one place are one."""
    _, same = np.unique(np.round(mesh.vertices, 9), axis=0, return_inverse=True)
    faces = same.reshape(-1)[mesh.faces]
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    edges = edges[edges[:, 0] != edges[:, 1]]
    return {tuple(e) for e in edges.tolist()} == {tuple(e[::-1]) for e in edges.tolist()}


@pytest.mark.parametrize(
    ("mesh", "expected", "tolerance"),
    [
        (geometry.box([0.1, 0.2, 0.3]), 8 * 0.006, 1e-12),
        (geometry.cylinder(0.2, 0.5), np.pi * 0.04, 0.03),
        (geometry.capsule(0.2, 0.5), np.pi * 0.04 + BALL * 0.008, 0.05),
        (geometry.ellipsoid([0.1, 0.2, 0.3]), BALL * 0.006, 0.05),
        (geometry.ellipsoid([0.1, 0.2, 0.3]).scaled([1, -2, 1]), 2 * BALL * 0.006, 0.05),
        (geometry.rod([1.0, 2.0, 3.0], [1.0, 2.0, 5.0], 0.1), np.pi * 0.02, 0.03),
        (geometry.of_shape(shapes.box(np.array([0.1, 0.2, 0.3]))), 8 * 0.006, 1e-9),
        (geometry.of_shape(shapes.sphere(0.3)), BALL * 0.027, 0.03),
        (geometry.of_shape(shapes.union(shapes.sphere(0.3), shapes.sphere(0.3, np.ones(3)))), BALL * 0.054, 0.03),
        (geometry.of_shape(shapes.polyhedron(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))), 1 / 6, 1e-9),
    ],
)  # fmt: skip
def test_meshes_are_closed_and_of_the_right_volume(mesh, expected, tolerance):
    assert is_closed(mesh)
    assert volume(mesh) == pytest.approx(expected, rel=tolerance)


def moments_of(corners: np.ndarray) -> np.ndarray:
    """Principal moments, ascending, of a box of mass 1 by its corners, which are an eighth part each of 3 masses."""
    spread = np.cov(corners.T, bias=True) / 3
    return np.sort(np.linalg.eigvalsh(np.trace(spread) * np.eye(3) - spread))


def test_the_solid_of_an_inertia_has_that_inertia():
    turn = geometry.along([0.3, -0.5, 0.7])
    com, mass = np.array([0.1, 0.2, -0.3]), 2.5
    moments = np.array([0.02, 0.05, 0.06])
    about = turn @ np.diag(moments) @ turn.T + mass * (com @ com * np.eye(3) - np.outer(com, com))
    box = geometry.inertia_solid(mass, com, about)
    np.testing.assert_allclose(box.vertices.mean(0), com, atol=1e-12)
    np.testing.assert_allclose(mass * moments_of(box.vertices), moments, rtol=1e-9)
    for radius, half in ((0.3, 0.05), (0.05, 0.6)):  # a disc and a rod
        own, across = mass * radius**2 / 2, mass * (radius**2 / 4 + half**2 / 3)
        solid = geometry.inertia_solid(mass, 0 * com, turn @ np.diag([own, across, across]) @ turn.T)
        reach = np.abs(solid.vertices @ turn[:, 0]).max()
        assert reach == pytest.approx(half)
        assert np.linalg.norm(solid.vertices, axis=1).max() == pytest.approx(np.hypot(radius, half))
    cube = geometry.inertia_solid(mass, com, 0.04 * np.eye(3) + mass * (com @ com * np.eye(3) - np.outer(com, com)))
    np.testing.assert_allclose(np.ptp(cube.vertices, axis=0), np.sqrt(6 * 0.04 / mass), rtol=1e-9)
    assert geometry.inertia_solid(0.0, com, about) is None


def test_a_coarser_mesh_has_fewer_faces_and_nearly_the_volume():
    k = np.arange(400) + 0.5
    z = 1 - k / 200
    fine = geometry.revolved(np.stack([np.sqrt(1 - z * z), z], axis=1)[::-1])
    coarse = geometry.coarser(fine, 1500)
    assert 500 < len(coarse.faces) <= 1500 < len(fine.faces)
    assert volume(coarse) == pytest.approx(volume(fine), rel=0.1)
    assert geometry.coarser(fine, len(fine.faces)) is fine


TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
PINK = '<material name="pink"><color rgba="1 0.5 0.5 1"/></material>'
URDF = f"""<robot name="toy">
 {PINK}
 <link name="base">{INERTIAL}<visual><geometry><box size="0.2 0.3 0.4"/></geometry></visual></link>
 <link name="arm">{INERTIAL}
  <visual><origin xyz="0.1 0 0.2" rpy="0.3 0.4 0.5"/><geometry><cylinder radius="0.1" length="0.6"/></geometry></visual>
  <visual><origin xyz="0 0.2 0" rpy="0 1 0"/><geometry><sphere radius="0.1"/></geometry>
   <material name="pink"/></visual></link>
 <link name="hand"><visual><origin xyz="0.5 0 0" rpy="0 0 1.2"/>
  <geometry><mesh filename="package://toy/meshes/tetrahedron.obj" scale="0.1 0.2 0.3"/></geometry>
   <material name="own"><color rgba="0 0 1 1"/></material></visual></link>
 <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/>
  <origin xyz="0.1 0.2 0.3" rpy="0.2 -0.3 1.0"/><axis xyz="0.6 0 0.8"/>
  <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
 <joint name="weld" type="fixed"><parent link="arm"/><child link="hand"/>
  <origin xyz="0 0.3 0.1" rpy="1.0 0.5 0.2"/></joint>
</robot>"""


def in_world(model, parts, q):
    """Vertices of all parts in the world, body by body."""
    poses = jax.tree.map(np.asarray, lgjax.forward_kinematics(model, q))
    move = lambda part: part.mesh.vertices @ poses.rotation[part.body].T + poses.translation[part.body]
    return [move(part) if part.body >= 0 else part.mesh.vertices for part in parts]


@pytest.mark.parametrize("floating", [True, False])
def test_urdf_geometry_is_where_pinocchio_puts_it(floating, tmp_path):
    pin = pytest.importorskip("pinocchio")
    (tmp_path / "toy" / "meshes").mkdir(parents=True)
    (tmp_path / "toy" / "meshes" / "tetrahedron.obj").write_text(TETRAHEDRON)
    path = tmp_path / "toy" / "toy.urdf"
    path.write_text(URDF)
    model = lgjax.load_urdf(path, floating_base=floating)
    q = lgjax.random_configuration(jax.random.key(3), model)
    root = [pin.JointModelFreeFlyer()] if floating else []
    other = pin.buildModelFromUrdf(str(path), *root)
    visual = pin.buildGeomFromUrdf(other, str(path), pin.GeometryType.VISUAL, package_dirs=[str(tmp_path)])
    flat = np.asarray(lgjax.conventions.to_pinocchio(model, q)[0] if floating else q.joints, float)
    data, shown = other.createData(), visual.createData()
    pin.forwardKinematics(other, data, flat)
    pin.updateGeometryPlacements(other, data, visual, shown)
    centers = {"base": np.zeros(3), "arm": np.zeros(3), "hand": np.array([0.1, 0.2, 0.3]) / 4}
    expected = []
    for geom, place in zip(visual.geometryObjects, shown.oMg, strict=True):
        expected.append(place.act(centers[geom.name.rsplit("_", 1)[0]]))
    found = [vertices.mean(0) for vertices in in_world(model, visual_parts(model), q)]
    np.testing.assert_allclose(sorted(map(tuple, found)), sorted(map(tuple, expected)), atol=1e-9)
    colors = {tuple(np.round(part.color, 2)) for part in visual_parts(model)}
    assert (1.0, 0.5, 0.5) in colors


POINTS = np.random.default_rng(0).normal(size=(200, 3)) * [0.1, 0.2, 0.3]
TETRA = np.array([[0.0, 0, 0], [0.3, 0, 0], [0, 0.3, 0], [0, 0, 0.3]])
SHAPES = {  # with volume, and how far the mesh may be from it and from the surface
    "ball": (shapes.sphere(0.2), BALL * 0.008, 0.05),
    "capsule": (shapes.capsule(0.1, 0.2), np.pi * 0.01 * 0.4 + BALL * 0.001, 0.05),
    "box": (shapes.box(np.array([0.1, 0.2, 0.3])), 0.048, 1e-6),
    "rounded box": (
        shapes.rounded(shapes.box(np.array([0.1, 0.2, 0.3])), 0.02),
        0.048 + 8 * 0.02 * 0.11 + np.pi * 0.02**2 * 1.2 + BALL * 0.02**3,
        0.03,
    ),
    "cylinder": (shapes.cylinder(0.1, 0.2), np.pi * 0.01 * 0.4, 0.05),
    "ellipsoid": (shapes.ellipsoid(np.array([0.1, 0.2, 0.3])), BALL * 0.006, 0.05),
    "polyhedron": (shapes.polyhedron(TETRA), 0.027 / 6, 1e-6),
    "many corners": (shapes.polyhedron(POINTS), ConvexHull(POINTS).volume, 1e-6),
    "two": ([shapes.box(0.1), shapes.box(0.1, center=np.array([0.0, 0.5, 0.0]))], 0.016, 1e-6),
}
FLOOR = shapes.Plane((0.0, 0.0, 1.0))


@pytest.mark.parametrize("name", SHAPES)
def test_what_touches_is_drawn_as_what_it_is_and_where_it_touches(name):
    shape, expected, tolerance = SHAPES[name]
    model = lgjax.models.quadruped()
    q = lgjax.random_configuration(jax.random.key(6), model)
    contacts = lgjax.Contacts(model, FLOOR, {"RR_foot": shape})
    parts, body = visual_parts(model, None, solids.of_contacts(model, contacts)), model.body_names.index("RR_calf")
    (part,) = [p for p in parts if p.body == body and volume(p.mesh) == pytest.approx(expected, rel=tolerance)]
    assert is_closed(part.mesh)
    (found,) = in_world(model, [part], q)
    lowest = float(lgjax.contact.contact_points(model, contacts, q).gap.min())
    assert found[:, 2].min() == pytest.approx(lowest, abs=max(1e-6, 0.2 * tolerance))


def cubes(shapes_of):
    """Two cubes of 1 kg and half edges of 0.1 m, free, with contacts: {name of the cube: shape}."""
    free = lambda n: lgjax.Body(n, None, lgjax.Joint(f"{n}_free", "free"), mass=1.0, inertia=np.eye(3) / 150)
    model = lgjax.build([free("a"), free("b")])
    return model, lgjax.Contacts(model, FLOOR, shapes_of)


def test_a_shape_around_the_center_of_mass_is_the_whole_body():
    """The other body, which touches with a small ball, shows its inertia as well, no farther than the ball."""
    model, contacts = cubes({"a": shapes.box(0.1), "b": shapes.sphere(0.02, (0.0, 0.0, -0.1))})
    parts = visual_parts(model, None, solids.of_contacts(model, contacts))
    sizes = {(part.body, round(volume(part.mesh), 4)) for part in parts}
    inertia = 0.008 * (0.12 / (0.1 * 3**0.5)) ** 3
    assert sizes == {(0, 0.008), (1, round(volume(geometry.ellipsoid(0.02)), 4)), (1, round(inertia, 4))}
    assert {part.color for part in parts if part.body == 0} == {LIMBS[0]}


def test_a_model_without_visuals_shows_the_geometry_that_came_with_it():
    model = lgjax.models.quadruped()
    trunk = [part.mesh for part in visual_parts(model) if part.body == 0]
    assert min(abs(volume(mesh) - 8 * 0.19 * 0.055 * 0.055) for mesh in trunk) < 1e-9


def test_what_touches_is_seen_through_over_visual_geometry(tmp_path):
    path = tmp_path / "toy.urdf"
    path.write_text(URDF)
    model = lgjax.load_urdf(path)
    touching = solids.of_contacts(model, lgjax.Contacts(model, FLOOR, {"arm": shapes.box(0.2)}))
    with pytest.warns(UserWarning, match="no visual geometry for hand"):
        parts = visual_parts(model, None, touching)
    (box,) = [part for part in parts if part.opacity is not None]
    assert box.body == model.body_names.index("arm")
    assert volume(box.mesh) == pytest.approx(0.064)


def test_visual_meshes_have_the_unit_of_their_file(tmp_path):
    path = tmp_path / "a.dae"
    solid = trimesh.creation.box((1.0, 2.0, 3.0))
    for unit, scale in (("1", 1.0), ("0.0254", 0.0254)):
        text = trimesh.exchange.dae.export_collada(solid).decode()
        path.write_text(text.replace("<up_axis>", f'<unit meter="{unit}"/><up_axis>'))
        ((mesh, _),) = load_meshes(path)
        assert volume(mesh) == pytest.approx(6 * scale**3, rel=1e-6)


MJCF = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
 <body name="a" pos="0 0 1" euler="10 20 30"><freejoint/>
  <geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0" euler="0 40 0"/>
  <body name="b" pos="0.3 0 0"><joint axis="0 0.6 0.8"/>
   <geom type="capsule" size="0.05" fromto="0 0 0 0.3 0.1 0" contype="0" conaffinity="0"
    rgba="0 1 0 1"/>
   <geom type="sphere" size="0.2" rgba="1 0 0 1"/>
   <body name="c" pos="0 0 0.4" euler="0 0 50"><geom type="ellipsoid" size="0.1 0.2 0.3" pos="0 0.1 0"
   rgba="0 0 1 1"/></body>
 </body></body></worldbody></mujoco>"""


MJCF_WITH_A_MESH = """<mujoco><asset><mesh name="t" file="tetrahedron.obj" scale="0.1 0.2 0.3"/></asset>
 <worldbody><body name="a" pos="0 0 1"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
  <geom type="mesh" mesh="t" pos="0.1 0.05 0.2" euler="20 30 40"/></body></worldbody></mujoco>"""


def test_mjcf_geometry_is_where_mujoco_puts_it(tmp_path):
    """Of body b the capsule is shown, which collides with nothing, not the sphere in its place."""
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "toy.xml"
    path.write_text(MJCF)
    model = lgjax.load_mjcf(path)
    q = lgjax.random_configuration(jax.random.key(4), model)
    other = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(other)
    data.qpos = np.asarray(lgjax.conventions.to_mujoco(model, q)[0])
    mujoco.mj_kinematics(other, data)
    expected = [data.geom_xpos[i] for i in (1, 2, 4)]
    found = [vertices.mean(0) for vertices in in_world(model, visual_parts(model), q)]
    np.testing.assert_allclose(sorted(map(tuple, found)), sorted(map(tuple, expected)), atol=1e-9)
    reach = max(np.linalg.norm(v - v.mean(0), axis=1).max() for v in in_world(model, visual_parts(model), q))
    assert reach == pytest.approx(np.linalg.norm([0.1, 0.2, 0.3]), rel=0.05)


def test_a_mesh_of_mjcf_is_the_tetrahedron_where_mujoco_puts_it(tmp_path):
    """MuJoCo moves a mesh to its center of mass, turns it to its principal axes, and hides both in the geom's place."""
    mujoco = pytest.importorskip("mujoco")
    (tmp_path / "tetrahedron.obj").write_text(TETRAHEDRON)
    path = tmp_path / "toy.xml"
    path.write_text(MJCF_WITH_A_MESH)
    model = lgjax.load_mjcf(path)
    q = lgjax.random_configuration(jax.random.key(5), model)
    other = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(other)
    data.qpos = np.asarray(lgjax.conventions.to_mujoco(model, q)[0])
    mujoco.mj_kinematics(other, data)
    (part,) = visual_parts(model)
    assert is_closed(part.mesh)
    assert volume(part.mesh) == pytest.approx(0.1 * 0.2 * 0.3 / 6, rel=1e-5)  # MuJoCo keeps float32
    (found,) = in_world(model, [part], q)
    geom = np.array([[0.0, 0, 0], [0.1, 0, 0], [0, 0.2, 0], [0, 0, 0.3]])
    place, turn = np.array([0.1, 0.05, 0.2]), Rotation.from_euler("XYZ", [20, 30, 40], degrees=True)
    body = data.xmat[1].reshape(3, 3), data.xpos[1]
    expected = (turn.apply(geom) + place) @ body[0].T + body[1]
    apart = np.linalg.norm(found[:, None] - expected, axis=2)
    assert apart.min(0).max() < 1e-6
    assert apart.min(1).max() < 1e-6


def test_meshes_that_are_missing_are_named_and_inertias_stand_in(tmp_path):
    path = tmp_path / "toy.urdf"
    path.write_text(URDF)
    model = lgjax.load_urdf(path)
    with pytest.warns(UserWarning, match=r"no visual geometry for hand \(package://toy/meshes/tetrahedron.obj"):
        assert {part.body for part in visual_parts(model)} == {0, 1}
    path.unlink()
    with pytest.warns(UserWarning, match="no visual geometry from"):
        stand_in = visual_parts(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(visual_parts(model, False)) == len(stand_in)
        with pytest.raises(ValueError, match=r"read from \.urdf"):
            visual_parts(model, tmp_path / "robot.stl")


def test_models_are_equal_wherever_they_came_from(tmp_path):
    """The file does not count in hashes, so that nothing is compiled again and runs can be resumed elsewhere."""
    from lgjax.saving.identity import fingerprint

    models = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.urdf"
        path.write_text(URDF)
        models.append(lgjax.load_urdf(path))
    text = lgjax.load_urdf(URDF)
    assert models[0].tree.source == str((tmp_path / "a.urdf").resolve())
    assert text.tree.source is None
    assert models[0].tree == models[1].tree == text.tree
    assert len({hash(model.tree) for model in (*models, text)}) == len({fingerprint(m) for m in (*models, text)}) == 1

"""Numbers from users: what fits comes back, what does not is refused by name, what is traced passes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.numerics import checks

MODEL, LONGER = lgjax.models.chain(2), lgjax.models.chain(400)


@pytest.mark.parametrize(
    "value", [0.9, 1, np.float32(0.5), np.float64(0.5), np.int64(1), jnp.float32(0.5), jnp.array(0)]
)
def test_every_real_scalar_is_a_number(value):
    found = checks.number("x", value, 0.0, 1.0)
    assert type(found) is float
    assert found == float(value)


@pytest.mark.parametrize("value", [True, np.bool_(True), "0.9", None, 1j, [0.9], np.array([0.9])])
def test_what_is_not_a_real_scalar_is_a_type_error(value):
    with pytest.raises(TypeError, match="x must be a number"):
        checks.number("x", value)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.inf])
def test_a_number_outside_its_range_is_named(value):
    with pytest.raises(ValueError, match="x must be a number from 0 to 1, got"):
        checks.number("x", value, 0.0, 1.0)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_ends_of_an_open_range_are_outside(value):
    with pytest.raises(ValueError, match="x must lie between 0 and 1"):
        checks.number("x", value, 0.0, 1.0, inside=True)


@pytest.mark.parametrize("value", [3, np.int32(3), np.int64(3), jnp.array(3)])
def test_every_integer_scalar_is_an_integer(value):
    found = checks.integer("n", value)
    assert type(found) is int
    assert found == 3


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), (True, ValueError), (2.0, TypeError)])
def test_what_is_not_a_positive_integer_is_refused(value, error):
    with pytest.raises(error, match="n must be a"):
        checks.integer("n", value)


def test_a_traced_setting_is_refused_by_name():
    with pytest.raises(TypeError, match="n must be a Python integer"):
        jax.jit(lambda n: checks.integer("n", n))(3)
    with pytest.raises(TypeError, match="x must be a number, known"):
        jax.jit(lambda x: checks.number("x", x))(3.0)


BAD = {
    r"q must have length 1, got \[0.0, 0.0, 2.0\] of length 2.0": lambda q: checks.unit_vector("q", 2 * q),
    "v must be orthogonal to q": lambda q: checks.orthogonal("v", q + 1e-3, "q", q),
    "R is not a rotation: R.T R - I has an entry of 0.21": lambda q: checks.rotation("R", 1.1 * jnp.eye(3)),
    "S is not a rotation but a reflection": lambda q: checks.rotation("S", -jnp.eye(3)),
    "J is not symmetric": lambda q: checks.inertia("J", jnp.eye(3).at[0, 1].set(0.1)),
    "J is not positive definite": lambda q: checks.inertia("J", jnp.diag(q)),
    "J breaks the triangle inequality": lambda q: checks.inertia("J", jnp.diag(jnp.array([1.0, 1.0, 2.1]))),
    "m is not positive: 0.0": lambda q: checks.positive("m", q[0]),
    "q is not finite": lambda q: checks.finite("q", q / 0.0),
    r"q has shape \(3,\), expected \(2,\)": lambda q: checks.array("q", q, (2,), q.dtype),
}


@pytest.mark.parametrize("text", BAD)
def test_a_known_array_that_does_not_fit_is_named(text):
    with pytest.raises(ValueError, match=text):
        BAD[text](jnp.array([0.0, 0.0, 1.0]))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_round_off_is_forgiven(dtype):
    """A direction and a rotation made in the dtype pass, with the errors of a short computation."""
    x = jax.random.normal(jax.random.key(0), (100, 3, 3), dtype)
    rotations = jnp.linalg.qr(x)[0]
    rotations = rotations * jnp.linalg.det(rotations)[:, None, None]
    checks.rotation("R", rotations)
    checks.unit_vector("q", rotations[..., 0])
    checks.orthogonal("v", rotations[..., 1], "q", rotations[..., 0])


def test_what_is_known_is_judged_inside_a_traced_program_too():
    with pytest.raises(ValueError, match=r"m is not positive: -1\.0"):
        jax.jit(lambda x: x * checks.positive("m", checks.array("m", -1.0, (), x.dtype)))(1.0)


PRINCIPAL = {
    (1.0, 1.0, 2.0): (True, True),
    (0.0, 1.0, 1.0): (False, True),
    (0.0, 0.0, 0.0): (False, True),
    (1.0, 1.0, 2.1): (True, False),
    (0.0, 0.0, 1.0): (False, False),
}


@pytest.mark.parametrize("moments", PRINCIPAL)
@pytest.mark.parametrize(("definite", "triangle"), [(True, True), (True, False), (False, True), (False, False)])
def test_principal_moments_are_held_to_what_is_asked(moments, definite, triangle):
    is_definite, is_physical = PRINCIPAL[moments]
    judge = lambda: checks.principal_moments("J", moments, definite=definite, triangle=triangle)
    if (definite and not is_definite) or (triangle and not is_physical):
        with pytest.raises(
            ValueError, match=r"J (is not positive definite|breaks the triangle inequality): .* kg m\^2"
        ):
            judge()
    else:
        assert judge() == moments
    with pytest.raises(ValueError, match="J is not positive"):
        checks.principal_moments("J", (-1e-3, 1.0, 1.0), definite=definite, triangle=triangle)


def test_moments_are_forgiven_the_round_off_that_is_known():
    checks.principal_moments("J", (0.0, 0.0, 1e-9), definite=False, round_off=1e-8)
    with pytest.raises(ValueError, match="breaks the triangle inequality"):
        checks.principal_moments("J", (0.0, 0.0, 1e-7), definite=False, round_off=1e-8)


INDICES = {
    r"prescribed takes velocity indices, integers .*; got 1\.5": (0, 1.5),
    r"prescribed takes velocity indices, integers .*; got 1\.0": (1.0,),
    r"prescribed takes velocity indices, integers .*; got True": (True, False, True),
    r"prescribed takes velocity indices, integers .*; got 'a'": "a",
    r"prescribed velocity index 3 is out of range for nv=3": (0, 3),
    r"prescribed velocity index -1 is out of range for nv=3": (-1,),
    r"prescribed names an index twice: \[0, 0, 2\]": (0, 2, 0),
}


@pytest.mark.parametrize("message", INDICES)
def test_what_are_no_indices_is_refused(message):
    with pytest.raises((TypeError, ValueError), match=message):
        checks.indices("prescribed", INDICES[message], 3)


def test_every_integer_is_an_index_and_traced_ones_are_refused():
    assert checks.indices("prescribed", np.array([2, 0]), 3) == (2, 0)
    assert checks.indices("prescribed", (jnp.array(1),), 3) == (1,)
    assert checks.indices("prescribed", (), 3) == ()
    with pytest.raises(TypeError, match="prescribed takes velocity indices"):
        jax.jit(lambda i: checks.indices("prescribed", (i,), 3))(1)


NUMBERS = [
    ("bent", "x must be numbers of shape"),
    ((1, 2, 3), r"x has shape \(3,\), expected \(2,\)"),
    ((1, np.inf), r"x is not finite: \[1.0, inf\]"),
    (((1, 2), (3,)), "x must be numbers"),
]


@pytest.mark.parametrize(("value", "message"), NUMBERS, ids=[message[:20] for _, message in NUMBERS])
def test_numbers_of_descriptions_are_named(value, message):
    np.testing.assert_array_equal(checks.numbers("x", (1, 2.5), (2,)), [1.0, 2.5])
    with pytest.raises(ValueError, match=message):
        checks.numbers("x", value, (2,))


def test_the_leaf_that_is_not_finite_is_named():
    tree = {"a": jnp.ones(2), "b": (jnp.zeros(1), jnp.array([1.0, np.nan]))}
    with pytest.raises(ValueError, match=r"state\['b'\]\[1\] is not finite: \[1.0, nan\]"):
        checks.finite_leaves("state", tree)


def test_traced_values_pass():
    jax.jit(lambda q: checks.unit_vector("q", checks.orthogonal("q", checks.finite("q", 2 * q), "q", q)))(jnp.ones(3))
    jax.jit(lambda q: checks.rotation("R", checks.inertia("J", q)))(jnp.zeros((3, 3)))


# ---- messages: of bounded length, and of the value that was given
def test_one_wrong_entry_of_many_is_named_by_its_place():
    heights = np.zeros((200, 200))
    heights[3, 7] = np.nan
    with pytest.raises(ValueError, match=r"^z is not finite: nan at \[3, 7\] \(1 of 40000 entries\)$"):
        checks.finite("z", heights)
    with pytest.raises(ValueError, match=r"^z is not positive: 0\.0 at \[0, 0\] \(40000 of 40000 entries\)$"):
        checks.positive("z", heights * 0)
    axes = np.tile([0.0, 0.0, 1.0], (500, 1))
    axes[250] = 0.0, 0.6, 0.0
    with pytest.raises(ValueError, match=r"got \[0\.0, 0\.6, 0\.0\] at \[250\] \(1 of 500 entries\) of length 0\.6 at"):
        checks.unit_vector("n", axes)
    with pytest.raises(ValueError, match=r"scalar product is 1\.0 at \[0\] \(499 of 500 entries\)$"):
        checks.orthogonal("n", axes, "m", np.array([0.0, 0.0, 1.0]))
    tensors = np.tile(np.eye(3), (40, 1, 1))
    tensors[17, 0, 1] = 1.0
    with pytest.raises(ValueError, match=r"\[0\.0, 0\.0, 1\.0\]\] at \[17\] \(1 of 40 entries\)$"):
        checks.symmetric("J", tensors)
    moments = np.ones((40, 3))
    moments[9, 2] = 3.0
    with pytest.raises(ValueError, match=r"principal moments are \[1\.0, 1\.0, 3\.0\] at \[9\] \(1 of 40"):
        checks.principal_moments("J", moments)


MANY = np.full((300, 300), -1.0)
LONG = {
    "finite": lambda: checks.finite("x", MANY * np.nan),
    "positive": lambda: checks.positive("x", MANY),
    "at least": lambda: checks.at_least("x", MANY, 1.0),
    "a large matrix": lambda: checks.symmetric("x", np.triu(MANY)),
    "an integer": lambda: checks.integer("x", MANY.tolist()),
    "a number": lambda: checks.number("x", MANY),
    "a scalar": lambda: checks.number("x", MANY.tolist()),
    "a choice": lambda: checks.choice("x", MANY.tolist(), ("a", "b")),
    "a dtype": lambda: checks.floating("x", MANY.tolist()),
    "indices": lambda: checks.indices("x", [MANY.tolist()], 3),
    "a body": lambda: MODEL.tree.body(MANY.tolist()),
    "a name of many": lambda: lgjax.frame_pose(LONGER, lgjax.neutral(LONGER), "hand"),
    "a joint of many": lambda: lgjax.configuration(LONGER, joints={"hand": 1.0}),
    "contacts": lambda: lgjax.forces.contact(MODEL, MANY, 1.0),
    "a method": lambda: lgjax.integrate(lgjax.Rn(1), lambda t, y: y, jnp.zeros(1), 0.0, 1.0, 1, MANY.tolist()),
    "a polyhedron": lambda: lgjax.shapes.polyhedron(MANY[:, :3]),
    "a restitution": lambda: lgjax.Contacts(
        MODEL, lgjax.shapes.Plane((0, 0, 1.0)), {"rod1": lgjax.shapes.sphere(0.1)}
    ).replace(restitution=MANY),
    "normals": lambda: lgjax.shapes.Plane(np.zeros((300, 3))),
    "weights": lambda: lgjax.integrators.Composition(lgjax.integrators.SymplecticLie(), np.arange(300.0), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_no_message_is_long(name):
    with pytest.raises((ValueError, TypeError)) as caught:
        LONG[name]()
    assert len(str(caught.value)) < 1500
    assert "\n" not in str(caught.value)


def test_nan_is_not_called_negative():
    with pytest.raises(ValueError, match=r"^x is not positive: nan$"):
        checks.positive("x", np.nan, allow_zero=True)
    with pytest.raises(ValueError, match=r"^x must be at least 1, got \[0\.5, 2\.0\]$"):
        checks.at_least("x", np.array([0.5, 2.0]), 1.0)

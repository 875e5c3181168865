"""Ensembles of a mechanism: what is random, what is observed, what is stored; chunks do not show."""

import shutil
import sys
from functools import cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tqdm

import lgjax
from lgjax import Spread, models
from lgjax.saving import progress
from lgjax.simulate.ensemble.ensemble import Draw, randomized
from lgjax.simulate.ensemble.spread import OF_MODEL

pytestmark = pytest.mark.usefixtures("kept_programs")


@cache
def model():
    return models.chain(1)


def run(controller=None, **changes):
    options = {"batch": 5, "steps": 4, "save_every": 2, "dt": 0.02, "key": jax.random.key(0)}
    options |= {"spread": Spread(mass=0.2), "progress": False}
    return lgjax.ensemble(model(), controller, **{**options, **changes})


@cache
def whole():
    return run()


def test_what_comes_back():
    e = whole()
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(e[:6]))
    assert (e.v.shape, e.q.joints.shape, e.energy.shape) == ((5, 3, 1), (5, 3, 1), (5, 3))
    np.testing.assert_allclose(e.ts, [0, 0.04, 0.08])
    assert e.success.all()
    assert e.seconds > 0
    assert e.compile_seconds > 0
    np.testing.assert_allclose(e.simulated_seconds_per_second, 5 * 0.08 / e.seconds)
    # the trajectories differ, and so do the masses
    assert len(np.unique(e.v[:, 0])) == len(np.unique(e.mass_factors)) == 5
    np.testing.assert_allclose(e.energy[:, 0], e.energy[:, -1], atol=1e-6)
    # observed are the joint and its velocity
    seen = np.concatenate([e.q.joints, e.v], -1)
    np.testing.assert_allclose(e.statistics.mean, seen.mean(0), rtol=1e-13)
    np.testing.assert_allclose(e.statistics.covariance[1], np.cov(seen[:, 1], rowvar=False), rtol=1e-13)


def test_each_trajectory_is_a_rollout_of_its_randomized_copy():
    e = whole()

    @jax.jit
    def alone(factors, joints, v):
        copy = model().replace(inertias=model().inertias.scaled(factors))
        return lgjax.rollout(copy, lgjax.neutral(copy)._replace(joints=joints), v, None, 0.02, 4, save_every=2)

    for i in range(2):
        path = alone(e.mass_factors[i], e.q.joints[i, 0], e.v[i, 0])
        np.testing.assert_allclose(path.v, e.v[i], atol=1e-13)
        np.testing.assert_allclose(path.q.joints, e.q.joints[i], atol=1e-13)


def test_what_is_stored_is_chosen(tmp_path):
    e = run(store="final", chunk=2, folder=tmp_path / "final")
    final = lgjax.load_ensemble(tmp_path / "final")
    last = lambda e: jax.tree.map(lambda x: x[:, -1:], (e.q, e.v, e.energy))
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-13), (final.q, final.v, final.energy), last(whole())
    )
    np.testing.assert_allclose(final.mass_factors, whole().mass_factors, rtol=1e-14)
    for name in ("q", "v", "energy", "mass_factors"):
        jax.tree.map(np.testing.assert_array_equal, getattr(e, name), getattr(final, name))
    assert e.parameters is None
    np.testing.assert_array_equal(final.ts, whole().ts)
    assert final.chunk == e.chunk == 2
    jax.tree.map(np.testing.assert_array_equal, final.statistics, e.statistics)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), e.statistics, whole().statistics)

    other = run(store="final", chunk=2, folder=tmp_path / "other", key=jax.random.key(5))
    shutil.rmtree(tmp_path / "final")
    (tmp_path / "other").rename(tmp_path / "final")  # another run at the same place
    assert np.max(np.abs(e.v - final.v)) > 0
    assert other.folder != e.folder
    shutil.rmtree(tmp_path / "final")
    e = run(store="final", chunk=2, folder=tmp_path / "final")

    again = {"store": "final", "chunk": 2, "folder": tmp_path / "final", "resume": True}
    np.testing.assert_array_equal(run(**again).statistics.mean, e.statistics.mean)
    push = lambda gain: lambda t, q, v: gain * q.joints
    for change in (
        {"dt": 0.03}, {"steps": 6}, {"method": lgjax.MuntheKaas(lgjax.integrators.HEUN2)}, {"tag": "second"},
        {"controller": push(1.0)}, {"spread": Spread(mass=0.3)}, {"observe": lambda t, q, v: q.joints},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="holds a run of another problem"):
            run(**again | change)

    e = run(store="none", chunk=5, folder=tmp_path / "none")
    for name, result in product(("q", "v", "energy", "mass_factors"), (e, lgjax.load_ensemble(tmp_path / "none"))):
        with pytest.raises(AttributeError, match=f'{name}: this ensemble kept no states .store="none".'):
            getattr(result, name)
    assert e.parameters is None
    np.testing.assert_array_equal(e.statistics.mean, whole().statistics.mean)
    for result in (e, lgjax.load_ensemble(tmp_path / "none")):
        assert result.success.tolist() == [True] * 5


class Interrupted:
    """A progress bar at which Ctrl-C comes when the second chunk is done."""

    chunks = 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def update(self, _):
        self.chunks += 1
        if self.chunks == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("in_folder", [False, True])
def test_ctrl_c_loses_nothing_and_does_not_look_complete(in_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules[lgjax.monte_carlo.__module__], "progress_bar", lambda *_: Interrupted())
    options = {"folder": tmp_path / "run"} if in_folder else {}
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(chunk=2, **options)
    e = stopped.value.result
    assert isinstance(e, lgjax.ensembles.Ensemble)
    assert not e.complete
    assert e.success.tolist() == [True] * 4
    found = lgjax.load_ensemble(tmp_path / "run") if in_folder else e
    assert not found.complete
    np.testing.assert_allclose(found.v, whole().v[:4], rtol=1e-12)
    if in_folder:
        monkeypatch.undo()
        run(chunk=2, resume=True, **options)
        again = lgjax.load_ensemble(tmp_path / "run")
        assert again.complete
        np.testing.assert_allclose(again.v, whole().v, rtol=1e-12)


def test_a_contact_that_is_not_solved_says_so(tmp_path):
    """Of states that are all finite; also in a folder, and where no states are kept."""
    ball = lgjax.build([lgjax.Body("ball", None, lgjax.Joint("free", "free"), mass=1.0, inertia=0.01 * np.eye(3))])
    shape = lgjax.shapes.box((0.1, 0.1, 0.1))
    contacts = lgjax.Contacts(ball, lgjax.shapes.Plane((0.0, 0.0, 1.0)), {"ball": shape}, friction=0.5)
    method = lgjax.contact.TimeStepping(max_sweeps=1, tolerance=1e-12)
    q = lgjax.configuration(ball, (np.eye(3), [0.0, 0.0, 0.1]))
    v = jnp.array([0.3, 0.2, 1.0, 1.0, 0.5, 0.0])
    wanted = lgjax.rollout(ball, q, v, None, 0.01, 3, method, contacts=contacts).status
    assert wanted == lgjax.contact.ContactStatus.NOT_SOLVED
    options = {"batch": 2, "steps": 3, "dt": 0.01, "key": jax.random.key(0), "method": method, "contacts": contacts}
    for k, store in enumerate(("all", "none")):
        folder = {"folder": tmp_path / store} if k else {}
        e = lgjax.ensemble(ball, q=q, v=v, store=store, spread=Spread(*7 * [0.0]), **options, **folder)
        assert e.statistics.samples == 0
        assert e.status.tolist() == [wanted, wanted]
        assert k or np.isfinite(e.v).all()
    assert lgjax.load_ensemble(tmp_path / "none").status.tolist() == [wanted, wanted]


def test_what_is_observed_is_a_vector_and_events_are_bool():
    with pytest.raises(ValueError, match=r"observe must return a vector \(d,\), got shape \(\)"):
        run(observe=lambda t, q, v: v[0])
    for wrong in (lambda t, q, v: v[0] > 0, lambda t, q, v: v):
        with pytest.raises(ValueError, match=r"events must return \(e,\) bool, got "):
            run(events=wrong)
    e = run(events=lambda t, q, v: (v[0] > -1e9, v[0] > 1e9))
    assert e.statistics.events.tolist() == [5, 0]


def test_a_trajectory_that_blows_up_leaves_the_others_alone():
    e = run(lambda t, q, v: jnp.where(q.joints > 0.05, jnp.inf, 0.0), chunk=2)
    assert 0 < e.success.sum() < 5
    assert not np.any(whole().q.joints[e.success] > 0.05)
    np.testing.assert_allclose(e.v[e.success], whole().v[e.success], rtol=1e-13)
    assert e.statistics.samples == e.success.sum()
    np.testing.assert_allclose(e.statistics.mean[..., 1:], whole().v[e.success].mean(0), rtol=1e-13)


def moments(inertia):
    """∫ dm, ∫ x dm, ∫ x xᵀ dm of the bodies."""
    second = np.asarray(inertia.rotational)
    return inertia.mass, inertia.moment, np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) / 2 - second


@cache
def rubbing():
    """A rod that turns about its middle with dry friction: slower by friction / 0.1 in every second."""
    hinge = lgjax.Joint("hinge", "revolute", axis=(0, 0, 1), friction=0.05)
    return lgjax.build([lgjax.Body("rod", None, hinge, mass=1.0, inertia=np.diag([0.1, 0.1, 0.1]))])


def run_rubbing(controller, spread=Spread(0.0, 0.0, friction=0.4), **changes):  # noqa: B008 (a tuple)
    options = {"batch": 5, "steps": 20, "dt": 0.02, "key": jax.random.key(2), "v": jnp.array([2.0]), "progress": False}
    return lgjax.ensemble(rubbing(), controller, spread=spread, **{**options, **changes})


def frictions(count):
    """The dry friction of each copy, as `randomized` draws it."""
    start = Draw(rubbing(), lgjax.neutral(rubbing()), jnp.zeros(1))
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(2), i))(jnp.arange(count))
    return jax.vmap(lambda key: randomized(start, Spread(friction=0.4), key).model.friction[0])(keys)


def test_dry_friction_is_that_of_each_copy():
    model, lost = rubbing(), np.asarray(frictions(5)) * 0.4 / 0.1
    assert np.std(lost) > 0.03
    found = run_rubbing(lgjax.forces.friction(model))
    np.testing.assert_allclose(found.v[:, -1, 0], 2.0 - lost, rtol=1e-12)
    pushed = run_rubbing(lgjax.forces.friction(model) + (lambda t, q, v: 0.1 + 0 * v))
    np.testing.assert_allclose(pushed.v[:, -1, 0], 2.4 - lost, rtol=1e-12)


def test_a_spring_between_points_follows_the_geometry_of_each_copy():
    base = models.chain(2)
    springs = lambda m: lgjax.forces.point_spring(m, (m.body_names[-1], (0.0, 0.0, 0.0)), (None, (1.0, 1.0, 0.0)), 5.0)
    options = {"batch": 2, "steps": 4, "dt": 0.02, "key": jax.random.key(2), "progress": False}
    spread = Spread(0.0, 0.0, geometry=0.3)
    found = lgjax.ensemble(base, springs(base), spread=spread, **options)
    start = Draw(base, lgjax.neutral(base), jnp.zeros(base.nv))
    for i in range(2):
        copy = randomized(start, spread, jax.random.fold_in(jax.random.key(2), i)).model
        path = lgjax.rollout(copy, start.q, start.v, springs(copy), 0.02, 4, save_every=None)
        np.testing.assert_allclose(found.v[i, -1], path.v[-1], rtol=1e-12)


HIDDEN = {
    "made inside": lambda m: lambda t, q, v: lgjax.forces.friction(m)(t, q, v),
    "captured": lambda m: (lambda force: lambda t, q, v: force(t, q, v) - v)(lgjax.forces.friction(m)),
    "a default": lambda m: lambda t, q, v, force=lgjax.forces.friction(m): force(t, q, v),  # noqa: B008
    "a partial call": lambda m: partial(lambda force, t, q, v: force(t, q, v), lgjax.forces.friction(m)),
    "by hand": lambda m: lambda t, q, v: -m.friction * jnp.tanh(v / 0.01),
    "in a sum": lambda m: lgjax.forces.spring(m, 1.0) + (lambda t, q, v: -m.friction * jnp.tanh(v / 0.01)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_random_friction_that_a_function_hides_is_refused(name):
    with pytest.raises(ValueError, match=r"spread.friction has no effect on the dry friction in a function, .* `lgjax"):
        run_rubbing(HIDDEN[name](rubbing()))


def test_random_friction_of_joints_is_not_taken_for_that_of_contacts():
    resting = lgjax.Contacts(model(), lgjax.shapes.Plane((0.0, 0.0, 1.0), 9.0), {"rod0": lgjax.shapes.sphere(0.1)})
    with pytest.raises(ValueError, match=r"has neither; for random friction of contacts let sample= draw it"):
        run(spread=Spread(friction=0.1), contacts=resting, method=lgjax.contact.TimeStepping())


def test_contacts_that_are_a_function_need_draws_with_parameters():
    with pytest.raises(ValueError, match=r"draws have none: pass sample="):
        run(contacts=lambda friction: friction, method=lgjax.contact.TimeStepping())


def test_functions_may_use_the_friction_of_the_model_where_the_copies_have_their_own():
    """A controller that cancels the nominal friction; and one that has nothing to do with friction."""
    model = rubbing()
    cancel = lambda t, q, v: model.friction * jnp.tanh(v / 0.01)
    found = run_rubbing(lgjax.forces.friction(model) + cancel)
    np.testing.assert_allclose(found.v[:, -1, 0], 2.2 - np.asarray(frictions(5)) * 4, rtol=1e-12)
    for controller, spread in ((lambda t, q, v: 0 * v, Spread(0.0, 0.0, friction=0.4)), (cancel, Spread(0.0, 0.0))):
        np.testing.assert_allclose(np.std(run_rubbing(controller, spread).v[:, -1]), 0, atol=1e-13)


def test_dry_friction_of_contacts_is_that_of_each_copy():
    model = rubbing()
    contacts, method = lgjax.Contacts(model, joint_friction=True), lgjax.contact.TimeStepping()
    cancel = lambda t, q, v: model.friction + 0 * v
    found = run_rubbing(cancel, contacts=contacts, method=method)
    np.testing.assert_allclose(found.v[:, -1, 0], 2.2 - np.asarray(frictions(5)) * 4, rtol=1e-6)


def test_every_spread_moves_its_own_parameters_and_leaves_bodies_physical():
    """Moments of a cloud of points that is stretched, scales of lengths and coefficients; standard deviations."""
    base = models.chain(3, floating_base=True)
    base = base.replace(friction=1 + base.friction, damping=1 + base.damping)
    start = lgjax.ensembles.Draw(base, lgjax.neutral(base), jnp.zeros(base.nv))
    keys = jax.random.split(jax.random.key(3), 400)
    draw = jax.jit(jax.vmap(lambda key, spread: randomized(start, spread, key), (0, None)))
    nothing = Spread(*jnp.zeros(len(Spread._fields)))
    draws = {name: draw(keys, nothing._replace(**{name: jnp.asarray(0.2)})) for name in OF_MODEL}
    deviation = lambda x: np.std(np.asarray(x).reshape(400, -1), axis=0)
    close = lambda x: np.testing.assert_allclose(deviation(x), 0.2, rtol=0.15)
    moved = jax.jit(jax.vmap(lambda q: lgjax.difference(base, start.q, q)))
    close(moved(draws["position"].q))
    close(draws["velocity"].v)
    close(jnp.log(draws["mass"].model.inertias.mass))
    close(draws["gravity"].model.gravity)
    lengths = np.linalg.norm(draws["geometry"].model.placements.translation, axis=-1)
    close(np.log(lengths[:, lengths[0] > 0]))
    close(jnp.log(draws["friction"].model.damping))
    np.testing.assert_allclose(draws["friction"].model.damping, draws["friction"].model.friction, rtol=1e-15)
    # what a spread is not about stays
    for name, draw in draws.items():
        changed = {path for path, x in _leaves(draw) if np.asarray(x != x[0]).any()}
        assert changed <= {f for f in changed if ALLOWED[name] in f}, (name, changed)
        assert changed
    for i in range(5):
        inertia = jax.tree.map(lambda x, i=i: x[i], draws["inertia"].model.inertias)
        (m0, h0, s0), (m, h, s) = moments(base.inertias), moments(inertia)
        np.testing.assert_allclose(m, m0, rtol=1e-14)
        where = np.diagonal(s0, axis1=1, axis2=2) > 1e-9
        factors = np.sqrt(np.diagonal(s, axis1=1, axis2=2)[where] / np.diagonal(s0, axis1=1, axis2=2)[where])
        assert factors.min() < 0.95 < 1.05 < factors.max()
        f = np.ones((base.nbodies, 3))
        f[where] = factors
        np.testing.assert_allclose(s, f[:, :, None] * s0 * f[:, None, :], atol=1e-12)
        np.testing.assert_allclose(h, f * h0, atol=1e-12)


ALLOWED = {"position": ".q.", "velocity": ".v", "mass": "inertias", "inertia": "inertias", "geometry": "placements",
           "friction": "", "gravity": "gravity"}  # fmt: skip


def _leaves(draw):
    return [(jax.tree_util.keystr(path) + ".", x) for path, x in jax.tree_util.tree_leaves_with_path(draw)]


def test_draws_of_the_users_with_controllers_of_their_own():
    """A joint without gravity under a random constant torque: v = t torque / inertia."""
    free = model().replace(gravity=jnp.zeros(3))

    def sample(key):
        return lgjax.ensembles.Draw(
            free, lgjax.neutral(free), jnp.zeros(1), {"torque": jax.random.normal(key, (1,), jnp.float64)}
        )

    e = run(
        lambda t, q, v, parameters: parameters["torque"],
        sample=sample,
        observe=lambda t, q, v: jnp.concatenate([v, t[None]]),
        events=lambda t, q, v: jnp.stack([v[0] > 0, t > 1]),
    )
    inertia = float(lgjax.mass_matrix(free, lgjax.neutral(free))[0, 0])
    np.testing.assert_allclose(e.v[:, :, 0], e.parameters["torque"] * e.ts / inertia, atol=1e-13)
    np.testing.assert_allclose(e.statistics.mean[:, 1], e.ts)
    np.testing.assert_array_equal(e.statistics.events, [(e.parameters["torque"] > 0).sum(), 0])


def test_bad_input_is_refused(tmp_path):
    for match, changes in (
        ("batch must be positive, got 0", {"batch": 0}),
        ("chunk must be positive and less than .*, got -1", {"chunk": -1}),
        ("store must be one of all, final, none, got 'some'", {"store": "some"}),
        ("save_every must divide steps, got save_every=3 and steps=4", {"save_every": 3}),
        ("steps must be a positive integer, got 0", {"steps": 0, "save_every": None}),
        (r"v has shape \(2,\), expected \(1,\)", {"v": jnp.zeros(2)}),
    ):
        with pytest.raises(ValueError, match=match):
            run(**changes)
    with pytest.raises(ValueError, match=r"controller returned shape \(2,\), expected \(1,\)"):
        run(lambda t, q, v: jnp.zeros(2), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_progress_bar_counts_rollouts_and_simulated_seconds(capsys):
    with progress._Bar(partial(tqdm.tqdm, mininterval=0), 50, 2.0, 10) as bar:
        bar.update(20)
    shown = capsys.readouterr().err
    assert "30/50" in shown
    assert "simulated s/s" in shown


def test_what_is_not_drawn_of_a_specialized_model_stays_constant():
    model = models.quadruped()
    special, q, v = lgjax.specialize(model), lgjax.neutral(model), jnp.zeros(model.nv)
    drawn = lambda m: randomized(Draw(m, q, v), Spread(mass=0.1, friction=0.1), jax.random.key(0)).model
    assert not {"placements.rotation", "screws", "armature", "effort"} & set(jax.jit(drawn)(special).inputs)
    given = {"batch": 3, "steps": 5, "dt": 0.01, "key": jax.random.key(1), "progress": False}
    for ours, expected in zip(*(jax.tree.leaves(lgjax.ensemble(m, **given).q) for m in (special, model)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)

"""Environments: a step is that of the dynamics, episodes end and begin anew, gradients pass, for batches of models."""

import copy
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import lgjax
from lgjax.adapters import Environment, EnvironmentParams, EnvironmentStatus
from lgjax.adapters.environment import EnvironmentState

STEPS, DT = 5, 0.05
MODEL = lgjax.models.chain(1)


def start(key, model):
    angle = jax.random.uniform(key, (1,), model.dtype, -0.5, 0.5)
    return lgjax.configuration(model, joints=angle), jnp.zeros(1, model.dtype)


def environment(model=MODEL, **options):
    settings = {
        "model": model, "dt": DT, "steps": STEPS, "start": start, "bounds": (-2.0, 2.0),
        "observe": lambda model, q, v: jnp.concatenate([q.joints, v]),
        "reward": lambda model, q, v, u: -jnp.sum(q.joints**2) - 0.1 * jnp.sum(u**2),
        **options,
    }  # fmt: skip
    return Environment(**settings)


def episodes(env, key, actions, params=None):
    """Reset and a step for each action (T, n); what came out, with a leading axis."""

    def step(state, inputs):
        observation, state, *rest = env.step(inputs[0], state, inputs[1], params)
        return state, (observation, state, *rest)

    first, state = env.reset(key, params)
    return first, jax.lax.scan(step, state, (jax.random.split(key, len(actions)), actions))[1]


def models(factors):
    """Copies with other masses, (n,)."""
    return jax.vmap(lambda f: MODEL.replace(inertias=MODEL.inertias.scaled(f * jnp.ones(1))))(factors)


def test_episodes_of_a_batch_of_models_follow_rollouts_and_begin_anew():
    env, factors = environment(substeps=4), jnp.asarray([1.0, 2.5])
    keys = jax.random.split(jax.random.key(0), 2)
    actions = jnp.asarray(np.random.default_rng(0).uniform(-3, 3, (2, STEPS + 2, 1)))
    run = jax.jit(jax.vmap(lambda *given: episodes(env, *given)))
    first, (observations, states, rewards, done, info) = run(keys, actions, models(factors))
    assert np.array_equal(done, np.broadcast_to(np.arange(STEPS + 2) == STEPS - 1, (2, STEPS + 2)))
    status = np.where(done, int(EnvironmentStatus.HORIZON), 0)
    np.testing.assert_array_equal(info["status"], status)
    np.testing.assert_array_equal(states.step, np.broadcast_to([1, 2, 3, 4, 0, 1, 2], (2, 7)))
    # a rod about its end: the angle has gravity 1.5 g / l and 3 / (m l²) of the action, clipped to ±2
    g, length, mass = 9.81, 0.3, np.asarray(factors)
    inertia = float(lgjax.mass_matrix(MODEL, lgjax.neutral(MODEL))[0, 0])
    pull = float(lgjax.gravity_forces(MODEL, lgjax.configuration(MODEL, joints=[np.pi / 2]))[0])
    assert abs(pull - g * length / 2) < 1e-6
    for i in range(2):
        y = np.asarray(first[i])
        for k in range(STEPS + 2):
            u = np.clip(float(actions[i, k, 0]), -2, 2)
            if k == STEPS:  # a new episode
                y = np.asarray(observations[i, k - 1])
                assert abs(y[0]) <= 0.5
                assert y[1] == 0
            slope = lambda t, y, u=u, i=i: [y[1], (u - mass[i] * pull * np.sin(y[0])) / (mass[i] * inertia)]
            y = scipy.integrate.solve_ivp(slope, (0, DT), y, rtol=1e-10, atol=1e-10).y[:, -1]
            np.testing.assert_allclose(info["observation"][i, k], y, atol=1e-5)  # of RK4 with four steps
            np.testing.assert_allclose(rewards[i, k], -(y[0] ** 2) - 0.1 * u**2, atol=1e-5)
            if not done[i, k]:
                np.testing.assert_array_equal(observations[i, k], info["observation"][i, k])


def test_gradients_pass_through_an_episode_and_stop_at_its_end():
    env, key = environment(), jax.random.key(3)
    total = jax.jit(lambda u: jnp.sum(episodes(env, key, u)[1][2]))
    second = lambda u: jnp.sum(episodes(env, key, u)[1][2][STEPS:])
    u, h = 0.3 * jnp.ones((STEPS + 1, 1)), 1e-6
    slope = jax.jit(jax.grad(total))(u)
    for k in (0, STEPS):
        bump = jnp.zeros_like(u).at[k].set(h)
        np.testing.assert_allclose(slope[k, 0], (total(u + bump) - total(u - bump)) / (2 * h), rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(jax.jit(jax.grad(second))(u)[:STEPS], 0)


def test_failure_and_what_is_not_finite_end_an_episode():
    env = environment(failed=lambda model, q, v: jnp.abs(q.joints[0]) > 1.0, bounds=None)
    step = jax.jit(env.step)
    _, state = jax.jit(env.reset)(jax.random.key(0))
    turned = state._replace(q=state.q._replace(joints=jnp.asarray([1.5])))
    for broken, flag in ((turned, EnvironmentStatus.FAILED), (state._replace(v=jnp.asarray([jnp.nan])), None)):
        observation, after, reward, done, info = step(jax.random.key(1), broken, jnp.zeros(1))
        assert bool(done)
        assert int(after.step) == 0
        assert np.all(np.isfinite(observation))
        assert np.isfinite(reward)
        assert int(info["status"]) & int(flag or EnvironmentStatus.NOT_FINITE)


@pytest.mark.parametrize(
    "dtype", [jnp.float64, pytest.param(jnp.float32, marks=pytest.mark.slow)], ids=["float64", "float32"]
)
def test_a_step_that_blows_up_has_derivative_zero(dtype):
    """Beside one that does not, in a batch, in both modes and to second order, of a model that is traced too."""
    model, huge = MODEL.astype(dtype), float(jnp.finfo(dtype).max) ** 0.65
    env = environment(model, bounds=None, method=lgjax.control.SemiImplicitEuler())

    def total(x):
        """The rewards of two episodes, with velocities x[:2] under the action x[2] and with a mass times x[3]."""
        heavier = model.replace(inertias=model.inertias.scaled(x[3:]))

        def one(v):
            state = EnvironmentState(lgjax.configuration(model, joints=[0.3]), v[None], jnp.zeros((), jnp.int32))
            _, after, reward, _, info = env.step(jax.random.key(0), state, x[2:3], heavier)
            return reward + jnp.sum(after.v), info["status"]

        rewards, status = jax.vmap(one)(x[:2])
        return jnp.sum(rewards), status

    value = lambda x: total(x)[0]
    derivatives = jax.jit(lambda x: (jax.grad(value)(x), jax.jacfwd(value)(x), jax.hessian(value)(x), total(x)))
    at = lambda *x: derivatives(jnp.asarray(x, dtype))
    whole, first, second = at(0.1, 0.2, 0.3, 1.0), at(0.1, huge, 0.3, 1.0), at(huge, 0.2, 0.3, 1.0)
    np.testing.assert_array_equal(first[3][1], [0, EnvironmentStatus.NOT_FINITE])
    np.testing.assert_allclose(first[0], first[1], rtol=1e-4)
    assert first[0][1] == second[0][0] == 0
    assert np.all(first[0][jnp.array([0, 2, 3])] != 0)
    for a, b, c in zip(whole, first, second, strict=True):  # nothing is lost but what is broken
        np.testing.assert_allclose(
            a[0] if isinstance(a, tuple) else a, jax.tree.leaves(b)[0] + jax.tree.leaves(c)[0], rtol=1e-4, atol=1e-5
        )


def test_a_contact_that_is_not_solved_is_in_the_info_and_goes_on():
    box = lgjax.build([lgjax.Body("box", None, lgjax.Joint("free", "free"), mass=1.0, inertia=0.01 * np.eye(3))])
    shape = lgjax.shapes.box((0.1, 0.1, 0.1))
    contacts = lgjax.Contacts(box, lgjax.shapes.Plane((0.0, 0.0, 1.0)), {"box": shape}, friction=0.5)
    v = jnp.array([0.3, 0.2, 1.0, 1.0, 0.5, 0.0])
    start = lambda key, m: (lgjax.configuration(m, (jnp.eye(3), jnp.array([0.0, 0.0, 0.1]))), v)
    for sweeps, flag in ((1, lgjax.contact.ContactStatus.NOT_SOLVED), (400, 0)):
        method = lgjax.contact.TimeStepping(max_sweeps=sweeps, tolerance=1e-12)
        env = Environment(
            model=box, dt=0.01, steps=5, start=start, observe=lambda m, q, v: v, reward=lambda m, q, v, u: v[0],
            actions=1, wrenches=lambda u: jnp.zeros((1, 6)).at[0, 3].set(u[0]), contacts=contacts, method=method,
        )  # fmt: skip
        _, state = env.reset(jax.random.key(0))
        told = 0
        for _ in range(3):
            _, state, _, done, info = jax.jit(env.step)(jax.random.key(0), state, jnp.zeros(1))
            assert (int(info["status"]), bool(done)) == (0, False)
            told |= int(info["contact"])
        assert told == flag


def test_a_learner_can_ask_for_sizes_and_bad_settings_are_refused():
    env = environment()
    assert (env.num_actions, env.observation_size) == (1, 2)
    assert env.default_params is MODEL
    with pytest.raises(ValueError, match="steps must be a positive integer"):
        environment(steps=0)
    with pytest.raises(ValueError, match="bounds of control 0 cross"):
        environment(bounds=(1.0, -1.0))
    with pytest.raises(ValueError, match=r"dt must be a finite number greater than 0, got 0\.0"):
        environment(dt=0.0)
    for failed in (lambda m, q, v: jnp.abs(q.joints) > 1, lambda m, q, v: jnp.sum(q.joints)):
        env_of = environment(failed=failed)
        with pytest.raises(ValueError, match=r"failed must return one bool, got (bool\[1\]|float64\[\])"):
            env_of.step(jax.random.key(0), env_of.reset(jax.random.key(0))[1], jnp.zeros(1))
    with pytest.raises(TypeError, match="params must be a Model with the tree of 'chain_1'"):
        env.reset(jax.random.key(0), lgjax.models.chain(2))
    with pytest.raises(ValueError, match=r"action has shape \(2,\)"):
        env.step(jax.random.key(0), env.reset(jax.random.key(0))[1], jnp.zeros(2))
    state = env.reset(jax.random.key(0))[1]
    for wrong, error, message in (
        (state._replace(v=jnp.zeros(2)), ValueError, r"state\.v has shape \(2,\)"),
        (state._replace(q=jnp.zeros(1)), TypeError, r"state\.q is an array of shape \(1,\), expected a Configuration"),
        (state._replace(step=1.5), TypeError, r"state\.step is of type float"),
        (tuple(state), TypeError, "state must be an EnvironmentState"),
    ):
        with pytest.raises(error, match=message):
            env.step(jax.random.key(0), wrong, jnp.zeros(1))
    with pytest.raises(TypeError, match="key must be one key"):
        env.reset(None)
    with pytest.raises(ValueError, match=r"params\.gravity has shape \(2,\)"):
        env.reset(jax.random.key(0), MODEL.replace(gravity=jnp.zeros(2)))
    with pytest.raises(TypeError, match="reward must be a function, got 'height'"):
        environment(reward="height")
    with pytest.raises(TypeError, match=r"start must be a pair \(q, v\)"):
        environment(start=lambda key, model: jnp.zeros(2)).reset(jax.random.key(0))
    with pytest.raises(TypeError, match=r"reward must take \(model, q, v, action\): too many positional arguments"):
        environment(reward=lambda model, q, v: 0.0)
    with pytest.raises(TypeError, match=r"failed must take \(model, q, v\): missing a required argument: 'action'"):
        environment(failed=lambda model, q, v, action: False)
    with pytest.raises(ValueError, match="observe must return one vector"):
        environment(observe=lambda model, q, v: q.joints[0]).reset(jax.random.key(0))
    with pytest.raises(ValueError, match="number of controls"):
        environment(actuation=lambda u: u)


def test_a_reward_that_branches_has_the_gradients_of_its_members():
    def reward(model, q, v, u):
        return jax.lax.cond(q.joints[0] > 0, lambda: -(q.joints[0] ** 2), lambda: -2 * q.joints[0] ** 2)

    env, keys = environment(reward=reward), jax.random.split(jax.random.key(0), 3)
    rewarded = lambda key, action: env.step(key, env.reset(key)[1], action)[2]
    together = jax.jit(jax.grad(lambda actions: jnp.sum(jax.vmap(rewarded)(keys, actions))))
    each = jax.jit(jax.vmap(jax.grad(rewarded, 1)))
    actions = jnp.ones((3, 1))
    found = together(actions)
    np.testing.assert_allclose(found, each(keys, actions), rtol=1e-12)
    assert np.any(np.asarray(found) > 0)
    assert np.any(np.asarray(found) < 0)


# ---- a memory, contacts of an episode's own, calls outside jit
def with_memory(**options):
    """An environment that remembers the last two actions and counts, from a number that `start` draws."""
    return environment(
        start=lambda key, model: (*start(key, model), (jnp.zeros(2), jax.random.uniform(key))),
        observe=lambda model, q, v, memory: jnp.concatenate([q.joints, memory[0], memory[1][None]]),
        reward=lambda model, q, v, u, memory: 100 * memory[0][1] + 10 * memory[0][0] + u[0],
        failed=lambda model, q, v, memory: memory[1] >= 3.0,
        remember=lambda model, q, v, u, memory: (jnp.stack([u[0], memory[0][0]]), memory[1] + 1.0),
        **options,
    )


def test_a_memory_is_that_of_the_episode():
    """Rewards see it before a step, observations and failures after it, and an episode begins with a new one."""
    env, key = with_memory(), jax.random.key(4)
    drawn = float(jax.random.uniform(key))
    _, (_, states, rewards, done, info) = jax.jit(lambda u: episodes(env, key, u))(jnp.arange(1.0, 7.0)[:, None] / 8)
    # the third count is above 3, whatever the first
    ends = 3 if drawn > 0 else 4
    np.testing.assert_array_equal(done[:ends], np.arange(ends) == ends - 1)
    assert int(info["status"][ends - 1]) == EnvironmentStatus.FAILED
    u = np.arange(1.0, 7.0) / 8
    for k in range(ends):
        last, before = (u[k - 1] if k > 0 else 0), (u[k - 2] if k > 1 else 0)
        assert rewards[k] == pytest.approx(100 * before + 10 * last + u[k], abs=1e-12)
        np.testing.assert_allclose(info["observation"][k, 1:], [u[k], last, drawn + k + 1], atol=1e-12)
    np.testing.assert_array_equal(states.memory[0][ends - 1], 0)
    assert 0 <= float(states.memory[1][ends - 1]) < 1
    assert rewards[ends] == pytest.approx(u[ends], abs=1e-12)


def test_a_memory_that_does_not_fit_is_refused():
    reset = lambda env: env.reset(jax.random.key(0))
    with pytest.raises(TypeError, match=r"start must be \(q, v, memory\), got"):
        reset(environment(remember=lambda *given: given[-1], observe=lambda *x: x[2], reward=lambda *x: x[2][0]))
    changed = with_memory()
    grown = lambda model, q, v, u, memory: (jnp.zeros(3), memory[1])
    env = environment(**{n: getattr(changed, n) for n in ("start", "observe", "reward")}, remember=grown)
    with pytest.raises(TypeError, match=r"observe must take \(model, q, v, memory\): too many positional arguments"):
        environment(remember=lambda *all: all[-1])
    with pytest.raises(TypeError, match="remember must return a memory like that of start"):
        env.step(jax.random.key(0), reset(env)[1], jnp.zeros(1))


def slider(**options):
    """A box of 1 kg that slides on a plane, pushed along x by the action, N."""
    box = lgjax.build([lgjax.Body("box", None, lgjax.Joint("free", "free"), mass=1.0, inertia=0.01 * np.eye(3))])
    plane, ball = lgjax.shapes.Plane((0.0, 0.0, 1.0)), lgjax.shapes.sphere(0.1)
    at_rest = lambda key, m: (lgjax.configuration(m, (jnp.eye(3), jnp.array([0.0, 0.0, 0.1]))), jnp.zeros(6))
    return Environment(
        model=box, dt=0.01, steps=9, start=at_rest, observe=lambda m, q, v: v, reward=lambda m, q, v, u: v[3],
        actions=1, wrenches=lambda u: jnp.zeros((1, 6)).at[0, 3].set(u[0]), method=lgjax.contact.TimeStepping(),
        contacts=lgjax.Contacts(box, plane, {"box": ball}, friction=0.5), **options,
    )  # fmt: skip


def test_all_functions_of_an_episode_get_its_model():
    """Start, observation, reward, failure and memory, also those of the next episode."""
    mass = lambda model: model.inertias.mass[0]
    env = environment(
        start=lambda key, m: (lgjax.configuration(m, joints=mass(m)[None]), jnp.zeros(1), mass(m)),
        observe=lambda m, q, v, memory: jnp.stack([mass(m), q.joints[0]]),
        reward=lambda m, q, v, u, memory: mass(m),
        failed=lambda m, q, v, memory: mass(m) > 1.5 * mass(MODEL),
        remember=lambda m, q, v, u, memory: memory + mass(m),
    )
    key, factors, own = jax.random.key(0), jnp.asarray([1.0, 1.2, 2.0]), mass(MODEL)

    @jax.jit
    @jax.vmap
    def episode(factor):
        model = MODEL.replace(inertias=MODEL.inertias.scaled(factor[None]))
        first, state = env.reset(key, model)
        return first, *env.step(key, state, jnp.zeros(1), EnvironmentParams(model))

    first, observation, state, reward, done, info = episode(factors)
    np.testing.assert_allclose(first, own * factors[:, None] * jnp.ones(2))
    np.testing.assert_allclose(reward, own * factors)
    np.testing.assert_array_equal(done, [False, False, True])
    np.testing.assert_allclose(state.memory, own * jnp.asarray([2.0, 2.4, 2.0]))  # the last is that of a new episode
    np.testing.assert_allclose(observation[2], 2 * own * jnp.ones(2))
    np.testing.assert_allclose(info["observation"][:, 0], own * factors)


def test_each_episode_has_a_friction_of_its_own():
    """A ball of 1 kg with I = m r² that is pushed with F slides at a = F/m - mu g, or rolls at F / (2 m)."""
    env, push = slider(), 20.0
    frictions = jnp.asarray([0.0, 0.2, 2.0])
    rolling = push / (1 + 0.01 / 0.1**2)
    expected = 0.01 * np.maximum(push - 9.81 * np.asarray(frictions), rolling)

    def speed(friction):
        params = EnvironmentParams(None, env.contacts.replace(friction=friction[None]))  # with the environment's model
        _, state = env.reset(jax.random.key(0), params)
        return env.step(jax.random.key(0), state, jnp.asarray([push]), params)[2]

    program = jax.jit(jax.vmap(speed))
    np.testing.assert_allclose(program(frictions), expected, rtol=2e-5)  # the ball turns by 1e-2 in the step
    heavier = EnvironmentParams(env.mechanism.replace(inertias=env.mechanism.inertias.scaled(jnp.asarray([2.0]))))
    found = env.step(jax.random.key(0), env.reset(jax.random.key(0))[1], jnp.asarray([push]), heavier)[2]
    np.testing.assert_allclose(found, 0.01 * (push / 2 - 9.81 * 0.5), rtol=2e-5)  # with the environment's contacts
    with pytest.raises(TypeError, match=r"params\.contacts must be the environment's contacts with other numbers"):
        env.reset(jax.random.key(0), EnvironmentParams(env.mechanism, "floor"))


def test_a_step_in_contact_has_its_slope_and_one_that_blows_up_zero():
    """A ball that slides gets F dt / m: the slope is dt / m."""
    env = slider()
    _, state = env.reset(jax.random.key(0))
    both = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    both = both._replace(v=both.v.at[1, :3].set(1e200))  # its gyroscopic torque is infinity minus infinity

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def total(push):
        _, _, rewards, _, info = jax.vmap(lambda s, u: env.step(jax.random.key(0), s, u))(both, push)
        return jnp.sum(rewards), info["status"]

    (value, status), slope = total(jnp.asarray([[20.0], [20.0]]))
    np.testing.assert_array_equal(status, [0, EnvironmentStatus.NOT_FINITE])
    np.testing.assert_allclose(value, 0.01 * (20.0 - 0.5 * 9.81), rtol=1e-5)  # it turns a little
    np.testing.assert_allclose(slope, [[0.01], [0.0]], rtol=1e-5)
    assert slope[1, 0] == 0


def test_calls_outside_jit_are_traced_once():
    """And again only for arguments of another structure; also of an environment that was copied."""
    traces = []

    def seen(model, q, v):
        traces.append("observe")
        return jnp.concatenate([q.joints, v])

    env = environment(observe=seen)
    for made in (env, copy.copy(env)):
        traces.clear()
        state = made.reset(jax.random.key(0))[1]
        first = len(traces)
        _, state, *_ = made.step(jax.random.key(0), state, jnp.zeros(1))
        after = len(traces)
        for k in range(3):
            _, state, *_ = made.step(jax.random.key(k), state, jnp.asarray([0.1 * k]))
        assert first > 0
        assert len(traces) == after
        made.reset(jax.random.key(9))
        assert len(traces) == after

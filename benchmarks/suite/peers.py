"""The sweeps of other programs: SciPy and diffrax on coordinates, the others on the mechanism."""

import importlib.util
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.problem import Sweep, doubling, matrix, spread

TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def coordinate_sweeps(
    rate: Callable, start: Any, state: Callable, velocities: slice, first: int, stiff: bool = False
) -> list[Sweep]:
    """SciPy and diffrax on rate(t, y, xp) -> list, xp NumPy or jax.numpy; state(y) makes the suite's state."""
    from scipy.integrate import solve_ivp

    y0 = np.asarray(start, float)

    def scipy(method: str, end: float, tolerance: float, batch: int | None) -> Any:
        field = lambda t, y: np.array(rate(t, y.tolist(), np))
        call = lambda: solve_ivp(field, (0.0, end), y0, method=method, rtol=tolerance, atol=tolerance)
        return call, lambda s: (state(s.y[:, -1]), float(s.nfev))

    @cache
    def compiled(name: str, steps: int | None, end: float, batch: int | None) -> Any:
        """The program of (starts, tolerance), and the starts."""
        import diffrax as dx
        import jax
        import jax.numpy as jnp

        term = dx.ODETerm(lambda t, y, _: jnp.stack(rate(t, list(y), jnp)))
        h = end / steps if steps else None

        def run(y: Any, tolerance: Any) -> Any:
            control = dx.ConstantStepSize() if steps else dx.PIDController(rtol=tolerance, atol=tolerance)
            s = dx.diffeqsolve(
                term, getattr(dx, name)(), 0.0, end, h, y, stepsize_controller=control, saveat=dx.SaveAt(t1=True),
                max_steps=None if steps else 1_000_000, throw=False, adjoint=dx.ForwardMode(),
            )  # fmt: skip
            return s.ys[0], s.stats["num_steps"]

        given = jnp.asarray(y0)
        if batch:
            many = np.tile(y0, (batch, 1))
            many[:, velocities] = spread(y0[velocities], batch)
            given = jnp.asarray(many)
        return jax.jit(jax.vmap(run, (0, None)) if batch else run).lower(given, jnp.ones(())).compile(), given

    def diffrax(name: str, fixed: bool, end: float, setting: Any, batch: int | None) -> Any:
        import jax
        import jax.numpy as jnp

        program, given = compiled(name, setting if fixed else None, end, batch)
        stages, tolerance = {"Tsit5": 6, "Dopri8": 13, "Kvaerno5": 7}[name], jnp.asarray(float(setting))

        def finish(result: Any) -> Any:
            y, n = (np.asarray(x[0] if batch else x) for x in result)
            return state(y), float(stages * n)

        return lambda: jax.block_until_ready(program(given, tolerance)), finish

    names = ["DOP853"] + (["Radau"] if stiff else [])
    found = [Sweep("SciPy", name, partial(scipy, name), TOLERANCES, steps=False) for name in names]
    for name in ("Tsit5", "Dopri8", *(["Kvaerno5"] if stiff else [])):
        found.append(Sweep("diffrax", name, partial(diffrax, name, False), TOLERANCES, steps=False, batched=True))
    if not stiff:
        fixed = partial(diffrax, "Dopri8", True)
        found.append(Sweep("diffrax", "Dopri8, equal steps", fixed, doubling(first, 5), batched=True))
    return found


def mujoco_sweeps(m: Mechanism, first: int, drive: str = "", solref: Callable | None = None) -> list[Sweep]:
    """MuJoCo C by its `rollout`, which steps without Python, on one thread.

    drive: actuators with constant forces. solref: of the contacts of all shapes, for a size of the steps.
    """
    import mujoco
    from mujoco.rollout import rollout

    kinds = {"Euler": (0, 1), "RK4": (1, 4), "implicit": (2, 1)}
    full = mujoco.mjtState.mjSTATE_FULLPHYSICS

    def prepare(kind: str, end: float, steps: int, batch: int | None) -> Any:
        model = mujoco.MjModel.from_xml_string(m.xml.replace("</mujoco>", f"{drive}</mujoco>"))
        model.opt.timestep, model.opt.integrator = end / steps, kinds[kind][0]
        if solref:
            model.geom_solref[:] = solref(end / steps)
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = m.qpos, m.qvel
        start = np.zeros((batch or 1, mujoco.mj_stateSize(model, full)))
        mujoco.mj_getState(model, data, start[0], full)
        if batch:
            start[:] = start[0]
            start[:, 1 + model.nq : 1 + model.nq + model.nv] = spread(np.array(m.qvel), batch, bool(model.neq))
        part = max(n for n in range(1, min(steps, 10_000) + 1) if steps % n == 0)

        def call() -> Any:
            now = start
            for _ in range(steps // part):
                now = rollout(model, data, now, nstep=part)[0][:, -1]
            return now

        def finish(now: Any) -> Any:
            x = now[0][1:]
            state = m.state(x[: model.nq], x[model.nq : model.nq + model.nv])
            return state, float(kinds[kind][1] * steps)

        return call, finish

    settings = {kind: doubling(first, 5 if kind == "RK4" else 4, 4 if kind == "RK4" else 8) for kind in kinds}
    return [Sweep("MuJoCo", kind, partial(prepare, kind), settings[kind], batched=True) for kind in kinds]


def mjx_sweeps(m: Mechanism, first: int, drive: str = "") -> list[Sweep]:
    """MJX with RK4, where it is installed; one program for all steps. drive as in `mujoco_sweeps`."""
    if importlib.util.find_spec("mujoco.mjx") is None:
        return []

    @cache
    def compiled(batch: int | None) -> Any:
        import jax
        import jax.numpy as jnp
        import mujoco
        from mujoco import mjx

        file = mujoco.MjModel.from_xml_string(m.xml.replace("</mujoco>", f"{drive}</mujoco>"))
        file.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
        model = mjx.put_model(file)
        data = mjx.make_data(model).replace(qpos=jnp.asarray(m.qpos, float))

        def run(v: Any, h: Any, steps: Any) -> Any:
            own = model.tree_replace({"opt.timestep": h})
            d = jax.lax.fori_loop(0, steps, lambda _, d: mjx.step(own, d), data.replace(qvel=v))
            return d.qpos, d.qvel

        v = jnp.asarray(spread(np.array(m.qvel), batch) if batch else np.array(m.qvel, float))
        return jax.jit(jax.vmap(run, (0, None, None)) if batch else run).lower(v, jnp.ones(()), 1).compile(), v

    def prepare(end: float, steps: int, batch: int | None) -> Any:
        import jax

        program, v = compiled(batch)
        h, n = jax.numpy.asarray(end / steps), jax.numpy.asarray(steps)

        def finish(result: Any) -> Any:
            q, v = (np.asarray(x[0] if batch else x) for x in result)
            return m.state(q, v), 4.0 * steps

        return lambda: jax.block_until_ready(program(v, h, n)), finish

    return [Sweep("MJX", "RK4", prepare, doubling(first, 4, 4), batched=True)]


def drake_sweeps(m: Mechanism) -> list[Sweep]:
    """Drake's continuous plant with error control, where it is installed.

    Its ball joints have three angles; RK5 may never return from singular ones.
    """
    if importlib.util.find_spec("pydrake") is None:
        return []

    @cache
    def plant() -> Any:
        from pydrake.multibody.parsing import Parser
        from pydrake.multibody.plant import MultibodyPlant

        made = MultibodyPlant(0.0)
        Parser(made).AddModelsFromString(m.xml.replace("<mujoco>", '<mujoco model="m">'), "xml")
        made.mutable_gravity_field().set_gravity_vector(np.array(m.gravity))
        made.Finalize()
        return made

    def prepare(scheme: str, end: float, tolerance: float, batch: int | None) -> Any:
        from pydrake.systems.analysis import ApplySimulatorConfig, Simulator, SimulatorConfig

        p = plant()
        simulator = Simulator(p)
        config = SimulatorConfig(integration_scheme=scheme, accuracy=tolerance, max_step_size=end)
        ApplySimulatorConfig(config, simulator)
        context, file = simulator.get_mutable_context(), m.file
        joints = [joint for joint in map(p.get_joint, p.GetJointIndices()) if joint.num_velocities()]

        def call() -> Any:
            context.SetTime(0.0)
            for k, joint in enumerate(joints):
                at, rate = int(file.jnt_qposadr[k]), int(file.jnt_dofadr[k])
                if joint.num_velocities() == 3:  # starts at the identity
                    joint.set_angles(context, np.zeros(3))
                    joint.set_angular_velocity(context, np.array(m.qvel[rate : rate + 3]))
                else:
                    joint.set_angle(context, m.qpos[at])
                    joint.set_angular_rate(context, m.qvel[rate])
            simulator.Initialize()
            simulator.AdvanceTo(end)
            return simulator.get_integrator().get_num_derivative_evaluations()

        def finish(count: float) -> Any:
            bodies = [p.GetBodyByName(part.name) for part in m.parts]
            rotations = [p.EvalBodyPoseInWorld(context, b).rotation().matrix() for b in bodies]
            omegas = [p.EvalBodySpatialVelocityInWorld(context, b).rotational() for b in bodies]
            return m.from_bodies(np.array(rotations), np.array(omegas)), float(count)

        return call, finish

    ball = len(m.qpos) > len(m.qvel)
    names = {"runge_kutta3": "RK3"} | ({} if ball else {"runge_kutta5": "RK5"})
    return [Sweep("Drake", names[s], partial(prepare, s), TOLERANCES, steps=False) for s in names]


def pinocchio_sweeps(m: Mechanism, first: int, torque: Any = None) -> list[Sweep]:
    """Pinocchio's `aba` and `integrate`, called from Python: semi-implicit Euler and RK4. torque: constant (nv,)."""
    import tempfile

    import pinocchio as pin

    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(m.xml.replace('<size memory="1M"/>', ""))
        file.flush()
        model = pin.buildModelFromMJCF(file.name)
    model.gravity.linear = np.array(m.gravity)
    swap = [i for j in range(1, model.njoints) for i in _xyzw(model.joints[j])]
    q0, v0 = np.array(m.qpos, float)[swap], np.array(m.qvel, float)
    force = np.zeros(model.nv) if torque is None else np.array(torque, float)

    def euler(data: Any, q: Any, v: Any, h: float) -> Any:
        v = v + h * pin.aba(model, data, q, v, force)
        return pin.integrate(model, q, h * v), v

    def rk4(data: Any, q: Any, v: Any, h: float) -> Any:
        a1 = pin.aba(model, data, q, v, force).copy()
        v2 = v + h / 2 * a1
        a2 = pin.aba(model, data, pin.integrate(model, q, h / 2 * v), v2, force).copy()
        v3 = v + h / 2 * a2
        a3 = pin.aba(model, data, pin.integrate(model, q, h / 2 * v2), v3, force).copy()
        v4 = v + h * a3
        a4 = pin.aba(model, data, pin.integrate(model, q, h * v3), v4, force)
        return pin.integrate(model, q, h / 6 * (v + 2 * v2 + 2 * v3 + v4)), v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)

    def prepare(step: Callable, calls: int, end: float, steps: int, batch: int | None) -> Any:
        data, h = model.createData(), end / steps

        def call() -> Any:
            q, v = q0, v0
            for _ in range(steps):
                q, v = step(data, q, v, h)
            return q, v

        def finish(s: Any) -> Any:
            qpos, v = s[0][np.argsort(swap)], s[1].copy()
            if model.joints[1].nq == 7:  # a free body, whose velocity is along its own axes
                v[:3] = matrix(qpos[3:7]) @ v[:3]
            return m.state(qpos, v), float(calls * steps)

        return call, finish

    return [
        Sweep("Pinocchio", "semi-implicit Euler", partial(prepare, euler, 1), doubling(first, 3, 8)),
        Sweep("Pinocchio", "RK4", partial(prepare, rk4, 4), doubling(first, 4, 4)),
    ]


def _xyzw(joint: Any) -> list[int]:
    """MuJoCo's indices of a joint's coordinates in Pinocchio's order."""
    at = joint.idx_q
    quaternion = [1, 2, 3, 0]
    order = {4: quaternion, 7: [0, 1, 2, *(3 + i for i in quaternion)]}.get(joint.nq, range(joint.nq))
    return [at + i for i in order]


def exudyn_sweeps(m: Mechanism, first: int, rho: float = 0.9) -> list[Sweep]:
    """Exudyn on the bodies with rotation vectors and joints as constraints, by both variants of generalized-alpha."""

    def prepare(variant: str, end: float, steps: int, batch: int | None) -> Any:
        from tests.oracles import exudyn_systems

        def build() -> Any:
            return _exudyn(exudyn_systems.Mechanism(gravity=m.gravity), m)

        holder: dict[str, Any] = {}

        def call() -> Any:
            made, bodies = holder.pop("fresh", None) or build()
            count = made.solve(end, steps, variant=variant, rtol=1e-10, spectral_radius=rho)
            return made, bodies, count

        def finish(result: Any) -> Any:
            import exudyn as exu

            made, bodies, count = result
            kinds = exu.OutputVariableType
            rotations = np.array([made.rotation(b) for b in bodies])
            read = lambda kind: np.array([made.output(b, kind) for b in bodies])
            others = map(read, (kinds.AngularVelocity, kinds.Position, kinds.Velocity))
            return m.from_bodies(rotations, *others), float(count)

        return call, finish

    label = {"standard": "generalized-alpha", "sigma_modified": "generalized-alpha, its default"}
    return [
        Sweep("Exudyn", label[v], partial(prepare, v), doubling(first, 3, 4)) for v in ("standard", "sigma_modified")
    ]


def _exudyn(made: Any, m: Mechanism) -> tuple[Any, list[Any]]:
    from benchmarks.suite.library import _axes

    parts = m.parts
    bodies = [made.body(p.mass, p.inertia, p.position, p.rotation, p.velocity, p.omega) for p in parts]
    index = lambda i: made.ground if i < 0 else bodies[i]
    at = lambda i, x: x if i < 0 else parts[i].rotation.T @ (x - parts[i].position)
    frame = lambda i, a: a if i < 0 else parts[i].rotation.T @ a
    held = {"spherical": [1, 1, 1, 0, 0, 0], "revolute": [1, 1, 1, 1, 1, 0], "pin": [1, 1, 0, 0, 0, 0],
            "prismatic": [1, 1, 0, 1, 1, 1]}  # fmt: skip
    for link in m.links:
        axes, (a, b) = _axes(link.axis), (link.parent, link.child)
        made.joint(index(a), at(a, link.point), index(b), at(b, link.point), held[link.kind], frame(a, axes),
                   frame(b, axes))  # fmt: skip
    for tie in m.ties:
        made.mbs.CreateSpringDamper(
            bodyNumbers=[index(tie.first), index(tie.second)],
            localPosition0=list(at(tie.first, tie.points[0])),
            localPosition1=list(at(tie.second, tie.points[1])),
            referenceLength=tie.length,
            stiffness=tie.stiffness,
            damping=tie.damping,
        )
    return made, bodies

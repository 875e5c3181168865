"""Inverse kinematics by other programs, as their own examples call them; started by `inverse_kinematics.py`.

python inverse_kinematics_peers.py PROGRAM TARGETS RESULT
Needs the program alone: mink with MuJoCo and DAQP; pyroki; pinocchio. TARGETS holds the file of the robot, the frame,
its poses (n, 4, 4), the limits and a guess; RESULT gets joints q (n, nq) and the seconds of the first and all targets.
"""

import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np

SIZE = 1e-8  # of the error, rad and m
GUESSES = 8
ITERATIONS = 200  # from each guess, of methods with one step after the other


def without_shapes(path: Path) -> str:
    """The URDF with nothing to draw or to touch, which needs no meshes."""
    root = ET.parse(path).getroot()
    for link in root.iter("link"):
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            link.remove(shape)
    for extension in [x for x in root if x.tag not in ("link", "joint", "material")]:
        root.remove(extension)
    return ET.tostring(root, encoding="unicode")


def guesses(given) -> np.ndarray:
    """The given guess, then random ones."""
    drawn = np.random.default_rng(1).uniform(given["lower"], given["upper"], (GUESSES - 1, len(given["lower"])))
    return np.concatenate([given["guess"][None], drawn])


def mink(given):
    """Steps of a quadratic program with the limits, from one guess after the other."""
    import mink
    import mujoco

    options = '<mujoco><compiler fusestatic="false" discardvisual="false" balanceinertia="true"/></mujoco>'
    xml = without_shapes(Path(str(given["urdf"]))).replace("</robot>", options + "</robot>")
    xml = ET.fromstring(xml)
    for joint in xml.iter("joint"):  # followers are joints of their own here
        for mimic in joint.findall("mimic"):
            joint.remove(mimic)
    model = mujoco.MjModel.from_xml_string(ET.tostring(xml, encoding="unicode"))
    order = [model.joint(name).qposadr[0] for name in given["names"]]
    configuration = mink.Configuration(model)
    task = mink.FrameTask(str(given["frame"]), "body", position_cost=1.0, orientation_cost=1.0)
    limits, starts = [mink.ConfigurationLimit(model)], guesses(given)

    def solve(pose):
        task.set_target(mink.SE3.from_matrix(pose))
        for start in starts:
            q = np.zeros(model.nq)
            q[order] = start
            configuration.update(q)
            for _ in range(ITERATIONS):
                error = task.compute_error(configuration)
                if max(np.linalg.norm(error[:3]), np.linalg.norm(error[3:])) <= SIZE:
                    return configuration.q[order]
                v = mink.solve_ik(configuration, [task], 1.0, "daqp", damping=1e-6, limits=limits)
                configuration.integrate_inplace(v, 1.0)
        return configuration.q[order]

    return one_by_one(solve, given["poses"])


def pinocchio(given):
    """Damped steps, clipped to the limits, from one guess after the other; the loop is in Python."""
    import pinocchio as pin

    model = pin.buildModelFromUrdf(str(given["urdf"]))
    data, frame = model.createData(), model.getFrameId(str(given["frame"]))
    starts = guesses(given)

    def solve(pose):
        wanted = pin.SE3(pose)
        for start in starts:
            q = start.copy()
            for _ in range(ITERATIONS):
                pin.framesForwardKinematics(model, data, q)
                away = data.oMf[frame].actInv(wanted)
                error = pin.log6(away).vector
                if max(np.linalg.norm(error[:3]), np.linalg.norm(error[3:])) <= SIZE:
                    return q
                J = pin.computeFrameJacobian(model, data, q, frame, pin.LOCAL)
                J = -pin.Jlog6(away.inverse()) @ J
                step = -J.T @ np.linalg.solve(J @ J.T + 1e-6 * np.eye(6), error)
                q = np.clip(pin.integrate(model, q, step), given["lower"], given["upper"])
        return q

    return one_by_one(solve, given["poses"])


def pyroki(given):
    """Its search with a beam, as in its benchmark: 64 guesses for 6 steps, the best 4 for 10 more; float32."""
    import io

    import jax
    import jax.numpy as jnp
    import jaxlie
    import jaxls
    import pyroki as pk
    import yourdfpy

    started = time.perf_counter()
    urdf = yourdfpy.URDF.load(io.StringIO(without_shapes(Path(str(given["urdf"])))), load_meshes=False)
    robot = pk.Robot.from_urdf(urdf)
    index = jnp.array(robot.links.names.index(str(given["frame"])))
    names = list(robot.joints.actuated_names)
    n = len(names)
    root = 2.0
    for _ in range(100):  # of x^(n+1) = x + 1
        root = (1 + root) ** (1 / (n + 1))
    share = (np.arange(64)[:, None] * (1 - (1 / root ** (1 + np.arange(n))))) % 1
    low, high = robot.joints.lower_limits, robot.joints.upper_limits
    starts = low + jnp.asarray(share, jnp.float32) * (high - low)

    def descend(target, start, damping, steps):
        variable = robot.joint_var_cls(0)
        costs = [
            pk.costs.pose_cost_analytic_jac(robot, variable, target, index, pos_weight=10.0, ori_weight=5.0),
            pk.costs.limit_cost(robot, variable, weight=50.0),
        ]
        found, summary = (
            jaxls.LeastSquaresProblem(costs, [variable])
            .analyze()
            .solve(
                initial_vals=jaxls.VarValues.make([variable.with_value(start)]),
                verbose=False,
                linear_solver="dense_cholesky",
                termination=jaxls.TerminationConfig(max_iterations=steps, early_termination=False),
                trust_region=jaxls.TrustRegionConfig(lambda_initial=damping),
                return_summary=True,
            )
        )
        last = summary.iterations
        return found[variable], summary.cost_history[last], summary.lambda_history[last - 1]

    def solve(pose):
        target = jaxlie.SE3.from_matrix(pose)
        each = jax.vmap(lambda q, damping, steps: descend(target, q, damping, steps), (0, 0, None))
        q, cost, damping = each(starts, jnp.full(64, 10.0), 6)
        best = jnp.argsort(cost)[:4]
        q, cost, _ = each(q[best], damping[best], 10)
        return q[jnp.argmin(cost)]

    poses = jnp.asarray(given["poses"], jnp.float32)
    program = jax.jit(jax.vmap(solve))
    q = jax.block_until_ready(program(poses))
    first, times = time.perf_counter() - started, []
    for _ in range(3):
        started = time.perf_counter()
        jax.block_until_ready(program(poses))
        times.append(time.perf_counter() - started)
    found = np.tile(given["guess"], (len(poses), 1))  # followers, which the frame does not depend on, stay
    for column, name in enumerate(given["names"]):
        if name in names:
            found[:, column] = np.asarray(q)[:, names.index(name)]
    return found, first, sorted(times)[1]


def one_by_one(solve, poses):
    started = time.perf_counter()
    solve(poses[0])
    first = time.perf_counter() - started
    started = time.perf_counter()
    q = np.stack([np.array(solve(pose)) for pose in poses])
    return q, first, time.perf_counter() - started


if __name__ == "__main__":
    program, source, result = sys.argv[1:]
    given = dict(np.load(source))
    q, first, seconds = {"mink": mink, "pyroki": pyroki, "pinocchio": pinocchio}[program](given)
    np.savez(result, q=q, first=first, seconds=seconds)

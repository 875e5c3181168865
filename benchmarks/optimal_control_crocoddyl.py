"""Crocoddyl's part of `optimal_control.py`, which starts it in an environment of its own.

Solves the problem of a file once for every guess whenever a line arrives, and prints times and costs as JSON.
"""

import json
import sys
import time

import crocoddyl
import numpy as np
import pinocchio as pin


def costs(case, state, nv: int, running: bool):
    """The sum of the costs of a step or of the end."""
    total = crocoddyl.CostModelSum(state, nv)
    cost = lambda weights, residual: crocoddyl.CostModelResidual(
        state, crocoddyl.ActivationModelWeightedQuad(np.asarray(weights, float)), residual
    )
    start = np.r_[case["q"], np.zeros(nv)]
    apart = crocoddyl.ResidualModelState(state, start, nv)
    if running:
        force = crocoddyl.ResidualModelControl(state, case["hold"][case["order"]])
        total.addCost("force", cost(np.ones(nv), force), float(case["force"]))
        total.addCost("state", cost(np.ones(2 * nv), apart), float(case["along"]))
    else:
        goal = crocoddyl.ResidualModelFramePlacement(state, case["frame"], placement(case["goal"]), nv)
        total.addCost("pose", cost(np.ones(6), goal), float(case["pose"]))
        total.addCost("state", cost(np.repeat(case["end"], nv), apart), 1.0)
    return total


def placement(numbers):
    return pin.SE3(numbers[:9].reshape(3, 3), numbers[9:])


def prepare(path: str, description: str):
    """The shooting problem and the guesses in Pinocchio's order."""
    case = dict(np.load(path))
    free = [pin.JointModelFreeFlyer()] * int(case["floating"])
    model = pin.buildModelFromUrdf(description, *free)
    nv, base = model.nv, 6 * int(case["floating"])
    first = int(case["floating"])
    places = [model.idx_vs[model.getJointId(f"joint{i + first}")] for i in range(nv - base)]
    # ours of theirs; of a free joint we have the angular part first
    order = np.empty(nv, int)
    order[:base] = [3, 4, 5, 0, 1, 2][:base]
    order[places] = base + np.arange(nv - base)
    body = int(case["body"])
    joint = model.getJointId(f"joint{body}") if body or not base else 1
    frame = pin.Frame("goal", joint, 0, placement(case["place"]), pin.OP_FRAME)
    q = case["q"].copy()
    for i in range(nv - base):
        q[model.idx_qs[model.getJointId(f"joint{i + first}")]] = case["q"][7 * first + i]
    case |= {"order": order, "frame": model.addFrame(frame), "q": q}
    state = crocoddyl.StateMultibody(model)
    drives = crocoddyl.ActuationModelFull(state)
    step = lambda running, dt: crocoddyl.IntegratedActionModelEuler(
        crocoddyl.DifferentialActionModelFreeFwdDynamics(state, drives, costs(case, state, nv, running)), dt
    )
    steps = int(case["steps"])
    start = np.r_[q, np.zeros(nv)]
    problem = crocoddyl.ShootingProblem(start, [step(True, float(case["dt"]))] * steps, step(False, 0.0))
    problem.nthreads = 1
    return problem, case["guesses"][:, :, order]


def main() -> None:
    problem, guesses = prepare(*sys.argv[1:3])
    tolerance, most = float(sys.argv[3]), int(sys.argv[4])
    for _ in sys.stdin:
        found = []
        for guess in guesses:
            us = list(guess)
            xs = list(problem.rollout(us))
            solver = crocoddyl.SolverFDDP(problem)
            solver.th_stop = tolerance**2
            started = time.process_time()
            ended = solver.solve(xs, us, most, True)
            found.append((time.process_time() - started, solver.iter + 1, solver.cost, ended))
        seconds, iterations, cost, ended = map(np.array, zip(*found, strict=True))
        row = {
            "ms": 1e3 * float(np.median(seconds / iterations)), "iterations": float(np.median(iterations)),
            "to the end ms": 1e3 * float(np.mean(seconds)), "cost": float(np.min(cost)),
            "costs": cost.tolist(),
            "ended": f"{int(np.sum(ended))}/{len(guesses)}",
        }  # fmt: skip
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

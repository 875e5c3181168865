"""`lgjax info`: the tree, joints and masses of a model."""

import argparse
from typing import Any

import numpy as np

from lgjax.cli.arguments import add_model, load_model


def add(commands: Any) -> None:
    parser = commands.add_parser("info", help="show the tree, joints and masses of a model")
    add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    model = load_model(args)
    tree, masses = model.tree, np.asarray(model.inertias.mass, float)
    gravity = ", ".join(f"{g:g}" for g in np.asarray(model.gravity, float))
    print(f"{model.name}: {tree.nbodies} bodies, {len(model.joint_names)} joints, nv {tree.nv}")
    print(f"total mass {masses.sum():.6g} kg, gravity ({gravity}) m/s^2\n")
    rows = [("body", "joint", "kind", "range", "mass (kg)")]
    for i, name in enumerate(tree.body_names):
        kind, limits = tree.kinds[i], ""
        if kind.coordinates == "joints":
            here = range(tree.q_start[i], tree.q_start[i] + kind.nq)
            ranges = [(float(model.lower[k]), float(model.upper[k])) for k in here]
            each = [f"[{a:.4g}, {b:.4g}]" if np.isfinite([a, b]).any() else "unlimited" for a, b in ranges]
            limits = each[0] if len(set(each)) == 1 else " ".join(each)
        indent = "  " * tree.depths[i]
        rows.append((indent + name, tree.joint_names[i], kind.name, limits, f"{masses[i]:.6g}"))
    widths = [max(len(row[c]) for row in rows) for c in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if tree.frames:
        print("\nlinks on fixed joints")
        for name, body in tree.frames:
            print(f"  {name} on {tree.body_names[body] if body >= 0 else 'the world'}")
    return 0

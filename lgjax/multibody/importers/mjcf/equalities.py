"""Equality constraints of a compiled MJCF: couplings of joints or tendons, and bodies held together."""

from lgjax.multibody.importers.description import Closure, Coupling
from lgjax.multibody.importers.mjcf.compiled import Compiled, floats


def equalities(file: Compiled) -> tuple[tuple[Coupling, ...], tuple[Closure, ...]]:
    """Couplings and closures that are active; ValueError for those of deformable bodies."""
    m = file.m
    couplings: list[Coupling] = []
    closures: list[Closure] = []
    if file.disabled("EQUALITY", "CONSTRAINT"):
        return (), ()
    for i in range(m.neq):
        if not m.eq_active0[i]:
            continue
        kind = file.mujoco.mjtEq(m.eq_type[i]).name.removeprefix("mjEQ_").lower()
        name = file.name("EQUALITY", i, f"equality_{i}")
        if kind in ("joint", "tendon"):
            couplings.append(_coupling(file, i, kind, name))
        elif kind in ("connect", "weld"):
            closures.append(_closure(file, i, kind, name))
        else:
            raise ValueError(f"equality {file.where('equalities', i)}: {kind} constraints are not supported")
    return tuple(couplings), tuple(closures)


def _coupling(file: Compiled, i: int, kind: str, name: str) -> Coupling:
    m, ends = file.m, [int(file.m.eq_obj1id[i]), int(file.m.eq_obj2id[i])]
    named = file.joint if kind == "joint" else file.tendon
    references = [_reference(file, kind, end) if end >= 0 else 0.0 for end in ends]
    return Coupling(
        name,
        kind,
        named(ends[0]),
        named(ends[1]) if ends[1] >= 0 else None,
        floats(m.eq_data[i, :5]) if ends[1] >= 0 else floats(m.eq_data[i, :1]),
        (references[0], references[1]),
        file.where("equalities", i),
    )


def _reference(file: Compiled, kind: str, end: int) -> float:
    m = file.m
    return float(m.qpos0[m.jnt_qposadr[end]] if kind == "joint" else m.tendon_length0[end])


def _closure(file: Compiled, i: int, kind: str, name: str) -> Closure:
    """MuJoCo places both ends at the configuration that the file shows; for sites they are where the sites are."""
    m, where = file.m, file.where("equalities", i)
    ends, data = [int(m.eq_obj1id[i]), int(m.eq_obj2id[i])], m.eq_data[i]
    # Without torque a weld holds the origin of the second frame alone.
    held = "point" if kind == "connect" or not data[10] else "weld"
    sites = getattr(m, "eq_objtype", None)
    if sites is not None and sites[i] == file.mujoco.mjtObj.mjOBJ_SITE.value:
        return Closure(name, held, file.site(ends[0]), file.site(ends[1]), where)
    if kind == "connect":
        places = [file.place(body, anchor) for body, anchor in zip(ends, (data[:3], data[3:6]), strict=True)]
        return Closure(name, held, places[0], places[1], where)
    first = file.place(ends[0], data[3:6], data[6:10])
    return Closure(name, held, first, file.place(ends[1], data[:3]), where)

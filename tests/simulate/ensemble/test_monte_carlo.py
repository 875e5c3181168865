"""Chunks, devices, processes and interruptions do not show; what diverges is reported and harms no other."""

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.simulate.ensemble import program as batches
from lgjax.simulate.ensemble import storage
from tests.simulate.ensemble.random_pendulums import STEPS, everything, pendulum, run

pytestmark = pytest.mark.usefixtures("kept_programs")
ROOT = Path(__file__).resolve().parents[3]


@cache
def whole():
    return everything(run())


def same(a, b, tolerance=0.0):
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=tolerance, atol=tolerance, err_msg=name)


def start(*arguments, devices=1):
    """Another process that runs random pendulums, compiled as in this one."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulate.ensemble.random_pendulums", *map(str, arguments)],
        cwd=ROOT, env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finish(process, code=0):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == code, out


def loaded(path):
    with np.load(path) as file:
        return dict(file)


def test_each_trajectory_is_the_simulation_with_its_own_key():
    e, key = whole(), jax.random.key(0)
    for i in (0, 6, 7, 19):
        alone = jax.jit(pendulum)(jax.random.fold_in(key, i), jnp.asarray(1.0), jnp.asarray(0.0))
        np.testing.assert_allclose(alone.record["path"], e["record.path"][i], atol=1e-13)
        np.testing.assert_allclose(alone.record["chance"], e["record.chance"][i], rtol=1e-14)
    last = e["record.path"][:, -1]
    np.testing.assert_allclose(e["statistics.mean"][2], last.mean(0), rtol=1e-13)
    np.testing.assert_allclose(e["statistics.covariance"][2], np.cov(last, rowvar=False), rtol=1e-13)
    np.testing.assert_array_equal(e["statistics.quantiles"][:, 1], np.quantile(last, (0.05, 0.25, 0.5, 0.75, 0.95), 0))
    np.testing.assert_array_equal(e["statistics.events"], [(last[:, 1] > 0).sum(), 0])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6)])
@pytest.mark.parametrize("chunk", [1, 64])
def test_chunks_do_not_show(chunk, dtype, tolerance):
    reference = whole() if dtype == "float64" else everything(run(dtype=dtype))
    assert reference["record.path"].dtype == dtype
    same(everything(run(chunk=chunk, dtype=dtype)), reference, STEPS * tolerance)


def test_the_key_decides_and_more_begin_with_fewer():
    same(everything(run()), whole())
    assert np.all(run(seed=1).record["path"][:, 0] != whole()["record.path"][:, 0])
    np.testing.assert_array_equal(run(batch=33).record["path"][:20], whole()["record.path"])


def test_eight_devices_are_as_good_as_one(tmp_path):
    """200 trajectories, 7 for each device, are four rounds, and the last one has idle devices."""
    finish(start(tmp_path / "out.npz", "--count", 200, "--lost", 0.2, devices=8))
    same(loaded(tmp_path / "out.npz"), everything(run(200, 0.2)))
    same(loaded(tmp_path / "out.npz"), everything(run(200, 0.2, chunk=64)), STEPS * 1e-14)


def test_two_processes_are_as_good_as_one(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    outs = [tmp_path / "0.npz", tmp_path / "1.npz"]
    folder = tmp_path / "run"
    jobs = [start(out, "--folder", folder, "--process", port, i, 2, devices=2) for i, out in enumerate(outs)]
    for job in jobs:
        finish(job)
    reference = {name: x for name, x in whole().items() if not name.startswith("record")}
    for out in outs:
        same(loaded(out), reference)
    np.testing.assert_array_equal(lgjax.ensembles.load_run(folder).records["path"], whole()["record.path"])


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path):
    """Killed twice with different numbers of devices, at the first time before there is a checkpoint."""
    folder, out = tmp_path / "run", tmp_path / "out.npz"
    arguments = (out, "--folder", folder, "--count", 60, "--lost", 0.1)
    finish(start(*arguments, "--die-after", 1, devices=4), -signal.SIGKILL)
    assert len(lgjax.ensembles.load_run(folder).numbers) == 7
    finish(start(*arguments, "--die-after", 5), -signal.SIGKILL)
    assert len(lgjax.ensembles.load_run(folder).numbers) == 35
    result = run(60, 0.1, chunk=None, folder=folder, resume=True)
    unbroken = everything(run(60, 0.1))
    same(everything(result), {name: x for name, x in unbroken.items() if not name.startswith("record")})
    found = lgjax.ensembles.load_run(folder)
    assert result.chunk == 7
    np.testing.assert_array_equal(found.numbers, np.arange(60))
    np.testing.assert_array_equal(np.flatnonzero(~found.valid), unbroken["failed"])
    for name in ("path", "chance"):
        np.testing.assert_array_equal(found.records[name], unbroken[f"record.{name}"])
    for name, value in found.statistics.items():
        np.testing.assert_array_equal(value, unbroken[name if name in unbroken else f"statistics.{name}"])


def test_what_diverges_is_reported_and_leaves_the_others_alone():
    healthy, e = run(3000, chunk=500), run(3000, lost=0.01, chunk=500)
    lost = np.flatnonzero(healthy.record["path"][:, -1, 0] != e.record["path"][:, -1, 0])
    assert 15 < len(lost) < 60
    np.testing.assert_array_equal(e.failed, lost)
    assert not np.isfinite(e.record["path"][lost, -1]).all()
    keep = np.delete(np.arange(3000), lost)
    others = healthy.record["path"][keep]
    np.testing.assert_array_equal(e.record["path"][keep], others)
    assert e.statistics.samples == len(keep)
    np.testing.assert_allclose(e.statistics.mean[2], others[:, -1].mean(0), rtol=1e-12)
    np.testing.assert_allclose(e.statistics.covariance[2], np.cov(others[:, -1], rowvar=False), rtol=1e-12)
    np.testing.assert_array_equal(e.statistics.events, [(others[:, -1, 1] > 0).sum(), 0])
    limited = run(3000, chunk=500, limit=4.0)
    np.testing.assert_array_equal(
        limited.failed, np.flatnonzero(np.abs(healthy.record["path"][:, -2:]).max((1, 2)) > 4.0)
    )
    assert limited.statistics.maximum.max() <= 4.0


def test_a_run_in_which_all_diverge_says_so():
    e = run(lost=1.0)
    np.testing.assert_array_equal(e.failed, np.arange(20))
    assert e.statistics.samples == 0
    assert np.isnan(e.statistics.mean).all()


@pytest.fixture
def interruptible():
    """Ctrl-C works, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Impatient:
    """Interrupts a run, as Ctrl-C does, when the bar is told of chunk number `count`."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def update(self, _):
        self.count -= 1
        if self.count <= 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("in_folder", [False, True])
def test_ctrl_c_keeps_what_was_computed(in_folder, monkeypatch, tmp_path):
    expected = whole()  # now, while nothing interrupts it
    monkeypatch.setattr(sys.modules[lgjax.monte_carlo.__module__], "progress_bar", lambda *_: Impatient(2))
    options = {"folder": tmp_path / "run", "resume": True} if in_folder else {}
    with pytest.raises(KeyboardInterrupt) as stopped:  # as a rollout with checkpoints: a script must not go on
        run(**options)
    e = stopped.value.result
    where = f"in the folder '{tmp_path / 'run'}', and" if in_folder else "the attribute `result` of this exception"
    assert where in stopped.value.__notes__[0]
    assert stopped.value.__notes__[0].startswith("interrupted after 14 of 20 trajectories")
    assert not e.complete
    assert e.batch == e.statistics.samples == 14
    path = e.record["path"] if e.record else lgjax.ensembles.load_run(tmp_path / "run").records["path"]
    np.testing.assert_array_equal(path, expected["record.path"][:14])
    if in_folder:
        monkeypatch.undo()
        rest = run(**options)
        assert rest.complete
        np.testing.assert_array_equal(rest.statistics.mean, expected["statistics.mean"])


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_does_not_tear_what_belongs_together():
    module, order = sys.modules["lgjax.saving.progress"], []

    def interrupted():
        with module.uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            order.append("inside")
        order.append("after")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert order == ["inside"]


@cache
def finished_run(parent):
    run(folder=parent / "run")
    return parent / "run"


@pytest.fixture
def folder(tmp_path, tmp_path_factory):
    """The folder of a finished run, to be spoilt."""
    base = tmp_path_factory.getbasetemp() / "monte_carlo"
    base.mkdir(exist_ok=True)
    return Path(shutil.copytree(finished_run(base), tmp_path / "run"))


def refuses(match, unchanged, **options):
    """One line that says what is wrong, and every file as it was."""
    files = {p: p.read_bytes() for p in sorted(unchanged.rglob("*")) if p.is_file()}
    with pytest.raises(ValueError, match=match) as error:
        run(**options)
    assert "\n" not in str(error.value)
    assert {p: p.read_bytes() for p in sorted(unchanged.rglob("*")) if p.is_file()} == files


def test_checkpoints_of_the_version_before_are_read(folder):
    """They kept the rows of failed trajectories too, and not what those reported."""
    wanted = run(folder=folder, resume=True)
    file = folder / "checkpoints" / "00000020.npz"
    arrays = {name: x for name, x in loaded(file).items() if name not in ("digest", "failed_status")}
    arrays["valid"] = np.append(np.ones(len(arrays["rows"]), bool), False)
    arrays["rows"] = np.concatenate([arrays["rows"], np.full_like(arrays["rows"][:1], np.nan)])
    storage.write_arrays(file, {**arrays, "digest": storage.digest(arrays)})
    found = run(folder=folder, resume=True)
    jax.tree.map(np.testing.assert_array_equal, found.statistics, wanted.statistics)
    assert len(found.failed) == len(found.failed_status)


def test_a_finished_run_with_a_torn_file_of_statistics_writes_it_again(folder):
    file = folder / "statistics.npz"
    before = loaded(file)
    file.write_bytes(file.read_bytes()[:100])
    run(folder=folder, resume=True)
    np.testing.assert_array_equal(loaded(file)["mean"], before["mean"])


def test_a_finished_run_that_is_resumed_writes_other_quantiles(folder):
    before = loaded(folder / "statistics.npz")
    found = run(folder=folder, resume=True, quantiles=(0.2, 0.8)).statistics
    after = loaded(folder / "statistics.npz")
    np.testing.assert_array_equal(after["probabilities"], [0.2, 0.8])
    np.testing.assert_array_equal(after["quantiles"], found.quantiles)
    np.testing.assert_array_equal(after["mean"], before["mean"])


def test_resuming_needs_a_folder():
    with pytest.raises(ValueError, match="resume needs folder"):
        run(resume=True)


def test_folders_of_other_runs_are_left_alone(folder):
    refuses("holds a run already; resume it or choose another folder", folder, folder=folder)
    other = {"folder": folder, "resume": True}
    refuses("batch is 20 there and 21 here; nothing was changed", folder, batch=21, **other)
    refuses("chunk is 7 there and 5 here", folder, chunk=5, **other)
    refuses("holds a run of another problem; nothing was changed", folder, seed=1, **other)
    refuses("holds a run of another problem; nothing was changed", folder, lost=0.5, **other)
    refuses("holds a run of another problem; nothing was changed", folder, limit=5.0, **other)
    refuses("holds a run of another problem; nothing was changed", folder, tag="second version", **other)
    (folder / "run.json").write_text("{")
    refuses("'.*run.json' cannot be read", folder, **other)


SPOILT = {
    "truncate": lambda data: data[: len(data) // 2],
    "flip": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x55]) + data[len(data) // 2 + 1 :],
    "empty": lambda data: b"",
    "foreign": lambda data: foreign(),
}


def foreign():
    """An NPZ file that holds something else."""
    buffer = io.BytesIO()
    np.savez(buffer, done=np.array([20]), x=np.arange(3))
    return buffer.getvalue()


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_corrupt_checkpoint_is_refused_and_one_goes_on_without_it(folder, spoil):
    last = folder / "checkpoints" / "00000020.npz"
    last.write_bytes(SPOILT[spoil](last.read_bytes()))
    match = r"checkpoint '.*/checkpoints/00000020.npz' cannot be read: .*; remove it to go on without it"
    refuses(match, folder, folder=folder, resume=True)
    last.unlink()
    np.testing.assert_array_equal(run(folder=folder, resume=True).statistics.mean, whole()["statistics.mean"])


def test_the_last_two_checkpoints_are_kept_and_torn_files_do_not_count(tmp_path):
    saved = tmp_path / "run" / "checkpoints"
    options = {"folder": tmp_path / "run", "resume": True, "checkpoint_every": 0.0}
    run(**options)
    assert sorted(file.name for file in saved.iterdir()) == ["00000014.npz", "00000020.npz"]
    (saved / "00000020.npz").rename(saved / "00000020.npz.part")  # as if killed before the file had its name
    np.testing.assert_array_equal(run(**options).statistics.mean, whole()["statistics.mean"])
    assert sorted(file.name for file in saved.iterdir()) == ["00000014.npz", "00000020.npz"]


def test_a_checkpoint_with_other_numbers_in_it_is_refused(folder, monkeypatch):
    monkeypatch.setattr(storage, "digest", lambda arrays: np.zeros(32, np.uint8))
    refuses("its contents are not those that were written", folder, folder=folder, resume=True)


def test_records_that_cannot_be_read_are_named(folder):
    assert lgjax.ensembles.load_run(folder).header["batch"] == 20
    chunk = folder / "chunk-00000001.npz"
    content = chunk.read_bytes()
    chunk.write_bytes(content[:100])
    with pytest.raises(ValueError, match=r"'.*chunk-00000001.npz' cannot be read"):
        lgjax.ensembles.load_run(folder)
    chunk.write_bytes((folder / "chunk-00000000.npz").read_bytes())
    with pytest.raises(
        ValueError, match=r"'.*chunk-00000001.npz' holds other trajectories than those from number 7 on"
    ):
        lgjax.ensembles.load_run(folder)
    chunk.unlink()
    with pytest.raises(ValueError, match=r"'.*chunk-00000001.npz' is missing"):
        lgjax.ensembles.load_run(folder)
    chunk.write_bytes(content)
    (folder / "chunk-00000002.npz").unlink()  # the last one, of which the checkpoint knows
    with pytest.raises(ValueError, match=r"'.*chunk-00000002.npz' is missing"):
        lgjax.ensembles.load_run(folder)
    with pytest.raises(ValueError, match=r"holds no run: there is no run.json in it"):
        lgjax.ensembles.load_run(folder / "checkpoints")


def test_output_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    refuses("cannot write to '.*/file/run': '.*/file' is not a folder", tmp_path, folder=tmp_path / "file" / "run")
    monkeypatch.setattr(os, "access", lambda *_: False)
    refuses("no permission to write to", tmp_path, folder=tmp_path / "run")
    monkeypatch.undo()

    # a disk that is full after two chunks: they are kept, and the run goes on when there is room
    write, left = storage.write_arrays, [2]

    def full(path, arrays):
        if path.name.startswith("chunk"):
            if left[0] == 0:
                monkeypatch.setattr(Path, "open", lambda *_: io.FileIO("/dev/full", "wb"))
            left[0] -= 1
        write(path, arrays)

    options = {"folder": tmp_path / "run", "resume": True, "checkpoint_every": 0.0}
    monkeypatch.setattr(storage, "write_arrays", full)
    with pytest.raises(
        OSError, match=r"cannot write '.*chunk-00000002.npz': No space left on device; what was written"
    ):
        run(**options)
    monkeypatch.undo()
    assert len(lgjax.ensembles.load_run(tmp_path / "run").numbers) == 14
    np.testing.assert_array_equal(run(**options).statistics.mean, whole()["statistics.mean"])


@pytest.mark.parametrize("kind", [jnp.stack, list, tuple])
def test_events_of_any_sequence_are_counted(kind):
    def simulate(key):
        x = jax.random.normal(key, (2,))
        return lgjax.ensembles.Sample(x, events=kind([x[0] > 0, x[1] < 5]))

    found = lgjax.monte_carlo(simulate, batch=50, key=jax.random.key(0)).statistics.events
    assert 10 < found[0] < 40
    assert found[1] == 50


def test_bad_input_is_refused(tmp_path):
    refuses("batch must be positive and less than .*, got 0", tmp_path, batch=0)
    refuses("chunk must be positive and less than .*, got -1", tmp_path, chunk=-1)
    there = len(jax.local_devices())
    refuses(f"devices={there + 1} asked for, there are {there}", tmp_path, devices=there + 1)
    refuses("devices must be positive, got 0", tmp_path, devices=0)
    refuses(r"quantiles are of probabilities from 0 to 1, got \(2,\)", tmp_path, quantiles=(2,))
    refuses("limit must be a positive number, got 0.0", tmp_path, limit=0.0)
    for name, value in {"batch": 2.5, "chunk": "two", "limit": "much", "quantiles": "all"}.items():
        with pytest.raises(TypeError, match=f"^{name} must be "):
            run(**{name: value})
    key = jax.random.key(0)
    for sample, match in (
        (lambda key: lgjax.ensembles.Sample(jnp.zeros(())), r"values must be floating \(..., d\), got float64\(\)"),
        (
            lambda key: lgjax.ensembles.Sample(jnp.zeros(2), jnp.ones(2, bool)),
            r"valid must have 0 axes, got shape \(2,\)",
        ),
        (
            lambda key: lgjax.ensembles.Sample(jnp.zeros(2), events=jnp.zeros(())),
            r"events must have 1 axes, got shape \(\)",
        ),
        (lambda key: lgjax.ensembles.Sample(jnp.zeros(2), 1.0), "valid must be bool, got float64"),
        (
            lambda key: lgjax.ensembles.Sample(jnp.zeros(2), events=jnp.zeros(2)),
            "events must be booleans or integers, got float64",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            lgjax.monte_carlo(sample, batch=2, key=key)
    with pytest.raises(TypeError, match="simulate must return a Sample, got int"):
        lgjax.monte_carlo(lambda key: 3, batch=2, key=key)


def test_the_width_follows_the_memory(monkeypatch):
    assert run(chunk=None).chunk == 20
    monkeypatch.setattr(batches, "WIDEST", 8)
    assert run(chunk=None).chunk == 8
    needed = batches.Program.memory
    wide = []
    monkeypatch.setattr(batches.Program, "memory", lambda self: wide.append(needed(self)) or wide[-1])
    monkeypatch.setattr(batches, "device_memory", lambda _: 3000.0)
    e = run(chunk=None)
    assert e.chunk == max(1, int(8 * 1500 / wide[0])) < 8
    assert batches.device_memory(jax.devices()[0]) > 0


@pytest.mark.parametrize(("platform", "width"), [("cpu", 4096), ("gpu", 65536)])
def test_a_gpu_runs_more_at_a_time(monkeypatch, platform, width):
    device = SimpleNamespace(platform=platform, memory_stats=lambda: {"bytes_limit": 1e12})
    made = lambda *args: SimpleNamespace(width=args[4], memory=lambda: 0)
    monkeypatch.setattr(batches, "Program", made)
    choose = lambda count, chunk: batches.fitting_program(
        None, None, (), SimpleNamespace(size=2, local_devices=[device]), count, chunk, None
    )
    assert choose(10**6, None).width == width
    assert choose(100, None).width == 50
    assert choose(10**6, 10**5).width == 10**5


def test_bouncing_bodies_are_simulations_like_others():
    body, floor = lgjax.collisions.rigid_body(1.0, (0.4, 0.4, 0.4)), lgjax.shapes.Plane((0.0, 0.0, 1.0))

    def throw(key):
        height = 1 + jax.random.uniform(key, (), jnp.float64)
        state = lgjax.collisions.rigid_state((jnp.zeros(()), jnp.zeros(()), height))
        path = lgjax.collisions.bounce(body, lgjax.shapes.sphere(0.5), floor, state, 0.02, 30, save_every=None)
        return lgjax.ensembles.Sample(path.states.pose.translation[-1], path.status == 0, path.impacts[-1:], height)

    e = lgjax.monte_carlo(throw, batch=6, key=jax.random.key(0), chunk=4, progress=False)
    fall = np.sqrt(2 * (e.record - 0.5) / 9.81)  # the time of the only impact, after which it goes up as it came down
    np.testing.assert_allclose(e.statistics.mean[2], np.mean(e.record - 9.81 / 2 * (2 * fall - 0.6) ** 2), atol=1e-9)
    np.testing.assert_array_equal(e.statistics.events, [6])


@pytest.mark.slow
def test_constrained_systems_are_simulations_like_others():
    """Tops with random masses keep their fixed point; one that starts off it is not valid."""

    def spin(key):
        p = lgjax.systems.heavy_top_maximal(mass=15 + jax.random.uniform(key, (), jnp.float64))
        off = jnp.where(jax.random.uniform(jax.random.fold_in(key, 1), (), jnp.float64) < 0.6, 1.0, 0.0)
        q = p.q0._replace(bodies=p.q0.bodies._replace(translation=p.q0.bodies.translation + off))
        path = lgjax.maximal.integrate(p.system, q, p.v0, 0.0, 0.01, 5, save_every=None)
        return lgjax.ensembles.Sample(path.q.bodies.translation[-1, 0], path.success, record=off)

    e = lgjax.monte_carlo(spin, batch=12, key=jax.random.key(0), chunk=4, progress=False)
    np.testing.assert_array_equal(e.failed, np.flatnonzero(e.record))
    assert 0 < len(e.failed) < 12
    np.testing.assert_allclose(np.linalg.norm(e.statistics.mean), 1.0, rtol=1e-3)


class Lost:
    """Results that could not be computed, which shows when one waits for them."""

    def block_until_ready(self):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")


def short_of_memory(monkeypatch, most, when_called, calls=10**9):
    """Devices with memory for `most` trajectories at a time, and for so many calls at a time."""
    whole()
    call, under_way, block = batches.Program._called, [], jax.block_until_ready

    def _called(self, start):
        if self.width <= most and len(under_way) < calls:
            under_way.append(start)
            return call(self, start)
        if when_called:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")
        return Lost()

    def block_until_ready(results):
        found = block(results)
        under_way.pop(0)
        return found

    monkeypatch.setattr(batches.Program, "_called", _called)
    monkeypatch.setattr(jax, "block_until_ready", block_until_ready)


@pytest.mark.parametrize("when_called", [True, False])
@pytest.mark.parametrize("to_a_folder", [True, False])
def test_where_memory_does_not_suffice_less_is_done_at_a_time(when_called, to_a_folder, tmp_path, monkeypatch):
    short_of_memory(monkeypatch, 2, when_called)
    folder = {"folder": tmp_path / "run", "checkpoint_every": 0.0} if to_a_folder else {}
    with pytest.warns(RuntimeWarning, match="memory does not suffice for (7|4) at a time and device"):
        found = everything(run(**folder))
    if to_a_folder:
        records = lgjax.ensembles.load_run(tmp_path / "run").records
        found |= {f"record.{name}": x for name, x in records.items()}
    same(found, whole(), STEPS * 1e-14)


def test_where_memory_suffices_for_one_call_at_a_time_the_width_stays(monkeypatch):
    short_of_memory(monkeypatch, 7, True, calls=1)
    same(everything(run()), whole())


def test_what_does_not_help_is_not_tried(monkeypatch):
    short_of_memory(monkeypatch, 0, True)
    with pytest.warns(RuntimeWarning, match="2 at a time"), pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        run(batch=2)

    def broken(self, start):
        raise jax.errors.JaxRuntimeError("INTERNAL: broken")

    monkeypatch.setattr(batches.Program, "_called", broken)
    with pytest.raises(RuntimeError, match="INTERNAL"):
        run(batch=2)

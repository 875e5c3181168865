"""The pictures of the gallery: runs every example and keeps a small copy of its figure in docs/images/gallery, its GIF
if it makes one, and otherwise one panel of the figure as thumbnail, large enough to be read.

python docs/pictures.py [04 12 ...]

The build of the site runs nothing; it shows these files. An example that takes long at its default size has a smaller
one here. Look at every picture before you commit it.
"""

import importlib.util
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from PIL import Image

from lgjax import plot

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "images" / "gallery"
THUMBNAILS = FOLDER.with_name("thumbnails")
WIDTH, COLORS = 1400, 256  # pixels, and entries of the palette
NARROW, MOVING = 300, 245_000  # pixels and bytes of a GIF
PANEL, DOTS, THUMBNAIL = (4.2, 2.94), 190, 640  # size of a panel in inches, dots per inch, pixels of a thumbnail
SHOWN = {"09_throw": 2, "24_policy_by_gradients": 1}  # panel of the thumbnail, if it is not the first one
SMALLER = {
    "03_pendulums": {"sizes": (2, 4, 6, 8)},
    "07_taylor_integrator": {"orders": (8,), "tolerances": (1e-6, 1e-8, 1e-10), "batch": 8, "repeats": 1},
    "08_bouncing_bodies": {"steps": 5_000, "samples": 8},
    "10_heavy_top_constrained": {"halvings": 3},
    "11_high_speed_rotor": {"first": 20_000},
    "12_slider_crank": {"halvings": 3, "modes": 2, "batch": 20},
    "13_puma560": {"steps": 4_000, "modes": 1},
    "14_closed_loops": {"duration": 5.0},
    "15_satellite_tumble": {"samples": 20_000},
    "17_cart_pole": {"guesses": 4, "iterations": 150},
    "19_payload": {"guesses": 2},
    "20_quadrupeds_on_terrain": {"batch": 256},
}


def shrink(source: Path, target: Path, width: int = WIDTH) -> None:
    """A copy `width` pixels wide with a palette, a tenth of the size."""
    with Image.open(source) as picture:
        height = round(picture.height * width / picture.width)
        small = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    # The method finds the rare colors of thin lines; k-means then settles on those of the large pale areas.
    small = small.quantize(COLORS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    small.save(target, optimize=True)


def shrink_moving(source: Path, target: Path) -> None:
    """A copy of a GIF with at most MOVING bytes: with every second frame, or every third, and so on, if need be."""
    with Image.open(source) as picture:
        delay, frames = picture.info["duration"], []
        for k in range(picture.n_frames):
            picture.seek(k)
            frames.append(picture.convert("RGB"))
    size = frames[0].size if frames[0].width <= NARROW else (NARROW, round(frames[0].height * NARROW / frames[0].width))
    small = [frame.resize(size, Image.Resampling.LANCZOS) for frame in frames]
    palette = small[len(small) // 2].quantize(16, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    for every in range(1, len(small) + 1):
        first, *rest = small[::every]
        first.save(target, save_all=True, append_images=rest, duration=delay * every, loop=0, optimize=True)
        if target.stat().st_size < MOVING:
            break


def panel(figure, number: int, path: Path) -> None:
    """Draw one of the figure's panels alone; the figure is not to be used after that."""
    shown = figure.axes[number]
    for axes in figure.axes:
        if axes is not shown:
            axes.remove()
    figure.suptitle("")
    figure.set_size_inches(PANEL)
    shown.set_title(textwrap.fill(shown.get_title(), 45))
    shown.set_subplotspec(figure.add_gridspec(1, 1)[0])
    figure.savefig(path, dpi=DOTS)


def run(stem: str, path: str) -> None:
    """Run the example in this process; writes its figure, and a panel of it beside it."""

    def save_with_panel(figure, place):
        save(figure, place)
        panel(figure, SHOWN.get(stem, 0), Path(path).with_name("panel.png"))

    save, plot.save = plot.save, save_with_panel
    script = ROOT / "examples" / f"{stem}.py"
    sys.path.insert(0, str(script.parent))  # as when it is run as a script
    spec = importlib.util.spec_from_file_location(f"example_{stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(path, **SMALLER.get(stem, {}))


def main(wanted: list[str]) -> None:
    """Each example in a process of its own, since some change JAX's settings."""
    for script in sorted((ROOT / "examples").glob("[0-9]*.py")):
        if wanted and script.stem[:2] not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path, began = Path(folder) / "figure.png", time.perf_counter()
            subprocess.run([sys.executable, __file__, "--one", script.stem, str(path)], check=True)
            target = FOLDER / f"{script.stem}.png"
            shrink(path, target)
            if (moving := path.with_suffix(".gif")).exists():
                shrink_moving(moving, target.with_suffix(".gif"))
            else:
                shrink(path.with_name("panel.png"), THUMBNAILS / target.name, THUMBNAIL)
            size = target.stat().st_size / 1000
        print(f"{target.name}: {time.perf_counter() - began:.0f} s, {size:.0f} kB", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run(*sys.argv[2:4])
    else:
        main(sys.argv[1:])

"""Images with this machine's Python: of a program that trains, with what its framework has loaded; or with pip."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.harness.containers import Podman, root_archive
from tests.harness.reduction import PROGRAMS, PYTHON

# What a program that trains has loaded: shared libraries, and where Python has found modules.
LOADED = """
import os, sys
{warm_up}
lines = [line.split()[-1] for line in open("/proc/self/maps") if "/" in line]
print("LOADED", *sorted({{line for line in lines if ".so" in line}}), sep="\\n")
files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if "." not in name]
for file in filter(None, files):
    if "dist-packages" in file:
        print(os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file)
print(os.path.dirname(os.__file__), os.path.realpath(sys.executable), sep="\\n")
"""
IGNORED = shutil.ignore_patterns("__pycache__", "test", "tests", "*.a", "include")
# What only those need who build extensions. TensorFlow imports a package of its own that is called `test`.
OF_BUILDS = shutil.ignore_patterns("__pycache__", "*.a", "include", "clang")


# What pip needs to install wheels, and to build source archives without an index.
FOR_PIP = "import _distutils_hack, setuptools, pkg_resources, wheel, pip, bz2, ctypes, hashlib, lzma, ssl"
PACKAGES = Path("/usr/lib/python3/dist-packages")


def python_image(place, name):
    """The archive of an image with Python and pip, as Google's prebuilt images have them. It has this name."""
    root, libraries = _root(place, FOR_PIP, None)
    for name_of_package in ("pip", "setuptools", "wheel"):  # by it the one finds the others
        for found in PACKAGES.glob(f"{name_of_package}-*-info"):
            shutil.copytree(found, root / str(found).removeprefix("/"))
    return _saved(place, root, name, f"ENV LD_LIBRARY_PATH={libraries}", "ENV TRAINYARD_IMAGE=python")


def framework_image(place, program, warm_up, packages=None):
    """The archive of an image that runs `program`, of tests/programs. `warm_up`: lines that load what it needs.
    `packages`: a directory in which Python finds packages; in the image it is /opt/packages."""
    root, libraries = _root(place, warm_up, packages)
    shutil.copyfile(PROGRAMS / program, root / "train.py")
    changes = (
        f"ENV LD_LIBRARY_PATH={libraries}",
        "ENV PYTHONPATH=/opt/packages",
        'ENTRYPOINT ["/usr/bin/python3", "/train.py"]',
    )
    return _saved(place, root, f"localhost/lab/{program.partition('_')[0]}:1", *changes)


def _saved(place, root, name, *changes):
    """The archive of an image of this root file system, which is removed."""
    (place / "root.tar").unlink()
    subprocess.run(["tar", "-C", str(root), "-cf", str(place / "root.tar"), "."], check=True)
    shutil.rmtree(root)
    podman = Podman(place / "podman")
    try:
        shutil.move(place / "root.tar", podman.place / "framework.tar")
        words = [word for change in changes for word in ("--change", change)]
        podman("import", *words, str(podman.place / "framework.tar"), name, timeout=900)
        (podman.place / "framework.tar").unlink()
        podman("save", "--output", str(place / "image.tar"), name, timeout=900)
    finally:
        podman.remove()
    return place / "image.tar"


def _root(place, warm_up, packages):
    root_archive(place)
    root, loaded = place / "root", _loaded(warm_up, packages)

    if packages:
        shutil.copytree(packages, root / "opt" / "packages", symlinks=True, ignore=OF_BUILDS)
    for line in loaded:
        source, target = Path(line), root / line.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=IGNORED, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
            target.chmod(0o755)
    # Libraries are looked for where their links are.
    libraries = sorted({str(Path(line).parent) for line in loaded if ".so" in line})
    names = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    for name, path in re.findall(r"^\s+(\S+) .* => (\S+)$", names, re.M):
        real = Path(path).resolve()
        copied = root / str(real).removeprefix("/")
        if copied.exists() and not (copied.parent / name).exists():
            (copied.parent / name).symlink_to(copied.name)
    (root / "lib64").mkdir(exist_ok=True)
    shutil.copyfile("/lib64/ld-linux-x86-64.so.2", root / "lib64" / "ld-linux-x86-64.so.2")
    (root / "lib64" / "ld-linux-x86-64.so.2").chmod(0o755)
    (root / "usr" / "bin").mkdir(exist_ok=True)
    (root / "usr" / "bin" / "python3").symlink_to(loaded[-1])
    return root, ":".join(libraries)


def _loaded(warm_up, packages):
    code = LOADED.format(warm_up=warm_up)
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(packages or "")}
    found = subprocess.run(
        [PYTHON, "-c", code], check=True, capture_output=True, text=True, timeout=300, env=env
    )
    lines = found.stdout.partition("LOADED\n")[2].split()
    return [line for line in lines if packages is None or not line.startswith(str(packages))]

"""Files of Debian packages, downloaded by name from the archive that this machine's apt knows, and unpacked.

Nothing is installed. Needs apt-get and dpkg-deb, and once in a while `apt-get update`.
"""

import os
import subprocess
import sys


def unpack(names, folder):
    """Paths of all files of the packages, sorted. What `folder` holds already is not downloaded again."""
    folder = os.path.abspath(folder)
    paths = []
    for name in names:
        tree = os.path.join(folder, name)
        if not os.path.isdir(tree):
            os.makedirs(folder, exist_ok=True)
            download(name, folder)
            package = newest(name, folder)
            subprocess.run(["dpkg-deb", "-x", package, tree + ".part"], check=True)
            os.replace(tree + ".part", tree)
            os.remove(package)
        for path, _, files in os.walk(tree):
            paths += [os.path.join(path, file) for file in files
                      if not os.path.islink(os.path.join(path, file))]
    return sorted(paths)


def download(name, folder):
    done = subprocess.run(["apt-get", "download", name], cwd=folder, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"apt-get download {name} failed:\n{done.stderr}")


def newest(name, folder):
    found = [os.path.join(folder, file) for file in os.listdir(folder)
             if file.startswith(name + "_") and file.endswith(".deb")]
    return max(found, key=os.path.getmtime)

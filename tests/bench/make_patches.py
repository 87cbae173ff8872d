#!/usr/bin/env python3
"""Patches of 8 x 8 pixels of the pictures in Debian's packages of backgrounds, for squared L2.

    make_patches.py FOLDER                 base.f16bin (850,000 rows) and query.f16bin (10,000), 192 columns

    --rows N, --queries N
    --pictures FOLDER    where packages are unpacked and kept (default: FOLDER/packages)
    --packages A,B,...   other packages

A patch is 8 x 8 pixels of 3 colours less their mean; values are rounded to f16. Rows and queries come from the
same pictures and never from the same place. Contrast is heavy-tailed, and so are lengths and the distances
between neighbours: smooth patches lie close together and far from sharp ones. Patches shorter than 20 (there are
many, and they are noise) and repeated ones are left out. The same packages and versions of Pillow give the
same set.
"""

import argparse
import os
import sys

import numpy as np
from PIL import Image, UnidentifiedImageError

import debian_packages
from convert import BinWriter

PACKAGES = "gnome-backgrounds,mate-backgrounds,plasma-workspace-wallpapers"
SIDE = 8
STEP = 2           # pixels from one place of a patch to the next
LONGEST = 2600     # pixels; larger pictures are made smaller
SHORTEST_ROW = 20  # length
SEED = 1


def pictures_of(paths):
    """The largest picture of each folder and name: packages bring one in many sizes."""
    largest = {}
    for path in paths:
        if os.path.splitext(path)[1].lower() not in (".jpg", ".jpeg", ".png", ".webp"):
            continue
        folder, name = os.path.split(path)
        key = folder if name[0].isdigit() else path  # plasma calls files by their size
        if key not in largest or os.path.getsize(path) > os.path.getsize(largest[key]):
            largest[key] = path
    return sorted(largest.values())


def open_picture(path):
    try:
        with Image.open(path) as picture:
            picture = picture.convert("RGB")
            if max(picture.size) > LONGEST:
                picture.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
            return np.asarray(picture)
    except (UnidentifiedImageError, OSError):
        return None


def patches_of(pixels, count, random):
    """Up to `count` patches of a picture, from places of a grid, f16 [n, 192]."""
    high, wide = ((length - SIDE) // STEP + 1 for length in pixels.shape[:2])
    if high <= 0 or wide <= 0:
        return np.empty((0, 3 * SIDE * SIDE), np.float16)
    places = random.permutation(high * wide)[:3 * count]
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (SIDE, SIDE), axis=(0, 1))
    patches = windows[places // wide * STEP, places % wide * STEP]  # [n, 3, 8, 8]
    values = patches.reshape(len(places), -1).astype(np.float32)
    values -= values.mean(axis=1, keepdims=True)
    values = values[np.einsum("ij,ij->i", values, values) >= SHORTEST_ROW**2]
    return values[:count].astype(np.float16)


def distinct(rows):
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))
    return rows[np.sort(np.unique(whole, return_index=True)[1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int, default=850_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--pictures")
    parser.add_argument("--packages", default=PACKAGES)
    args = parser.parse_args()
    random = np.random.Generator(np.random.PCG64(SEED))
    packages = args.pictures or os.path.join(args.folder, "packages")
    pictures = pictures_of(debian_packages.unpack(args.packages.split(","), packages))
    wanted = args.rows + args.queries
    found = []
    for number, path in enumerate(pictures):
        pixels = open_picture(path)
        if pixels is None:
            continue
        # More than are wanted, since some are repeated; what small pictures leave over, the ones after them give.
        left = wanted * 1.15 - sum(map(len, found))
        found.append(patches_of(pixels, int(left / (len(pictures) - number)) + 1, random))
        print(f"\r{number + 1} of {len(pictures)} pictures, {sum(map(len, found)):,} patches",
              end="", file=sys.stderr)
    print(file=sys.stderr)
    rows = distinct(np.concatenate(found))
    if len(rows) < wanted:
        sys.exit(f"{len(rows):,} patches were found, {wanted:,} are wanted: give more --packages")
    random.shuffle(rows)
    os.makedirs(args.folder, exist_ok=True)
    for name, part in (("query", rows[:args.queries]), ("base", rows[args.queries:wanted])):
        writer = BinWriter(os.path.join(args.folder, name + ".f16bin"))
        writer.append(part)
        writer.finish()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Texts of Debian's documentation as vectors, for cosine: TF-IDF, then SVD.

    make_texts.py FOLDER                   base.fbin (100,000 rows) and query.fbin (10,000), 384 columns

    --rows N, --queries N, --columns N
    --texts FOLDER       where packages are unpacked and kept (default: FOLDER/packages)
    --packages A,B,...   other packages

A text is some 100 words that follow each other in a file. Words that occur in few or in very many texts count
nothing. The SVD is that of the rows alone, by random projection (Halko, Martinsson and Tropp, 2011); queries are
other texts of the same files, projected. Values are rounded to what f16 holds, so that files pack well. `gannet-bench grow`
makes the set larger. The same packages and versions of NumPy and SciPy give the same set but for rounding.
"""

import argparse
import collections
import gzip
import html
import os
import re
import sys

import numpy as np
import scipy.sparse

import debian_packages
from convert import BinWriter

PACKAGES = ("linux-doc-6.1,python3.11-doc,postgresql-doc-15,libboost1.74-doc,git-doc,debian-reference-en,"
            "debian-handbook,manpages,manpages-dev,gnome-user-docs,perl-doc")
ENDINGS = (".html", ".htm", ".txt", ".rst", ".page", ".pod", ".docbook")
WORDS_OF_TEXT = 100
LEAST_WORDS = 40
WORDS_KEPT = 40_000
LEAST_TEXTS = 5       # that a word occurs in
MOST_TEXTS = 0.2      # as a share
EXTRA_COLUMNS = 64    # of the random projection
ROUNDS = 3            # of it
SEED = 1

TAGS = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)
WORD = re.compile(r"[a-z][a-z]+")
# A page in another language shares hardly a word with others: English ones have these.
ENGLISH = {"the", "of", "to", "and", "is"}


def words_of(path):
    name = path.removesuffix(".gz")
    is_manual = re.search(r"/man/man\d/", path) is not None
    if not is_manual and not name.endswith(ENDINGS):
        return []
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except (OSError, EOFError):
        return []
    if is_manual:
        text = re.sub(r"^[.'].{0,3}\s?|\\f.|\\", " ", text, flags=re.MULTILINE)
    elif not name.endswith((".txt", ".rst", ".pod")):
        text = html.unescape(TAGS.sub(" ", text))
    return WORD.findall(text.lower())


def texts_of(paths):
    """Lists of words. Texts that begin alike (menus, licences) count once."""
    seen = set()
    for path in paths:
        words = words_of(path)
        for first in range(0, len(words), WORDS_OF_TEXT):
            text = words[first:first + WORDS_OF_TEXT]
            head = " ".join(text[:12])
            if len(text) < LEAST_WORDS or head in seen or len(ENGLISH.intersection(text)) < 2:
                continue
            seen.add(head)
            yield text


def weigh(texts, rows):
    """The matrix of TF-IDF, rows of length one; words and weights are those of the first `rows`."""
    occurs = collections.Counter()
    for text in texts[:rows]:
        occurs.update(set(text))
    kept = [(word, count) for word, count in occurs.most_common()
            if LEAST_TEXTS <= count <= MOST_TEXTS * rows][:WORDS_KEPT]
    place = {word: i for i, (word, _) in enumerate(kept)}
    weight = np.log(rows / np.array([count for _, count in kept], np.float64))
    begins, columns, values = [0], [], []
    for text in texts:
        for word, count in collections.Counter(text).items():
            if word in place:
                columns.append(place[word])
                values.append((1 + np.log(count)) * weight[place[word]])
        begins.append(len(columns))
    matrix = scipy.sparse.csr_matrix((np.array(values, np.float32), np.array(columns, np.int32), begins),
                                     shape=(len(texts), len(kept)))
    length = np.sqrt(matrix.multiply(matrix).sum(axis=1)).A1
    return scipy.sparse.diags(1 / np.maximum(length, 1e-9)).astype(np.float32) @ matrix


def directions(matrix, columns):
    """The first right singular vectors, [words, columns]."""
    random = np.random.Generator(np.random.PCG64(SEED))
    basis = random.standard_normal((matrix.shape[1], columns + EXTRA_COLUMNS)).astype(np.float32)
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(matrix.T @ (matrix @ basis))
    small = matrix @ basis
    _, vectors = np.linalg.eigh((small.T @ small).astype(np.float64))
    return basis @ vectors[:, ::-1][:, :columns].astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=384)
    parser.add_argument("--texts")
    parser.add_argument("--packages", default=PACKAGES)
    args = parser.parse_args()
    paths = debian_packages.unpack(args.packages.split(","),
                                   args.texts or os.path.join(args.folder, "packages"))
    wanted = args.rows + args.queries
    texts = list(texts_of(paths))
    print(f"{len(texts):,} texts", file=sys.stderr)
    if len(texts) < wanted:
        sys.exit(f"{len(texts):,} texts were found, {wanted:,} are wanted: give more --packages")
    random = np.random.Generator(np.random.PCG64(SEED))
    chosen = random.permutation(len(texts))[:wanted]
    matrix = weigh([texts[i] for i in chosen], args.rows)
    print(f"{matrix.shape[1]:,} words, {matrix.nnz:,} values", file=sys.stderr)
    vectors = (matrix @ directions(matrix[:args.rows], args.columns)).astype(np.float16).astype(np.float32)
    os.makedirs(args.folder, exist_ok=True)
    for name, part in (("base", vectors[:args.rows]), ("query", vectors[args.rows:])):
        writer = BinWriter(os.path.join(args.folder, name + ".fbin"))
        writer.append(part)
        writer.finish()


if __name__ == "__main__":
    main()

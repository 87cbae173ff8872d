#!/usr/bin/env python3
"""Converts HDF5 files of ann-benchmarks and Parquet files to the formats that gannet-bench reads.

    convert.py SET.hdf5 FOLDER             base.fbin, query.fbin and groundtruth.ibin from the data
                                           sets train, test, neighbors and distances
    convert.py ROWS.parquet OUT.fbin --column NAME
                                           a column of lists (or of fixed-size lists) of numbers

    --rows FIRST:COUNT    only these of the rows (of train, or of the column)

Both are read and written in parts, so files may be larger than memory. Values become f32, or the
element of the ending of OUT (.fbin .f16bin .i8bin .u8bin). A subset of the rows voids the true
neighbours of an HDF5 file, which are then left out.
"""

import argparse
import os
import sys

import numpy as np

ELEMENTS = {".fbin": np.float32, ".f16bin": np.float16, ".i8bin": np.int8, ".u8bin": np.uint8,
            ".ibin": np.int32}
BLOCK_VALUES = 1 << 24


class BinWriter:
    """uint32 rows, uint32 dim, values; the number of rows is written last. The file gets its name
    when it is whole."""

    def __init__(self, path):
        ending = os.path.splitext(path)[1]
        if ending not in ELEMENTS:
            raise ValueError(f"{path}: the ending {ending!r} is not one of {', '.join(ELEMENTS)}")
        self.path, self.element = path, ELEMENTS[ending]
        self.file = open(path + ".part", "wb")
        self.rows, self.dim = 0, None

    def append(self, values):
        values = np.asarray(values)
        if self.dim is None:
            self.dim = values.shape[1]
            self.file.write(np.array([0, self.dim], np.uint32).tobytes())
        if values.shape[1] != self.dim:
            raise ValueError(f"row {self.rows} has {values.shape[1]} values; expected {self.dim}")
        stored = values.astype(self.element)
        if not np.issubdtype(self.element, np.floating) and not np.array_equal(stored, values):
            raise ValueError(f"values from row {self.rows} on do not fit {np.dtype(self.element)}")
        self.file.write(np.ascontiguousarray(stored).tobytes())
        self.rows += len(values)

    def finish(self, tail=b""):
        if self.dim is None:
            raise ValueError(f"{self.path}: there is no row to write")
        self.file.write(tail)
        self.file.seek(0)
        self.file.write(np.array([self.rows], np.uint32).tobytes())
        self.file.close()
        os.replace(self.path + ".part", self.path)
        print(f"{self.path}: {self.rows} rows of {self.dim} {np.dtype(self.element)}")


def subset(text, total):
    if text is None:
        return 0, total
    first, count = (int(part) for part in text.split(":"))
    if first < 0 or count < 1 or first + count > total:
        raise ValueError(f"--rows {text}: there are {total} rows")
    return first, count


def write_blocks(path, data, first, count):
    writer = BinWriter(path)
    block = max(1, BLOCK_VALUES // data.shape[1])
    for at in range(first, first + count, block):
        writer.append(data[at:min(at + block, first + count)])
    writer.finish()


def convert_hdf5(path, folder, rows):
    import h5py
    with h5py.File(path, "r") as file:
        for name in ("train", "test"):
            if name not in file:
                raise ValueError(f"{path}: no data set {name!r}; there are {', '.join(file)}")
            if file[name].ndim != 2:
                raise ValueError(f"{path}: {name} has shape {file[name].shape}; expected [rows, dim] "
                                 "(sparse sets are not supported)")
        os.makedirs(folder, exist_ok=True)
        first, count = subset(rows, len(file["train"]))
        write_blocks(os.path.join(folder, "base.fbin"), file["train"], first, count)
        write_blocks(os.path.join(folder, "query.fbin"), file["test"], 0, len(file["test"]))
        if "neighbors" in file and count == len(file["train"]):
            writer = BinWriter(os.path.join(folder, "groundtruth.ibin"))
            writer.append(file["neighbors"][:])
            tail = b""
            if "distances" in file:
                tail = file["distances"][:].astype(np.float32).tobytes()
            writer.finish(tail)
        print(f"metric: {file.attrs.get('distance', 'not said')}")


def convert_parquet(path, out, column, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq
    file = pq.ParquetFile(path)
    if column is None or column not in file.schema_arrow.names:
        raise ValueError(f"{path}: --column is {column}; there are "
                         f"{', '.join(file.schema_arrow.names)}")
    first, count = subset(rows, file.metadata.num_rows)
    writer = BinWriter(out)
    at = 0
    for batch in file.iter_batches(batch_size=8192, columns=[column]):
        lists = batch.column(0)
        start, end = max(first - at, 0), min(first + count - at, len(lists))
        if start < end:
            part = lists.slice(start, end - start)
            if not (pa.types.is_list(part.type) or pa.types.is_large_list(part.type)
                    or pa.types.is_fixed_size_list(part.type)):
                raise ValueError(f"{path}: column {column} holds {part.type}; expected lists")
            lengths = {len(row) if row is not None else None for row in part.to_pylist()}
            if len(lengths) != 1 or None in lengths:
                raise ValueError(f"{path}: rows {at + start} to {at + end}: lists of lengths "
                                 f"{sorted(map(str, lengths))}; expected one length")
            writer.append(part.flatten().to_numpy(zero_copy_only=False).reshape(len(part), -1))
        at += len(lists)
    writer.finish()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("out", help="a folder for HDF5, a file for Parquet")
    parser.add_argument("--column", help="of a Parquet file")
    parser.add_argument("--rows", help="FIRST:COUNT")
    options = parser.parse_args(arguments)
    try:
        if options.source.endswith((".hdf5", ".h5")):
            convert_hdf5(options.source, options.out, options.rows)
        elif options.source.endswith(".parquet"):
            convert_parquet(options.source, options.out, options.column, options.rows)
        else:
            raise ValueError(f"{options.source}: expected .hdf5, .h5 or .parquet")
    except (ValueError, OSError) as fault:
        print(f"convert: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

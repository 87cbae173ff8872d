"""The words that parameters take, and the numbers of ann.h that they stand for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .errors import DeviceError, DtypeError, InvalidArgument

METRICS = {"l2": 1, "sqeuclidean": 1, "ip": 2, "inner_product": 2, "dot": 2, "cos": 3, "cosine": 3}
METRIC_NAMES = {0: "l2", 1: "l2", 2: "ip", 3: "cos"}
ELEMENTS = {"f32": 1, "float32": 1, "f16": 2, "float16": 2, "bf16": 3, "bfloat16": 3,
            "i8": 4, "int8": 4, "u8": 5, "uint8": 5}
ELEMENT_NAMES = {0: "undecided", 1: "float32", 2: "float16", 3: "bfloat16", 4: "int8", 5: "uint8"}
GRAPHS = {"auto": 0, "cagra": 1, "none": 2, "ggnn": 3, "tsdg": 4}
GRAPH_NAMES = {0: "none", 1: "cagra", 2: "none", 3: "ggnn", 4: "tsdg"}
CODE_NAMES = {0: "none", 1: "rows", 2: "bytes", 3: "floats", 4: "scaled", 5: "projected"}
KNN_METHODS = {"auto": 0, "nn_descent": 1, "exact": 2, "cells": 4, "ggnn": 5}
DIVERSIFICATIONS = {"auto": 0, "tsdg": 1, "gd": 2, "dpg": 3, "ssg": 4, "vamana": 5}
DETOURS = {"auto": 0, "near": 1, "whole": 2}
REORDERINGS = {"auto": 0, "rank": 1, "distance": 2}
PROCEDURES = {"auto": 0, "best_first": 1, "exact": 2, "cagra": 3, "cagra_single_cta": 4,
              "cagra_multi_cta": 5, "two_lists": 6, "ggnn": 9, "tsdg": 10, "tsdg_small": 11,
              "tsdg_large": 12, "slack": 13}
DEPRECATED_PROCEDURES = {"warp": 6, "block": 7, "wide_block": 8}  # two_lists, the last two with 8 and 16 warps
SLACKS = {"auto": 0, "distances": 1, "squares": 2}
COMPARES = {"auto": 0, "codes": 1, "stored": 2}
GIVEN_GRAPH, GIVEN_KNN = 5, 3  # said by an array in the place of a word
OPEN_FULL, OPEN_LAZY, OPEN_TRUSTED = 1, 2, 3
CPU, CUDA = 1, 2


def number(name: str, given: str, words: dict[str, int]) -> int:
    """The number of a word, in lower or upper case."""
    found = words.get(given.lower()) if isinstance(given, str) else None
    if found is None:
        raise InvalidArgument(f"{name} is {given!r}; expected one of {', '.join(words)}")
    return found


def procedure(given: str) -> int:
    """The number of a procedure. Deprecated names are accepted, and not listed."""
    found = DEPRECATED_PROCEDURES.get(given.lower()) if isinstance(given, str) else None
    return number("procedure", given, PROCEDURES) if found is None else found


def element(given: Any) -> int:
    """The number of an element's type, given as a word, a dtype or a type of NumPy or ml_dtypes."""
    name = given if isinstance(given, str) else str(np.dtype(given))
    if name not in ELEMENTS:
        raise DtypeError(f"dtype is {name}; expected float32, float16, bfloat16, int8 or uint8")
    return ELEMENTS[name]


def device(given: Any) -> int:
    """The number of a device: "cpu", "cuda", "cuda:1", or what prints as one of these."""
    name = "cpu" if given is None else str(given).lower()
    if name == "cpu":
        return CPU
    match = re.fullmatch(r"cuda(?::(\d{1,4}))?|<cuda device (\d{1,4})>", name)
    if match is None:
        raise DeviceError(f"device is {given!r}; expected \"cpu\", \"cuda\" or \"cuda:0\", \"cuda:1\", ...")
    return CUDA + int(match[1] or match[2] or 0)


def device_name(space: int) -> str:
    return "cpu" if space <= CPU else f"cuda:{space - CUDA}"


def stored_dtype(code: int) -> tuple[np.dtype[Any], bool]:
    """The dtype of vectors as stored, and whether it stands for bfloat16 without ml_dtypes."""
    if code == 3:
        try:
            import ml_dtypes
        except ImportError:
            return np.dtype(np.uint16), True
        return np.dtype(ml_dtypes.bfloat16), False
    return np.dtype(ELEMENT_NAMES[code]), False

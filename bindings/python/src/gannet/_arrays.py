"""Arrays of other libraries: where their elements are, on which stream they are made, and results beside them.

Nothing here copies an element. NumPy's arrays are read in C; what comes by DLPack (Torch, CuPy, JAX and many
others) or by __cuda_array_interface__ (Numba) becomes a `_core.View`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

import numpy as np

from . import _core
from ._names import CUDA
from .errors import DeviceError, DtypeError, InvalidArgument, ShapeError

LEGACY_STREAM = 1  # what CUDA calls its default stream where 0 would mean "none"
CUDA_KINDS = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
known: set[type] = set()  # the classes of arrays that C reads itself


def library_of(array: Any) -> str:
    """The package that the array's class comes from: "numpy", "cupy", "torch", "jaxlib", ..."""
    return type(array).__module__.partition(".")[0]


def of(vectors: Any, what: str, stream: int | None = None, list_dtype: Any = np.float32) -> Any:
    """`vectors` as an array of NumPy or a View, for C. `stream` is where work on them will be queued."""
    if isinstance(vectors, np.ndarray):
        if isinstance(vectors, np.ma.MaskedArray):
            raise DtypeError(f"{what} has a mask, which would be lost; pass a.filled(...)")
        return vectors
    if isinstance(vectors, _core.View):
        return vectors
    if isinstance(vectors, (list, tuple)):
        return of_list(vectors, what, list_dtype)
    if hasattr(vectors, "__dlpack__"):
        return of_dlpack(vectors, what, stream)
    if hasattr(vectors, "__cuda_array_interface__"):
        return of_cuda_interface(vectors, what)
    return np.asarray(vectors)


def of_list(vectors: Any, what: str, dtype: Any) -> np.ndarray[Any, Any]:
    """Numbers of Python have no dtype of their own, and get the one that is wanted."""
    try:
        return np.asarray(vectors, dtype)
    except (ValueError, OverflowError, TypeError) as wrong:
        error = ShapeError if "inhomogeneous" in str(wrong) else DtypeError
        raise error(f"{what}: the list makes no array of {np.dtype(dtype)}: {wrong}") from wrong


def check_matrix(array: Any, what: str, most: int = 32768) -> None:
    """Rows are never one vector alone, as queries may be."""
    if len(array.shape) != 2:
        raise ShapeError(f"{what} has {len(array.shape)} dimensions; expected 2: [rows, columns]")
    if array.shape[1] == 0:
        raise ShapeError(f"{what} has 0 columns; expected 1 to {most}")


def of_dlpack(vectors: Any, what: str, stream: int | None) -> _core.View:
    try:
        kind, _ = vectors.__dlpack_device__()
        if int(kind) in CUDA_KINDS:
            # The owner lets our stream wait for what it has queued on its own.
            capsule = vectors.__dlpack__(stream=LEGACY_STREAM if stream is None else stream)
        else:
            capsule = vectors.__dlpack__()
    except Exception as wrong:  # each library has errors of its own
        name = f"{type(vectors).__module__}.{type(vectors).__qualname__}"
        raise InvalidArgument(f"{what}: {name} does not lend its memory: {wrong}") from wrong
    return _core.from_dlpack(capsule)


def of_cuda_interface(vectors: Any, what: str) -> _core.View:
    said = vectors.__cuda_array_interface__
    order, kind, size = said["typestr"][0], said["typestr"][1], int(said["typestr"][2:])
    if kind == "V" and size == 2 and str(getattr(vectors, "dtype", "")) == "bfloat16":
        kind = "B"
    if order == ">" and size > 1:
        raise DtypeError(f"{what} has its bytes in the other order than this machine")
    if said.get("mask") is not None:
        raise DtypeError(f"{what} has a mask, which would be lost")
    address, readonly = said["data"]
    strides = said.get("strides")
    return _core.from_address(address or 0, tuple(said["shape"]), None if strides is None else tuple(strides),
                              kind, size, CUDA + device_number(vectors), bool(readonly), vectors)


def know(array: Any) -> bool:
    """Whether C reads arrays of this class itself, which knows CuPy's and Torch's once it has met one: there a search
    costs 10 us less than by Views."""
    kind = type(array)
    if kind in known:
        return True
    library = library_of(array)
    if library == "cupy":
        import cupy
        if kind is not cupy.ndarray:
            return False
        _core.know_cupy(kind, cupy.cuda.runtime.getDevice, cupy.cuda.get_current_stream, cupy.cuda.alloc)
    elif library == "torch":
        import torch
        if kind is not torch.Tensor:
            return False
        kinds = {torch.float32: ("f", 4), torch.float16: ("f", 2), torch.bfloat16: ("B", 2), torch.int8: ("i", 1),
                 torch.uint8: ("u", 1), torch.int64: ("i", 8)}
        # What Torch's own compiler calls; the public way makes an object of Python for a number.
        stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
            lambda number: torch.cuda.current_stream(number).cuda_stream)
        _core.know_torch(kind, stream, kinds, torch.strided, {"dtype": torch.int64}, {"dtype": torch.float32})
    else:
        return False
    known.add(kind)
    return True


# --- Streams and results --------------------------------------------------------------------------------------

def stream_number(stream: Any) -> int:
    """The cudaStream_t of a stream: a number, CuPy's, Torch's, or one that has __cuda_stream__."""
    if hasattr(stream, "__cuda_stream__"):
        given = stream.__cuda_stream__
        stream = (given() if callable(given) else given)[1]
    else:
        stream = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    if not isinstance(stream, int) or stream < 0:
        raise InvalidArgument(f"stream is {stream!r}; expected a stream of CuPy or Torch, an object with "
                              "__cuda_stream__, or the number of a cudaStream_t")
    return stream or LEGACY_STREAM


def on_cupy_device(cupy: Any, number: int) -> Any:
    """CuPy's context of CUDA device `number`; where that is current already, a context of nothing, which costs less."""
    return contextlib.nullcontext() if cupy.cuda.runtime.getDevice() == number else cupy.cuda.Device(number)


def stream_of_library(library: str, number: int) -> int:
    """The stream on which CuPy or Torch works now on CUDA device `number`."""
    if library == "cupy":
        import cupy
        with on_cupy_device(cupy, number):
            return cupy.cuda.get_current_stream().ptr or LEGACY_STREAM
    import torch
    return torch.cuda.current_stream(number).cuda_stream or LEGACY_STREAM


def stream_of(array: Any) -> int | None:
    """The stream on which the library of an array in a device's memory works now. None where it has no stream to
    name, and the array is ready."""
    library = library_of(array)
    if library in ("cupy", "torch"):
        return stream_of_library(library, device_number(array))
    if hasattr(array, "block_until_ready"):
        array.block_until_ready()
        return None
    # A lender by DLPack lets CUDA's default stream wait for what it has queued.
    return getattr(array, "__cuda_array_interface__", {}).get("stream") or LEGACY_STREAM


def wait_for(stream: int | None) -> None:
    """Returns when what was queued on a stream is done; at once where there is neither CuPy nor Torch to ask."""
    if stream is None:
        return
    if "cupy" in sys.modules:
        sys.modules["cupy"].cuda.ExternalStream(stream).synchronize()
    elif "torch" in sys.modules:
        sys.modules["torch"].cuda.ExternalStream(stream).synchronize()


def ready(vectors: Any, what: str) -> Any:
    """As of(), with elements that nothing is writing any more: a build takes them from no stream."""
    if isinstance(vectors, (np.ndarray, list, tuple, _core.View)) or not is_on_device(vectors):
        return of(vectors, what)
    stream = stream_of(vectors)
    view = of(vectors, what, stream)
    wait_for(stream)
    return view


def is_on_device(array: Any) -> bool:
    """Whether an array of another library lies in the memory of a CUDA device."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[0]) in CUDA_KINDS
    return hasattr(array, "__cuda_array_interface__")


def device_number(array: Any) -> int:
    """Which CUDA device such an array says that it lies on."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    # __cuda_array_interface__ does not name the device. The library refuses memory of another one than this.
    return int(getattr(getattr(array, "device", None), "id", 0))


def allocator(library: str) -> str:
    """Which library gives memory on a device for results: that of the queries, or CuPy, or Torch."""
    if library in ("cupy", "torch"):
        return library
    for name in ("cupy", "torch"):
        if name in sys.modules:
            return name
    for name in ("cupy", "torch"):
        try:
            importlib.import_module(name)
            return name
        except ImportError:
            pass
    raise DeviceError(f"results of queries of {library} on a device need memory there: pass out=(ids, "
                      "distances), or install CuPy or Torch")


def results_on_device(queries: Any, number: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Empty arrays for ids and distances in the memory of CUDA device `number`."""
    library = allocator(library_of(queries))
    if library == "cupy":
        import cupy
        with on_cupy_device(cupy, number):
            found = cupy.empty(shape, cupy.int64), cupy.empty(shape, cupy.float32)
            if library_of(queries) != library:  # memory is given out while what used it before may still run
                cupy.cuda.get_current_stream().synchronize()
        return found
    import torch
    device = torch.device(f"cuda:{number}")
    found = torch.empty(shape, dtype=torch.int64, device=device), torch.empty(shape, device=device)
    if library_of(queries) != library:
        torch.cuda.current_stream(number).synchronize()
    return found

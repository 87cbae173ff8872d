"""What the functions of this package raise.

All are `gannet.Error`, and also the class of Python that is nearest, so that code which knows nothing of
Gannet catches them: a damaged file is a ValueError, a missing one an OSError, too little memory a MemoryError.

>>> import gannet, numpy
>>> gannet.build(numpy.zeros((3, 2)))
Traceback (most recent call last):
    ...
gannet.errors.DtypeError: rows is of float64; expected float32, float16, bfloat16, int8 or uint8 (a.astype(numpy.float32) rounds)
"""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Base of all. `status` is the library's number (ann.h, section 2), 100 where this package refused.

    `row` and `column` name the vector and the value at fault, or are -1; `os_error` and `cuda_error` are
    errno and cudaError_t where the system or CUDA refused something, else 0.
    """

    default_status = 100

    def __init__(self, message: str, status: int | None = None, row: int = -1, column: int = -1,
                 os_error: int = 0, cuda_error: int = 0) -> None:
        super().__init__(message)
        self.status = self.default_status if status is None else status
        self.row, self.column = row, column
        self.os_error, self.cuda_error = os_error, cuda_error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.status, self.row, self.column, self.os_error, self.cuda_error)


class InvalidArgument(Error, ValueError):
    """An argument is out of range or does not fit another; the text names it, its value and the range."""


class DtypeError(InvalidArgument, TypeError):
    """Elements of a type that is not taken here. float64 is never rounded unasked."""


class ShapeError(InvalidArgument):
    """Not one or two dimensions, or another number of columns than the index has."""


class OrderError(InvalidArgument):
    """Elements of a row that do not lie side by side, overlapping rows, or memory that may only be read."""


class DeviceError(InvalidArgument):
    """Memory on a device, or a name of one, that is not taken here."""


class LimitExceeded(Error, ValueError):
    """Legal, but above a limit of the library or of a parameter."""

    default_status = 101


class Unsupported(Error, NotImplementedError):
    """Legal, but not done by this library, index or device."""

    default_status = 102


class NotFinite(Error, ValueError):
    """NaN or infinity in a vector; `row` says in which."""

    default_status = 103


class StateError(Error, RuntimeError):
    """The index is not in the state for this call."""

    default_status = 200


class ClosedError(StateError):
    """The index was closed."""


class Busy(Error, RuntimeError):
    """Another call that changes the same index is running."""

    default_status = 201


class OutOfMemory(Error, MemoryError):
    """The host's memory does not suffice. Nothing has changed."""

    default_status = 300


class DeviceOutOfMemory(Error, MemoryError):
    """A device's memory does not suffice. Nothing has changed."""

    default_status = 301


class NoDevice(Error, RuntimeError):
    """There is no such device, or no driver for it."""

    default_status = 400


class DeviceLost(Error, RuntimeError):
    """A fault ended this process's use of CUDA. The CPU goes on."""

    default_status = 401


class FileError(Error, OSError):
    """The system refused to read or write; `errno` says why."""

    default_status = 500

    def __init__(self, message: str, status: int | None = None, row: int = -1, column: int = -1,
                 os_error: int = 0, cuda_error: int = 0) -> None:
        super().__init__(message, status, row, column, os_error, cuda_error)
        self.errno = os_error


class CorruptFile(Error, ValueError):
    """The file is damaged, cut, or no file of an index."""

    default_status = 501


class FileVersionError(Error, ValueError):
    """The file is in order, but of a format that this library does not know."""

    default_status = 502


class Cancelled(Error):
    """The call was cancelled."""

    default_status = 600


class DeadlineExceeded(Error, TimeoutError):
    """`timeout` has passed. Nothing has changed."""

    default_status = 601

    def __init__(self, message: str, status: int | None = None, row: int = -1, column: int = -1,
                 os_error: int = 0, cuda_error: int = 0) -> None:
        super().__init__(message, status, row, column, os_error, cuda_error)


class InternalError(Error, RuntimeError):
    """A defect of the library. Please report it."""

    default_status = 700


BY_KEY: dict[int | str, type[Error]] = {
    100: InvalidArgument, "argument": InvalidArgument, "dtype": DtypeError, "shape": ShapeError,
    "order": OrderError, "device": DeviceError, "closed": ClosedError,
    **{made.default_status: made
       for made in (LimitExceeded, Unsupported, NotFinite, StateError, Busy, OutOfMemory,
                    DeviceOutOfMemory, NoDevice, DeviceLost, FileError, CorruptFile, FileVersionError,
                    Cancelled, DeadlineExceeded, InternalError)},
}

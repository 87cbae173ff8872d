package gannet

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"syscall"
)

// Status is the outcome of a call, as ann.h numbers it. The class is the number divided by 100.
type Status int32

// String is the name in ann.h, as "ANN_LIMIT".
func (s Status) String() string {
	return C.GoString(C.ann_status_name(C.ann_status(s)))
}

// sentinel is an error for errors.Is. Two of one status are equal.
type sentinel Status

func (s sentinel) Error() string { return "gannet: " + Status(s).String() }

// The errors of calls, for [errors.Is]. [errors.As] with *[Error] gives the details.
var (
	ErrInvalidArgument error = sentinel(C.ANN_INVALID_ARGUMENT) // out of range or mismatched
	ErrLimit           error = sentinel(C.ANN_LIMIT)            // legal, but above a limit
	ErrUnsupported     error = sentinel(C.ANN_UNSUPPORTED)      // legal, but not done here
	ErrNotFinite       error = sentinel(C.ANN_NOT_FINITE)       // NaN or infinity in a vector
	ErrState           error = sentinel(C.ANN_STATE)            // search before build and the like
	ErrBusy            error = sentinel(C.ANN_BUSY)             // another call changes the index
	ErrNoMemory        error = sentinel(C.ANN_NO_MEMORY)
	ErrDeviceNoMemory  error = sentinel(C.ANN_DEVICE_NO_MEMORY)
	ErrNoDevice        error = sentinel(C.ANN_NO_DEVICE)
	ErrDeviceLost      error = sentinel(C.ANN_DEVICE_LOST)
	ErrIO              error = sentinel(C.ANN_IO)        // the system, or a stream, refused
	ErrCorrupt         error = sentinel(C.ANN_CORRUPT)   // damaged, cut, or no file of an index
	ErrVersion         error = sentinel(C.ANN_VERSION)   // of a format that is not known here
	ErrCancelled       error = sentinel(C.ANN_CANCELLED) // comes with context.Canceled
	ErrDeadline        error = sentinel(C.ANN_DEADLINE)  // comes with context.DeadlineExceeded
	ErrInternal        error = sentinel(C.ANN_INTERNAL)  // a defect of the library

	// ErrClosed is returned by every call on an index after Close.
	ErrClosed = errors.New("gannet: the index is closed")
)

// Error says where and why a call failed. It wraps the sentinel of its status, the error of the
// context that ended the call, that of a stream that the caller gave, and the system's error, where
// there is one.
type Error struct {
	Status    Status
	Message   string        // one line: parameter, value, allowed range
	Row       int64         // row of the vector at fault, else -1
	Column    int64         // column of the value at fault, else -1
	OSError   syscall.Errno // where the system refused something, else 0
	CUDAError int           // cudaError_t, where CUDA did, else 0

	cause error
}

func (e *Error) Error() string {
	if e.Message == "" {
		return "gannet: " + e.Status.String()
	}
	return "gannet: " + e.Message
}

// Unwrap serves errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	wrapped := []error{sentinel(e.Status)}
	if e.cause != nil {
		wrapped = append(wrapped, e.cause)
	}
	if e.OSError != 0 {
		wrapped = append(wrapped, e.OSError)
	}
	return wrapped
}

// failure makes the error of a C call. The text travels in the caller's struct, so it is this
// call's own, whichever thread the goroutine runs on by now.
func failure(status C.ann_status, e *C.ann_error, cause error) error {
	if status == C.ANN_OK {
		return nil
	}
	return &Error{
		Status:    Status(status),
		Message:   C.GoString(&e.message[0]),
		Row:       place(e.row),
		Column:    place(e.column),
		OSError:   syscall.Errno(e.os_error),
		CUDAError: int(e.cuda_error),
		cause:     cause,
	}
}

// place turns a row or column of C into Go's, where -1 is none.
func place(at C.uint64_t) int64 {
	if at > math.MaxInt64 {
		return -1
	}
	return int64(at)
}

// fail makes an error of the binding's own.
func fail(status C.ann_status, cause error, format string, values ...any) error {
	return &Error{
		Status:  Status(status),
		Message: fmt.Sprintf(format, values...),
		Row:     -1,
		Column:  -1,
		cause:   cause,
	}
}

// numbers converts Go's integers to C's and keeps the first error.
type numbers struct{ err error }

func (n *numbers) u32(name string, value int) C.uint32_t {
	if value < 0 || value > math.MaxUint32 {
		n.refuse("%s is %d, not in 0 to %d", name, value, uint32(math.MaxUint32))
		return 0
	}
	return C.uint32_t(value)
}

func (n *numbers) i32(name string, value int) C.int32_t {
	if value < math.MinInt32 || value > math.MaxInt32 {
		n.refuse("%s is %d, not in %d to %d", name, value, math.MinInt32, math.MaxInt32)
		return 0
	}
	return C.int32_t(value)
}

// matrix converts a view; name is what the error calls it.
func (n *numbers) matrix(name string, m Matrix) C.gn_rows {
	if m.dim > 0 && m.length%m.dim != 0 {
		n.refuse("%s hold %d values, which is no whole number of rows of %d", name, m.length, m.dim)
	}
	if m.stride < 0 || m.length < 0 {
		n.refuse("%s have a stride of %d bytes and %d values, less than 0", name, m.stride, m.length)
	}
	return C.gn_rows{
		element: C.int32_t(m.element),
		dim:     n.u32("dim", m.dim),
		rows:    C.uint64_t(m.Rows()),
		stride:  C.uint64_t(m.stride),
		space:   C.int32_t(m.space),
		address: C.uintptr_t(m.address),
	}
}

func (n *numbers) refuse(format string, values ...any) {
	if n.err == nil {
		n.err = invalid(format, values...)
	}
}

// invalid is an argument that the binding itself cannot hand on.
func invalid(format string, values ...any) error {
	return fail(C.ANN_INVALID_ARGUMENT, nil, format, values...)
}

package gannet

// #include "bridge.h"
import "C"

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime/cgo"
	"syscall"
	"unsafe"
)

// stream is a reader or writer of the caller during one call, and what went wrong with it.
type stream struct {
	move     func([]byte) (int, error)
	err      error
	panicked bool
	value    any   // of the panic
	index    *life // that the call runs on; nil if the call makes it
}

// fromReader moves at least one byte, unless the stream ends.
func fromReader(r io.Reader) *stream {
	return &stream{move: func(room []byte) (int, error) {
		for range 100 { // as often as package bufio asks a reader that gives nothing
			n, err := r.Read(room)
			switch {
			case n < 0:
				return 0, bufio.ErrNegativeCount
			case n > len(room):
				return 0, fmt.Errorf("%w: it claims to have read %d bytes into %d", io.ErrShortBuffer, n, len(room))
			case n > 0:
				return n, nil
			case err == io.EOF:
				return 0, nil
			case err != nil:
				return 0, err
			}
		}
		return 0, io.ErrNoProgress
	}}
}

// toWriter moves everything.
func toWriter(w io.Writer, index *life) *stream {
	return &stream{index: index, move: func(data []byte) (int, error) {
		n, err := w.Write(data)
		if n != len(data) && err == nil {
			err = io.ErrShortWrite
		}
		return n, err
	}}
}

// during runs a call with the stream as its callback knows it, and makes the call's error: a panic
// goes on, and what the stream says takes the place of what the library made of it.
func (s *stream) during(run func(C.uintptr_t) error) error {
	handle := cgo.NewHandle(s)
	defer handle.Delete()
	err := run(C.uintptr_t(handle))
	if s.panicked {
		panic(s.value)
	}
	if s.err == nil || !errors.Is(err, ErrIO) {
		return err
	}
	e := &Error{Status: C.ANN_IO, Message: "the stream: " + s.err.Error(), Row: -1, Column: -1, cause: s.err}
	errors.As(s.err, &e.OSError)
	return e
}

// step moves bytes for C, through which a panic must not go.
func (s *stream) step(data unsafe.Pointer, bytes C.uint64_t) (moved C.int64_t) {
	defer func() {
		if s.panicked {
			s.value, moved = recover(), failed
		}
	}()
	s.panicked = true
	var n int
	var err error
	s.index.duringCallback(func() { n, err = s.move(unsafe.Slice((*byte)(data), int(bytes))) })
	s.panicked = false
	if s.err = err; err == nil {
		return C.int64_t(n)
	}
	return failed
}

// failed tells the library that a stream failed; during says why.
const failed = -C.int64_t(syscall.EIO)

//export gnWriteStream
func gnWriteStream(s C.uintptr_t, data unsafe.Pointer, bytes C.uint64_t) C.int64_t {
	return cgo.Handle(s).Value().(*stream).step(data, bytes)
}

//export gnReadStream
func gnReadStream(s C.uintptr_t, data unsafe.Pointer, bytes C.uint64_t) C.int64_t {
	return cgo.Handle(s).Value().(*stream).step(data, bytes)
}

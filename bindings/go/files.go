package gannet

// #include <stdlib.h>
// #include "bridge.h"
// #cgo nocallback gn_save
// #cgo nocallback gn_open
// #cgo nocallback gn_open_memory
// #cgo nocallback gn_verify
// #cgo noescape gn_file_info
// #cgo nocallback gn_file_info
import "C"

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unsafe"
)

// Save writes a file, replacing one that is there. The new file is written beside it, synced and
// renamed over it: at every moment, also after a crash or with a full disk, path is the old file or
// the new one, whole. Searches may run meanwhile. params may be nil.
//
// If ctx ends, Save stops within 100 ms, leaves what was there, and returns an error that wraps
// ctx.Err().
func (x *Index) Save(ctx context.Context, path string, params *SaveParams) error {
	name, err := nativePath(path)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(name))
	return x.save(ctx, buildPlaces, params, func(native *C.ann_index, given *C.ann_save_params, c *call) error {
		return c.end(C.gn_save(native, name, given, c.monitor, &c.error))
	})
}

// SaveTo writes the bytes of a file from first to last; making them durable is the caller's part.
// An error of w is wrapped by the one that SaveTo returns, and a panic in it goes on when the
// library has cleaned up; it must not call runtime.Goexit.
//
// If ctx ends, SaveTo stops after the call of w that is running.
func (x *Index) SaveTo(ctx context.Context, w io.Writer, params *SaveParams) error {
	if w == nil {
		return invalid("the writer is nil")
	}
	return x.save(ctx, alone(), params, func(native *C.ann_index, given *C.ann_save_params, c *call) error {
		return toWriter(w, &x.handle.life).during(func(s C.uintptr_t) error {
			return c.end(C.gn_save_stream(native, s, given, c.monitor, &c.error))
		})
	})
}

// alone is the place of a call that may wait for others through its stream, and so must not have
// them wait for a place: two ends of a pipe, say.
func alone() chan struct{} { return make(chan struct{}, 1) }

func (x *Index) save(ctx context.Context, places chan struct{}, params *SaveParams,
	run func(*C.ann_index, *C.ann_save_params, *call) error) error {
	if params == nil {
		params = new(SaveParams)
	}
	var n numbers
	given := params.native(&n)
	if n.err != nil {
		return n.err
	}
	var c call
	native, err := c.beginOn(ctx, x, places, params.Progress)
	if err != nil {
		return err
	}
	defer x.leave()
	return run(native, &given, &c)
}

// Open opens a file as a built index, which answers as the one that was saved. Unless params.Mode
// says otherwise, everything is read into memory, and every byte checked, before Open returns.
// params may be nil.
//
// If ctx ends, Open stops within 100 ms and returns an error that wraps ctx.Err().
func Open(ctx context.Context, path string, params *OpenParams) (*Index, error) {
	name, err := nativePath(path)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(name))
	h := new(handle)
	return owner(h, open(ctx, buildPlaces, params, func(given *C.ann_open_params, c *call) error {
		return c.end(C.gn_open(name, given, &h.native, c.monitor, &c.error))
	}))
}

// OpenBytes is [Open] from the bytes of a file. It keeps copies of them, so params.Mode is [OpenFull]
// or left open.
func OpenBytes(ctx context.Context, file []byte, params *OpenParams) (*Index, error) {
	if params != nil && params.Mode != OpenAuto && params.Mode != OpenFull {
		return nil, fail(C.ANN_UNSUPPORTED, nil, "mode is %d; bytes of Go are not used in place", params.Mode)
	}
	h := new(handle)
	data, bytes := (*C.uint8_t)(unsafe.SliceData(file)), C.uint64_t(len(file))
	return owner(h, open(ctx, buildPlaces, params, func(given *C.ann_open_params, c *call) error {
		return c.end(C.gn_open_memory(data, bytes, given, &h.native, c.monitor, &c.error))
	}))
}

// OpenFrom is [Open] from a stream that holds size bytes in all and is read from first to last, but
// for what follows them. An error of r is wrapped by the one that OpenFrom returns, and a panic in
// it goes on when the library has cleaned up; it must not call runtime.Goexit. params.Mode is
// [OpenFull] or left open.
//
// If ctx ends, OpenFrom stops after the call of r that is running.
func OpenFrom(ctx context.Context, r io.Reader, size int64, params *OpenParams) (*Index, error) {
	if r == nil || size < 0 {
		return nil, invalid("the reader is nil, or its size of %d below 0", size)
	}
	h := new(handle)
	return owner(h, open(ctx, alone(), params, func(given *C.ann_open_params, c *call) error {
		return fromReader(r).during(func(s C.uintptr_t) error {
			return c.end(C.gn_open_stream(s, C.uint64_t(size), given, &h.native, c.monitor, &c.error))
		})
	}))
}

// Verify checks a file as [Open] does, without keeping it. params may be nil; its Mode is not used.
// The text of an error that matches [ErrCorrupt] names section and place.
func Verify(ctx context.Context, path string, params *OpenParams) error {
	name, err := nativePath(path)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(name))
	return open(ctx, buildPlaces, params, func(given *C.ann_open_params, c *call) error {
		return c.end(C.gn_verify(name, given, c.monitor, &c.error))
	})
}

func open(ctx context.Context, places chan struct{}, params *OpenParams,
	run func(*C.ann_open_params, *call) error) error {
	if params == nil {
		params = new(OpenParams)
	}
	var n numbers
	given := params.native(&n)
	if n.err != nil {
		return n.err
	}
	var c call
	if err := c.begin(ctx, places, params.Progress); err != nil {
		return err
	}
	return run(&given, &c)
}

// FileDescription is the contents of a file's header.
type FileDescription struct {
	Format      string // version of the format, as "major.minor"
	Bytes       int64
	Rows        int
	Dim         int
	Metric      Metric
	Element     ElementType
	Graph       GraphKind
	Degree      int
	EntryPoints int
	HasIDs      bool   // false: ids are row numbers
	Writer      string // version of the library that wrote the file, as "major.minor.patch"
	Seed        uint64
	ContentID   [16]byte // equal for equal indexes, and only for them
}

// FileInfo reads the header of a file, and checks header, section table and tail; the rest
// is not read.
func FileInfo(path string) (FileDescription, error) {
	name, err := nativePath(path)
	if err != nil {
		return FileDescription{}, err
	}
	defer C.free(unsafe.Pointer(name))
	var d C.ann_file_description
	var e C.ann_error
	if status := C.gn_file_info(name, &d, &e); status != C.ANN_OK {
		return FileDescription{}, failure(status, &e, nil)
	}
	return FileDescription{
		Format:      fmt.Sprintf("%d.%d", d.format>>16, d.format&0xffff),
		Bytes:       int64(d.file_bytes),
		Rows:        int(d.rows),
		Dim:         int(d.dim),
		Metric:      Metric(d.metric),
		Element:     ElementType(d.element),
		Graph:       GraphKind(d.graph),
		Degree:      int(d.degree),
		EntryPoints: int(d.entry_points),
		HasIDs:      d.has_ids != 0,
		Writer:      fmt.Sprintf("%d.%d.%d", d.writer>>16, d.writer>>8&0xff, d.writer&0xff),
		Seed:        uint64(d.seed),
		ContentID:   *(*[16]byte)(unsafe.Pointer(&d.content_id)),
	}, nil
}

// nativePath is for C.free. C ends a text at a zero.
func nativePath(path string) (*C.char, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return nil, invalid("the path %q has a byte of zero in it", path)
	}
	return C.CString(path), nil
}

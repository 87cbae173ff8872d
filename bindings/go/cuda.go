package gannet

// #cgo LDFLAGS: -ldl
// #include "bridge.h"
// #include "cuda_driver.h"
// #cgo nocallback gn_place
// #cgo noescape gn_evict
// #cgo nocallback gn_evict
// #cgo noescape gn_cuda_to_device
// #cgo nocallback gn_cuda_to_device
// #cgo noescape gn_cuda_to_host
// #cgo nocallback gn_cuda_to_host
import "C"

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"
)

// Place copies a built index with a graph to a CUDA device and calibrates it there, now rather than at
// the first search; nothing where it has been copied already. Searches go on meanwhile.
//
// If ctx ends, Place stops, keeps nothing on the device, and returns an error that wraps ctx.Err().
func (x *Index) Place(ctx context.Context, device Device) error {
	var c call
	native, err := c.beginOn(ctx, x, buildPlaces, nil)
	if err != nil {
		return err
	}
	defer x.leave()
	return c.end(C.gn_place(native, C.int32_t(device), c.monitor, &c.error))
}

// Evict releases the memory of that copy once the searches that use it are done, queued ones too;
// nothing where there is none. A later search on the device copies the index again.
func (x *Index) Evict(device Device) error {
	native, err := x.enter()
	if err != nil {
		return err
	}
	defer x.leave()
	var e C.ann_error
	return failure(C.gn_evict(native, C.int32_t(device), &e), &e, nil)
}

// Number is what a [DeviceBuffer] holds: coordinates of vectors, or parts of results.
type Number interface {
	Element | uint32 | uint64 | Status
}

// DeviceBuffer is memory of a CUDA device. Everything may be called from any goroutine.
//
// Free gives it back as soon as it is of no more use; a buffer that is dropped without Free is freed some
// time after a garbage collection, which does not see its size. Searches that are queued are waited for
// before the memory is freed, read or written.
type DeviceBuffer[T Number] struct {
	memory  *deviceMemory
	length  int
	cleanup runtime.Cleanup
}

// deviceMemory is the part of a DeviceBuffer that its cleanup may refer to.
type deviceMemory struct {
	life
	device  Device
	context C.uintptr_t
	address uint64

	mutex  sync.Mutex
	queued map[*streamHandle]bool // that work with this memory may be queued on
}

// NewDeviceBuffer takes memory for length numbers on a CUDA device, all of them zero.
func NewDeviceBuffer[T Number](device Device, length int) (*DeviceBuffer[T], error) {
	size := int(unsafe.Sizeof(*new(T)))
	if length < 0 || length > math.MaxInt/size {
		return nil, invalid("%d numbers are not in 0 to %d", length, math.MaxInt/size)
	}
	m := &deviceMemory{device: device}
	var err error
	if m.context, err = contextOf(device); err != nil {
		return nil, err
	}
	if err := m.failed("taking memory", C.gn_cuda_take(m.context, C.uint64_t(length*size),
		(*C.uint64_t)(&m.address))); err != nil {
		return nil, err
	}
	b := &DeviceBuffer[T]{memory: m, length: length}
	b.cleanup = runtime.AddCleanup(b, (*deviceMemory).close, m)
	code := C.gn_cuda_clear(m.context, C.uint64_t(m.address), C.uint64_t(length*size))
	if err := m.failed("clearing memory", code); err != nil {
		b.Free()
		return nil, err
	}
	return b, nil
}

// DeviceBufferOf takes memory on a CUDA device and copies data to it.
func DeviceBufferOf[T Number](device Device, data []T) (*DeviceBuffer[T], error) {
	b, err := NewDeviceBuffer[T](device, len(data))
	if err != nil {
		return nil, err
	}
	if err := b.Write(data); err != nil {
		b.Free()
		return nil, err
	}
	return b, nil
}

// Free waits for the searches that are queued with the buffer and frees it. It may be called any number
// of times; later calls of the other methods return [ErrClosed].
func (b *DeviceBuffer[T]) Free() {
	if b == nil || b.memory == nil {
		return
	}
	b.memory.close()
	b.cleanup.Stop()
	runtime.KeepAlive(b)
}

// Len is how many numbers the buffer holds.
func (b *DeviceBuffer[T]) Len() int { return b.length }

// Device is where the buffer lies.
func (b *DeviceBuffer[T]) Device() Device { return b.memory.device }

// Address is the buffer's place in the device's memory, for libraries of one's own. It is good until
// Free, and as long as the buffer is in use.
func (b *DeviceBuffer[T]) Address() uintptr { return uintptr(b.memory.address) }

// Write fills the buffer from data, which has its length.
func (b *DeviceBuffer[T]) Write(data []T) error {
	return b.copy("writing to", data, func(m *deviceMemory, host *C.uint8_t, bytes C.uint64_t) C.int {
		return C.gn_cuda_to_device(m.context, C.uint64_t(m.address), host, bytes)
	})
}

// ReadInto copies the numbers to a slice of the same length.
func (b *DeviceBuffer[T]) ReadInto(data []T) error {
	return b.copy("reading from", data, func(m *deviceMemory, host *C.uint8_t, bytes C.uint64_t) C.int {
		return C.gn_cuda_to_host(m.context, host, C.uint64_t(m.address), bytes)
	})
}

// Read copies the numbers to a new slice.
func (b *DeviceBuffer[T]) Read() ([]T, error) {
	if b == nil || b.memory == nil {
		return nil, ErrClosed
	}
	data := make([]T, b.length)
	if err := b.ReadInto(data); err != nil {
		return nil, err
	}
	return data, nil
}

func (b *DeviceBuffer[T]) copy(what string, data []T,
	run func(*deviceMemory, *C.uint8_t, C.uint64_t) C.int) error {
	if b == nil || b.memory == nil {
		return ErrClosed
	}
	if len(data) != b.length {
		return invalid("%s a buffer of %d numbers with %d of them", what, b.length, len(data))
	}
	m := b.memory
	if err := m.enter(); err != nil {
		return err
	}
	defer runtime.KeepAlive(b)
	defer m.leave()
	if err := m.wait(); err != nil {
		return err
	}
	host := (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(data)))
	return m.failed(what+" memory", run(m, host, C.uint64_t(len(data)*int(unsafe.Sizeof(*new(T))))))
}

// wait waits for what is queued with the memory.
func (m *deviceMemory) wait() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for stream := range m.queued {
		if err := stream.wait(); err != nil {
			return err
		}
		delete(m.queued, stream)
	}
	return nil
}

// queue notes that work with the memory is queued on a stream.
func (m *deviceMemory) queue(stream *streamHandle) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.queued == nil {
		m.queued = map[*streamHandle]bool{}
	}
	m.queued[stream] = true
}

func (m *deviceMemory) close() {
	m.end(func() {
		if m.wait() == nil { // else the device is lost, and work on it may still write there
			C.gn_cuda_free(m.context, C.uint64_t(m.address))
		}
	})
}

func (m *deviceMemory) failed(what string, code C.int) error {
	return cudaFailure(what, m.device, code)
}

// DeviceMatrixOf views a buffer as rows of dim coordinates each, as [MatrixOf] views a slice. Builds,
// k-NN graphs and calibration take such rows, and [Index.SearchOnDevice] takes such queries.
func DeviceMatrixOf[T Element](b *DeviceBuffer[T], dim int) Matrix {
	if b == nil || b.memory == nil {
		return Matrix{element: ElementOf[T](), dim: dim, space: DeviceCUDA(0), memory: freedMemory}
	}
	return Matrix{
		element: ElementOf[T](),
		length:  b.length,
		dim:     dim,
		space:   b.memory.device,
		address: uintptr(b.memory.address),
		memory:  b.memory,
		keep:    b,
	}
}

// freedMemory stands for that of buffers that are none.
var freedMemory = &deviceMemory{life: life{closed: true}}

// DeviceMatrixAt views memory of a CUDA device that another library owns: rows of dim coordinates that
// begin stride coordinates apart (0: one behind the other) from address on. The memory must stay, and
// work that writes it must be done, as for a pointer of package unsafe.
func DeviceMatrixAt[T Element](device Device, address uintptr, rows, dim, stride int) Matrix {
	return Matrix{
		element: ElementOf[T](),
		length:  rows * dim,
		dim:     dim,
		stride:  stride * int(unsafe.Sizeof(*new(T))),
		space:   device,
		address: address,
	}
}

// DeviceResults are results in memory of a CUDA device.
type DeviceResults struct {
	Rows, K   int
	IDs       *DeviceBuffer[uint64]  // [Rows, K]
	Distances *DeviceBuffer[float32] // [Rows, K]
	Counts    *DeviceBuffer[uint32]  // [Rows]
	Statuses  *DeviceBuffer[Status]  // [Rows]
}

// NewDeviceResults takes memory for k neighbours of each of rows queries.
func NewDeviceResults(device Device, rows, k int) (*DeviceResults, error) {
	var n numbers
	n.u32("k", k)
	if rows < 0 {
		n.refuse("rows is %d, less than 0", rows)
	}
	n.places(rows, k)
	if n.err != nil {
		return nil, n.err
	}
	r := &DeviceResults{Rows: rows, K: k}
	var err [4]error
	r.IDs, err[0] = NewDeviceBuffer[uint64](device, rows*k)
	r.Distances, err[1] = NewDeviceBuffer[float32](device, rows*k)
	r.Counts, err[2] = NewDeviceBuffer[uint32](device, rows)
	r.Statuses, err[3] = NewDeviceBuffer[Status](device, rows)
	for _, err := range err {
		if err != nil {
			r.Free()
			return nil, err
		}
	}
	return r, nil
}

// Free frees the buffers, as [DeviceBuffer.Free].
func (r *DeviceResults) Free() {
	r.IDs.Free()
	r.Distances.Free()
	r.Counts.Free()
	r.Statuses.Free()
}

// Read copies the results to host memory; it waits for a search that is queued.
func (r *DeviceResults) Read() (*Results, error) {
	into := &Results{K: r.K}
	var err [4]error
	into.IDs, err[0] = r.IDs.Read()
	into.Distances, err[1] = r.Distances.Read()
	into.Counts, err[2] = r.Counts.Read()
	into.Statuses, err[3] = r.Statuses.Read()
	for _, err := range err {
		if err != nil {
			return nil, err
		}
	}
	return into, nil
}

// memories are those of the buffers, to be held during a call.
func (r *DeviceResults) memories() ([]*deviceMemory, error) {
	if r == nil || r.IDs == nil || r.Distances == nil || r.Counts == nil || r.Statuses == nil {
		return nil, invalid("the results are not of NewDeviceResults")
	}
	lengths := [4]int{r.IDs.length, r.Distances.length, r.Counts.length, r.Statuses.length}
	if lengths != [4]int{r.Rows * r.K, r.Rows * r.K, r.Rows, r.Rows} {
		return nil, invalid("the buffers hold %v numbers, which are not those of %d neighbours for %d queries",
			lengths, r.K, r.Rows)
	}
	return []*deviceMemory{r.IDs.memory, r.Distances.memory, r.Counts.memory, r.Statuses.memory}, nil
}

// hold begins the use of memories for a call; the function that it returns ends it.
func hold(memories ...*deviceMemory) (func(), error) {
	for i, m := range memories {
		if m == nil {
			continue
		}
		if err := m.enter(); err != nil {
			release(memories[:i])
			return nil, err
		}
	}
	return func() { release(memories) }, nil
}

func release(memories []*deviceMemory) {
	for _, m := range memories {
		if m != nil {
			m.leave()
		}
	}
}

// SearchOnDevice is [Index.Search] with queries and results in memory of one CUDA device. It returns when
// the results are there.
func (x *Index) SearchOnDevice(ctx context.Context, queries Matrix, params *SearchParams, into *DeviceResults) error {
	return x.searchOnDevice(ctx, 0, queries, params, into, nil)
}

// SearchExactOnDevice is [Index.SearchOnDevice], comparing with every row.
func (x *Index) SearchExactOnDevice(ctx context.Context, queries Matrix, params *SearchParams, into *DeviceResults) error {
	return x.searchOnDevice(ctx, 1, queries, params, into, nil)
}

// SearchQueued queues a search on a stream and returns; [DeviceResults.Read] waits for it, and so do Free
// and Write of the buffers. A query with NaN or infinity is reported by the results' Statuses then. ctx is
// checked while work is queued only.
func (x *Index) SearchQueued(ctx context.Context, queries Matrix, params *SearchParams, into *DeviceResults, stream *Stream) error {
	return x.searchQueued(ctx, 0, queries, params, into, stream)
}

// SearchExactQueued is [Index.SearchQueued], comparing with every row.
func (x *Index) SearchExactQueued(ctx context.Context, queries Matrix, params *SearchParams, into *DeviceResults, stream *Stream) error {
	return x.searchQueued(ctx, 1, queries, params, into, stream)
}

func (x *Index) searchQueued(ctx context.Context, exact C.int, queries Matrix, params *SearchParams, into *DeviceResults, stream *Stream) error {
	if stream == nil || stream.handle == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(stream)
	if err := stream.handle.enter(); err != nil {
		return err
	}
	defer stream.handle.leave()
	return x.searchOnDevice(ctx, exact, queries, params, into, stream.handle)
}

// searchOnDevice queues on a stream, unless that is nil.
func (x *Index) searchOnDevice(ctx context.Context, exact C.int, queries Matrix, params *SearchParams, into *DeviceResults, stream *streamHandle) error {
	if params == nil {
		params = new(SearchParams)
	}
	var n numbers
	shape, given := n.matrix("queries", queries), params.native(&n)
	if n.err != nil {
		return n.err
	}
	memories, err := into.memories()
	if err != nil {
		return err
	}
	memories = append(memories, queries.memory)
	ended, err := hold(memories...)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(queries.keep)
	defer runtime.KeepAlive(into)
	defer ended()
	var c call
	native, err := c.beginOn(ctx, x, searchPlaces, nil)
	if err != nil {
		return err
	}
	defer x.leave()
	results := C.gn_device_results{
		k: C.uint32_t(into.K), rows: C.uint64_t(into.Rows), space: C.int32_t(into.IDs.memory.device),
		ids: C.uintptr_t(memories[0].address), distances: C.uintptr_t(memories[1].address),
		counts: C.uintptr_t(memories[2].address), status: C.uintptr_t(memories[3].address),
	}
	var queue C.uintptr_t
	if stream != nil {
		queue = stream.raw
		// Noted before the call, because one that fails halfway has queued something, too.
		for _, m := range memories {
			if m != nil {
				m.queue(stream)
			}
		}
	} else {
		for _, m := range memories {
			if m == nil {
				continue
			}
			if err := m.wait(); err != nil {
				return c.endEarly(err)
			}
		}
	}
	return c.end(C.gn_search_on_device(native, exact, shape, bytesOf(queries), &given, results, queue,
		c.monitor, &c.error))
}

// Stream is a queue of work on a CUDA device.
type Stream struct {
	handle  *streamHandle
	cleanup runtime.Cleanup
}

type streamHandle struct {
	life
	device  Device
	context C.uintptr_t
	raw     C.uintptr_t
	foreign bool // of another library, which ends it

	mutex sync.Mutex // between waiting and the end
	ended bool
}

// NewStream makes a stream that does not wait for the device's default stream.
func NewStream(device Device) (*Stream, error) {
	h := &streamHandle{device: device}
	var err error
	if h.context, err = contextOf(device); err != nil {
		return nil, err
	}
	if err := cudaFailure("making a stream", device, C.gn_cuda_stream_make(h.context, &h.raw)); err != nil {
		return nil, err
	}
	s := &Stream{handle: h}
	s.cleanup = runtime.AddCleanup(s, (*streamHandle).close, h)
	return s, nil
}

// StreamAt takes a cudaStream_t of another library, which belongs to the device's primary context. It must
// stay until Close, and until the buffers that were used with it are freed.
func StreamAt(device Device, stream uintptr) (*Stream, error) {
	context, err := contextOf(device)
	if err != nil {
		return nil, err
	}
	return &Stream{handle: &streamHandle{device: device, context: context, raw: C.uintptr_t(stream), foreign: true}}, nil
}

// Wait waits until all that is queued is done.
func (s *Stream) Wait() error {
	if s == nil || s.handle == nil {
		return ErrClosed
	}
	if err := s.handle.enter(); err != nil {
		return err
	}
	defer runtime.KeepAlive(s)
	defer s.handle.leave()
	return s.handle.wait()
}

// Close waits for what is queued and ends the stream. It may be called any number of times.
func (s *Stream) Close() error {
	if s == nil || s.handle == nil {
		return nil
	}
	s.handle.close()
	s.cleanup.Stop()
	runtime.KeepAlive(s)
	return nil
}

// wait waits for a stream that has not ended; of one that has, everything is done.
func (h *streamHandle) wait() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.ended {
		return nil
	}
	return cudaFailure("waiting for a stream", h.device, C.gn_cuda_stream_wait(h.context, h.raw))
}

func (h *streamHandle) close() {
	h.end(func() {
		waited := h.wait()
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.ended = waited == nil
		if h.ended && !h.foreign {
			C.gn_cuda_stream_end(h.context, h.raw)
		}
	})
}

// contextOf is the primary context of a device.
func contextOf(device Device) (C.uintptr_t, error) {
	if device < DeviceCUDA(0) {
		return 0, invalid("the device is %v; this memory is of CUDA devices", device)
	}
	contexts.Lock()
	defer contexts.Unlock()
	if known, ok := contexts.of[device]; ok {
		return known, nil
	}
	var context C.uintptr_t
	if code := C.gn_cuda_context(C.int(device-DeviceCUDA(0)), &context); code != 0 {
		return 0, cudaError(C.ANN_NO_DEVICE, "the context", device, code)
	}
	contexts.of[device] = context
	return context, nil
}

var contexts = struct {
	sync.Mutex
	of map[Device]C.uintptr_t
}{of: map[Device]C.uintptr_t{}}

// cudaFailure makes the error of a call of the driver.
func cudaFailure(what string, device Device, code C.int) error {
	switch code {
	case 0:
		return nil
	case 1:
		return cudaError(C.ANN_INVALID_ARGUMENT, what, device, code)
	case 2:
		return cudaError(C.ANN_DEVICE_NO_MEMORY, what, device, code)
	}
	return cudaError(C.ANN_DEVICE_LOST, what, device, code)
}

func cudaError(status C.ann_status, what string, device Device, code C.int) error {
	text := fmt.Sprintf("%s on %v: %s", what, device, C.GoString(C.gn_cuda_text(code)))
	return &Error{Status: Status(status), Message: text, Row: -1, Column: -1, CUDAError: max(int(code), 0)}
}

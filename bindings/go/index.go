package gannet

// #include "bridge.h"
// #cgo nocallback gn_build
// #cgo noescape gn_info
// #cgo nocallback gn_info
// #cgo noescape gn_get
// #cgo nocallback gn_get
// #cgo noescape gn_get_batch
// #cgo nocallback gn_get_batch
// #cgo noescape gn_ids
// #cgo nocallback gn_ids
// #cgo noescape gn_beam
// #cgo nocallback gn_beam
import "C"

import (
	"context"
	"iter"
	"runtime"
	"time"
	"unsafe"
)

// Index finds the rows near a query. It is made by [New] and filled once by [Index.Build], or made
// by [Open] from a file, and may be used by any number of goroutines at once, all its methods included.
//
// Its memory lies outside of Go's heap, where the garbage collector does not see its size: call
// Close as soon as the index is of no more use. An index that is dropped without Close is freed
// some time after a garbage collection.
type Index struct {
	handle  *handle
	cleanup runtime.Cleanup
}

// handle is the part of an Index that its cleanup may refer to.
type handle struct {
	native *C.ann_index
	life
}

// New makes an empty index.
func New(params IndexParams) (*Index, error) {
	var n numbers
	dim := n.u32("dim", params.Dim)
	if n.err != nil {
		return nil, n.err
	}
	var e C.ann_error
	h := new(handle)
	status := C.gn_create(dim, C.int32_t(params.Metric), C.int32_t(params.Element), &h.native, &e)
	return owner(h, failure(status, &e, nil))
}

// owner is the Index of a handle that a call has filled, unless the call failed.
func owner(h *handle, err error) (*Index, error) {
	if err != nil {
		return nil, err
	}
	index := &Index{handle: h}
	index.cleanup = runtime.AddCleanup(index, (*handle).close, h)
	return index, nil
}

// Close frees the index. Calls that run on it are waited for (end their contexts to make that
// short), later ones return [ErrClosed]. It may be called any number of times, from any goroutine.
//
// Called by a Progress function or a stream of a call that runs on the index, it does nothing and
// returns an error that matches [ErrBusy], because it would wait for its own caller. Otherwise it
// returns nil.
func (x *Index) Close() error {
	if x == nil || x.handle == nil {
		return nil
	}
	if x.handle.insideCallback() {
		return fail(C.ANN_BUSY, nil, "Close was called from inside a call on the index, for which it would wait")
	}
	x.handle.close()
	x.cleanup.Stop()
	runtime.KeepAlive(x)
	return nil
}

func (h *handle) close() {
	h.end(func() { C.ann_index_free(h.native) })
}

// enter begins a call on the index; leave ends it.
func (x *Index) enter() (*C.ann_index, error) {
	if x == nil || x.handle == nil {
		return nil, ErrClosed
	}
	if err := x.handle.enter(); err != nil {
		return nil, err
	}
	return x.handle.native, nil
}

// leave also keeps the index alive until here: its cleanup must not run during a call.
func (x *Index) leave() {
	x.handle.leave()
	runtime.KeepAlive(x)
}

// Build fills the index with a copy of rows, once in its life. ids are distinct numbers below
// [IDNone], one a row, or nil for 0, 1, 2, ... params may be nil.
//
// If ctx ends, the build stops within 100 ms and returns an error that wraps ctx.Err(). After any
// error the index is as empty as before and can be built again.
func (x *Index) Build(ctx context.Context, rows Matrix, ids []uint64, params *BuildParams) error {
	if params == nil {
		params = new(BuildParams)
	}
	var n numbers
	shape, given := n.matrix("rows", rows), params.native(&n)
	calibration := n.matrix("calibration queries", params.Calibration)
	n.perRow("ids", len(ids), rows.Rows(), 1)
	n.perRow("values of knn_graph", len(params.KNNGraph), rows.Rows(), params.KNNDegree)
	if n.err != nil {
		return n.err
	}
	ended, err := hold(rows.memory, params.Calibration.memory)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(rows.keep)
	defer runtime.KeepAlive(params)
	defer ended()
	var c call
	native, err := c.beginOn(ctx, x, buildPlaces, params.Progress)
	if err != nil {
		return err
	}
	defer x.leave()
	return c.end(C.gn_build(native, shape, bytesOf(rows), ints(ids), &given, words(params.KNNGraph),
		calibration, bytesOf(params.Calibration), c.monitor, &c.error))
}

// perRow refuses a slice, unless empty, that does not have `each` values for each row.
func (n *numbers) perRow(name string, length, rows, each int) {
	if length != 0 && (rows == 0 || length%rows != 0 || length/rows != each) {
		n.refuse("%d %s were given for %d rows, not %d for each", length, name, rows, each)
	}
}

// Plan is what a build will need.
type Plan struct {
	Threads     int           // that the build would use
	IndexBytes  uint64        // held when built
	PeakBytes   uint64        // held at most while building
	Time        time.Duration // a guess; rows without structure may take 20 times as long
	DeviceBytes uint64        // of a CUDA device, held at most while building on it; else 0
}

// Estimate plans a build of rows of an element type without doing it. params may be nil.
func Estimate(shape IndexParams, rows int, element ElementType, params *BuildParams) (Plan, error) {
	if params == nil {
		params = new(BuildParams)
	}
	var n numbers
	dim, given := n.u32("dim", shape.Dim), params.native(&n)
	calibration := n.matrix("calibration queries", params.Calibration)
	if rows < 0 {
		n.refuse("rows is %d, less than 0", rows)
	}
	if n.err != nil {
		return Plan{}, n.err
	}
	var plan C.ann_plan
	var e C.ann_error
	status := C.gn_estimate(dim, C.int32_t(shape.Metric), C.int32_t(shape.Element),
		C.uint64_t(rows), C.int32_t(element), &given, words(params.KNNGraph), calibration,
		bytesOf(params.Calibration), &plan, &e)
	return Plan{
		Threads:     int(plan.threads),
		IndexBytes:  uint64(plan.index_bytes),
		PeakBytes:   uint64(plan.peak_bytes),
		Time:        seconds(plan.seconds),
		DeviceBytes: uint64(plan.device_bytes),
	}, failure(status, &e, nil)
}

// Info is the state of an index.
type Info struct {
	Dim           int
	Metric        Metric
	Element       ElementType // as stored; ElementAuto before the build if it was left open
	Built         bool
	Graph         GraphKind // GraphAuto before the build
	Rows          int
	Degree        int    // edges per row of the search graph
	EntryPoints   int    // rows where searches may start
	MemoryBytes   uint64 // host memory held
	Seed          uint64
	BuildTime     time.Duration // calibration included
	CalibrateTime time.Duration
	RecallMax     float32  // highest mean recall@10 seen while calibrating; 0: none was made
	RepairedEdges int      // edges spent to make every row reachable
	KNNIterations int      // rounds that NN-Descent ran or cells needed; 0: another way or none
	KNNShare      float32  // share of true neighbours that the lists of cells held; 0: not measured
	Codes         CodeKind // the form of rows that walks compare
	CodeCentres   int      // of CodesScaled, the centres that rows are coded about
	CodeBytes     int      // that a walk reads of a row
	// Share of the true 10 nearest of a sample among the first 10 and 20 by code, and of the tenth of the
	// sample that is worst, as the build has measured it; negative: not measured.
	CodeFirstTen, CodeFirstTwenty, CodeWorstTwenty float32
}

// Info reads the state, built or not.
func (x *Index) Info() (Info, error) {
	native, err := x.enter()
	if err != nil {
		return Info{}, err
	}
	defer x.leave()
	var i C.ann_index_info
	var e C.ann_error
	if status := C.gn_info(native, &i, &e); status != C.ANN_OK {
		return Info{}, failure(status, &e, nil)
	}
	return Info{
		Dim:           int(i.dim),
		Metric:        Metric(i.metric),
		Element:       ElementType(i.element),
		Built:         i.built != 0,
		Graph:         GraphKind(i.graph),
		Rows:          int(i.rows),
		Degree:        int(i.degree),
		EntryPoints:   int(i.entry_points),
		MemoryBytes:   uint64(i.memory_bytes),
		Seed:          uint64(i.seed),
		BuildTime:     seconds(i.build_seconds),
		CalibrateTime: seconds(i.calibrate_seconds),
		RecallMax:     float32(i.recall_max),
		RepairedEdges: int(i.repaired_edges),
		KNNIterations: int(i.knn_iterations),
		KNNShare:      float32(i.knn_share),
		Codes:         CodeKind(i.codes),
		CodeCentres:   int(i.code_centres),
		CodeBytes:     int(i.code_bytes),

		CodeFirstTen:    float32(i.code_first_ten),
		CodeFirstTwenty: float32(i.code_first_twenty),
		CodeWorstTwenty: float32(i.code_worst_twenty),
	}, nil
}

// Get copies the vector with an id; false if no row has it. T is the element as stored, which
// [Index.Info] says; another T fails with [ErrInvalidArgument].
func Get[T Element](x *Index, id uint64) ([]T, bool, error) {
	info, err := x.Info()
	if err != nil {
		return nil, false, err
	}
	if info.Built && info.Element != ElementOf[T]() {
		return nil, false, invalid("the index stores %v, not %v", info.Element, ElementOf[T]())
	}
	vector := make([]T, info.Dim)
	found, err := x.get(id, bytesOf(MatrixOf(vector, info.Dim)), len(vector)*int(unsafe.Sizeof(*new(T))))
	if err != nil || !found {
		return nil, false, err
	}
	return vector, true, nil
}

func (x *Index) get(id uint64, vector *C.uint8_t, capacity int) (bool, error) {
	native, err := x.enter()
	if err != nil {
		return false, err
	}
	defer x.leave()
	var found C.int32_t
	var e C.ann_error
	status := C.gn_get(native, C.uint64_t(id), vector, C.uint64_t(capacity), &found, &e)
	return found != 0, failure(status, &e, nil)
}

// GetBatch copies the vectors of many ids, one behind the other, in the order of ids; an id may be named
// more than once. found says for each whether a row has it; where none has, its part of vectors is zero.
// T is the element as stored, as in [Get].
func GetBatch[T Element](x *Index, ids []uint64) (vectors []T, found []bool, err error) {
	info, err := x.Info()
	if err != nil {
		return nil, nil, err
	}
	if info.Built && info.Element != ElementOf[T]() {
		return nil, nil, invalid("the index stores %v, not %v", info.Element, ElementOf[T]())
	}
	vectors, found = make([]T, len(ids)*info.Dim), make([]bool, len(ids))
	numbers := make([]C.int32_t, len(ids))
	if err := x.getBatch(ids, bytesOf(MatrixOf(vectors, info.Dim)),
		len(vectors)*int(unsafe.Sizeof(*new(T))), numbers); err != nil {
		return nil, nil, err
	}
	for i, number := range numbers {
		found[i] = number != 0
	}
	return vectors, found, nil
}

func (x *Index) getBatch(ids []uint64, vectors *C.uint8_t, capacity int, found []C.int32_t) error {
	native, err := x.enter()
	if err != nil {
		return err
	}
	defer x.leave()
	var e C.ann_error
	status := C.gn_get_batch(native, ints(ids), C.uint64_t(len(ids)), vectors, C.uint64_t(capacity),
		unsafe.SliceData(found), &e)
	return failure(status, &e, nil)
}

// IDs lists the ids of all rows, in the order of the rows of [Index.Build].
func (x *Index) IDs() ([]uint64, error) {
	info, err := x.Info()
	if err != nil {
		return nil, err
	}
	ids := make([]uint64, info.Rows)
	if err := x.IDsInto(0, ids); err != nil {
		return nil, err
	}
	return ids, nil
}

// IDsInto fills ids with those of the rows from row first on: for large indexes in pieces.
func (x *Index) IDsInto(first int, ids []uint64) error {
	if first < 0 {
		return invalid("first is %d, less than 0", first)
	}
	native, err := x.enter()
	if err != nil {
		return err
	}
	defer x.leave()
	var e C.ann_error
	return failure(C.gn_ids(native, C.uint64_t(first), C.uint64_t(len(ids)), ints(ids), &e), &e, nil)
}

// Row is a row of an index.
type Row[T Element] struct {
	ID     uint64
	Vector []T // a copy
}

// AllRows goes through the rows of an index, in the order of [Index.Build], a piece of them in memory at a
// time. An error is the last that it gives. T is the element as stored, as in [Get].
func AllRows[T Element](x *Index) iter.Seq2[Row[T], error] {
	const piece = 1024
	return func(yield func(Row[T], error) bool) {
		info, err := x.Info()
		if err != nil {
			yield(Row[T]{}, err)
			return
		}
		if !info.Built { // an index without rows would be gone through without a word
			yield(Row[T]{}, fail(C.ANN_STATE, nil, "the index is not built"))
			return
		}
		for first := 0; first < info.Rows; first += piece {
			ids := make([]uint64, min(piece, info.Rows-first))
			err := x.IDsInto(first, ids)
			var vectors []T
			if err == nil {
				vectors, _, err = GetBatch[T](x, ids)
			}
			if err != nil {
				yield(Row[T]{}, err)
				return
			}
			for i, id := range ids {
				from, to := i*info.Dim, (i+1)*info.Dim
				if !yield(Row[T]{id, vectors[from:to:to]}, nil) {
					return
				}
			}
		}
	}
}

// Contains says whether a row has the id.
func (x *Index) Contains(id uint64) (bool, error) {
	return x.get(id, nil, 0)
}

// Beam is the beam that a search would use for this k and recall (0: the default recall).
func (x *Index) Beam(k int, recall float32) (int, error) {
	var n numbers
	wanted := n.u32("k", k)
	if n.err != nil {
		return 0, n.err
	}
	native, err := x.enter()
	if err != nil {
		return 0, err
	}
	defer x.leave()
	var beam C.uint32_t
	var e C.ann_error
	status := C.gn_beam(native, wanted, C.float(recall), &beam, &e)
	return int(beam), failure(status, &e, nil)
}

// Views of Go slices as C sees them.
func bytesOf(m Matrix) *C.uint8_t    { return (*C.uint8_t)(unsafe.Pointer(m.data)) }
func ints(s []uint64) *C.uint64_t    { return (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(s))) }
func words(s []uint32) *C.uint32_t   { return (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(s))) }
func floats(s []float32) *C.float    { return (*C.float)(unsafe.Pointer(unsafe.SliceData(s))) }
func codes(s []Status) *C.ann_status { return (*C.ann_status)(unsafe.Pointer(unsafe.SliceData(s))) }

package gannet

// #include <stdlib.h>
// #include "bridge.h"
// #cgo nocallback gn_knn_merge
// #cgo nocallback gn_knn_save
// #cgo nocallback gn_knn_load
import "C"

import (
	"context"
	"runtime"
	"unsafe"
)

// IDLists are k-NN lists with distances by ids of 64 bits, K places a row: what [KNNMerge] joins and files of
// lists hold. Row r has the id IDs[r], or FirstID + r where IDs is nil. Unused places hold [IDNone] and +Inf.
type IDLists struct {
	K         int
	Metric    Metric
	FirstID   uint64
	IDs       []uint64
	Neighbors []uint64
	Distances []float32
}

// Rows is the number of rows.
func (l *IDLists) Rows() int {
	if l.K == 0 {
		return 0
	}
	return len(l.Neighbors) / l.K
}

// WithIDs writes lists of row numbers as lists of ids: row r gets firstID + r. metric is that of the distances,
// which are not copied.
func (l *KNNLists) WithIDs(firstID uint64, metric Metric) *IDLists {
	neighbors := make([]uint64, len(l.Neighbors))
	for i, row := range l.Neighbors {
		neighbors[i] = IDNone
		if row != RowNone {
			neighbors[i] = firstID + uint64(row)
		}
	}
	return &IDLists{K: l.K, Metric: metric, FirstID: firstID, Neighbors: neighbors, Distances: l.Distances}
}

func (n *numbers) lists(name string, l *IDLists) C.gn_lists {
	if l == nil {
		n.refuse("%s is nil", name)
		return C.gn_lists{}
	}
	rows := l.Rows()
	n.places(rows, l.K)
	if len(l.Neighbors) != rows*l.K || len(l.Distances) != rows*l.K {
		n.refuse("%s: %d neighbours and %d distances are no lists of %d", name, len(l.Neighbors), len(l.Distances), l.K)
	}
	if l.IDs != nil && len(l.IDs) != rows {
		n.refuse("%s: %d ids were given for %d rows", name, len(l.IDs), rows)
	}
	return C.gn_lists{
		rows:     C.uint64_t(rows),
		first_id: C.uint64_t(l.FirstID),
		k:        n.u32(name+".K", l.K),
		metric:   C.int32_t(l.Metric),
	}
}

// KNNMerge joins the k-NN lists of two sets of rows: those of both together, the first set's rows before the
// second's. Only rows of different sets are compared. A list may name rows of neither set; they stay if they are
// near enough, so that parts of a graph can be merged pair by pair. params.K may differ from that of the lists.
//
// If ctx ends, the work stops within 100 ms and the call returns an error that wraps ctx.Err().
func KNNMerge(ctx context.Context, firstRows Matrix, first *IDLists, secondRows Matrix, second *IDLists,
	params KNNParams) (*IDLists, error) {
	var n numbers
	firstShape, secondShape := n.matrix("first rows", firstRows), n.matrix("second rows", secondRows)
	firstLists, secondLists := n.lists("first", first), n.lists("second", second)
	given := params.native(&n)
	rows := firstRows.Rows() + secondRows.Rows()
	n.places(rows, params.K)
	if n.err != nil {
		return nil, n.err
	}
	for _, m := range []Matrix{firstRows, secondRows} {
		ended, err := hold(m.memory)
		if err != nil {
			return nil, err
		}
		defer runtime.KeepAlive(m.keep)
		defer ended()
	}
	var c call
	if err := c.begin(ctx, buildPlaces, params.Progress); err != nil {
		return nil, err
	}
	merged := &IDLists{
		K:         params.K,
		Neighbors: make([]uint64, rows*params.K),
		Distances: make([]float32, rows*params.K),
	}
	follow := first.IDs == nil && second.IDs == nil && second.FirstID == first.FirstID+uint64(first.Rows())
	if !follow {
		merged.IDs = make([]uint64, rows)
	}
	told := C.gn_lists{rows: C.uint64_t(rows), k: C.uint32_t(params.K)}
	status := C.gn_knn_merge(firstShape, bytesOf(firstRows), firstLists, ints(first.IDs), ints(first.Neighbors),
		floats(first.Distances), secondShape, bytesOf(secondRows), secondLists, ints(second.IDs),
		ints(second.Neighbors), floats(second.Distances), &given, &told, ints(merged.IDs), ints(merged.Neighbors),
		floats(merged.Distances), c.monitor, &c.error)
	if err := c.end(status); err != nil {
		return nil, err
	}
	merged.Metric, merged.FirstID = Metric(told.metric), uint64(told.first_id)
	return merged, nil
}

// Save writes the lists to a file, replacing one that is there, as [Index.Save] does. params may be nil.
func (l *IDLists) Save(ctx context.Context, path string, params *SaveParams) error {
	if params == nil {
		params = new(SaveParams)
	}
	var n numbers
	shape, given := n.lists("lists", l), params.native(&n)
	if n.err != nil {
		return n.err
	}
	name, err := nativePath(path)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(name))
	var c call
	if err := c.begin(ctx, buildPlaces, params.Progress); err != nil {
		return err
	}
	return c.end(C.gn_knn_save(shape, ints(l.IDs), ints(l.Neighbors), floats(l.Distances), name, &given,
		c.monitor, &c.error))
}

// OpenIDLists reads a file of lists, and checks every byte of it.
func OpenIDLists(ctx context.Context, path string) (*IDLists, error) {
	name, err := nativePath(path)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(name))
	var shape C.gn_lists
	lists := new(IDLists)
	load := func() error {
		var c call
		if err := c.begin(ctx, buildPlaces, nil); err != nil {
			return err
		}
		return c.end(C.gn_knn_load(name, &shape, ints(lists.IDs), ints(lists.Neighbors), floats(lists.Distances),
			c.monitor, &c.error))
	}
	if err := load(); err != nil {
		return nil, err
	}
	rows := int(shape.rows)
	lists.K, lists.Metric, lists.FirstID = int(shape.k), Metric(shape.metric), uint64(shape.first_id)
	if shape.has_ids != 0 {
		lists.IDs = make([]uint64, rows)
	}
	lists.Neighbors = make([]uint64, rows*lists.K)
	lists.Distances = make([]float32, rows*lists.K)
	if rows == 0 {
		return lists, nil
	}
	if err := load(); err != nil {
		return nil, err
	}
	return lists, nil
}

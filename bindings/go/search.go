package gannet

// #include "bridge.h"
// #cgo noescape gn_search
// #cgo nocallback gn_search
import "C"

import (
	"context"
	"iter"
	"math/bits"
	"runtime"
)

// Results are the neighbours of queries, K a query, nearest first, equal distances by ascending id.
// The neighbour i of query q stands at q*K + i; [Results.Row] gives one query's share. A query with
// fewer than K neighbours is filled up with [IDNone] and +Inf.
type Results struct {
	K         int
	IDs       []uint64
	Distances []float32
	Counts    []uint32 // neighbours found, one number a query
	Statuses  []Status // 0, or what Err makes an error of, one a query

	DistanceCount  uint64 // distances that were computed for all queries together
	ExpansionCount uint64 // rows whose edges were read, for all queries together

	// Procedure is the one that answered: [ProcedureExact] where every row was compared, whatever was named
	// for.
	Procedure Procedure
	// WarpsPerQuery is 1, 8 or 16 where [ProcedureTwoLists] answered, else 0.
	WarpsPerQuery int
	// Recall is what calibration promises of the search, for queries like those that it was calibrated on; 1
	// where every row was compared, 0 where nothing has been measured.
	Recall float32
}

// Rows is the number of queries.
func (r *Results) Rows() int { return len(r.Counts) }

// Row gives the neighbours found for query q and their distances; both are parts of IDs and
// Distances, not copies.
func (r *Results) Row(q int) (ids []uint64, distances []float32) {
	from, to := q*r.K, q*r.K+int(r.Counts[q])
	return r.IDs[from:to:to], r.Distances[from:to:to]
}

// Neighbors goes through the ids of the neighbours found for query q, and their distances.
func (r *Results) Neighbors(q int) iter.Seq2[uint64, float32] {
	return func(yield func(uint64, float32) bool) {
		ids, distances := r.Row(q)
		for i, id := range ids {
			if !yield(id, distances[i]) {
				return
			}
		}
	}
}

// All goes through the queries, with the neighbours of each.
func (r *Results) All() iter.Seq2[int, iter.Seq2[uint64, float32]] {
	return func(yield func(int, iter.Seq2[uint64, float32]) bool) {
		for q := range r.Rows() {
			if !yield(q, r.Neighbors(q)) {
				return
			}
		}
	}
}

// Err is an error that matches [ErrNotFinite] if query q holds NaN or infinity. That query has no
// neighbours and disturbs no other.
func (r *Results) Err(q int) error {
	if r.Statuses[q] == 0 {
		return nil
	}
	return &Error{Status: r.Statuses[q], Row: int64(q), Column: -1}
}

// Search finds k near rows for each query. params may be nil. The results take 12 bytes for each
// neighbour wanted, found or not: bound a k from untrusted callers.
//
// If ctx ends, the search stops within 100 ms and returns an error that wraps ctx.Err().
func (x *Index) Search(ctx context.Context, queries Matrix, k int, params *SearchParams) (*Results, error) {
	into := new(Results)
	if err := x.SearchInto(ctx, queries, k, params, into); err != nil {
		return nil, err
	}
	return into, nil
}

// SearchInto is [Index.Search] with results that the caller reuses: their slices are resized, and
// allocated only where their capacity is too small. After an error they hold nothing of use. One
// Results serves one call at a time.
func (x *Index) SearchInto(ctx context.Context, queries Matrix, k int, params *SearchParams, into *Results) error {
	return x.search(ctx, 0, queries, k, params, into)
}

// SearchExact finds the k nearest rows for each query by comparing with every row. Procedure,
// Recall and Beam of params are not used.
func (x *Index) SearchExact(ctx context.Context, queries Matrix, k int, params *SearchParams) (*Results, error) {
	into := new(Results)
	if err := x.SearchExactInto(ctx, queries, k, params, into); err != nil {
		return nil, err
	}
	return into, nil
}

// SearchExactInto is [Index.SearchExact] with results that the caller reuses, as in
// [Index.SearchInto].
func (x *Index) SearchExactInto(ctx context.Context, queries Matrix, k int, params *SearchParams, into *Results) error {
	return x.search(ctx, 1, queries, k, params, into)
}

func (x *Index) search(ctx context.Context, exact C.int, queries Matrix, k int, params *SearchParams, into *Results) error {
	if params == nil {
		params = new(SearchParams)
	}
	var n numbers
	shape, given, wanted := n.matrix("queries", queries), params.native(&n), n.u32("k", k)
	n.places(queries.Rows(), k)
	if n.err != nil {
		return n.err
	}
	if m := queries.memory; m != nil { // which the library refuses, as the results are the host's
		if err := m.enter(); err != nil {
			return err
		}
		defer runtime.KeepAlive(queries.keep)
		defer m.leave()
	}
	var c call
	native, err := c.beginOn(ctx, x, searchPlaces, nil)
	if err != nil {
		return err
	}
	defer x.leave()
	into.resize(queries.Rows(), k) // not before: calls that wait hold no memory
	var work [4]C.uint64_t
	var recall C.float
	status := C.gn_search(native, exact, shape, bytesOf(queries), &given, wanted, ints(into.IDs),
		floats(into.Distances), words(into.Counts), codes(into.Statuses), &work[0], &recall, c.monitor, &c.error)
	into.DistanceCount, into.ExpansionCount = uint64(work[0]), uint64(work[1])
	into.Procedure, into.WarpsPerQuery, into.Recall = Procedure(work[2]), int(work[3]), float32(recall)
	return c.end(status)
}

// places refuses results beyond the address space, where make would panic.
func (n *numbers) places(rows, k int) {
	high, low := bits.Mul64(uint64(rows), uint64(k))
	if n.err == nil && (high != 0 || low > 1<<43) {
		n.err = fail(C.ANN_LIMIT, nil, "%d neighbours for each of %d rows are too many", k, rows)
	}
}

func (r *Results) resize(rows, k int) {
	r.K = k
	r.IDs = resized(r.IDs, rows*k)
	r.Distances = resized(r.Distances, rows*k)
	r.Counts = resized(r.Counts, rows)
	r.Statuses = resized(r.Statuses, rows)
}

func resized[T any](s []T, length int) []T {
	if cap(s) < length {
		return make([]T, length)
	}
	return s[:length]
}

package gannet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
)

// What no program should do, and the error that each ends in. None may end otherwise.
func TestMisuse(t *testing.T) {
	ctx := context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	rows := MatrixOf(randomRows(1, 100, 3), 3)
	query := MatrixOf([]float32{1, 2, 3}, 3)
	noGPU := DeviceCUDA(4000)
	index := built(t, rows, nil)
	integers := built(t, MatrixOf([]uint8{1, 2, 3, 4, 5, 6}, 3), nil)
	empty := func() *Index {
		x := must(New(IndexParams{Dim: 3}))
		t.Cleanup(func() { x.Close() })
		return x
	}
	closed := empty()
	closed.Close()
	var none *Index
	search := func(x *Index, k int, params *SearchParams) error {
		_, err := x.Search(ctx, query, k, params)
		return err
	}
	last := func(_ any, err error) error { return err }
	var freed DeviceBuffer[float32]

	for _, c := range []struct {
		what   string
		wanted error
		got    error
	}{
		// Shapes.
		{"dim 0", ErrInvalidArgument, last(New(IndexParams{}))},
		{"dim below 0", ErrInvalidArgument, last(New(IndexParams{Dim: -1}))},
		{"dim beyond the limit", ErrLimit, last(New(IndexParams{Dim: DimMax + 1}))},
		{"dim beyond 32 bits", ErrInvalidArgument, last(New(IndexParams{Dim: 1 << 33}))},
		{"a matrix of nothing", ErrInvalidArgument, last(index.Search(ctx, Matrix{}, 1, nil))},
		{"half a row", ErrInvalidArgument, last(index.Search(ctx, MatrixOf(make([]float32, 4), 3), 1, nil))},
		{"rows of another dim", ErrInvalidArgument, empty().Build(ctx, MatrixOf(make([]float32, 8), 4), nil, nil)},
		{"queries of another dim", ErrInvalidArgument, last(index.Search(ctx, MatrixOf(make([]float32, 8), 4), 1, nil))},
		{"fewer rows than none", ErrInvalidArgument, last(index.SearchExact(ctx, DeviceMatrixAt[float32](noGPU, 64, -1, 3, 0), 1, nil))},
		{"layers of a graph without", ErrUnsupported, search(index, 1, &SearchParams{Procedure: ProcedureGGNN, Descent: On})},
		{"two lists by so many warps", ErrInvalidArgument, search(index, 1, &SearchParams{Procedure: ProcedureTwoLists, WarpsPerQuery: 4})},
		{"a name with another number", ErrInvalidArgument, search(index, 1, &SearchParams{Procedure: ProcedureBlock, WarpsPerQuery: 16})},
		{"two lists on the CPU", ErrUnsupported, search(index, 1, &SearchParams{Procedure: ProcedureWideBlock, WarpsPerQuery: 16})},
		{"an unknown slack", ErrInvalidArgument, search(index, 1, &SearchParams{Procedure: ProcedureGGNN, Slack: 3})},
		{"an unknown slack of a build", ErrInvalidArgument, empty().Build(ctx, rows, nil, &BuildParams{Graph: GraphGGNN, BuildSlack: 3})},
		// Elements.
		{"floats asked of bytes", ErrInvalidArgument, search(integers, 1, nil)},
		{"a vector as another element", ErrInvalidArgument, func() error { _, _, err := Get[uint8](index, 0); return err }()},
		{"vectors as another element", ErrInvalidArgument, func() error { _, _, err := GetBatch[float32](integers, []uint64{0}); return err }()},
		// Values.
		{"NaN in a row", ErrNotFinite, empty().Build(ctx, MatrixOf([]float32{1, float32(math.NaN()), 2}, 3), nil, nil)},
		{"k of 0", ErrInvalidArgument, search(index, 0, nil)},
		{"k below 0", ErrInvalidArgument, search(index, -1, nil)},
		{"k beyond memory", ErrInvalidArgument, search(index, math.MaxInt, nil)},
		{"recall of 2", ErrInvalidArgument, search(index, 1, &SearchParams{Recall: 2})},
		{"a beam below k", ErrInvalidArgument, search(index, 9, &SearchParams{Beam: 2})},
		{"a beam too long", ErrLimit, search(index, 1, &SearchParams{Beam: 1 << 20})},
		{"a beam below 0", ErrInvalidArgument, search(index, 1, &SearchParams{Beam: -1})},
		{"a procedure of no name", ErrInvalidArgument, search(index, 1, &SearchParams{Procedure: 99})},
		{"a degree of 1", ErrInvalidArgument, empty().Build(ctx, rows, nil, &BuildParams{Degree: 1})},
		// Ids.
		{"fewer ids than rows", ErrInvalidArgument, empty().Build(ctx, rows, []uint64{1, 2}, nil)},
		{"an id twice", ErrInvalidArgument, empty().Build(ctx, MatrixOf(make([]float32, 6), 3), []uint64{2, 2}, nil)},
		{"ids beyond the last row", ErrInvalidArgument, index.IDsInto(99, make([]uint64, 2))},
		{"ids before the first row", ErrInvalidArgument, index.IDsInto(-1, nil)},
		// States.
		{"search before the build", ErrState, search(empty(), 1, nil)},
		{"ids before the build", ErrState, empty().IDsInto(0, nil)},
		{"a second build", ErrState, index.Build(ctx, rows, nil, nil)},
		{"an unbuilt index in a file", ErrState, empty().SaveTo(ctx, io.Discard, nil)},
		{"a closed index", ErrClosed, search(closed, 1, nil)},
		{"the ids of a closed index", ErrClosed, last(closed.IDs())},
		{"a closed index placed", ErrClosed, closed.Place(ctx, noGPU)},
		{"a closed index evicted", ErrClosed, closed.Evict(noGPU)},
		{"no index", ErrClosed, search(none, 1, nil)},
		{"no index to save", ErrClosed, none.SaveTo(ctx, io.Discard, nil)},
		{"no index to build", ErrClosed, none.Build(ctx, rows, nil, &BuildParams{Progress: func(Progress) {}})},
		// Contexts.
		{"a context that has ended", ErrCancelled, last(index.Search(ended, query, 1, nil))},
		{"placed in such a context", context.Canceled, index.Place(ended, noGPU)},
		// Devices.
		{"a search on no device", ErrNoDevice, search(index, 1, &SearchParams{Device: noGPU})},
		{"placed on the CPU", ErrInvalidArgument, index.Place(ctx, DeviceCPU)},
		{"placed on no device", ErrNoDevice, index.Place(ctx, noGPU)},
		{"placed before the build", ErrState, empty().Place(ctx, DeviceCUDA(0))},
		{"evicted from the CPU", ErrInvalidArgument, index.Evict(DeviceCPU)},
		{"device memory of the CPU", ErrInvalidArgument, last(NewDeviceBuffer[float32](DeviceCPU, 1))},
		{"memory of no device", ErrNoDevice, last(NewDeviceBuffer[float32](noGPU, 1))},
		{"less memory than none", ErrInvalidArgument, last(NewDeviceBuffer[float32](noGPU, -1))},
		{"more memory than there are addresses", ErrInvalidArgument, last(NewDeviceBuffer[uint64](noGPU, math.MaxInt))},
		{"a buffer that was never made", ErrClosed, last(freed.Read())},
		{"rows in such a buffer", ErrClosed, empty().Build(ctx, DeviceMatrixOf(&freed, 3), nil, nil)},
		{"results of no device", ErrNoDevice, last(NewDeviceResults(noGPU, 1, 1))},
		{"results beyond memory", ErrLimit, last(NewDeviceResults(noGPU, math.MaxInt, 2))},
		{"no results", ErrInvalidArgument, index.SearchOnDevice(ctx, query, nil, nil)},
		{"results that were never made", ErrInvalidArgument, index.SearchOnDevice(ctx, query, nil, new(DeviceResults))},
		{"no stream", ErrClosed, index.SearchQueued(ctx, query, nil, new(DeviceResults), nil)},
		{"a stream of the CPU", ErrInvalidArgument, last(NewStream(DeviceCPU))},
		{"a stream of no device", ErrNoDevice, last(NewStream(noGPU))},
		{"rows on no device", ErrNoDevice, empty().Build(ctx, DeviceMatrixAt[float32](noGPU, 64, 1, 3, 0), nil, nil)},
		// Files and streams.
		{"no file", ErrIO, last(Open(ctx, "no/such/file", nil))},
		{"a zero in a path", ErrInvalidArgument, index.Save(ctx, "a\x00b", nil)},
		{"bytes of no file", ErrCorrupt, last(OpenBytes(ctx, make([]byte, 100), nil))},
		{"no bytes", ErrCorrupt, last(OpenBytes(ctx, nil, nil))},
		{"no writer", ErrInvalidArgument, index.SaveTo(ctx, nil, nil)},
		{"a reader that claims too much", io.ErrShortBuffer, last(OpenFrom(ctx, boaster{}, 100_000, nil))},
		{"a reader that claims less than nothing", bufio.ErrNegativeCount, last(OpenFrom(ctx, debtor{}, 100_000, nil))},
		{"a writer that claims too much", io.ErrShortWrite, index.SaveTo(ctx, boaster{}, nil)},
	} {
		if !errors.Is(c.got, c.wanted) {
			t.Errorf("%s: %v, not %v", c.what, c.got, c.wanted)
		}
	}
}

// boaster claims more than it was given.
type boaster struct{}

func (boaster) Read(p []byte) (int, error)  { return len(p) + 1<<20, nil }
func (boaster) Write(p []byte) (int, error) { return len(p) + 1, nil }

// debtor claims less than nothing.
type debtor struct{}

func (debtor) Read([]byte) (int, error) { return -1, nil }

// closer closes an index in the middle of a call on it.
type closer struct {
	index *Index
	err   error
	calls int
}

func (c *closer) Write(p []byte) (int, error) {
	c.calls++
	c.err = c.index.Close()
	return len(p), nil
}

func TestCloseFromInsideACall(t *testing.T) {
	ctx := context.Background()
	index := built(t, MatrixOf(randomRows(2, 2000, 16), 16), nil)
	c := closer{index: index}
	if err := index.SaveTo(ctx, &c, nil); err != nil || c.calls == 0 || !errors.Is(c.err, ErrBusy) {
		t.Errorf("%d writes, the last Close says %v, the save %v", c.calls, c.err, err)
	}
	// The index is as open as before, also for one that is closed by the stream of another.
	other := closer{index: built(t, MatrixOf(randomRows(3, 20, 4), 4), nil)}
	if err := index.SaveTo(ctx, &other, nil); err != nil || other.err != nil {
		t.Error(err, other.err)
	}
	var inside error
	calls := 0
	building := must(New(IndexParams{Dim: 16}))
	progress := func(Progress) {
		calls++
		inside = building.Close()
	}
	if err := building.Build(ctx, MatrixOf(randomRows(4, 2000, 16), 16), nil, &BuildParams{Progress: progress}); err != nil {
		t.Error(err)
	}
	if calls == 0 || !errors.Is(inside, ErrBusy) {
		t.Errorf("%d calls of Progress, the last Close says %v", calls, inside)
	}
	search(t, building, MatrixOf(randomRows(5, 1, 16), 16), 1)
	if err := building.Close(); err != nil {
		t.Error(err)
	}
	// A panic in a callback leaves nothing behind that would make Close refuse.
	func() {
		defer func() { recover() }()
		index.SaveTo(ctx, panicking{}, nil)
	}()
	if err := index.Close(); err != nil {
		t.Error(err)
	}
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("the printer burns") }

func TestNamesOfEnums(t *testing.T) {
	got := fmt.Sprint(MetricCosine, GraphCAGRA, KNNCells, Off, ProcedureGGNN, CompareStored, DeviceCPU,
		DeviceCUDA(3), OpenLazy, ElementBF16, Metric(77), Device(-4))
	wanted := "cosine cagra cells off ggnn stored cpu cuda:3 lazy bf16 metric 77 device -4"
	if got != wanted {
		t.Errorf("%q, not %q", got, wanted)
	}
	if fmt.Sprint(DetoursWhole, ReorderDistance, SlackSquares) != "whole distance squares" {
		t.Error(DetoursWhole, ReorderDistance, SlackSquares)
	}
	if ProcedureCagraMultiCTA.String() != "cagra_multi_cta" || KNNNNDescent.String() != "nn_descent" {
		t.Error(ProcedureCagraMultiCTA, KNNNNDescent)
	}
	if fmt.Sprint(ProcedureTwoLists, ProcedureWarp, ProcedureBlock, ProcedureSlack) != "two_lists two_lists block slack" {
		t.Error(ProcedureTwoLists, ProcedureWarp, ProcedureBlock, ProcedureSlack)
	}
}

func TestListsAndIterators(t *testing.T) {
	const n, dim = 3000, 5
	data := randomRows(6, n, dim)
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = 1_000_000_007 - uint64(i*i)
	}
	index := must(New(IndexParams{Dim: dim}))
	defer index.Close()
	if err := index.Build(context.Background(), MatrixOf(data, dim), ids, nil); err != nil {
		t.Fatal(err)
	}
	piece := make([]uint64, 7)
	if err := index.IDsInto(1234, piece); err != nil || !slices.Equal(piece, ids[1234:1241]) {
		t.Error(piece, err)
	}
	if !slices.Equal(must(index.IDs()), ids) {
		t.Error("other ids")
	}
	vectors, found, err := GetBatch[float32](index, []uint64{ids[9], 5, ids[2], ids[9]})
	wanted := slices.Concat(data[9*dim:10*dim], make([]float32, dim), data[2*dim:3*dim], data[9*dim:10*dim])
	if err != nil || !slices.Equal(vectors, wanted) || !slices.Equal(found, []bool{true, false, true, true}) {
		t.Error(vectors, found, err)
	}
	if vectors, found, err := GetBatch[float32](index, nil); err != nil || len(vectors) != 0 || len(found) != 0 {
		t.Error(vectors, found, err)
	}
	row := 0
	for r, err := range AllRows[float32](index) {
		if err != nil || r.ID != ids[row] || !slices.Equal(r.Vector, data[row*dim:(row+1)*dim]) {
			t.Fatal(row, r, err)
		}
		row++
	}
	if row != n {
		t.Error(row, " rows")
	}
	for _, err := range AllRows[uint8](index) {
		if !errors.Is(err, ErrInvalidArgument) {
			t.Error(err)
		}
	}
	for range AllRows[float32](index) {
		break // leaves nothing behind
	}
	results := search(t, index, MatrixOf(data[:4*dim], dim), 3)
	all := []uint64{}
	for q, neighbors := range results.All() {
		for id, distance := range neighbors {
			if place := len(all); results.IDs[place] != id || results.Distances[place] != distance || place/3 != q {
				t.Error(q, id, distance)
			}
			all = append(all, id)
		}
	}
	if !slices.Equal(all, results.IDs) {
		t.Error(all)
	}
	var file bytes.Buffer
	if err := index.SaveTo(context.Background(), &file, nil); err != nil {
		t.Fatal(err)
	}
	opened := must(OpenBytes(context.Background(), file.Bytes(), nil))
	defer opened.Close()
	if !slices.Equal(must(opened.IDs()), ids) {
		t.Error("other ids from a file")
	}
}

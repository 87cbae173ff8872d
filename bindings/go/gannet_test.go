package gannet

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	if parts := strings.Split(Version(), "."); len(parts) != 3 {
		t.Errorf("version %q", Version())
	}
	if BuildInfo() == "" {
		t.Error("no build info")
	}
}

func TestDevices(t *testing.T) {
	list, reason, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 || list[0].Device != DeviceCPU || list[0].ComputeUnits < 1 || list[0].Name == "" {
		t.Errorf("devices %+v", list)
	}
	if (len(list) == 1) != (reason != "") {
		t.Errorf("%d devices, reason %q", len(list), reason)
	}
}

func TestSearchFindsNearlyAll(t *testing.T) {
	const dim = 24
	rows, queries := MatrixOf(randomRows(1, 6000, dim), dim), MatrixOf(randomRows(2, 100, dim), dim)
	index := built(t, rows, nil)
	if share := recall(search(t, index, queries, 10), searchExact(t, index, queries, 10)); share < 0.9 {
		t.Errorf("recall %v", share)
	}

	info, err := index.Info()
	if err != nil {
		t.Fatal(err)
	}
	if !info.Built || info.Rows != 6000 || info.Dim != dim || info.Element != ElementF32 ||
		info.Metric != MetricL2 || info.Graph != GraphCAGRA || info.BuildTime <= 0 {
		t.Errorf("info %+v", info)
	}
	graph, err := index.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if graph.Degree != info.Degree || len(graph.Edges) != 6000*info.Degree {
		t.Errorf("degree %d, %d edges", graph.Degree, len(graph.Edges))
	}
	for _, edge := range graph.Row(5999) {
		if edge >= 6000 && edge != RowNone {
			t.Errorf("edge to %d", edge)
		}
	}
	stats, err := index.GraphStats()
	if err != nil {
		t.Fatal(err)
	}
	if stats.Rows != 6000 || stats.Degree != info.Degree || stats.Unreachable != 0 {
		t.Errorf("stats %+v", stats)
	}
	all, err := index.GraphStatsOver(6000)
	if err != nil || all.TwoHopMean == stats.TwoHopMean || all.TwoHopMean < stats.TwoHopMean/1.2 ||
		all.TwoHopMean > stats.TwoHopMean*1.2 {
		t.Errorf("within two edges %f of all rows, %f of a sample, %v", all.TwoHopMean, stats.TwoHopMean, err)
	}
	low, err := index.Beam(10, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	high, err := index.Beam(10, 0.99)
	if err != nil || low < 10 || high < low {
		t.Errorf("beams %d and %d, %v", low, high, err)
	}
}

// Every element type finds its own rows, at distance 0.
func TestElements(t *testing.T) {
	t.Run("f32", func(t *testing.T) { element(t, func(x float32) float32 { return x }) })
	t.Run("f16", func(t *testing.T) { element(t, ToF16) })
	t.Run("bf16", func(t *testing.T) { element(t, ToBF16) })
	t.Run("i8", func(t *testing.T) { element(t, func(x float32) int8 { return int8(x * 15) }) })
	t.Run("u8", func(t *testing.T) { element(t, func(x float32) uint8 { return uint8(x*15 + 128) }) })
}

func element[T Element](t *testing.T, convert func(float32) T) {
	const rows, dim = 300, 19
	data := make([]T, 0, rows*dim)
	for _, x := range randomRows(3, rows, dim) {
		data = append(data, convert(x))
	}
	index := built(t, MatrixOf(data, dim), nil)
	found := search(t, index, MatrixOf(data, dim), 3)
	for q := range rows {
		if ids, distances := found.Row(q); ids[0] != uint64(q) || distances[0] != 0 {
			t.Fatalf("row %d finds %v at %v", q, ids, distances)
		}
	}
	row, ok, err := Get[T](index, 7)
	if err != nil || !ok || !reflect.DeepEqual(row, data[7*dim:8*dim]) {
		t.Errorf("Get: %v %v %v", row, ok, err)
	}
}

func TestStoredAsAnotherElement(t *testing.T) {
	const dim = 8
	index, err := New(IndexParams{Dim: dim, Element: ElementF16})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	data := randomRows(4, 50, dim)
	if err := index.Build(context.Background(), MatrixOf(data, dim), nil, nil); err != nil {
		t.Fatal(err)
	}
	if found := search(t, index, MatrixOf(data[:dim], dim), 1); found.IDs[0] != 0 {
		t.Errorf("found %v", found.IDs)
	}
	if row, ok, err := Get[F16](index, 0); err != nil || !ok || row[0] != ToF16(data[0]) {
		t.Errorf("Get: %v %v %v", row, ok, err)
	}
	if _, _, err := Get[BF16](index, 0); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("Get of another element: %v", err)
	}
}

func TestIDs(t *testing.T) {
	index, err := New(IndexParams{Dim: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	rows := MatrixOf([]float32{0, 0, 1, 0, 5, 5}, 2)
	ctx := context.Background()
	for _, ids := range [][]uint64{{1, 2}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6}, {1, 1, 2}, {1, 2, IDNone}} {
		if err := index.Build(ctx, rows, ids, nil); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("ids %v: %v", ids, err)
		}
	}
	if err := index.Build(ctx, rows, []uint64{1 << 60, 7, 0}, nil); err != nil {
		t.Fatal(err)
	}
	if found := search(t, index, MatrixOf([]float32{1, 0.25}, 2), 3); !reflect.DeepEqual(found.IDs, []uint64{7, 1 << 60, 0}) {
		t.Errorf("found %v", found.IDs)
	}
	if yes, err := index.Contains(7); err != nil || !yes {
		t.Error(yes, err)
	}
	if yes, err := index.Contains(8); err != nil || yes {
		t.Error(yes, err)
	}
	if row, ok, err := Get[float32](index, 8); row != nil || ok || err != nil {
		t.Error(row, ok, err)
	}
	if row, ok, err := Get[float32](index, 0); err != nil || !ok || !reflect.DeepEqual(row, []float32{5, 5}) {
		t.Error(row, ok, err)
	}
}

func TestEmptyIndex(t *testing.T) {
	index := built(t, MatrixOf([]float32{}, 4), nil)
	for _, found := range []*Results{
		search(t, index, MatrixOf(make([]float32, 8), 4), 3),
		searchExact(t, index, MatrixOf(make([]float32, 8), 4), 3),
	} {
		for q := range 2 {
			if ids, distances := found.Row(q); len(ids) != 0 || len(distances) != 0 {
				t.Errorf("query %d finds %v", q, ids)
			}
		}
		for i := range found.IDs {
			if found.IDs[i] != IDNone || !math.IsInf(float64(found.Distances[i]), 1) {
				t.Errorf("place %d: %d at %v", i, found.IDs[i], found.Distances[i])
			}
		}
	}
	if found := search(t, index, MatrixOf[float32](nil, 4), 3); found.Rows() != 0 {
		t.Errorf("%d rows for no queries", found.Rows())
	}
}

func TestErrors(t *testing.T) {
	ctx := context.Background()
	index := built(t, MatrixOf(randomRows(5, 100, 6), 6), nil)
	unbuilt, err := New(IndexParams{Dim: 6})
	if err != nil {
		t.Fatal(err)
	}
	defer unbuilt.Close()
	query := MatrixOf(make([]float32, 6), 6)
	bad := randomRows(6, 10, 6)
	bad[3*6+4] = float32(math.NaN())
	for _, c := range []struct {
		name        string
		want        error
		row, column int64
		call        func() error
	}{
		{"dim 0", ErrInvalidArgument, -1, -1, func() error { _, err := New(IndexParams{}); return err }},
		{"negative dim", ErrInvalidArgument, -1, -1, func() error { _, err := New(IndexParams{Dim: -1}); return err }},
		{"huge dim", ErrLimit, -1, -1, func() error { _, err := New(IndexParams{Dim: DimMax + 1}); return err }},
		{"metric", ErrInvalidArgument, -1, -1, func() error { _, err := New(IndexParams{Dim: 1, Metric: 77}); return err }},
		{"query of another dim", ErrInvalidArgument, -1, -1, func() error {
			_, err := index.Search(ctx, MatrixOf(make([]float32, 14), 7), 1, nil)
			return err
		}},
		{"part of a row", ErrInvalidArgument, -1, -1, func() error {
			_, err := index.Search(ctx, MatrixOf(make([]float32, 7), 6), 1, nil)
			return err
		}},
		{"no matrix", ErrInvalidArgument, -1, -1, func() error { _, err := index.Search(ctx, Matrix{}, 1, nil); return err }},
		{"rows of another dim", ErrInvalidArgument, -1, -1, func() error {
			return unbuilt.Build(ctx, MatrixOf(make([]float32, 7), 7), nil, nil)
		}},
		{"NaN", ErrNotFinite, 3, 4, func() error { return unbuilt.Build(ctx, MatrixOf(bad, 6), nil, nil) }},
		{"k 0", ErrInvalidArgument, -1, -1, func() error { _, err := index.Search(ctx, query, 0, nil); return err }},
		{"negative k", ErrInvalidArgument, -1, -1, func() error { _, err := index.SearchExact(ctx, query, -1, nil); return err }},
		{"k beyond all memory", ErrInvalidArgument, -1, -1, func() error { _, err := index.Search(ctx, query, math.MaxInt64, nil); return err }},
		{"recall", ErrInvalidArgument, -1, -1, func() error {
			_, err := index.Search(ctx, query, 1, &SearchParams{Recall: 1.5})
			return err
		}},
		{"beam", ErrLimit, -1, -1, func() error {
			_, err := index.Search(ctx, query, 1, &SearchParams{Beam: BeamMax + 1})
			return err
		}},
		{"degree", ErrLimit, -1, -1, func() error {
			return unbuilt.Build(ctx, query, nil, &BuildParams{Degree: DegreeMax + 1})
		}},
		{"negative threads", ErrInvalidArgument, -1, -1, func() error {
			return unbuilt.Build(ctx, query, nil, &BuildParams{Threads: -1})
		}},
		{"search before build", ErrState, -1, -1, func() error { _, err := unbuilt.Search(ctx, query, 1, nil); return err }},
		{"get before build", ErrState, -1, -1, func() error { _, _, err := Get[float32](unbuilt, 0); return err }},
		{"graph before build", ErrState, -1, -1, func() error { _, err := unbuilt.Graph(); return err }},
		{"stats before build", ErrState, -1, -1, func() error { _, err := unbuilt.GraphStats(); return err }},
		{"beam before build", ErrState, -1, -1, func() error { _, err := unbuilt.Beam(1, 0); return err }},
		{"build after build", ErrState, -1, -1, func() error { return index.Build(ctx, query, nil, nil) }},
		{"no k", ErrInvalidArgument, -1, -1, func() error { _, err := KNNGraph(ctx, query, KNNParams{}); return err }},
		{"NaN in a k-NN graph", ErrNotFinite, 3, 4, func() error { _, err := KNNGraph(ctx, MatrixOf(bad, 6), KNNParams{K: 2}); return err }},
		{"memory limit", ErrLimit, -1, -1, func() error {
			return unbuilt.Build(ctx, MatrixOf(randomRows(7, 100, 6), 6), nil, &BuildParams{MemoryLimit: 1})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			var e *Error
			if !errors.Is(err, c.want) || !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			if e.Message == "" || e.Row != c.row || e.Column != c.column {
				t.Errorf("message %q, row %d, column %d", e.Message, e.Row, e.Column)
			}
			if errors.Is(err, ErrInternal) || errors.Is(err, context.Canceled) {
				t.Error("matches what it is not")
			}
		})
	}
	if s := Status(101).String(); s != "ANN_LIMIT" {
		t.Error(s)
	}
	if err := unbuilt.Build(ctx, query, nil, nil); err != nil {
		t.Errorf("a build after failed ones: %v", err)
	}
}

// A query with NaN has no neighbours and says so; the others do not notice.
func TestQueryNotFinite(t *testing.T) {
	const dim = 5
	index := built(t, MatrixOf(randomRows(8, 200, dim), dim), nil)
	queries := randomRows(9, 3, dim)
	clean := search(t, index, MatrixOf(queries, dim), 4)
	queries[dim+2] = float32(math.Inf(-1))
	found := search(t, index, MatrixOf(queries, dim), 4)
	for _, q := range []int{0, 2} {
		ids, _ := found.Row(q)
		want, _ := clean.Row(q)
		if !reflect.DeepEqual(ids, want) || found.Err(q) != nil {
			t.Errorf("query %d: %v, not %v; %v", q, ids, want, found.Err(q))
		}
	}
	if ids, _ := found.Row(1); len(ids) != 0 || !errors.Is(found.Err(1), ErrNotFinite) {
		t.Errorf("query 1: %v, %v", ids, found.Err(1))
	}
}

func TestSearchIntoReuses(t *testing.T) {
	const dim = 8
	index := built(t, MatrixOf(randomRows(10, 500, dim), dim), nil)
	queries, ctx := randomRows(11, 20, dim), context.Background()
	var into Results
	for _, rows := range []int{20, 3, 20, 1} {
		part := MatrixOf(queries[:rows*dim], dim)
		if err := index.SearchInto(ctx, part, 5, nil, &into); err != nil {
			t.Fatal(err)
		}
		if want := search(t, index, part, 5); !reflect.DeepEqual(&into, want) {
			t.Errorf("%d rows: %+v, not %+v", rows, into, want)
		}
	}
	part := MatrixOf(queries[:dim], dim)
	if n := testing.AllocsPerRun(100, func() {
		if err := index.SearchInto(ctx, part, 5, nil, &into); err != nil {
			t.Error(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations in a search with results to reuse", n)
	}
}

// A vector inside a larger struct with pointers is a legal argument.
func TestVectorInsideStruct(t *testing.T) {
	index := built(t, MatrixOf(randomRows(12, 50, 4), 4), nil)
	document := &struct {
		title  *string
		vector [4]float32
		next   *int
	}{title: new(string), next: new(int)}
	search(t, index, MatrixOf(document.vector[:], 4), 1)
}

func TestKNNGraph(t *testing.T) {
	const rows, dim, k = 200, 6, 7
	data := MatrixOf(randomRows(13, rows, dim), dim)
	lists, err := KNNGraph(context.Background(), data, KNNParams{K: k, Method: KNNExact})
	if err != nil {
		t.Fatal(err)
	}
	// The nearest k + 1 rows of a row are itself and its k neighbours; there are no duplicates here.
	truth := searchExact(t, built(t, data, &BuildParams{Graph: GraphNone}), data, k+1)
	for r := range rows {
		neighbors, distances := lists.Row(r)
		ids, want := truth.Row(r)
		for i := range k {
			if uint64(neighbors[i]) != ids[i+1] || distances[i] != want[i+1] {
				t.Fatalf("row %d: %v at %v, not %v at %v", r, neighbors, distances, ids[1:], want[1:])
			}
		}
	}
	found, err := KNNGraph(context.Background(), data, KNNParams{K: k, Method: KNNGGNN})
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for r := range rows {
		neighbors, _ := found.Row(r)
		want, _ := lists.Row(r)
		for i := range k {
			if neighbors[i] == want[i] {
				same++
			}
		}
	}
	if same < rows*k*95/100 {
		t.Errorf("%v has %d of %d neighbours", KNNGGNN, same, rows*k)
	}
	short, err := KNNGraph(context.Background(), MatrixOf([]float32{1, 2}, 1), KNNParams{K: 3})
	if err != nil {
		t.Fatal(err)
	}
	if neighbors, _ := short.Row(1); neighbors[0] != 0 || neighbors[1] != RowNone || neighbors[2] != RowNone {
		t.Errorf("two rows: %v", neighbors)
	}

	// A graph found before serves a build.
	index, err := New(IndexParams{Dim: dim})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	given := &BuildParams{KNN: KNNGiven, KNNDegree: k, KNNGraph: lists.Neighbors[1:], Degree: 4}
	if err := index.Build(context.Background(), data, nil, given); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a short graph: %v", err)
	}
	given.KNNGraph, given.Calibration = lists.Neighbors, MatrixOf(randomRows(14, 10, dim), dim)
	if err := index.Build(context.Background(), data, nil, given); err != nil {
		t.Error(err)
	}
}

func TestFinishedGraph(t *testing.T) {
	const dim, degree, n = 6, 8, 400
	ctx, data := context.Background(), MatrixOf(randomRows(15, n, dim), dim)
	build := func(params *BuildParams) (*Index, error) {
		index := must(New(IndexParams{Dim: dim}))
		t.Cleanup(func() { index.Close() })
		return index, index.Build(ctx, data, nil, params)
	}
	edges := slices.Clone(must(must(build(&BuildParams{Degree: degree})).Graph()).Edges)
	for row := 0; row < n; row++ { // no build makes this one
		edges[row*degree+2], edges[row*degree+5] = edges[row*degree+5], edges[row*degree+2]
	}
	given := BuildParams{Graph: GraphGiven, KNN: KNNGiven, KNNDegree: degree, KNNGraph: edges}
	index := must(build(&given))
	if kept := must(index.Graph()).Edges; !slices.Equal(kept, edges) {
		t.Error("the graph is another")
	}
	if info := must(index.Info()); info.Graph != GraphCAGRA || info.Degree != degree {
		t.Errorf("graph %v of degree %d", info.Graph, info.Degree)
	}
	hits := 0
	found := must(index.Search(ctx, data, 1, nil))
	for row := 0; row < n; row++ {
		if ids, _ := found.Row(row); ids[0] == uint64(row) {
			hits++
		}
	}
	if hits < 380 {
		t.Errorf("%d of %d rows found", hits, n)
	}

	shorter, none, strange := given, given, given
	shorter.Degree = 4
	none.KNN, none.KNNGraph, none.KNNDegree = KNNAuto, nil, 0
	strange.KNNGraph = slices.Clone(edges)
	strange.KNNGraph[17] = n
	for name, params := range map[string]BuildParams{"another degree": shorter, "no graph": none, "an edge to no row": strange} {
		if _, err := build(&params); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEstimate(t *testing.T) {
	plan, err := Estimate(IndexParams{Dim: 96}, 1_000_000, ElementU8, nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan.IndexBytes < 96_000_000 || plan.PeakBytes < plan.IndexBytes || plan.Threads < 1 || plan.Time <= 0 {
		t.Errorf("plan %+v", plan)
	}
	if _, err := Estimate(IndexParams{Dim: 96}, RowsMax+1, ElementU8, nil); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
	if _, err := Estimate(IndexParams{Dim: 96}, -1, ElementU8, nil); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}

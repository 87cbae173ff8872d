package gannet

// #include "bridge.h"
// #cgo nocallback gn_knn_graph
// #cgo nocallback gn_graph
// #cgo nocallback gn_graph_stats
import "C"

import (
	"context"
	"runtime"
)

// KNNLists are the nearest other rows of every row, K each: row r has those at r*K to r*K + K - 1,
// nearest first, ties by row number. Unused places hold [RowNone] and +Inf.
type KNNLists struct {
	K         int
	Neighbors []uint32
	Distances []float32
}

// Row gives the places of row r; they are parts of the lists, not copies.
func (l *KNNLists) Row(r int) (neighbors []uint32, distances []float32) {
	from, to := r*l.K, (r+1)*l.K
	return l.Neighbors[from:to:to], l.Distances[from:to:to]
}

// KNNGraph finds the params.K nearest other rows of every row.
//
// If ctx ends, the work stops within 100 ms and the call returns an error that wraps ctx.Err().
func KNNGraph(ctx context.Context, rows Matrix, params KNNParams) (*KNNLists, error) {
	var n numbers
	shape, given := n.matrix("rows", rows), params.native(&n)
	n.places(rows.Rows(), params.K)
	if n.err != nil {
		return nil, n.err
	}
	ended, err := hold(rows.memory)
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(rows.keep)
	defer ended()
	var c call
	if err := c.begin(ctx, buildPlaces, params.Progress); err != nil {
		return nil, err
	}
	lists := &KNNLists{
		K:         params.K,
		Neighbors: make([]uint32, rows.Rows()*params.K),
		Distances: make([]float32, rows.Rows()*params.K),
	}
	status := C.gn_knn_graph(shape, bytesOf(rows), &given, words(lists.Neighbors),
		floats(lists.Distances), c.monitor, &c.error)
	if err := c.end(status); err != nil {
		return nil, err
	}
	return lists, nil
}

// Graph is a copy of a search graph.
type Graph struct {
	Degree int
	Edges  []uint32 // [rows, Degree] row numbers, not ids; RowNone in unused places
}

// Row gives the edges of a row, unused places included.
func (g *Graph) Row(r int) []uint32 {
	return g.Edges[r*g.Degree : (r+1)*g.Degree : (r+1)*g.Degree]
}

// Graph copies the search graph.
func (x *Index) Graph() (*Graph, error) {
	info, err := x.Info()
	if err != nil {
		return nil, err
	}
	var c call
	native, err := c.beginOn(context.Background(), x, buildPlaces, nil)
	if err != nil {
		return nil, err
	}
	defer x.leave()
	edges := make([]uint32, info.Rows*info.Degree)
	var degree C.uint32_t
	status := C.gn_graph(native, words(edges), C.uint64_t(len(edges)), &degree, &c.error)
	if err := c.end(status); err != nil {
		return nil, err
	}
	return &Graph{Degree: int(degree), Edges: edges}, nil
}

// GraphStats says how well a search can move on a graph.
type GraphStats struct {
	Degree           int
	Rows             int
	Edges            uint64  // places used
	Unreachable      int     // rows that no path from an entry point reaches
	WeakComponents   int     // parts, edges taken both ways
	StrongComponents int     // parts in which each row reaches each other
	LargestStrong    int     // rows of the largest of those
	InDegreeMin      int     // edges that lead to a row, at least
	InDegreeMax      int     // and at most
	TwoHopMean       float64 // mean number of distinct rows within two edges, over a sample

	// For GraphTSDG: edges of the k-NN lists, kept by stage one, with reverse edges, and with an occlusion factor below
	// the bound. 0 of an index from a file.
	KNNEdges, RelaxedEdges, JoinedEdges, SoftEdges uint64

	OcclusionLevels int // distinct occlusion factors of edges; 0: none
}

// GraphStats measures the graph; takes time and memory in proportion to its edges. TwoHopMean is over a sample of up
// to 1,000 rows.
func (x *Index) GraphStats() (GraphStats, error) { return x.GraphStatsOver(1000) }

// GraphStatsOver is [Index.GraphStats] with TwoHopMean over that many rows, at most all.
func (x *Index) GraphStatsOver(twoHopRows uint32) (GraphStats, error) {
	var c call
	native, err := c.beginOn(context.Background(), x, buildPlaces, nil)
	if err != nil {
		return GraphStats{}, err
	}
	defer x.leave()
	s := C.ann_graph_stats{two_hop_rows: C.uint32_t(twoHopRows)}
	if err := c.end(C.gn_graph_stats(native, &s, &c.error)); err != nil {
		return GraphStats{}, err
	}
	return GraphStats{
		Degree:           int(s.degree),
		Rows:             int(s.rows),
		Edges:            uint64(s.edges),
		Unreachable:      int(s.unreachable),
		WeakComponents:   int(s.weak_components),
		StrongComponents: int(s.strong_components),
		LargestStrong:    int(s.largest_strong),
		InDegreeMin:      int(s.in_degree_min),
		InDegreeMax:      int(s.in_degree_max),
		TwoHopMean:       float64(s.two_hop_mean),
		KNNEdges:         uint64(s.knn_edges),
		RelaxedEdges:     uint64(s.relaxed_edges),
		JoinedEdges:      uint64(s.joined_edges),
		SoftEdges:        uint64(s.soft_edges),
		OcclusionLevels:  int(s.occlusion_levels),
	}, nil
}

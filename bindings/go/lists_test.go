package gannet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// Three points on a line, then two: their lists of 2, each set by itself.
func twoSets(t *testing.T) (a, b Matrix, first, second *IDLists) {
	t.Helper()
	a, b = MatrixOf([]float32{0, 1, 5}, 1), MatrixOf([]float32{2, 6}, 1)
	params := KNNParams{K: 2, Method: KNNExact}
	of := func(rows Matrix, firstID uint64) *IDLists {
		lists, err := KNNGraph(context.Background(), rows, params)
		if err != nil {
			t.Fatal(err)
		}
		return lists.WithIDs(firstID, MetricL2)
	}
	return a, b, of(a, 0), of(b, 3)
}

func TestMergeOfTwoSets(t *testing.T) {
	a, b, first, second := twoSets(t)
	merged, err := KNNMerge(context.Background(), a, first, b, second, KNNParams{K: 2})
	if err != nil {
		t.Fatal(err)
	}
	wanted := &IDLists{
		K: 2, Metric: MetricL2,
		Neighbors: []uint64{1, 3, 0, 3, 4, 3, 1, 0, 2, 3},
		Distances: []float32{1, 4, 1, 1, 1, 9, 1, 4, 1, 16},
	}
	if !reflect.DeepEqual(merged, wanted) {
		t.Fatalf("%+v", merged)
	}
}

func TestMergeByIDs(t *testing.T) {
	a, b, first, second := twoSets(t)
	for i, id := range second.Neighbors {
		if id != IDNone {
			second.Neighbors[i] = id + 1000
		}
	}
	second.IDs = []uint64{1003, 1004}
	merged, err := KNNMerge(context.Background(), a, first, b, second, KNNParams{K: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint64{0, 1, 2, 1003, 1004}; !reflect.DeepEqual(merged.IDs, want) {
		t.Fatalf("ids %v, not %v", merged.IDs, want)
	}
	if want := []uint64{1, 0, 1004, 1, 2}; !reflect.DeepEqual(merged.Neighbors, want) {
		t.Fatalf("neighbours %v, not %v", merged.Neighbors, want)
	}
}

func TestFilesOfLists(t *testing.T) {
	_, _, first, second := twoSets(t)
	second.IDs = []uint64{3, 4}
	second.FirstID = 0
	path := filepath.Join(t.TempDir(), "lists")
	for _, lists := range []*IDLists{first, second, {K: 3, Metric: MetricCosine, Neighbors: []uint64{}, Distances: []float32{}}} {
		if err := lists.Save(context.Background(), path, nil); err != nil {
			t.Fatal(err)
		}
		read, err := OpenIDLists(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read, lists) {
			t.Fatalf("read %+v, saved %+v", read, lists)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file[50] ^= 1
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenIDLists(context.Background(), path); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a damaged file: %v", err)
	}
}

func TestListsThatAreNone(t *testing.T) {
	a, b, first, second := twoSets(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := KNNMerge(ended, a, first, b, second, KNNParams{K: 2}); !errors.Is(err, context.Canceled) {
		t.Fatalf("an ended context: %v", err)
	}
	short, long := *first, *first
	short.Distances = first.Distances[1:]
	long.IDs = make([]uint64, 7)
	for _, bad := range []*IDLists{nil, &short, &long, {}, {K: 2, Neighbors: first.Neighbors}} {
		if _, err := KNNMerge(context.Background(), a, bad, b, second, KNNParams{K: 2}); !errors.Is(err, ErrInvalidArgument) {
			t.Fatalf("%+v: %v", bad, err)
		}
		if err := bad.Save(context.Background(), filepath.Join(t.TempDir(), "x"), nil); !errors.Is(err, ErrInvalidArgument) {
			t.Fatalf("%+v saved: %v", bad, err)
		}
	}
}

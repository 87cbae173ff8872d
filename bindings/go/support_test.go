package gannet

import (
	"context"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// randomRows are the same for the same seed.
func randomRows(seed uint64, rows, dim int) []float32 {
	random := rand.New(rand.NewPCG(seed, 1))
	data := make([]float32, rows*dim)
	for i := range data {
		data[i] = float32(random.IntN(257)-128) / 16
	}
	return data
}

// built is an index over data, closed at the end of the test.
func built(t testing.TB, data Matrix, params *BuildParams) *Index {
	t.Helper()
	index, err := New(IndexParams{Dim: data.Dim()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { index.Close() })
	if err := index.Build(context.Background(), data, nil, params); err != nil {
		t.Fatal(err)
	}
	return index
}

func search(t testing.TB, index *Index, queries Matrix, k int) *Results {
	t.Helper()
	found, err := index.Search(context.Background(), queries, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func searchExact(t testing.TB, index *Index, queries Matrix, k int) *Results {
	t.Helper()
	found, err := index.SearchExact(context.Background(), queries, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// recall is the share of truth that found holds.
func recall(found, truth *Results) float64 {
	hits, all := 0, 0
	for q := range truth.Rows() {
		wanted := map[uint64]bool{}
		ids, _ := truth.Row(q)
		for _, id := range ids {
			wanted[id] = true
		}
		ids, _ = found.Row(q)
		for _, id := range ids {
			if wanted[id] {
				hits++
			}
		}
		all += len(wanted)
	}
	return float64(hits) / float64(all)
}

// addressOf is the place of a slice as a number.
func addressOf[T any](data []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(data))) }

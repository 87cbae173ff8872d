// The ten tasks of README.md in Go.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gannet-ann/gannet/bindings/go"
)

const rows, dim, queries, k = 20_000, 32, 200, 10

func must[T any](value T, err error) T {
	check(err == nil, err)
	return value
}

func check(right bool, what any) {
	if !right {
		fmt.Fprintln(os.Stderr, what)
		os.Exit(1)
	}
}

func random(count int) []float32 {
	source := rand.New(rand.NewPCG(1, uint64(count)))
	values := make([]float32, count)
	for i := range values {
		values[i] = source.Float32()
	}
	return values
}

// built is an index over rows, with names of them or nil.
func built(shape gannet.IndexParams, data []float32, names []uint64) *gannet.Index {
	index := must(gannet.New(shape))
	err := index.Build(context.Background(), gannet.MatrixOf(data, shape.Dim), names, nil)
	check(err == nil, err)
	return index
}

// recall is the share of the true neighbours that was found.
func recall(found, truth *gannet.Results) float64 {
	hits := 0
	for q := range truth.Rows() {
		mine, _ := found.Row(q)
		right, _ := truth.Row(q)
		for _, id := range right {
			if slices.Contains(mine, id) {
				hits++
			}
		}
	}
	return float64(hits) / float64(queries*k)
}

func main() {
	// 1: it is there
	fmt.Println(gannet.BuildInfo())

	// 2: the ten nearest of some rows
	ctx := context.Background()
	data, asked := random(rows*dim), random(queries*dim)
	index := built(gannet.IndexParams{Dim: dim}, data, nil)
	defer index.Close()
	found := must(index.Search(ctx, gannet.MatrixOf(asked, dim), k, nil))

	// 3: how many of the true neighbours are found, and more of them
	truth := must(index.SearchExact(ctx, gannet.MatrixOf(asked, dim), k, nil))
	better := must(index.Search(ctx, gannet.MatrixOf(asked, dim), k, &gannet.SearchParams{Recall: 0.99}))
	fmt.Printf("recall %.3f, asked for .99: %.3f\n", recall(found, truth), recall(better, truth))
	check(recall(found, truth) > 0.93, "recall")

	// 4: saved here, opened elsewhere
	folder := must(os.MkdirTemp("", "tasks"))
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "points.gannet")
	check(index.Save(ctx, path, nil) == nil, "save")
	opened := must(gannet.Open(ctx, path, nil))
	defer opened.Close()
	check(recall(must(opened.Search(ctx, gannet.MatrixOf(asked, dim), k, nil)), found) == 1, "opened")

	// 5: cosine, and half the memory
	shape := gannet.IndexParams{Dim: dim, Metric: gannet.MetricCosine, Element: gannet.ElementF16}
	halves := built(shape, data, nil)
	defer halves.Close()
	seventh := gannet.MatrixOf(data[7*dim:8*dim], dim)
	check(must(halves.Search(ctx, seventh, 1, nil)).IDs[0] == 7, "cosine")

	// 6: names of rows
	names := make([]uint64, rows)
	for i := range names {
		names[i] = 1_000_000_000_000 + uint64(i)
	}
	named := built(gannet.IndexParams{Dim: dim}, data, names)
	defer named.Close()
	check(must(named.Search(ctx, seventh, 1, nil)).IDs[0] == names[7], "names")
	vector, there, err := gannet.Get[float32](named, names[7])
	check(err == nil && there && slices.Equal(vector, data[7*dim:8*dim]), "get")

	// 7: what a build takes, beforehand
	plan := must(gannet.Estimate(gannet.IndexParams{Dim: 768}, 1_000_000, gannet.ElementF32, nil))
	fmt.Printf("%d MiB at most, about %v\n", plan.PeakBytes>>20, plan.Time)

	// 8: a long build, watched and stopped
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	long := must(gannet.New(gannet.IndexParams{Dim: 64}))
	defer long.Close()
	err = long.Build(short, gannet.MatrixOf(random(200_000*64), 64), nil,
		&gannet.BuildParams{Progress: func(p gannet.Progress) { fmt.Println(p) }})
	check(errors.Is(err, context.DeadlineExceeded), err)

	// 9: searches from many goroutines
	var running sync.WaitGroup
	for q := range queries {
		running.Add(1)
		go func() {
			defer running.Done()
			must(index.Search(ctx, gannet.MatrixOf(asked[q*dim:(q+1)*dim], dim), k, nil))
		}()
	}
	running.Wait()

	// 10: wrong input says what is wrong
	_, err = index.Search(ctx, gannet.MatrixOf(data[:dim-1], dim-1), k, nil)
	check(err != nil, "a query of another width is taken")
	fmt.Println(err)
	asked[0] = float32(math.NaN())
	found = must(index.Search(ctx, gannet.MatrixOf(asked, dim), k, nil))
	check(found.Err(0) != nil && found.Err(1) == nil, "NaN")
	fmt.Println(found.Err(0))
	fmt.Println("tasks: Go: 10")
}

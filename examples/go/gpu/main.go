// Builds an index on a CUDA device and searches it from host memory, from device memory, and on a stream.
// Without a device it says so and ends with success.
//
//	go run -tags gannet_tree ./gpu
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/gannet-ann/gannet/bindings/go"
)

const rows, dim, queries, k = 100_000, 64, 1000, 10

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	devices, reason, err := gannet.Devices()
	if err != nil {
		return err
	}
	if len(devices) == 1 { // the CPU
		fmt.Println("no CUDA device here:", reason)
		return nil
	}
	gpu := devices[1].Device
	fmt.Printf("%v: %s, %d of %d MiB free\n", gpu, devices[1].Name, devices[1].MemoryFree>>20, devices[1].MemoryTotal>>20)

	index, err := gannet.New(gannet.IndexParams{Dim: dim})
	if err != nil {
		return err
	}
	defer index.Close()
	data := random(rows * dim)
	if err := index.Build(ctx, gannet.MatrixOf(data, dim), nil, &gannet.BuildParams{Device: gpu}); err != nil {
		return err
	}
	info, err := index.Info()
	if err != nil {
		return err
	}
	fmt.Printf("%d rows built in %v\n", info.Rows, info.BuildTime)
	// The build has left its copy there already; an index that was opened or built elsewhere has none.
	if err := index.Place(ctx, gpu); err != nil {
		return err
	}

	asked := random(queries * dim)
	found, err := index.Search(ctx, gannet.MatrixOf(asked, dim), k, &gannet.SearchParams{Device: gpu})
	if err != nil {
		return err
	}
	exact, err := index.SearchExact(ctx, gannet.MatrixOf(asked, dim), k, &gannet.SearchParams{Device: gpu})
	if err != nil {
		return err
	}
	fmt.Printf("from host memory: recall@%d is %.3f\n", k, recall(found, exact))

	// Vectors that are on the device anyway are searched there.
	buffer, err := gannet.DeviceBufferOf(gpu, asked)
	if err != nil {
		return err
	}
	defer buffer.Free()
	results, err := gannet.NewDeviceResults(gpu, queries, k)
	if err != nil {
		return err
	}
	defer results.Free()
	stream, err := gannet.NewStream(gpu)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := index.SearchQueued(ctx, gannet.DeviceMatrixOf(buffer, dim), nil, results, stream); err != nil {
		return err
	}
	// This goroutine is free for other work; Read waits for the stream.
	queued, err := results.Read()
	if err != nil {
		return err
	}
	worst := recall(queued, exact)
	fmt.Printf("queued on a stream: recall@%d is %.3f\n", k, worst)
	if worst < 0.9 {
		return fmt.Errorf("recall is %.3f", worst)
	}
	return index.Evict(gpu) // the copy goes with the index, or earlier
}

func random(n int) []float32 {
	source := rand.New(rand.NewPCG(1, uint64(n)))
	values := make([]float32, n)
	for i := range values {
		values[i] = source.Float32()
	}
	return values
}

// recall is the share of the exact neighbours that were found.
func recall(found, exact *gannet.Results) float64 {
	hits := 0
	for q, neighbors := range exact.All() {
		ids, _ := found.Row(q)
		for id := range neighbors {
			if slices.Contains(ids, id) {
				hits++
			}
		}
	}
	return float64(hits) / float64(len(exact.IDs))
}

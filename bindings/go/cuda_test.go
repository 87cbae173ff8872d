package gannet

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
)

const gpuDim = 32

// needGPU skips a test without a CUDA device, or fails it where GANNET_NEED_GPU is set.
func needGPU(t *testing.T) Device {
	t.Helper()
	list, reason, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 2 {
		if os.Getenv("GANNET_NEED_GPU") != "" {
			t.Fatal("no CUDA device: ", reason)
		}
		t.Skip("no CUDA device: ", reason)
	}
	return DeviceCUDA(0)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestDeviceBuffers(t *testing.T) {
	gpu := needGPU(t)
	data := randomRows(1, 1000, 100)
	b := must(DeviceBufferOf(gpu, data))
	if back := must(b.Read()); !slices.Equal(back, data) || b.Len() != len(data) || b.Device() != gpu {
		t.Error("another content")
	}
	other := randomRows(2, 1000, 100)
	if err := b.Write(other); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(must(b.Read()), other) {
		t.Error("another content after a write")
	}
	if err := b.Write(other[1:]); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
	if zero := must(must(NewDeviceBuffer[uint64](gpu, 5)).Read()); !slices.Equal(zero, make([]uint64, 5)) {
		t.Error("a new buffer is not zero: ", zero)
	}
	must(NewDeviceBuffer[uint8](gpu, 0)).Free()
	if _, err := NewDeviceBuffer[uint64](gpu, 1<<50); !errors.Is(err, ErrDeviceNoMemory) {
		t.Error(err)
	}
	b.Free()
	b.Free()
	if _, err := b.Read(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := must(New(IndexParams{Dim: 100})).Build(context.Background(), DeviceMatrixOf(b, 100), nil, nil); !errors.Is(err, ErrClosed) {
		t.Error("a build over a freed buffer: ", err)
	}
}

func TestPlaceAndEvict(t *testing.T) {
	gpu := needGPU(t)
	index := built(t, MatrixOf(randomRows(3, 5000, gpuDim), gpuDim), nil)
	queries := MatrixOf(randomRows(4, 50, gpuDim), gpuDim)
	truth := searchExact(t, index, queries, 10)
	for range 2 {
		if err := index.Place(context.Background(), gpu); err != nil {
			t.Fatal(err)
		}
		found := must(index.Search(context.Background(), queries, 10, &SearchParams{Device: gpu}))
		if r := recall(found, truth); r < 0.9 {
			t.Error("recall is ", r)
		}
		if err := index.Evict(gpu); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := index.Place(ended, gpu); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestSearchesInDeviceMemory(t *testing.T) {
	gpu := needGPU(t)
	const n, k = 300, 10
	ctx := context.Background()
	index := built(t, MatrixOf(randomRows(5, 6000, gpuDim), gpuDim), &BuildParams{Device: gpu})
	queries := randomRows(6, n, gpuDim)
	params := &SearchParams{Procedure: ProcedureTwoLists}
	wanted := must(index.Search(ctx, MatrixOf(queries, gpuDim), k,
		&SearchParams{Procedure: ProcedureTwoLists, Device: gpu}))
	if wanted.Procedure != ProcedureTwoLists || wanted.WarpsPerQuery != 1 {
		t.Error(wanted.Procedure, wanted.WarpsPerQuery)
	}
	exact := searchExact(t, index, MatrixOf(queries, gpuDim), k)
	if r := recall(wanted, exact); r < 0.9 {
		t.Error("recall is ", r)
	}
	buffer := must(DeviceBufferOf(gpu, queries))
	there := DeviceMatrixOf(buffer, gpuDim)
	into := must(NewDeviceResults(gpu, n, k))
	check := func(what string, wanted *Results) {
		t.Helper()
		got := must(into.Read())
		if !slices.Equal(got.IDs, wanted.IDs) || !slices.Equal(got.Distances, wanted.Distances) ||
			!slices.Equal(got.Counts, wanted.Counts) {
			t.Errorf("%s: other answers", what)
		}
	}
	if err := index.SearchOnDevice(ctx, there, params, into); err != nil {
		t.Fatal(err)
	}
	check("waited for", wanted)
	if err := index.SearchExactOnDevice(ctx, there, nil, into); err != nil {
		t.Fatal(err)
	}
	check("exact", exact)

	stream := must(NewStream(gpu))
	for range 20 {
		if err := index.SearchQueued(ctx, there, params, into, stream); err != nil {
			t.Fatal(err)
		}
		check("queued", wanted) // reading waits
	}
	if err := index.SearchExactQueued(ctx, there, nil, into, stream); err != nil {
		t.Fatal(err)
	}
	if err := stream.Wait(); err != nil {
		t.Fatal(err)
	}
	check("queued and exact", exact)

	// Freed, closed and collected right after queueing: all of them wait.
	for range 20 {
		b, r := must(DeviceBufferOf(gpu, queries)), must(NewDeviceResults(gpu, n, k))
		s := must(NewStream(gpu))
		if err := index.SearchQueued(ctx, DeviceMatrixOf(b, gpuDim), params, r, s); err != nil {
			t.Fatal(err)
		}
		b.Free()
		r.Free()
		s.Close()
		if err := index.SearchQueued(ctx, there, params, into, s); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		b, r, s = must(DeviceBufferOf(gpu, queries)), must(NewDeviceResults(gpu, n, k)), must(NewStream(gpu))
		if err := index.SearchQueued(ctx, DeviceMatrixOf(b, gpuDim), params, r, s); err != nil {
			t.Fatal(err)
		}
		b, r, s = nil, nil, nil
		runtime.GC()
	}
	if err := index.SearchQueued(ctx, there, params, into, stream); err != nil {
		t.Fatal(err)
	}
	index.Close()
	check("the index is closed", wanted)

	few := must(NewDeviceResults(gpu, n-1, k))
	other := built(t, MatrixOf(randomRows(7, 100, gpuDim), gpuDim), nil)
	for what, err := range map[string]error{
		"results for fewer queries": other.SearchOnDevice(ctx, there, nil, few),
		"queries of the host":       other.SearchOnDevice(ctx, MatrixOf(queries, gpuDim), nil, into),
	} {
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := other.Search(ctx, there, k, nil); !errors.Is(err, ErrInvalidArgument) {
		t.Error("results of the host: ", err)
	}
}

func TestNaNInDeviceMemory(t *testing.T) {
	gpu := needGPU(t)
	index := built(t, MatrixOf(randomRows(8, 5000, gpuDim), gpuDim), &BuildParams{Device: gpu})
	queries := randomRows(9, 3, gpuDim)
	queries[gpuDim+5] = float32(math.NaN())
	into, stream := must(NewDeviceResults(gpu, 3, 2)), must(NewStream(gpu))
	defer stream.Close()
	err := index.SearchQueued(context.Background(), DeviceMatrixOf(must(DeviceBufferOf(gpu, queries)), gpuDim),
		nil, into, stream)
	if err != nil {
		t.Fatal(err)
	}
	found := must(into.Read())
	if !errors.Is(found.Err(1), ErrNotFinite) || found.Err(0) != nil || found.Counts[2] != 2 {
		t.Error(found.Statuses, found.Counts)
	}
}

func TestMemoryOfOthers(t *testing.T) {
	gpu := needGPU(t)
	const stride = gpuDim + 8
	ctx := context.Background()
	data := randomRows(10, 5000, stride)
	buffer := must(DeviceBufferOf(gpu, data))
	defer buffer.Free()
	rows := DeviceMatrixAt[float32](gpu, buffer.Address(), 5000, gpuDim, stride)
	ids := make([]uint64, 5000)
	for i := range ids {
		ids[i] = uint64(3 * i)
	}
	index := must(New(IndexParams{Dim: gpuDim}))
	defer index.Close()
	sample := must(DeviceBufferOf(gpu, randomRows(11, 200, gpuDim)))
	if err := index.Build(ctx, rows, ids, &BuildParams{Device: gpu, Calibration: DeviceMatrixOf(sample, gpuDim)}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(must(index.IDs()), ids) {
		t.Error("other ids")
	}
	vectors, _, err := GetBatch[float32](index, ids[3:4])
	if err != nil || !slices.Equal(vectors, data[3*stride:3*stride+gpuDim]) {
		t.Error("another vector: ", err)
	}
	stream := must(NewStream(gpu))
	defer stream.Close()
	theirs := must(StreamAt(gpu, uintptr(stream.handle.raw)))
	into := must(NewDeviceResults(gpu, 10, 1))
	queries := DeviceMatrixAt[float32](gpu, buffer.Address(), 10, gpuDim, stride)
	if err := index.SearchExactQueued(ctx, queries, nil, into, theirs); err != nil {
		t.Fatal(err)
	}
	if found := must(into.Read()); !slices.Equal(found.IDs, ids[:10]) {
		t.Error(found.IDs)
	}
	lists := must(KNNGraph(ctx, rows, KNNParams{K: 4, Method: KNNExact}))
	if len(lists.Neighbors) != 4*5000 {
		t.Error(len(lists.Neighbors))
	}
	// Host memory called device memory is refused before anything is read.
	host := randomRows(12, 1, gpuDim)
	wrong := DeviceMatrixAt[float32](gpu, addressOf(host), 1, gpuDim, 0)
	if err := index.SearchOnDevice(ctx, wrong, nil, must(NewDeviceResults(gpu, 1, 1))); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
	runtime.KeepAlive(host)
}

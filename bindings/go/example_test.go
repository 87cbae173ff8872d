package gannet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gannet-ann/gannet/bindings/go"
)

// Five points on a line, and the two nearest to 1.2.
func Example() {
	ctx := context.Background()
	index, err := gannet.New(gannet.IndexParams{Dim: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer index.Close()

	rows := []float32{0, 1, 2, 3, 4}
	if err := index.Build(ctx, gannet.MatrixOf(rows, 1), nil, nil); err != nil {
		fmt.Println(err)
		return
	}
	found, err := index.Search(ctx, gannet.MatrixOf([]float32{1.25}, 1), 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, distances := found.Row(0)
	fmt.Println(ids, distances)
	// Output: [1 2] [0.0625 0.5625]
}

// squares is an index of the points (i, i*i).
func squares(n int) *gannet.Index {
	var rows []float32
	for i := range n {
		rows = append(rows, float32(i), float32(i*i))
	}
	index, err := gannet.New(gannet.IndexParams{Dim: 2})
	if err != nil {
		panic(err)
	}
	if err := index.Build(context.Background(), gannet.MatrixOf(rows, 2), nil, nil); err != nil {
		panic(err)
	}
	return index
}

// The ids of the caller come back from searches.
func ExampleIndex_Build_ids() {
	ctx := context.Background()
	index, err := gannet.New(gannet.IndexParams{Dim: 2, Metric: gannet.MetricCosine})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer index.Close()
	rows := []int8{100, 0, 0, 100}
	if err := index.Build(ctx, gannet.MatrixOf(rows, 2), []uint64{2001, 1789}, nil); err != nil {
		fmt.Println(err)
		return
	}
	found, err := index.SearchExact(ctx, gannet.MatrixOf([]int8{0, 1}, 2), 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found.Row(0))
	// Output: [1789 2001] [0 1]
}

// A loop that searches again and again reuses its results.
func ExampleIndex_SearchInto() {
	index := squares(20)
	defer index.Close()
	var found gannet.Results
	for _, query := range [][]float32{{2, 4}, {9.5, 82}} {
		err := index.SearchInto(context.Background(), gannet.MatrixOf(query, 2), 1, nil, &found)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(found.Row(0))
	}
	// Output:
	// [2] [0]
	// [9] [1.25]
}

// A deadline ends a long call; the error matches the context's and the library's.
func ExampleIndex_Search_deadline() {
	index := squares(20)
	defer index.Close()
	ctx, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	_, err := index.Search(ctx, gannet.MatrixOf([]float32{2, 4}, 2), 1, nil)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, gannet.ErrDeadline))
	// Output: true true
}

func ExampleError() {
	index := squares(20)
	defer index.Close()
	_, err := index.Search(context.Background(), gannet.MatrixOf([]float32{1, 2, 3}, 3), 1, nil)
	var details *gannet.Error
	if errors.As(err, &details) {
		fmt.Println(details.Status, errors.Is(err, gannet.ErrInvalidArgument))
	}
	// Output: ANN_INVALID_ARGUMENT true
}

func ExampleGet() {
	index := squares(20)
	defer index.Close()
	fmt.Println(gannet.Get[float32](index, 5))
	fmt.Println(gannet.Get[float32](index, 500))
	// Output:
	// [5 25] true <nil>
	// [] false <nil>
}

func ExampleKNNGraph() {
	rows := []uint8{10, 12, 15, 30}
	lists, err := gannet.KNNGraph(context.Background(), gannet.MatrixOf(rows, 1), gannet.KNNParams{K: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range rows {
		fmt.Println(lists.Row(r))
	}
	// Output:
	// [1 2] [4 25]
	// [0 2] [4 9]
	// [1 0] [9 25]
	// [2 1] [225 324]
}

// What was saved is opened later, by another process.
func ExampleIndex_Save() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "gannet")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "squares.gannet")

	index := squares(20)
	defer index.Close()
	if err := index.Save(ctx, path, nil); err != nil {
		fmt.Println(err)
		return
	}

	opened, err := gannet.Open(ctx, path, &gannet.OpenParams{ExpectDim: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer opened.Close()
	fmt.Println(gannet.Get[float32](opened, 7))
	// Output: [7 49] true <nil>
}

// A file through any stream: here through memory.
func ExampleOpenFrom() {
	ctx := context.Background()
	index := squares(20)
	defer index.Close()
	var stream bytes.Buffer
	if err := index.SaveTo(ctx, &stream, nil); err != nil {
		fmt.Println(err)
		return
	}
	opened, err := gannet.OpenFrom(ctx, &stream, int64(stream.Len()), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer opened.Close()
	fmt.Println(opened.Contains(19))
	// Output: true <nil>
}

func ExampleOpen_errors() {
	_, err := gannet.Open(context.Background(), "no/such/file.gannet", nil)
	fmt.Println(errors.Is(err, gannet.ErrIO), errors.Is(err, fs.ErrNotExist))
	_, err = gannet.OpenBytes(context.Background(), []byte("no file of an index"), nil)
	fmt.Println(errors.Is(err, gannet.ErrCorrupt))
	// Output:
	// true true
	// true
}

func ExampleFileInfo() {
	index := squares(20)
	defer index.Close()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("gannet-example-%d", os.Getpid()))
	defer os.Remove(path)
	if err := index.Save(context.Background(), path, nil); err != nil {
		fmt.Println(err)
		return
	}
	info, err := gannet.FileInfo(path)
	fmt.Println(info.Rows, info.Dim, info.Element, info.Format, err)
	// Output: 20 2 f32 1.5 <nil>
}

func ExampleToF16() {
	third := gannet.ToF16(1.0 / 3)
	fmt.Printf("%#x %v\n", uint16(third), third.Float32())
	// Output: 0x3555 0.33325195
}

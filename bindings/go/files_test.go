package gannet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func savedBytes(t testing.TB, index *Index) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := index.SaveTo(context.Background(), &file, nil); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

var kept atomic.Int64

// keep leaves a file in the folder that GANNET_KEEP_FILES names, where gannet-fsck looks at it after
// the tests.
func keep(t testing.TB, file []byte) {
	t.Helper()
	folder := os.Getenv("GANNET_KEEP_FILES")
	if folder == "" {
		return
	}
	path := filepath.Join(folder, fmt.Sprintf("%04d.gannet", kept.Add(1)))
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
}

// answersOf is what a search and the index's own account say.
func answersOf(t testing.TB, index *Index, queries Matrix) []any {
	t.Helper()
	info, err := index.Info()
	if err != nil {
		t.Fatal(err)
	}
	info.MemoryBytes, info.BuildTime, info.CalibrateTime = 0, 0, 0 // differ by nature
	exact, found := searchExact(t, index, queries, 7), search(t, index, queries, 7)
	all := []any{info, exact.IDs, exact.Distances, found.IDs, found.Distances}
	if info.Graph != GraphNone {
		graph, err := index.Graph()
		if err != nil {
			t.Fatal(err)
		}
		beam, err := index.Beam(10, 0.97)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, graph.Edges, beam)
	}
	return all
}

func roundTrips[T Element](t *testing.T, convert func(int) T) {
	values := func(seed uint64, n int) []T {
		random := rand.New(rand.NewPCG(seed, 2))
		data := make([]T, n)
		for i := range data {
			data[i] = convert(random.IntN(100))
		}
		return data
	}
	for metric := MetricL2; metric <= MetricCosine; metric++ {
		for _, size := range []struct{ rows, dim int }{{0, 3}, {1, 1}, {33, 7}, {600, 24}} {
			for _, kind := range []string{"plain", "with ids", "without a graph"} {
				t.Run(fmt.Sprint(metric, size.rows, kind), func(t *testing.T) {
					params := BuildParams{Degree: 8}
					var ids []uint64
					switch kind {
					case "with ids":
						for i := range size.rows {
							ids = append(ids, uint64(size.rows-i)*1_000_000_007)
						}
					case "without a graph":
						params.Graph = GraphNone
					}
					index, err := New(IndexParams{Dim: size.dim, Metric: metric})
					if err != nil {
						t.Fatal(err)
					}
					defer index.Close()
					rows := MatrixOf(values(1, size.rows*size.dim), size.dim)
					if err := index.Build(context.Background(), rows, ids, &params); err != nil {
						t.Fatal(err)
					}
					roundTrip(t, index, MatrixOf(values(2, 5*size.dim), size.dim))
				})
			}
		}
	}
}

func roundTrip(t *testing.T, index *Index, queries Matrix) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "index.gannet")
	wanted := answersOf(t, index, queries)
	if err := index.Save(ctx, path, &SaveParams{Sync: Off}); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, file)
	if !bytes.Equal(file, savedBytes(t, index)) {
		t.Error("file and stream differ")
	}
	if err := Verify(ctx, path, nil); err != nil {
		t.Error(err)
	}
	checkFileInfo(t, path, index, int64(len(file)))
	ways := map[string]func() (*Index, error){
		"full":    func() (*Index, error) { return Open(ctx, path, nil) },
		"lazy":    func() (*Index, error) { return Open(ctx, path, &OpenParams{Mode: OpenLazy}) },
		"trusted": func() (*Index, error) { return Open(ctx, path, &OpenParams{Mode: OpenTrusted}) },
		"bytes":   func() (*Index, error) { return OpenBytes(ctx, file, nil) },
		"stream": func() (*Index, error) {
			return OpenFrom(ctx, iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(file))), int64(len(file)), nil)
		},
	}
	for way, open := range ways {
		opened, err := open()
		if err != nil {
			t.Error(way, err)
			continue
		}
		if got := answersOf(t, opened, queries); !reflect.DeepEqual(got, wanted) {
			t.Errorf("%s: %v, not %v", way, got, wanted)
		}
		if !bytes.Equal(savedBytes(t, opened), file) {
			t.Error(way, "saved again it is another file")
		}
		if err := opened.Build(ctx, queries, nil, nil); !errors.Is(err, ErrState) {
			t.Error(way, err)
		}
		opened.Close()
	}
}

func checkFileInfo(t *testing.T, path string, index *Index, size int64) {
	t.Helper()
	got, err := FileInfo(path)
	if err != nil {
		t.Error(err)
		return
	}
	info, _ := index.Info()
	format := "1.0"
	switch {
	case info.Graph == GraphNone:
	case info.Rows > 4 && info.Metric != MetricInnerProduct:
		format = "1.5" // curves of a slack bound
	case info.Rows > 0 && info.Codes != CodesRows:
		format = "1.5" // how well codes order rows
	}
	wanted := FileDescription{
		Format: format, Bytes: size, Rows: info.Rows, Dim: info.Dim, Metric: info.Metric,
		Element: info.Element, Graph: info.Graph, Degree: info.Degree, EntryPoints: info.EntryPoints,
		HasIDs: got.HasIDs, Writer: Version(), Seed: info.Seed, ContentID: got.ContentID,
	}
	if got != wanted || got.ContentID == [16]byte{} {
		t.Errorf("%+v, not %+v", got, wanted)
	}
}

func TestFilesRoundTrip(t *testing.T) {
	t.Run("f32", func(t *testing.T) { roundTrips(t, func(x int) float32 { return float32(x) - 50 }) })
	t.Run("f16", func(t *testing.T) { roundTrips(t, func(x int) F16 { return ToF16(float32(x) - 50) }) })
	t.Run("bf16", func(t *testing.T) { roundTrips(t, func(x int) BF16 { return ToBF16(float32(x) - 50) }) })
	t.Run("i8", func(t *testing.T) { roundTrips(t, func(x int) int8 { return int8(x) - 50 }) })
	t.Run("u8", func(t *testing.T) { roundTrips(t, func(x int) uint8 { return uint8(x) }) })
}

func smallFile(t testing.TB) []byte {
	return savedBytes(t, built(t, MatrixOf(randomRows(1, 300, 6), 6), nil))
}

func TestFilesDamagedAreRefused(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "damaged.gannet")
	file := smallFile(t)
	random := rand.New(rand.NewPCG(3, 3))
	for round := range 1500 {
		at := random.IntN(len(file))
		if round < 300 {
			at = round
		}
		damaged := slices.Clone(file)
		bit := random.IntN(8)
		damaged[at] ^= 1 << bit
		wanted := ErrCorrupt
		// The major version, and features to be known but for the two that there are.
		if at == 12 || at == 13 || at >= 32 && at < 40 && (at > 32 || bit > 1) {
			wanted = ErrVersion
		}
		if _, err := OpenBytes(ctx, damaged, nil); !errors.Is(err, wanted) {
			t.Errorf("byte %d: %v", at, err)
		}
		if round%50 == 0 {
			if err := os.WriteFile(path, damaged, 0o666); err != nil {
				t.Fatal(err)
			}
			_, opening := Open(ctx, path, nil)
			_, reading := OpenFrom(ctx, bytes.NewReader(damaged), int64(len(damaged)), nil)
			for _, err := range []error{opening, reading, Verify(ctx, path, nil)} {
				if !errors.Is(err, wanted) {
					t.Errorf("byte %d: %v", at, err)
				}
			}
		}
	}
	for length := 0; length < len(file); length += 97 {
		if _, err := OpenBytes(ctx, file[:length], nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v", length, err)
		}
		_, err := OpenFrom(ctx, bytes.NewReader(file[:length]), int64(len(file)), nil)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
	damaged := slices.Clone(file)
	damaged[8192] ^= 1
	var e *Error
	if _, err := OpenBytes(ctx, damaged, nil); !errors.As(err, &e) || !strings.Contains(e.Message, "section 1 (rows)") {
		t.Error(err)
	}
}

func TestFilesLazyDamageIsMetWhenRead(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "damaged.gannet")
	file := smallFile(t)
	file[8192] ^= 1
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
	index, err := Open(ctx, path, &OpenParams{Mode: OpenLazy})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	if _, err := index.SearchExact(ctx, MatrixOf(randomRows(2, 1, 6), 6), 1, nil); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if err := index.SaveTo(ctx, io.Discard, nil); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

func TestFilesMisuse(t *testing.T) {
	ctx, folder := context.Background(), t.TempDir()
	path, missing := filepath.Join(folder, "index.gannet"), filepath.Join(folder, "missing", "index.gannet")
	index := built(t, MatrixOf(randomRows(1, 100, 3), 3), nil)
	if err := index.Save(ctx, path, nil); err != nil {
		t.Fatal(err)
	}
	unbuilt, err := New(IndexParams{Dim: 3})
	if err != nil {
		t.Fatal(err)
	}
	file, _ := os.ReadFile(path)
	check := func(wanted error, errs ...error) {
		t.Helper()
		for i, err := range errs {
			var e *Error
			if !errors.Is(err, wanted) || !errors.As(err, &e) || len(e.Message) < 10 {
				t.Errorf("%d: %v, not %v", i, err, wanted)
			}
		}
	}
	opening := func(path string, params *OpenParams) error {
		opened, err := Open(ctx, path, params)
		if (opened == nil) != (err != nil) {
			t.Error("an index and an error, or neither")
		}
		opened.Close()
		return err
	}
	read := func(file []byte, params *OpenParams) error {
		_, err := OpenBytes(ctx, file, params)
		return err
	}
	stream := func(r io.Reader, size int64, params *OpenParams) error {
		_, err := OpenFrom(ctx, r, size, params)
		return err
	}
	describe := func(path string) error {
		_, err := FileInfo(path)
		return err
	}
	check(ErrState, unbuilt.Save(ctx, path, nil), unbuilt.SaveTo(ctx, io.Discard, nil))
	check(ErrInvalidArgument, index.Save(ctx, "", nil), index.Save(ctx, "a\x00b", nil),
		index.Save(ctx, path, &SaveParams{Sync: 7}), index.Save(ctx, path, &SaveParams{Threads: -1}),
		index.SaveTo(ctx, nil, nil), opening("a\x00b", nil), Verify(ctx, "a\x00b", nil), describe("a\x00b"),
		stream(nil, 10, nil), stream(strings.NewReader("x"), -1, nil),
		opening(path, &OpenParams{Mode: 9}), opening(path, &OpenParams{ExpectDim: -1}),
		opening(path, &OpenParams{ExpectDim: 4}), opening(path, &OpenParams{ExpectMetric: MetricCosine}),
		opening(path, &OpenParams{ExpectElement: ElementU8}), read(file, &OpenParams{ExpectDim: 4}),
		Verify(ctx, path, &OpenParams{ExpectDim: 4}))
	check(ErrUnsupported, read(file, &OpenParams{Mode: OpenLazy}), read(file, &OpenParams{Mode: OpenTrusted}),
		stream(bytes.NewReader(file), int64(len(file)), &OpenParams{Mode: OpenLazy}))
	check(ErrIO, index.Save(ctx, missing, nil), opening(missing, nil), Verify(ctx, missing, nil), describe(missing))
	check(fs.ErrNotExist, index.Save(ctx, missing, nil), opening(missing, nil), Verify(ctx, missing, nil), describe(missing))
	check(ErrIO, opening(folder, nil), describe(folder))
	check(ErrCorrupt, read(nil, nil), stream(strings.NewReader(""), 0, nil))
	file[12] = 2
	check(ErrVersion, read(file, nil))
	fits := &OpenParams{ExpectDim: 3, ExpectMetric: MetricL2, ExpectElement: ElementF32, Threads: 2}
	if err := opening(path, fits); err != nil {
		t.Error(err)
	}
	index.Close()
	if err := index.Save(ctx, path, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := index.SaveTo(ctx, io.Discard, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if names, _ := os.ReadDir(folder); len(names) != 1 {
		t.Error("left behind:", names)
	}
}

// --- Streams of the caller ------------------------------------------------------------------------

// breaks moves some bytes and then does as it is told.
type breaks struct {
	left int
	then func(p []byte) (int, error)
	file []byte
}

func (b *breaks) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return b.then(p)
	}
	b.left -= len(p)
	return len(p), nil
}

func (b *breaks) Read(p []byte) (int, error) {
	if b.left == 0 {
		return b.then(p)
	}
	n := copy(p[:min(len(p), b.left)], b.file)
	b.left, b.file = b.left-n, b.file[n:]
	return n, nil
}

func TestFilesStreamErrorsComeBack(t *testing.T) {
	ctx := context.Background()
	index := built(t, MatrixOf(randomRows(1, 300, 6), 6), nil)
	file := savedBytes(t, index)
	mine := errors.New("out of paper")
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	cases := []struct {
		then  func(p []byte) (int, error)
		is    error
		errno syscall.Errno
	}{
		{func([]byte) (int, error) { return 0, mine }, mine, 0},
		{func([]byte) (int, error) { return 0, full }, syscall.ENOSPC, syscall.ENOSPC},
		{func(p []byte) (int, error) { return len(p) + 1, nil }, ErrIO, 0},
	}
	for i, c := range cases {
		for _, left := range []int{0, 5000, len(file) - 1} {
			write := index.SaveTo(ctx, &breaks{left: left, then: c.then}, nil)
			_, read := OpenFrom(ctx, &breaks{left: left, then: c.then, file: file}, int64(len(file)), nil)
			for _, err := range []error{write, read} {
				var e *Error
				if !errors.Is(err, c.is) || !errors.Is(err, ErrIO) || !errors.As(err, &e) {
					t.Errorf("%d, %d: %v", i, left, err)
				} else if e.OSError != c.errno && !errors.Is(err, io.ErrShortWrite) {
					t.Errorf("%d, %d: %v, %v", i, left, err, e.OSError)
				}
			}
		}
	}
	short := func(p []byte) (int, error) { return len(p) / 2, nil }
	if err := index.SaveTo(ctx, &breaks{then: short}, nil); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	rest := bytes.NewReader(append(slices.Clone(file), "more"...))
	opened, err := OpenFrom(ctx, rest, int64(len(file)), nil)
	if err != nil || rest.Len() != len("more") {
		t.Error(err, rest.Len())
	}
	opened.Close()
}

func TestFilesStreamPanicsGoOn(t *testing.T) {
	ctx := context.Background()
	index := built(t, MatrixOf(randomRows(1, 300, 6), 6), nil)
	file := savedBytes(t, index)
	type burning struct{ what string }
	panicking := func(run func()) (value any) {
		defer func() { value = recover() }()
		run()
		return nil
	}
	for _, left := range []int{0, 6000} {
		stream := func() *breaks {
			return &breaks{left: left, file: file, then: func([]byte) (int, error) { panic(burning{"printer"}) }}
		}
		saving := panicking(func() { index.SaveTo(ctx, stream(), nil) })
		opening := panicking(func() { OpenFrom(ctx, stream(), int64(len(file)), nil) })
		if saving != any(burning{"printer"}) || opening != any(burning{"printer"}) {
			t.Error(saving, opening)
		}
	}
	if !bytes.Equal(savedBytes(t, index), file) {
		t.Error("the index has changed")
	}
	if err := index.Close(); err != nil { // would wait for ever if a call had not ended
		t.Error(err)
	}
}

// More pipes than there are places, and all the readers first.
func TestFilesPipesDoNotWaitForEachOther(t *testing.T) {
	ctx := context.Background()
	index := built(t, MatrixOf(randomRows(1, 300, 6), 6), nil)
	file := savedBytes(t, index)
	n := 4 * cap(buildPlaces)
	type end struct {
		r *io.PipeReader
		w *io.PipeWriter
	}
	pipes, begun := make([]end, n), make(chan bool, n)
	for i := range pipes {
		pipes[i].r, pipes[i].w = io.Pipe()
	}
	inParallel(2, func(side int) {
		if side == 1 {
			for range n {
				<-begun
			}
			inParallel(n, func(i int) {
				pipes[i].w.CloseWithError(index.SaveTo(ctx, pipes[i].w, nil))
			})
			return
		}
		inParallel(n, func(i int) {
			begun <- true
			opened, err := OpenFrom(ctx, pipes[i].r, int64(len(file)), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer opened.Close()
			if !bytes.Equal(savedBytes(t, opened), file) {
				t.Error("another file")
			}
		})
	})
}

// --- Contexts and goroutines ----------------------------------------------------------------------

func TestFilesContexts(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "index.gannet")
	index := built(t, MatrixOf(randomRows(1, 300, 6), 6), nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var progress []Progress
	note := func(p Progress) { progress = append(progress, p) }
	if err := index.Save(ctx, path, &SaveParams{Progress: note}); err != nil {
		t.Fatal(err)
	}
	if len(progress) == 0 || progress[len(progress)-1].Fraction != 1 {
		t.Error(progress)
	}
	progress = nil
	opened, err := Open(ctx, path, &OpenParams{Progress: note})
	if err != nil || len(progress) == 0 || progress[len(progress)-1].Fraction != 1 {
		t.Error(err, progress)
	}
	opened.Close()
	file := savedBytes(t, index)

	// While it runs: the stream ends the context.
	stop := &breaks{then: func(p []byte) (int, error) {
		cancel()
		time.Sleep(20 * time.Millisecond)
		return len(p), nil
	}}
	if err := index.SaveTo(ctx, stop, nil); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) {
		t.Error(err)
	}
	// Before it begins.
	_, opening := Open(ctx, path, nil)
	_, fromBytes := OpenBytes(ctx, file, nil)
	_, fromStream := OpenFrom(ctx, bytes.NewReader(file), int64(len(file)), nil)
	for i, err := range []error{index.Save(ctx, path, nil), index.SaveTo(ctx, io.Discard, nil), opening, fromBytes, fromStream,
		Verify(ctx, path, nil)} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) {
			t.Error(i, err)
		}
	}
	late, cancelLate := context.WithDeadline(context.Background(), time.Now().Add(5*time.Millisecond))
	defer cancelLate()
	rest := bytes.NewReader(file)
	slow := &breaks{then: func(p []byte) (int, error) {
		time.Sleep(30 * time.Millisecond)
		return rest.Read(p)
	}}
	_, err = OpenFrom(late, slow, int64(len(file)), nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDeadline) {
		t.Error(err)
	}
	if names, _ := os.ReadDir(folder); len(names) != 1 {
		t.Error("left behind:", names)
	}
}

func TestFilesManyGoroutinesOnePath(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "shared.gannet")
	queries := MatrixOf(randomRows(9, 5, 8), 8)
	indexes := []*Index{
		built(t, MatrixOf(randomRows(1, 300, 8), 8), nil),
		built(t, MatrixOf(randomRows(2, 300, 8), 8), nil),
	}
	var wanted [][]any
	var files [][]byte
	for _, index := range indexes {
		wanted, files = append(wanted, answersOf(t, index, queries)), append(files, savedBytes(t, index))
	}
	inParallel(8, func(i int) {
		for round := range 12 {
			which := (i + round) % 2
			if err := indexes[which].Save(ctx, path, &SaveParams{Sync: Off, Threads: 1}); err != nil {
				t.Error(err)
			}
			opened, err := Open(ctx, path, &OpenParams{Mode: OpenFull + OpenMode(round%3)})
			if err != nil {
				t.Error(err)
				return
			}
			file := savedBytes(t, opened)
			which = slices.IndexFunc(files, func(other []byte) bool { return bytes.Equal(file, other) })
			if which < 0 || !reflect.DeepEqual(answersOf(t, opened, queries), wanted[which]) {
				t.Error("an index that nobody saved")
			}
			opened.Close()
		}
	})
}

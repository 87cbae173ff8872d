package gannet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// inParallel runs n goroutines and waits for them.
func inParallel(n int, run func(i int)) {
	var all sync.WaitGroup
	all.Add(n)
	for i := range n {
		go func() {
			defer all.Done()
			run(i)
		}()
	}
	all.Wait()
}

func TestManyGoroutinesGetSerialAnswers(t *testing.T) {
	const dim, n = 16, 1000
	index := built(t, MatrixOf(randomRows(20, 2000, dim), dim), nil)
	queries := randomRows(21, n, dim)
	// One by one: of a thousand together all rows are compared.
	serial := make([]*Results, n)
	for i := range serial {
		serial[i] = search(t, index, MatrixOf(queries[i*dim:(i+1)*dim], dim), 5)
	}
	inParallel(n, func(i int) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		found, err := index.Search(ctx, MatrixOf(queries[i*dim:(i+1)*dim], dim), 5, nil)
		if err != nil {
			t.Error(err)
			return
		}
		ids, distances := found.Row(0)
		wantIDs, wantDistances := serial[i].Row(0)
		if !reflect.DeepEqual(ids, wantIDs) || !reflect.DeepEqual(distances, wantDistances) {
			t.Errorf("query %d: %v at %v, not %v at %v", i, ids, distances, wantIDs, wantDistances)
		}
	})
}

func TestManyGoroutinesGetTheirOwnErrors(t *testing.T) {
	const dim, rows = 8, 130
	index := built(t, MatrixOf(randomRows(22, 100, dim), dim), nil)
	data := randomRows(23, rows, dim)
	inParallel(1000, func(i int) {
		var e *Error
		other := dim + 1 + i
		_, err := index.Search(context.Background(), MatrixOf(make([]float32, other), other), 1, nil)
		if !errors.As(err, &e) || !strings.Contains(e.Message, fmt.Sprint(other)) {
			t.Errorf("dim %d: %v", other, err)
		}

		mine := append([]float32(nil), data...)
		mine[i] = float32(math.NaN())
		fresh, err := New(IndexParams{Dim: dim})
		if err != nil {
			t.Error(err)
			return
		}
		defer fresh.Close()
		err = fresh.Build(context.Background(), MatrixOf(mine, dim), nil, nil)
		if !errors.As(err, &e) || !errors.Is(err, ErrNotFinite) || e.Row != int64(i/dim) || e.Column != int64(i%dim) {
			t.Errorf("NaN at %d, %d: %v", i/dim, i%dim, err)
		}
	})
}

// 10,000 goroutines that want to be inside C at once must not become 10,000 threads.
func TestThreadsAreBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts threads in /proc")
	}
	const rows, dim, n = 20_000, 64, 10_000
	data := MatrixOf(randomRows(24, rows, dim), dim)
	index := built(t, data, &BuildParams{Graph: GraphNone})
	before := threads(t)
	// Each call takes seconds, so all of them are inside C or waiting when the threads are counted.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	most := 0
	time.AfterFunc(time.Second, func() { most = threads(t); cancel() })
	inParallel(n, func(int) {
		_, err := index.SearchExact(ctx, data, 1, &SearchParams{Threads: 1})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if limit := before + 8*runtime.GOMAXPROCS(0) + 16; most == 0 || most > limit {
		t.Errorf("%d threads, %d before and at most %d wanted", most, before, limit)
	}
}

func threads(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Error(err)
	}
	_, rest, _ := strings.Cut(string(text), "Threads:")
	var n int
	fmt.Sscan(rest, &n)
	return n
}

const longDim = 64

// longRows are made before a context begins: under the race detector they take half a second of the thread whose time
// is looked at.
var longRows = sync.OnceValue(func() []float32 { return randomRows(26, 60_000, longDim) })

// long is work of many seconds on any machine.
func long(ctx context.Context, progress func(Progress)) error {
	_, err := KNNGraph(ctx, MatrixOf(longRows(), longDim),
		KNNParams{K: 8, Method: KNNExact, Threads: 1, Progress: progress})
	return err
}

// late is how long the thread of a call may compute after its context's end, which other processes cannot
// lengthen. The library promises 100 ms of the clock.
const late = 500 * time.Millisecond

// timeOf is what a thread of this process has computed.
func timeOf(t *testing.T, thread int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	if err != nil {
		t.Error(err)
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Error(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// longAfter makes the long call and says what its thread computed after the end of the context.
func longAfter(t *testing.T, ctx context.Context) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := syscall.Gettid()
	at := make(chan time.Duration, 1)
	context.AfterFunc(ctx, func() { at <- timeOf(t, thread) })
	err := long(ctx, nil)
	return timeOf(t, thread) - <-at, err
}

func TestCancel(t *testing.T) {
	longRows()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(200*time.Millisecond, cancel)
	took, err := longAfter(t, ctx)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) || errors.Is(err, ErrDeadline) {
		t.Fatalf("%v", err)
	}
	if took > late {
		t.Errorf("computed for %v after the cancel", took)
	}
}

func TestDeadline(t *testing.T) {
	longRows()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	took, err := longAfter(t, ctx)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if took > late {
		t.Errorf("computed for %v after the deadline", took)
	}
}

func TestCancelBuild(t *testing.T) {
	const rows, dim = 60_000, 64
	index, err := New(IndexParams{Dim: dim})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	data := MatrixOf(randomRows(27, rows, dim), dim)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// The first progress shows that the build is under way.
	start := time.Now()
	err = index.Build(ctx, data, nil, &BuildParams{Progress: func(Progress) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("after %v: %v", time.Since(start), err)
	}
	if info, err := index.Info(); err != nil || info.Built || info.Rows != 0 {
		t.Errorf("info after a cancelled build: %+v, %v", info, err)
	}
	if err := index.Build(context.Background(), MatrixOf(randomRows(28, 10, dim), dim), nil, nil); err != nil {
		t.Errorf("a build after a cancelled one: %v", err)
	}
}

func TestContextEndedBefore(t *testing.T) {
	index := built(t, MatrixOf(randomRows(29, 10, 2), 2), nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	query := MatrixOf([]float32{1, 2}, 2)
	if _, err := index.Search(ctx, query, 1, nil); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) {
		t.Errorf("%v", err)
	}
	past, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := index.Search(past, query, 1, nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDeadline) {
		t.Errorf("%v", err)
	}
}

// With all places taken, a call waits, and its context ends the waiting.
func TestContextEndsWaiting(t *testing.T) {
	index := built(t, MatrixOf(randomRows(30, 10, 2), 2), nil)
	for range cap(searchPlaces) {
		searchPlaces <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := index.Search(ctx, MatrixOf([]float32{1, 2}, 2), 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDeadline) {
		t.Errorf("%v", err)
	}
	for range cap(searchPlaces) {
		<-searchPlaces
	}
	search(t, index, MatrixOf([]float32{1, 2}, 2), 1)
}

func TestProgress(t *testing.T) {
	const rows, dim = 8000, 32
	index, err := New(IndexParams{Dim: dim})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	var seen []Progress
	progress := func(p Progress) { seen = append(seen, p) }
	err = index.Build(context.Background(), MatrixOf(randomRows(31, rows, dim), dim), nil, &BuildParams{Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) == 0 || seen[len(seen)-1].Fraction != 1 {
		t.Errorf("progress %v", seen)
	}
	for i, p := range seen {
		if p.Step < 1 || p.Phase == "" || p.Fraction < 0 || p.Fraction > 1 || i > 0 && p.Fraction < seen[i-1].Fraction {
			t.Errorf("progress %d: %+v", i, p)
		}
	}
}

func TestClose(t *testing.T) {
	ctx := context.Background()
	query := MatrixOf(make([]float32, 4), 4)
	index := built(t, MatrixOf(randomRows(32, 10, 4), 4), nil)
	inParallel(10, func(int) {
		if err := index.Close(); err != nil {
			t.Error(err)
		}
	})
	var zero Index
	for _, x := range []*Index{index, &zero, nil} {
		calls := map[string]func() error{
			"Build":       func() error { return x.Build(ctx, query, nil, nil) },
			"Search":      func() error { _, err := x.Search(ctx, query, 1, nil); return err },
			"SearchExact": func() error { _, err := x.SearchExact(ctx, query, 1, nil); return err },
			"Info":        func() error { _, err := x.Info(); return err },
			"Get":         func() error { _, _, err := Get[float32](x, 0); return err },
			"Contains":    func() error { _, err := x.Contains(0); return err },
			"Graph":       func() error { _, err := x.Graph(); return err },
			"GraphStats":  func() error { _, err := x.GraphStats(); return err },
			"Beam":        func() error { _, err := x.Beam(1, 0); return err },
			"Close":       func() error { x.Close(); return ErrClosed },
		}
		for name, call := range calls {
			if err := call(); err != ErrClosed {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	}
	if len(searchPlaces) != 0 || len(buildPlaces) != 0 {
		t.Error("a place was not given back")
	}
}

// Searches that a Close meets either finish or say that the index is closed.
func TestCloseDuringSearches(t *testing.T) {
	const dim = 16
	data := MatrixOf(randomRows(33, 3000, dim), dim)
	queries := MatrixOf(randomRows(34, 10, dim), dim)
	for range 5 {
		index := built(t, data, &BuildParams{Graph: GraphNone})
		want := searchExact(t, index, queries, 3)
		time.AfterFunc(20*time.Millisecond, func() { index.Close() })
		inParallel(50, func(int) {
			for {
				found, err := index.SearchExact(context.Background(), queries, 3, nil)
				if err == ErrClosed {
					return
				}
				if err != nil || !reflect.DeepEqual(found.IDs, want.IDs) {
					t.Errorf("%v, %v", found, err)
					return
				}
			}
		})
	}
}

// Indexes are made, used, and dropped or closed while the collector runs all the time. The last use
// of an index is a call, so a cleanup that came too early would free it under that call.
func TestGCStorm(t *testing.T) {
	const dim, rows = 8, 200
	quit, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ticker := time.NewTicker(time.Millisecond); ; <-ticker.C {
			select {
			case <-quit:
				return
			default:
				runtime.GC()
			}
		}
	}()
	inParallel(4, func(g int) {
		for i := range 50 {
			storm(t, uint64(g*1000+i), rows, dim, i%2 == 0)
		}
	})
	close(quit)
	<-stopped
}

func storm(t *testing.T, seed uint64, rows, dim int, closes bool) {
	index, err := New(IndexParams{Dim: dim})
	if err != nil {
		t.Error(err)
		return
	}
	if closes {
		defer index.Close()
	}
	data := randomRows(seed, rows, dim)
	if err := index.Build(context.Background(), MatrixOf(data, dim), nil, &BuildParams{Calibrate: Off}); err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := index.SearchExact(ctx, MatrixOf(data, dim), 1, nil)
	if err != nil {
		t.Error(err)
		return
	}
	for q := range rows {
		if ids, distances := found.Row(q); len(ids) != 1 || distances[0] != 0 {
			t.Errorf("row %d of seed %d finds %v at %v", q, seed, ids, distances)
			return
		}
	}
}

// A dropped index is freed by its cleanup.
func TestCleanup(t *testing.T) {
	h := func() *handle {
		index, err := New(IndexParams{Dim: 3})
		if err != nil {
			t.Fatal(err)
		}
		return index.handle
	}()
	for range 200 {
		runtime.GC()
		h.mutex.Lock()
		closed := h.closed
		h.mutex.Unlock()
		if closed {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("not freed")
}

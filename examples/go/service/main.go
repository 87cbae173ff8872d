// Answers searches of one index over HTTP.
//
//	go run -tags gannet_tree ./service [-address 127.0.0.1:8080] index.gannet
//
//	POST /search   {"vector": [...], "k": 10, "recall": 0.95}   k and recall may be left out
//	               answers {"ids": [...], "distances": [...]}
//	GET /metrics   counts and times, as Prometheus reads them
//	GET /healthz   "ok"
//
// On SIGTERM or Ctrl-C it takes no more requests, answers those that it has, and ends with success.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gannet-ann/gannet/bindings/go"
)

const (
	kMax      = 1000            // results take memory, found or not
	bodyMax   = 1 << 20         // bytes
	timeLimit = 2 * time.Second // of a search
	graceTime = 10 * time.Second
)

func main() {
	address := flag.String("address", "127.0.0.1:8080", "where to listen; port 0: a free one")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: service [-address HOST:PORT] index.gannet")
		os.Exit(2)
	}
	if err := serve(*address, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func serve(address, path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	index, err := gannet.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer index.Close()
	info, err := index.Info()
	if err != nil {
		return err
	}
	service := &service{index: index, info: info}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /search", service.measured(service.search))
	mux.HandleFunc("GET /metrics", service.metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("%d rows of %d; listening on %v\n", info.Rows, info.Dim, listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	grace, cancel := context.WithTimeout(context.Background(), graceTime)
	defer cancel()
	return server.Shutdown(grace)
}

type service struct {
	index *gannet.Index
	info  gannet.Info

	answered, refused, failed atomic.Int64
	running                   atomic.Int64
	nanoseconds               atomic.Int64
	distances                 atomic.Uint64
}

// search answers one query. The request's context ends the search when the client goes away.
func (s *service) search(w http.ResponseWriter, r *http.Request) error {
	var query struct {
		Vector []float32 `json:"vector"`
		K      int       `json:"k"`
		Recall float32   `json:"recall"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax)).Decode(&query); err != nil {
		return badRequest{err}
	}
	if query.K == 0 {
		query.K = 10
	}
	if query.K < 0 || query.K > kMax {
		return badRequest{fmt.Errorf("k is %d, not in 1 to %d", query.K, kMax)}
	}
	if len(query.Vector) != s.info.Dim {
		return badRequest{fmt.Errorf("the vector has %d numbers, the index %d columns", len(query.Vector), s.info.Dim)}
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeLimit)
	defer cancel()
	found, err := s.index.Search(ctx, s.matrix(query.Vector), query.K, &gannet.SearchParams{Recall: query.Recall})
	if err != nil {
		return err
	}
	if err := found.Err(0); err != nil {
		return err
	}
	s.distances.Add(found.DistanceCount)
	ids, distances := found.Row(0)
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{"ids": ids, "distances": distances})
}

// matrix is the vector as the index takes it: an index of bytes is asked with bytes.
func (s *service) matrix(vector []float32) gannet.Matrix {
	switch s.info.Element {
	case gannet.ElementU8:
		return gannet.MatrixOf(whole[uint8](vector, 0, 255), len(vector))
	case gannet.ElementI8:
		return gannet.MatrixOf(whole[int8](vector, -128, 127), len(vector))
	}
	return gannet.MatrixOf(vector, len(vector))
}

func whole[T int8 | uint8](vector []float32, low, high float32) []T {
	numbers := make([]T, len(vector))
	for i, x := range vector {
		numbers[i] = T(min(max(x, low), high))
	}
	return numbers
}

// badRequest is what the client has done wrong.
type badRequest struct{ error }

// measured turns errors into statuses, and counts.
func (s *service) measured(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		s.running.Add(1)
		defer s.running.Add(-1)
		err := handle(w, r)
		s.nanoseconds.Add(int64(time.Since(start)))
		status, count := http.StatusInternalServerError, &s.failed
		var bad badRequest
		switch {
		case err == nil:
			s.answered.Add(1)
			return
		case errors.As(err, &bad), errors.Is(err, gannet.ErrInvalidArgument), errors.Is(err, gannet.ErrNotFinite):
			status, count = http.StatusBadRequest, &s.refused
		case errors.Is(err, context.DeadlineExceeded):
			status = http.StatusGatewayTimeout
		}
		count.Add(1)
		http.Error(w, err.Error(), status)
	}
}

func (s *service) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, `# TYPE gannet_searches_total counter
gannet_searches_total{outcome="answered"} %d
gannet_searches_total{outcome="refused"} %d
gannet_searches_total{outcome="failed"} %d
# TYPE gannet_search_seconds_total counter
gannet_search_seconds_total %g
# TYPE gannet_distances_total counter
gannet_distances_total %d
# TYPE gannet_searches_running gauge
gannet_searches_running %d
# TYPE gannet_rows gauge
gannet_rows %d
# TYPE gannet_memory_bytes gauge
gannet_memory_bytes %d
`, s.answered.Load(), s.refused.Load(), s.failed.Load(), time.Duration(s.nanoseconds.Load()).Seconds(),
		s.distances.Load(), s.running.Load(), s.info.Rows, s.info.MemoryBytes)
}

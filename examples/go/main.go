// Builds an index over a file of vectors, prints the neighbours of its first rows, and measures how
// many of the true neighbours the search finds.
//
//	go run -tags gannet_tree . vectors.u8bin
//
// The file begins with the number of rows and of columns, two little-endian 32-bit numbers; the rows
// follow, as bytes in a .u8bin file and as little-endian float32 in a .fbin file. Without
// -tags gannet_tree an installed library is used.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/gannet-ann/gannet/bindings/go"
)

const (
	shown    = 3   // rows whose neighbours are printed
	measured = 100 // rows on which recall is measured
	k        = 10
)

func main() {
	// Ctrl-C cancels the build or the search that is running.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: %s vectors.u8bin|vectors.fbin", filepath.Base(os.Args[0]))
	}
	switch ending := filepath.Ext(arguments[0]); ending {
	case ".u8bin":
		return run[uint8](ctx, arguments[0])
	case ".fbin":
		return run[float32](ctx, arguments[0])
	default:
		return fmt.Errorf("%s: the name ends in %q, not in .u8bin or .fbin", arguments[0], ending)
	}
}

func run[T gannet.Element](ctx context.Context, path string) error {
	data, dim, err := read[T](path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	index, err := gannet.New(gannet.IndexParams{Dim: dim})
	if err != nil {
		return err
	}
	defer index.Close()
	rows := gannet.MatrixOf(data, dim)
	progress := func(p gannet.Progress) {
		fmt.Fprintf(os.Stderr, "\r%3.0f%% %-20s", 100*p.Fraction, p.Phase)
	}
	if err := index.Build(ctx, rows, nil, &gannet.BuildParams{Progress: progress}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr)
	info, err := index.Info()
	if err != nil {
		return err
	}
	fmt.Printf("%d rows of %d built in %v\n", info.Rows, info.Dim, info.BuildTime)

	queries := gannet.MatrixOf(data[:min(measured, rows.Rows())*dim], dim)
	found, err := index.Search(ctx, queries, k, nil)
	if err != nil {
		return err
	}
	for q := range min(shown, found.Rows()) {
		ids, distances := found.Row(q)
		fmt.Println("row", q)
		for i, id := range ids {
			fmt.Printf("  %8d at %v\n", id, distances[i])
		}
	}
	exact, err := index.SearchExact(ctx, queries, k, nil)
	if err != nil {
		return err
	}
	fmt.Printf("recall@%d of %d rows: %.4f\n", k, found.Rows(), recall(found, exact))
	return nil
}

// read reads a whole file of vectors.
func read[T gannet.Element](path string) (data []T, dim int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	status, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	var shape struct{ Rows, Dim uint32 }
	reader := bufio.NewReaderSize(file, 1<<20)
	if err := binary.Read(reader, binary.LittleEndian, &shape); err != nil {
		return nil, 0, err
	}
	// The size is checked before memory is taken for it.
	values := uint64(shape.Rows) * uint64(shape.Dim)
	size := uint64(binary.Size(*new(T)))
	if rest := uint64(status.Size()) - 8; values > rest/size || values*size != rest {
		return nil, 0, fmt.Errorf("%d bytes do not hold %d rows of %d", status.Size(), shape.Rows, shape.Dim)
	}
	data = make([]T, values)
	// A part at a time, since binary.Read copies what it reads.
	for at := 0; at < len(data); {
		part := data[at:min(at+1<<16, len(data))]
		if err := binary.Read(reader, binary.LittleEndian, part); err != nil {
			return nil, 0, err
		}
		at += len(part)
	}
	return data, int(shape.Dim), nil
}

// recall is the share of the exact neighbours that were found.
func recall(found, exact *gannet.Results) float64 {
	hits, all := 0, 0
	for q := range exact.Rows() {
		wanted := map[uint64]bool{}
		ids, _ := exact.Row(q)
		for _, id := range ids {
			wanted[id] = true
		}
		all += len(ids)
		ids, _ = found.Row(q)
		for _, id := range ids {
			if wanted[id] {
				hits++
			}
		}
	}
	return float64(hits) / float64(max(all, 1))
}

package gannet

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"testing"
)

// goldenCase is one of the searches that all bindings share; tests/golden/make_cases.py documents
// the format.
type goldenCase struct {
	Name      string
	Metric    string
	Element   string
	Dim       int
	Rows      [][]float64
	Queries   [][]float64
	K         int
	IDs       [][]*uint64
	Distances [][]any
}

var metrics = map[string]Metric{"l2": MetricL2, "ip": MetricInnerProduct, "cosine": MetricCosine}

func TestGolden(t *testing.T) {
	text, err := os.ReadFile("../../tests/golden/cases.json")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the cases lie in the source tree, and this is a module of its own")
	}
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []goldenCase }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			switch c.Element {
			case "f32":
				golden(t, c, func(x float64) float32 { return float32(x) })
			case "f16":
				golden(t, c, func(x float64) F16 { return ToF16(float32(x)) })
			case "bf16":
				golden(t, c, func(x float64) BF16 { return ToBF16(float32(x)) })
			case "i8":
				golden(t, c, func(x float64) int8 { return int8(x) })
			case "u8":
				golden(t, c, func(x float64) uint8 { return uint8(x) })
			default:
				t.Fatal("unknown element", c.Element)
			}
		})
	}
}

func golden[T Element](t *testing.T, c goldenCase, convert func(float64) T) {
	rows, queries := flat(c.Rows, convert), flat(c.Queries, convert)
	index, err := New(IndexParams{Dim: c.Dim, Metric: metrics[c.Metric]})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	if err := index.Build(context.Background(), MatrixOf(rows, c.Dim), nil, nil); err != nil {
		t.Fatal(err)
	}
	compare(t, c, searchExact(t, index, MatrixOf(queries, c.Dim), c.K))
	found, err := index.Search(context.Background(), MatrixOf(queries, c.Dim), c.K,
		&SearchParams{Procedure: ProcedureExact})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, c, found)
	for i := range c.Rows {
		row, found, err := Get[T](index, uint64(i))
		if err != nil || !found {
			t.Fatal(i, found, err)
		}
		for j := range row {
			if row[j] != rows[i*c.Dim+j] {
				t.Fatalf("row %d is %v", i, row)
			}
		}
	}
}

func flat[T Element](vectors [][]float64, convert func(float64) T) []T {
	var all []T
	for _, vector := range vectors {
		for _, x := range vector {
			all = append(all, convert(x))
		}
	}
	return all
}

func compare(t *testing.T, c goldenCase, found *Results) {
	t.Helper()
	tolerance := 0.0
	if c.Metric == "cosine" {
		tolerance = 1e-6
	}
	for q := range c.Queries {
		count := 0
		for i := range c.K {
			id, distance := IDNone, math.Inf(1)
			if c.IDs[q][i] != nil {
				id, distance = *c.IDs[q][i], c.Distances[q][i].(float64)
				count++
			}
			gotID, got := found.IDs[q*c.K+i], float64(found.Distances[q*c.K+i])
			if gotID != id || got != distance && !(math.Abs(got-distance) <= tolerance) {
				t.Errorf("query %d, place %d: id %d at %v, not id %d at %v", q, i, gotID, got, id, distance)
			}
		}
		if ids, _ := found.Row(q); len(ids) != count {
			t.Errorf("query %d: %d neighbours, not %d", q, len(ids), count)
		}
	}
}

package gannet

import (
	"math"
	"testing"
)

// Every number of 16 bits survives the way to float32 and back, and what lies between two of them
// goes to the nearer one, ties to even.
func TestConversions(t *testing.T) {
	round(t, "F16", 0x7c00, func(b uint16) float32 { return F16(b).Float32() },
		func(x float32) uint16 { return uint16(ToF16(x)) })
	round(t, "BF16", 0x7f80, func(b uint16) float32 { return BF16(b).Float32() },
		func(x float32) uint16 { return uint16(ToBF16(x)) })
}

func round(t *testing.T, name string, infinity uint16, wide func(uint16) float32, narrow func(float32) uint16) {
	t.Helper()
	for _, sign := range []uint16{0, 0x8000} {
		for b := range infinity {
			b := b | sign
			x, next := float64(wide(b)), float64(wide(b+1))
			if got := narrow(float32(x)); got != b {
				t.Fatalf("%s %#x is %v and comes back as %#x", name, b, x, got)
			}
			if math.IsInf(next, 0) {
				continue
			}
			middle := float32((x + next) / 2)
			if float64(middle) != (x+next)/2 {
				continue // below the smallest float32
			}
			even := b + b&1
			if got := narrow(middle); got != even {
				t.Fatalf("%s: %v between %#x and %#x goes to %#x", name, middle, b, b+1, got)
			}
			down := float32(math.Nextafter32(middle, float32(x)))
			up := float32(math.Nextafter32(middle, float32(next)))
			if down != float32(x) && narrow(down) != b || up != float32(next) && narrow(up) != b+1 {
				t.Fatalf("%s: near %v", name, middle)
			}
		}
		if x := float64(wide(infinity | sign)); !math.IsInf(x, 0) || narrow(float32(x)) != infinity|sign {
			t.Fatalf("%s: infinity is %v", name, x)
		}
	}
	if x := wide(infinity + 1); x == x {
		t.Fatalf("%s: NaN is %v", name, x)
	}
	if x := wide(narrow(float32(math.NaN()))); x == x {
		t.Fatalf("%s: NaN becomes %v", name, x)
	}
	if narrow(math.MaxFloat32) != infinity || narrow(-math.MaxFloat32) != infinity|0x8000 {
		t.Fatalf("%s: too large", name)
	}
}

func TestF16Limits(t *testing.T) {
	for _, c := range []struct {
		x    float32
		want F16
	}{{65504, 0x7bff}, {65519.996, 0x7bff}, {65520, 0x7c00}, {1, 0x3c00}, {-2, 0xc000},
		{1.0 / (1 << 25), 0}, {1.5 / (1 << 25), 1}, {1.0 / (1 << 14), 0x400}} {
		if got := ToF16(c.x); got != c.want {
			t.Errorf("ToF16(%v) is %#x, not %#x", c.x, got, c.want)
		}
	}
}

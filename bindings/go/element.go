package gannet

import (
	"math"
	"unsafe"
)

// Element is the type of one coordinate of a vector.
type Element interface {
	float32 | F16 | BF16 | int8 | uint8
}

// F16 holds the bits of an IEEE binary16 number: 11 significant bits, up to 65,504.
type F16 uint16

// BF16 holds the upper half of a float32: its range with 8 significant bits.
type BF16 uint16

// ToF16 rounds to the nearest F16, ties to even. Numbers too large become infinite.
func ToF16(x float32) F16 {
	bits := math.Float32bits(x)
	sign, size := F16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case size > 0x7f800000: // NaN stays NaN
		return sign | 0x7e00
	case size >= 0x477ff000: // halfway from 65,504 to the next power of two, and beyond
		return sign | 0x7c00
	case size < 0x38800000: // below 2^-14: adding 1/2 leaves multiples of 2^-24 in the low bits
		return sign | F16(math.Float32bits(math.Float32frombits(size)+0.5)-0x3f000000)
	}
	even := size >> 13 & 1
	return sign | F16((size-0x38000000+0xfff+even)>>13)
}

// Float32 gives the number exactly.
func (x F16) Float32() float32 {
	sign, exponent, fraction := uint32(x&0x8000)<<16, uint32(x>>10&0x1f), uint32(x&0x3ff)
	switch exponent {
	case 0:
		tiny := float32(fraction) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(tiny))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// ToBF16 rounds to the nearest BF16, ties to even. Numbers too large become infinite.
func ToBF16(x float32) BF16 {
	bits := math.Float32bits(x)
	if bits&0x7fffffff > 0x7f800000 { // NaN stays NaN
		return BF16(bits>>16 | 0x40)
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 gives the number exactly.
func (x BF16) Float32() float32 {
	return math.Float32frombits(uint32(x) << 16)
}

// Matrix is a view of vectors, one a row, in memory that the caller keeps. The library copies what
// it needs from it during a call; after the call the memory is the caller's again. There is no
// borrowing from Go, since the garbage collector owns Go's memory.
type Matrix struct {
	data    *byte
	element ElementType
	length  int // coordinates, without what lies between rows
	dim     int
	stride  int // bytes; 0: rows lie one behind the other

	// In memory of a CUDA device: where, and the buffer if it is one of this package.
	space   Device
	address uintptr
	memory  *deviceMemory
	keep    any // that buffer, which must not be collected while a view of it is used
}

// MatrixOf views data as rows of dim coordinates each. The slice holds a whole number of rows; a
// call that gets another slice fails with [ErrInvalidArgument].
func MatrixOf[T Element](data []T, dim int) Matrix {
	return Matrix{
		data:    (*byte)(unsafe.Pointer(unsafe.SliceData(data))),
		element: ElementOf[T](),
		length:  len(data),
		dim:     dim,
	}
}

// Rows is the number of whole rows.
func (m Matrix) Rows() int {
	if m.dim <= 0 {
		return 0
	}
	return m.length / m.dim
}

// Dim is the number of columns.
func (m Matrix) Dim() int { return m.dim }

// Element is the type of the coordinates.
func (m Matrix) Element() ElementType { return m.element }

// ElementOf names the element type T.
func ElementOf[T Element]() ElementType {
	switch any(*new(T)).(type) {
	case float32:
		return ElementF32
	case F16:
		return ElementF16
	case BF16:
		return ElementBF16
	case int8:
		return ElementI8
	default:
		return ElementU8
	}
}

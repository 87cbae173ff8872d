// Package gannet finds, among many stored vectors ("rows"), the k that lie nearest to a query. It is
// a thin layer over the C library libgannet; the header ann.h says what every number means, and no
// default lives here.
//
//	index, err := gannet.New(gannet.IndexParams{Dim: 128})
//	...
//	defer index.Close()
//	err = index.Build(ctx, gannet.MatrixOf(rows, 128), nil, nil)
//	...
//	found, err := index.Search(ctx, gannet.MatrixOf(queries, 128), 10, nil)
//	...
//	ids, distances := found.Row(0)
//
// # Vectors
//
// A [Matrix] is a view of a slice of float32, [F16], [BF16], int8 or uint8. The library copies what
// it keeps.
//
// # Goroutines and contexts
//
// Everything may be called from any number of goroutines. Long calls take a context and stop within
// 100 ms of its end; their error then wraps ctx.Err(). A few times GOMAXPROCS calls run at once and
// the others wait, without a thread each; the context ends the waiting, too.
//
// # GPUs
//
// SearchParams.Device and BuildParams.Device choose a CUDA device for vectors in host memory;
// [Index.Place] and [Index.Evict] say when the index's copy is there. [DeviceBuffer], [DeviceResults] and
// [Stream] serve programs whose vectors are on the device: [Index.SearchOnDevice], [Index.SearchQueued].
//
// # Files
//
// [Index.Save] replaces a file whole or not at all; [Open] gives the index back and refuses a file of
// which a byte has changed. [Index.SaveTo] and [OpenFrom] do the same with streams.
//
// # Errors
//
// Errors of the library are of type *[Error] and match sentinels such as [ErrLimit] by errors.Is.
//
// # Finding the library
//
// cgo asks pkg-config for "gannet". With the build tag gannet_static it links libgannet.a, which
// pkg-config --static describes. With the build tag gannet_tree the package uses the header and the
// library of the checkout that it lies in.
package gannet

// #include "bridge.h"
import "C"

// Version is that of the library, as "major.minor.patch".
func Version() string { return C.GoString(C.ann_version()) }

// BuildInfo is what the library was built with, for bug reports.
func BuildInfo() string { return C.GoString(C.ann_build_info()) }

// DeviceInfo describes a device.
type DeviceInfo struct {
	Device       Device
	Name         string
	MemoryTotal  uint64 // bytes
	MemoryFree   uint64 // bytes, at the moment of asking
	ComputeUnits int    // hardware threads, or multiprocessors
	Capability   int    // CUDA: 10 * major + minor; CPU: 0
}

// Devices lists the devices, the CPU first. Without a CUDA device, reason says why there is none.
// This asks the CUDA driver, which costs some 100 ms at first; nothing on the CPU's path does.
func Devices() (list []DeviceInfo, reason string, err error) {
	var count C.uint32_t
	var why *C.char
	var e C.ann_error
	if status := C.gn_device_count(&count, &why, &e); status != C.ANN_OK {
		return nil, "", failure(status, &e, nil)
	}
	for i := range Device(count) {
		device, err := i.info()
		if err != nil {
			return nil, "", err
		}
		list = append(list, device)
	}
	return list, C.GoString(why), nil
}

// info describes the device at a place of the list: the CPU is the first, CUDA devices follow.
func (place Device) info() (DeviceInfo, error) {
	var i C.ann_device_info
	var e C.ann_error
	if status := C.gn_device_info(C.int32_t(DeviceCPU+place), &i, &e); status != C.ANN_OK {
		return DeviceInfo{}, failure(status, &e, nil)
	}
	return DeviceInfo{
		Device:       Device(i.device),
		Name:         C.GoString(&i.name[0]),
		MemoryTotal:  uint64(i.memory_total),
		MemoryFree:   uint64(i.memory_free),
		ComputeUnits: int(i.compute_units),
		Capability:   int(i.capability),
	}, nil
}

//go:build gannet_static && !gannet_tree

package gannet

// libgannet.a, named by its file so that libgannet.so beside it is not taken; gannet.pc says where it is and
// what it needs beside itself. The pkg-config line names the shared library too, which --as-needed leaves
// out where the archive has given everything.

// #cgo LDFLAGS: -Wl,--as-needed -l:libgannet.a
// #cgo pkg-config: --static gannet
import "C"

//go:build gannet_tree && !gannet_static

package gannet

// In a checkout the header and the library lie beside this folder. The run path lets a test binary
// start without LD_LIBRARY_PATH; CGO_CFLAGS and CGO_LDFLAGS come before these and so win.

// #cgo CFLAGS: -I${SRCDIR}/../../capi/include
// #cgo LDFLAGS: -L${SRCDIR}/../../build -lgannet -Wl,-rpath,${SRCDIR}/../../build
import "C"

//go:build gannet_tree && gannet_static

package gannet

// As link_tree.go, with libgannet.a. What an archive with CUDA code needs besides stands in CGO_LDFLAGS.

// #cgo CFLAGS: -I${SRCDIR}/../../capi/include
// #cgo LDFLAGS: -L${SRCDIR}/../../build -l:libgannet.a -lstdc++ -lm -lpthread -ldl -lrt
import "C"

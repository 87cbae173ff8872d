//go:build gannet_tree && gannet_static

package gannet

// As link_tree.go, with libgannet.a. CGO_LDFLAGS has the other libraries of an archive with CUDA code.

// #cgo CFLAGS: -I${SRCDIR}/../../capi/include
// #cgo LDFLAGS: -L${SRCDIR}/../../build -l:libgannet.a -lstdc++ -lm -lpthread -ldl -lrt
import "C"

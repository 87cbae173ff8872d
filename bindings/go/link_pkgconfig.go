//go:build !gannet_tree && !gannet_static

package gannet

// An installed library is found through its gannet.pc.

// #cgo pkg-config: gannet
import "C"

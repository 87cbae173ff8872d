//go:build !gannet_tree

package gannet

// An installed library is found through its gannet.pc.

// #cgo pkg-config: gannet
import "C"

module github.com/gannet-ann/gannet/examples/go

go 1.24

require github.com/gannet-ann/gannet/bindings/go v0.0.0

replace github.com/gannet-ann/gannet/bindings/go => ../../bindings/go

module github.com/gannet-ann/gannet/bindings/go

go 1.24

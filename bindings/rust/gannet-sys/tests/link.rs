//! The library that was found is one that these bindings are made for.

use gannet_sys as sys;

#[test]
fn the_library_is_compatible() {
    let library = unsafe { sys::ann_abi_version() };
    assert_eq!(library >> 16, sys::ANN_ABI_VERSION >> 16);
    assert!(library >= sys::ANN_ABI_VERSION, "the library is older than the bindings");
}

#[test]
fn defaults_are_the_init_macros() {
    let params = sys::ann_build_params::default();
    assert_eq!(params.struct_size as usize, size_of::<sys::ann_build_params>());
    assert_eq!((params.degree, params.seed), (0, 0));
    assert!(params.knn_graph.is_null() && params.calibration.is_null());
}

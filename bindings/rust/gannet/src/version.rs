//! Section 1 of the header.

use std::ffi::{c_char, CStr};

use crate::sys;

/// A text that lives as long as the library.
///
/// # Safety
///
/// `text` is null or such a text.
pub(crate) unsafe fn static_text(text: *const c_char) -> &'static str {
    if text.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

/// The version of the library as `"major.minor.patch"`.
///
/// ```
/// assert_eq!(gannet::version().split('.').count(), 3);
/// ```
pub fn version() -> &'static str {
    // SAFETY: the header says that the text lives as long as the library.
    unsafe { static_text(sys::ann_version()) }
}

/// The version of the library's binary interface. Additions raise the low 16 bits, anything else
/// the high 16.
///
/// ```
/// println!("{:#010x}", gannet::abi_version());
/// ```
pub fn abi_version() -> u32 {
    // SAFETY: takes and touches nothing.
    unsafe { sys::ann_abi_version() }
}

/// Whether the library that was loaded has the binary interface that this crate was made for.
///
/// ```
/// assert!(gannet::is_compatible());
/// ```
pub fn is_compatible() -> bool {
    abi_version() >> 16 == sys::ANN_ABI_VERSION >> 16
}

/// A description of the build, for bug reports: compiler, CUDA, and the instruction set that
/// this process uses.
///
/// ```
/// println!("{}", gannet::build_info());
/// ```
pub fn build_info() -> &'static str {
    // SAFETY: the header says that the text lives as long as the library.
    unsafe { static_text(sys::ann_build_info()) }
}

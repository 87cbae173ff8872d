//! Section 5 of the header.

use std::ptr::{null, null_mut, NonNull};

use crate::error::{check, Result};
use crate::sys;

/// Settings of a [`Context`].
///
/// ```
/// let params = gannet::ContextParams::new().threads_max(2);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ContextParams {
    raw: sys::ann_context_params,
}

// SAFETY: the pointers in `raw` stay null.
unsafe impl Send for ContextParams {}
unsafe impl Sync for ContextParams {}

impl Default for ContextParams {
    fn default() -> Self {
        Self::new()
    }
}

impl ContextParams {
    /// Everything as the library chooses.
    pub fn new() -> Self {
        ContextParams { raw: Default::default() }
    }

    setters! {
        /// No call uses more threads than this.
        threads_max: u32;
    }
}

/// The common settings of several indexes: a bound on threads. Optional; indexes made with a context keep what
/// they need of it, so it may be dropped before them.
///
/// ```
/// use gannet::{Context, ContextParams, Index, IndexParams};
///
/// let context = Context::new(&ContextParams::new().threads_max(1))?;
/// let index = Index::with_context(&context, &IndexParams::new(3))?;
/// # Ok::<(), gannet::Error>(())
/// ```
#[derive(Debug)]
pub struct Context {
    raw: NonNull<sys::ann_context>,
}

// SAFETY: the library takes it as const, which any number of threads may do at once.
unsafe impl Send for Context {}
unsafe impl Sync for Context {}

impl Context {
    /// Makes a context.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument), [`NoMemory`](crate::Status::NoMemory).
    pub fn new(params: &ContextParams) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: params and raw live through the call.
        check(|error| unsafe { sys::ann_context_create(&params.raw, &mut raw, error) })?;
        Ok(Context { raw: not_null(raw)? })
    }

    /// The pointer for a call; null for no context.
    pub(crate) fn pointer(context: Option<&Self>) -> *const sys::ann_context {
        context.map_or(null(), |context| context.raw.as_ptr())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by ann_context_create and freed once.
        unsafe { sys::ann_context_free(self.raw.as_ptr()) }
    }
}

/// A handle that a `_create` has returned with success is not null.
pub(crate) fn not_null<T>(raw: *mut T) -> Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(|| {
        crate::Error::new(crate::Status::Internal, "the library returned a null handle")
    })
}

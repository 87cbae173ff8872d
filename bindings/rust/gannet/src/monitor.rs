//! Section 6 of the header.

use std::ptr::{null_mut, NonNull};
use std::time::Duration;

use crate::context::not_null;
use crate::error::{check, Result};
use crate::sys;
use crate::version::static_text;

/// Watches and stops a long call from other threads. One call at a time reports its progress to a
/// monitor; share it in an `Arc` or by reference.
///
/// ```
/// use gannet::{BuildParams, Index, IndexParams, Matrix, Monitor, Status};
///
/// let monitor = Monitor::new()?;
/// monitor.cancel(); // from any thread, at any time
///
/// let rows = vec![1.0f32; 8];
/// let index = Index::new(&IndexParams::new(2))?;
/// let params = BuildParams::new().monitor(&monitor);
/// let error = index.build(Matrix::new(&rows, 2)?, &params).unwrap_err();
/// assert_eq!(error.status(), Status::Cancelled);
///
/// monitor.reset();
/// index.build(Matrix::new(&rows, 2)?, &params)?;
/// assert_eq!(monitor.progress()?.fraction, 1.0);
/// # Ok::<(), gannet::Error>(())
/// ```
#[derive(Debug)]
pub struct Monitor {
    raw: NonNull<sys::ann_monitor>,
}

// SAFETY: all functions of a monitor but create and free may be called from any thread.
unsafe impl Send for Monitor {}
unsafe impl Sync for Monitor {}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Progress {
    /// Place of the phase in the call, from 1; 0: nothing has run.
    pub step: u32,
    /// Share of the whole call that is done, 0 to 1. Never falls during a call.
    pub fraction: f64,
    /// Name of the phase.
    pub phase: &'static str,
}

impl Monitor {
    /// Makes a monitor.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](crate::Status::NoMemory).
    pub fn new() -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: raw lives through the call.
        check(|error| unsafe { sys::ann_monitor_create(&mut raw, error) })?;
        Ok(Monitor { raw: not_null(raw)? })
    }

    /// Asks the running call, and every later one, to stop: it fails with
    /// [`Status::Cancelled`](crate::Status::Cancelled) within 100 ms. Stays until
    /// [`reset`](Self::reset).
    pub fn cancel(&self) {
        // SAFETY: the handle is alive; any thread may call this.
        unsafe { sys::ann_monitor_cancel(self.raw.as_ptr()) }
    }

    /// Takes back cancel, deadline and progress.
    pub fn reset(&self) {
        // SAFETY: the handle is alive; any thread may call this.
        unsafe { sys::ann_monitor_reset(self.raw.as_ptr()) }
    }

    /// Calls fail with [`Status::Deadline`](crate::Status::Deadline) once `from_now` has passed.
    ///
    /// ```
    /// let monitor = gannet::Monitor::new()?;
    /// monitor.set_deadline(std::time::Duration::from_secs(5));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn set_deadline(&self, from_now: Duration) {
        // Zero would take the deadline back.
        let nanoseconds = u64::try_from(from_now.as_nanos()).unwrap_or(u64::MAX).max(1);
        // SAFETY: the handle is alive; any thread may call this.
        unsafe { sys::ann_monitor_set_deadline(self.raw.as_ptr(), nanoseconds) }
    }

    /// Takes the deadline back.
    pub fn clear_deadline(&self) {
        // SAFETY: the handle is alive; any thread may call this.
        unsafe { sys::ann_monitor_set_deadline(self.raw.as_ptr(), 0) }
    }

    /// Reads the progress.
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(gannet::Monitor::new()?.progress()?.step, 0);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn progress(&self) -> Result<Progress> {
        let mut raw = sys::ann_progress::default();
        // SAFETY: the handle is alive and raw lives through the call.
        check(|error| unsafe { sys::ann_monitor_progress(self.raw.as_ptr(), &mut raw, error) })?;
        // SAFETY: the name lives as long as the library.
        let phase = unsafe { static_text(raw.phase) };
        Ok(Progress { step: raw.step, fraction: raw.fraction, phase })
    }

    /// The pointer for a call; null for no monitor.
    pub(crate) fn pointer(monitor: Option<&Self>) -> *mut sys::ann_monitor {
        monitor.map_or(null_mut(), |monitor| monitor.raw.as_ptr())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // SAFETY: made by ann_monitor_create and freed once; calls that use it borrow it.
        unsafe { sys::ann_monitor_free(self.raw.as_ptr()) }
    }
}

//! Streams of the caller, as the library calls them back.

use std::any::Any;
use std::ffi::c_void;
use std::io::{self, ErrorKind, Read, Write};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::slice::{from_raw_parts, from_raw_parts_mut};

use crate::error::{Result, Status};

/// A stream during one call, and what went wrong with it.
pub(crate) struct Stream<'a, S: ?Sized> {
    stream: &'a mut S,
    error: Option<io::Error>,
    panic: Option<Box<dyn Any + Send>>,
}

/// What tells the library that a stream failed; [`Stream::finish`] says why.
const FAILED: i64 = -5; // EIO

/// A reader fills at most this much at a time, since the memory is cleared for it first.
const READ_MAX: u64 = 1 << 16;

impl<'a, S: ?Sized> Stream<'a, S> {
    pub fn new(stream: &'a mut S) -> Self {
        Stream { stream, error: None, panic: None }
    }

    /// For the `user` field of a callback.
    pub fn user(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    /// Moves some bytes. Nothing unwinds into the library.
    fn step(&mut self, mut call: impl FnMut(&mut S) -> io::Result<usize>) -> i64 {
        let stream = &mut *self.stream;
        match catch_unwind(AssertUnwindSafe(|| loop {
            match call(stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        })) {
            Ok(Ok(bytes)) => return i64::try_from(bytes).unwrap_or(FAILED),
            Ok(Err(error)) => self.error = Some(error),
            Err(panic) => self.panic = Some(panic),
        }
        FAILED
    }

    /// The outcome of the call: goes on with a panic, and puts the stream's error in its place.
    pub fn finish<T>(self, outcome: Result<T>) -> Result<T> {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
        match (outcome, self.error) {
            (Err(error), Some(cause)) if error.status() == Status::Io => {
                Err(error.of_stream(cause))
            }
            (outcome, _) => outcome,
        }
    }
}

/// The callback of `ann_writer`.
///
/// # Safety
///
/// `user` is of a [`Stream`] over a `W` that nothing else uses; `data` has `bytes` bytes.
pub(crate) unsafe extern "C" fn write<W: Write + ?Sized>(
    user: *mut c_void,
    data: *const c_void,
    bytes: u64,
) -> i64 {
    // SAFETY: the caller's promise.
    let (stream, data) = unsafe {
        (&mut *user.cast::<Stream<'_, W>>(), from_raw_parts(data.cast::<u8>(), bytes as usize))
    };
    stream.step(|stream| match stream.write(data) {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        // What it has written in truth nobody knows.
        Ok(claimed) if claimed > data.len() => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("it claims to have written {claimed} of {} bytes", data.len()),
        )),
        outcome => outcome,
    })
}

/// The callback of `ann_reader`.
///
/// # Safety
///
/// `user` is of a [`Stream`] over an `R` that nothing else uses; `data` has room for `bytes` bytes.
pub(crate) unsafe extern "C" fn read<R: Read + ?Sized>(
    user: *mut c_void,
    data: *mut c_void,
    bytes: u64,
) -> i64 {
    let (data, bytes) = (data.cast::<u8>(), bytes.min(READ_MAX) as usize);
    // SAFETY: the caller's promise; a slice must be of bytes that have values.
    let (stream, data) = unsafe {
        data.write_bytes(0, bytes);
        (&mut *user.cast::<Stream<'_, R>>(), from_raw_parts_mut(data, bytes))
    };
    // A reader that claims more than it was given room for has filled that at most; what it left out is
    // zeros, which the sums of a file find.
    stream.step(|stream| Ok(stream.read(data)?.min(data.len())))
}
